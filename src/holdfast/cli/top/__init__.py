"""``holdfast top``: what happens in a queue, live in a terminal."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.common import on_store, url_option
from holdfast.cli.top.screen import is_terminal, show_once, watch


@click.command()
@click.option("--interval", default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Print one look and leave.")
@url_option
def top(interval: float, once: bool, url: str | None) -> None:
    """Watch queues, running jobs, workers and failures live.

    Keys: q leaves, p holds the picture still, left and right choose a list, up and down
    scroll it. Without a terminal it prints one look.
    """

    async def look(app: Holdfast) -> None:
        if once or not is_terminal():
            await show_once(app)
        else:
            await watch(app, max(0.1, interval))

    on_store(url, look)


__all__ = ["top"]
