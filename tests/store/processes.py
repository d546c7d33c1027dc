"""Real processes on one file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.architecture.tree import ROOT
from tests.processes import PIPE, running

if TYPE_CHECKING:
    from collections.abc import Iterator

PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run Python code in a process of its own, killed at the end if it still runs."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": PATHS}
    with running(command, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE) as started:
        yield started


def line_of(started: subprocess.Popen[str]) -> str:
    """Wait for a line of a process."""
    assert started.stdout is not None
    line = started.stdout.readline()
    if not line:
        _, errors = started.communicate(timeout=30)
        raise AssertionError(f"the process ended: {errors}")
    return line.strip()


def emit(started: subprocess.Popen[str], line: str = "go") -> None:
    """Send a line to a process."""
    assert started.stdin is not None
    started.stdin.write(f"{line}\n")
    started.stdin.flush()
