"""Draws a board as lines of text that fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from holdfast.cli.top.board import Board, Listing
from holdfast.observe.logging import plain

LEAST = 3
"""The rows that a list keeps on the smallest terminal."""
WIDEST = 36
KEYS = "q quit  p pause  ←→ list  ↑↓ scroll"


class View(msgspec.Struct, frozen=True):
    """What the user selected."""

    chosen: int = 0
    offset: int = 0
    paused: bool = False
    note: str = ""


def draw(board: Board, view: View, width: int, height: int) -> list[str]:
    """Return at most ``height`` lines of at most ``width`` visible characters."""
    state = "  PAUSED" if view.paused else ""
    lines = [_styled(f"holdfast top  {board.place}{state}  {KEYS}", width, bold=True)]
    if view.note:
        lines.append(_styled(view.note, width, fg="red"))
    lines += [_styled(line, width) for line in board.summary]
    room = _rooms(board.lists, height - len(lines), view.chosen)
    for n, (listing, rows) in enumerate(zip(board.lists, room, strict=True)):
        offset = view.offset if n == view.chosen else 0
        lines += _listing(listing, rows, width, offset=offset, chosen=n == view.chosen)
    return lines[:height]


def _rooms(lists: Sequence[Listing], height: int, chosen: int) -> list[int]:
    """Return the rows each list may show: every list gets a few, the selected one the rest."""
    frame = 3  # a blank line, the title, the head
    left = height - frame * len(lists)
    rooms = [min(len(each.rows), LEAST) for each in lists]
    for n in [chosen, *range(len(lists))]:
        more = min(len(lists[n].rows) - rooms[n], max(0, left - sum(rooms)))
        rooms[n] += max(0, more)
    return rooms


def _listing(listing: Listing, rows: int, width: int, *, offset: int, chosen: bool) -> list[str]:
    first = max(0, min(offset, len(listing.rows) - rows))
    shown = [[plain(cell, 200) for cell in row] for row in listing.rows[first : first + rows]]
    columns = list(zip(listing.head, *shown, strict=True))
    widths = [min(WIDEST, max(map(len, column))) for column in columns[:-1]]
    where = f" {first + 1}-{first + len(shown)} of {len(listing.rows)}" if shown else " none"
    title = f"{'>' if chosen else ' '} {listing.title}{where}"
    lines = ["", _styled(title, width, bold=chosen, fg="cyan")]
    if shown:
        lines.append(_styled(_row(listing.head, widths), width, dim=True))
    lines += [_styled(_row(row, widths), width) for row in shown]
    return lines


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    *front, last = cells
    padded = [_cut(cell, width).ljust(width) for cell, width in zip(front, widths, strict=True)]
    return "  ".join(["", *padded, last]).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _styled(
    text: str, width: int, *, bold: bool = False, dim: bool = False, fg: str | None = None
) -> str:
    return click.style(_cut(text, width), bold=bold or None, dim=dim or None, fg=fg)
