"""The terminal: drawn in place, read key by key, restored at the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator

import click
from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.cli.top.board import Board, read_board
from holdfast.cli.top.drawing import View, draw
from holdfast.errors import StoreUnavailableError
from holdfast.observe.redaction import redacted

ENTER = "\x1b[?1049h\x1b[?25l"
"""The alternate screen of the terminal, without a cursor."""
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME = "\x1b[H"
REST_OF_LINE = "\x1b[K"
REST_OF_SCREEN = "\x1b[J"
ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
ARROWS |= {sequence.replace("[", "O"): name for sequence, name in ARROWS.items()}


def is_terminal() -> bool:
    """Whether input and output are a terminal."""
    return sys.stdout.isatty() and sys.stdin.isatty() and os.name == "posix"


async def show_once(app: Holdfast) -> None:
    """Print the board once."""
    board = await read_board(app, redacted(app.url))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    for line in draw(board, View(), width, 1000):
        click.echo(line)


async def watch(app: Holdfast, interval: float) -> None:
    """Redraw until q is pressed."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    with _screen(), _listening(keys):
        await _loop(app, interval, keys)


async def _loop(app: Holdfast, interval: float, keys: asyncio.Queue[str]) -> None:
    view, place = View(), redacted(app.url)
    board = await read_board(app, place)
    clock = asyncio.get_running_loop().time
    due = clock() + interval
    while True:
        _paint(board, view)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                key = await keys.get()
                if key == "q":
                    return
                view = moved(view, key, board)
        if clock() >= due:
            due = clock() + interval
            if not view.paused:
                board, view = await _updated(app, board, view)


async def _updated(app: Holdfast, board: Board, view: View) -> tuple[Board, View]:
    """Read the board again; keep the last one while the store is unavailable."""
    try:
        return await read_board(app, board.place), replace(view, note="")
    except StoreUnavailableError as error:
        return board, replace(view, note=redacted(error))


def moved(view: View, key: str, board: Board) -> View:
    """Return the view after a key press."""
    match key:
        case "p":
            return replace(view, paused=not view.paused)
        case "left" | "right":
            step = 1 if key == "right" else -1
            return replace(view, chosen=(view.chosen + step) % len(board.lists), offset=0)
        case "up":
            return replace(view, offset=max(0, view.offset - 1))
        case "down":
            last = max(0, len(board.lists[view.chosen].rows) - 1)
            return replace(view, offset=min(last, view.offset + 1))
        case _:
            return view


def _paint(board: Board, view: View) -> None:
    width, height = shutil.get_terminal_size()
    lines = draw(board, view, width, height - 1)
    body = "".join(f"{line}{REST_OF_LINE}\r\n" for line in lines)
    sys.stdout.write(f"{HOME}{body}{REST_OF_SCREEN}")
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()


@contextlib.contextmanager
def _listening(keys: asyncio.Queue[str]) -> Iterator[None]:
    """Read keys as they are pressed, without echo."""
    import termios
    import tty

    place, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(place)
    tty.setcbreak(place)

    def read_keys() -> None:
        text = os.read(place, 64).decode("utf-8", "replace")
        for key in pressed(text) if text else ["q"]:
            keys.put_nowait(key)

    loop.add_reader(place, read_keys)
    try:
        yield
    finally:
        loop.remove_reader(place)
        termios.tcsetattr(place, termios.TCSADRAIN, before)


def pressed(text: str) -> list[str]:
    """Return the keys that a terminal's characters mean."""
    found: list[str] = []
    while text:
        arrow = next((sequence for sequence in ARROWS if text.startswith(sequence)), "")
        found.append(ARROWS[arrow] if arrow else text[0].lower())
        text = text[len(arrow) or 1 :]
    return found
