"""``holdfast demo``: a short demonstration on a temporary SQLite file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import click

from holdfast.cli.errors import FAILED, CommandError

LONGEST = 60.0
"""The longest time for the whole demonstration on a slow machine, in seconds."""


@click.command()
def demo() -> None:
    """Run a short demonstration on a temporary SQLite file.

    It shows jobs of several kinds, a retry, a dead letter, a chain with fan-in, a CPU-bound job
    with progress, recovery of a killed worker's job and the cancellation of a runaway loop.
    It removes everything afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        os.environ["HOLDFAST_URL"] = url
        if not asyncio.run(_play(Path(folder), url)):
            raise click.exceptions.Exit(FAILED)


async def _play(folder: Path, url: str) -> bool:
    from holdfast.cli.demo.scenes import Scenes
    from holdfast.cli.demo.screen import Screen
    from holdfast.cli.demo.tasks import app
    from holdfast.cli.demo.workers import workers

    screen = Screen()
    scenes = Scenes(app, screen)
    click.echo("Two worker processes and one SQLite file, removed afterwards.")
    async with app, workers(folder, url) as log:
        following = asyncio.create_task(screen.follow(app.events(after=None)))
        try:
            async with asyncio.timeout(LONGEST):
                await scenes.play()
        except TimeoutError:
            lines = log.read_text("utf-8", "replace")
            raise CommandError(
                f"not finished within {LONGEST:g} s; the workers logged:\n{lines}", FAILED
            ) from None
        finally:
            following.cancel()
        return await scenes.summary()
