"""``holdfast top`` in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from holdfast.cli.top.board import Board, Listing
from holdfast.cli.top.drawing import View, draw
from holdfast.cli.top.screen import ENTER, LEAVE, moved, pressed
from tests.cli.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Place

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE = 30.0


class Terminal:
    """A program in a pseudo-terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], side: int) -> None:
        self.process = process
        self._side = side
        self.raw = ""

    def press(self, keys: str) -> None:
        os.write(self._side, keys.encode())

    def shows(self, text: str) -> str:
        """Wait until the newest picture holds a text, and return that picture."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            picture = self.raw.rsplit("\x1b[H", 1)[-1]
            if text in ANSI.sub("", picture) and "\x1b[J" in picture:
                return ANSI.sub("", picture)
            if not self._read():
                break
        raise AssertionError(f"never showed {text!r}: {ANSI.sub('', self.raw)[-2000:]}")

    def ends(self) -> int:
        """Read to the end and return how the program exited."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._side], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._side, 65536)
        except OSError:  # the other side is gone
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(place: Place, *args: str, size: tuple[int, int] = (40, 120)) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "top", *args],
        cwd=place.path,
        env=environment(TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    try:
        yield Terminal(process, ours)
        assert before == termios.tcgetattr(theirs), "the terminal was not left as it was found"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
@pytest.mark.req("A-8")
def test_top_shows_what_happens_and_is_left_with_q(place: Place) -> None:
    with terminal(place, "--interval", "0.2") as screen:
        screen.shows("0 ready")
        place.submit("greet", '{"name": "Ada"}')
        picture = screen.shows("1 ready")
        assert "QUEUES 1-1 of 1" in picture
        place.submit("fail")
        place.work()
        assert "NEVER" in screen.shows("FAILURES 1-1 of 1")
        screen.press("q")
        assert 0 == screen.ends()

    assert screen.raw.startswith(ENTER)
    assert screen.raw.rstrip().endswith(LEAVE)


@pytest.mark.slow
def test_keys_hold_the_picture_and_choose_a_list(place: Place) -> None:
    with terminal(place, "--interval", "0.2", size=(24, 80)) as screen:
        assert "> QUEUES" in screen.shows("0 ready")
        screen.press("\x1b[C")
        screen.shows("> RUNNING")
        screen.press("\x1b[D\x1b[D")
        screen.shows("> FAILURES")
        screen.press("p")
        screen.shows("PAUSED")
        place.submit("greet", '{"name": "Ada"}')
        screen.press("p")
        picture = screen.shows("1 ready")
        assert max(len(line.rstrip("\r")) for line in picture.split("\n")) <= 80
        screen.process.send_signal(signal.SIGINT)  # what Ctrl-C means in a person's terminal
        assert 130 == screen.ends()

    assert LEAVE in screen.raw


def test_one_look_is_printed_where_there_is_no_terminal(place: Place) -> None:
    place.submit("greet", '{"name": "Ada"}')

    told = place.process("top")

    assert 0 == told.returncode
    assert "1 ready" in told.stdout
    assert "\x1b" not in told.stdout


def test_lines_fit_any_terminal() -> None:
    rows = tuple((f"queue-{n}-\x1b[31m", "x" * 300) for n in range(50))
    board = Board("place" * 40, ("summary",), tuple(Listing(t, ("A", "B"), rows) for t in "abcd"))

    for width, height in ((20, 5), (80, 24), (200, 100)):
        for chosen in range(4):
            lines = draw(board, View(chosen=chosen, offset=49), width, height)
            assert len(lines) <= height
            assert max(len(ANSI.sub("", line)) for line in lines) <= width
            assert not any("\x1b[31m" in line for line in lines)


def test_chosen_list_is_scrolled_within_its_rows() -> None:
    rows = tuple((str(n), "") for n in range(9))
    board = Board("p", (), (Listing("A", ("N", ""), rows), Listing("B", ("N", ""), ())))
    view = View()

    for _ in range(20):
        view = moved(view, "down", board)
    assert 8 == view.offset
    assert "9-9 of 9" not in "".join(draw(board, view, 80, 12))
    assert (1, 0) == ((after := moved(view, "right", board)).chosen, after.offset)
    assert 0 == moved(after, "right", board).chosen
    assert 0 == moved(View(), "up", board).offset
    assert view is moved(view, "x", board)


def test_keys_are_told_from_what_a_terminal_sends() -> None:
    assert ["up", "q", "down", "p", "right"] == pressed("\x1b[Aq\x1b[BP\x1bOC")
