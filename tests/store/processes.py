"""Real processes on one file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.architecture.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in a process of its own, killed at the end if it still runs."""
    running = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS},
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=30)


def line_of(running: subprocess.Popen[str]) -> str:
    """Wait for a line of a process."""
    assert running.stdout is not None
    line = running.stdout.readline()
    if not line:
        _, errors = running.communicate(timeout=30)
        raise AssertionError(f"the process ended: {errors}")
    return line.strip()


def emit(running: subprocess.Popen[str], line: str = "go") -> None:
    """Send a line to a process."""
    assert running.stdin is not None
    running.stdin.write(f"{line}\n")
    running.stdin.flush()
