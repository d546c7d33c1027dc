"""``holdfast demo``: everything at once on a temporary SQLite file, gone afterwards."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import click

from holdfast.cli.errors import FAILED, CommandError

PATIENCE = 60.0
"""How long the whole demonstration may take on a slow machine, in seconds."""


@click.command()
def demo() -> None:
    """See it all happen within seconds, on a temporary SQLite file.

    Jobs of several kinds, a retry, a dead letter, a chain with fan-in, a CPU-bound job with
    progress, a worker killed on purpose and a runaway loop cancelled. Nothing is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        os.environ["HOLDFAST_URL"] = url
        if not asyncio.run(_play(Path(folder), url)):
            raise click.exceptions.Exit(FAILED)


async def _play(folder: Path, url: str) -> bool:
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.story import Story
    from holdfast.cli.demo.tasks import app
    from holdfast.cli.demo.workers import workers

    screen = Screen()
    story = Story(app, screen)
    click.echo("Two worker processes and one SQLite file that will be gone afterwards.")
    async with app, workers(folder, url) as log:
        following = asyncio.create_task(screen.follow(app.events(after=None)))
        try:
            async with asyncio.timeout(PATIENCE):
                await story.play()
        except TimeoutError:
            told = log.read_text("utf-8", "replace")
            raise CommandError(f"this takes too long; the workers say:\n{told}", FAILED) from None
        finally:
            following.cancel()
        return await story.summary()
