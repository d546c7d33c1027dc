"""Text for people: tables that fit the terminal, short times and durations."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from holdfast.model.job import Priority, State
from holdfast.observe.logging import plain

COLOURS = {
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.DEAD_LETTER: "red",
    State.RETRYING: "yellow",
    State.CANCELLED: "bright_black",
}
MEANINGS = {State.SCHEDULED: "ready to run", State.DELAYED: "waits for its time"}
GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a head; the last column takes the rest of the terminal's width."""
    texts = [[plain(cell, 200) for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(head, *texts, strict=True)]
    room = _width() - sum(width + len(GAP) for width in widths[:-1])
    last = max(20, room)
    click.secho(GAP.join(t.ljust(w) for t, w in zip(head, widths, strict=True)).rstrip(), bold=True)
    for row, cells in zip(rows, texts, strict=True):
        *front, end = cells
        shown = [t.ljust(w) for t, w in zip(front, widths, strict=False)]
        shown.append(end if len(end) <= last else end[: last - 1] + "…")
        colours = [COLOURS.get(cell) if isinstance(cell, State) else None for cell in row]
        line = GAP.join(click.style(t, fg=c) for t, c in zip(shown, colours, strict=True))
        click.echo(line.rstrip())


def facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Print a name and a value per line; empty values are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "", {}, ())]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        text = plain(value, 2000)
        colour = COLOURS.get(value) if isinstance(value, State) else None
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {click.style(text, fg=colour)}")


def moment(value: datetime | None) -> str:
    """Show a time as local time of day, with the date."""
    return value.astimezone().strftime("%Y-%m-%d %H:%M:%S") if value else "-"


def moment_in(zone: str, value: datetime) -> str:
    """Show a time in a zone, with the zone's short name."""
    try:
        return value.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")
    except (ZoneInfoNotFoundError, ValueError):  # this machine does not know it
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def span(value: timedelta | float | None) -> str:
    """Show a duration: 12 ms, 3.4 s, 5 min, 2.0 h, 3.1 d."""
    if value is None:
        return "-"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for limit, unit, size in (
        (1, "ms", 0.001),
        (100, "s", 1),
        (6000, "min", 60),
        (172800, "h", 3600),
    ):
        if seconds < limit:
            amount = seconds / size
            return (
                f"{amount:.0f} {unit}" if amount >= 10 or unit == "ms" else f"{amount:.1f} {unit}"
            )
    return f"{seconds / 86400:.1f} d"


def state_shown(state: State | None) -> str:
    """Show a state with its meaning where the name alone misleads."""
    meaning = MEANINGS.get(state) if state else None
    return f"{state} ({meaning})" if meaning else str(state or "")


def level(priority: int) -> str:
    """Show a priority by its name."""
    return Priority(priority).name if priority in set(Priority) else str(priority)


def mapping(values: object) -> str:
    """Show a map as ``a=1 b=2``."""
    return " ".join(f"{k}={v}" for k, v in values.items()) if isinstance(values, dict) else ""


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
