"""``holdfast top``: queues, running jobs, workers and failures, live in a terminal."""

from __future__ import annotations

import click

from holdfast.app import Holdfast
from holdfast.cli.common import on_store, url_option
from holdfast.cli.top.screen import is_terminal, show_once, watch


@click.command()
@click.option("--interval", default=1.0, show_default=True, help="Seconds between updates.")
@click.option("--once", is_flag=True, help="Print once and exit.")
@url_option
def top(interval: float, once: bool, url: str | None) -> None:
    """Watch queues, running jobs, workers and failures live.

    Keys: q quits, p pauses the display, left and right select a list, up and down scroll it.
    Without a terminal it prints once.
    """

    async def show(app: Holdfast) -> None:
        if once or not is_terminal():
            await show_once(app)
        else:
            await watch(app, max(0.1, interval))

    on_store(url, show)


__all__ = ["top"]
