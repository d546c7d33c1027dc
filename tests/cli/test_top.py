"""``holdfast top`` in a pseudo-terminal."""

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
from tests.processes import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Place

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TIMEOUT = 30.0


class Terminal:
    """A program in a pseudo-terminal, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[str], fd: int) -> None:
        self.process = process
        self._fd = fd
        self.raw = ""

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def wait_for(self, text: str) -> str:
        """Wait until the newest frame contains a text, and return that frame."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            frame = self.raw.rsplit("\x1b[H", 1)[-1]
            if text in ANSI.sub("", frame) and "\x1b[J" in frame:
                return ANSI.sub("", frame)
            if not self._read():
                break
        raise AssertionError(f"never showed {text!r}: {ANSI.sub('', self.raw)[-2000:]}")

    def wait_until_exit(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and self._read():
            pass
        return self.process.wait(TIMEOUT)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._fd], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(place: Place, *args: str, size: tuple[int, int] = (40, 120)) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    before = termios.tcgetattr(theirs)
    try:
        with running(
            [sys.executable, "-m", "holdfast", "top", *args],
            cwd=place.path,
            env=environment(TERM="xterm-256color"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            yield Terminal(process, ours)
            assert before == termios.tcgetattr(theirs), "the terminal settings were not restored"
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
@pytest.mark.req("A-8")
def test_top_shows_changes_and_exits_with_q(place: Place) -> None:
    with terminal(place, "--interval", "0.2") as screen:
        screen.wait_for("0 ready")
        place.submit("greet", '{"name": "Ada"}')
        frame = screen.wait_for("1 ready")
        assert "QUEUES 1-1 of 1" in frame
        place.submit("fail")
        place.work()
        assert "NEVER" in screen.wait_for("FAILURES 1-1 of 1")
        screen.press("q")
        assert 0 == screen.wait_until_exit()

    assert screen.raw.startswith(ENTER)
    assert screen.raw.rstrip().endswith(LEAVE)


@pytest.mark.slow
def test_keys_pause_the_screen_and_choose_a_list(place: Place) -> None:
    with terminal(place, "--interval", "0.2", size=(24, 80)) as screen:
        assert "> QUEUES" in screen.wait_for("0 ready")
        screen.press("\x1b[C")
        screen.wait_for("> RUNNING")
        screen.press("\x1b[D\x1b[D")
        screen.wait_for("> FAILURES")
        screen.press("p")
        screen.wait_for("PAUSED")
        place.submit("greet", '{"name": "Ada"}')
        screen.press("p")
        frame = screen.wait_for("1 ready")
        assert max(len(line.rstrip("\r")) for line in frame.split("\n")) <= 80
        screen.process.send_signal(signal.SIGINT)  # as Ctrl-C does
        assert 130 == screen.wait_until_exit()

    assert LEAVE in screen.raw


def test_top_prints_one_frame_without_a_terminal(place: Place) -> None:
    place.submit("greet", '{"name": "Ada"}')

    result = place.process("top")

    assert 0 == result.returncode
    assert "1 ready" in result.stdout
    assert "\x1b" not in result.stdout


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


def test_keys_are_parsed_from_terminal_input() -> None:
    assert ["up", "q", "down", "p", "right"] == pressed("\x1b[Aq\x1b[BP\x1bOC")
