"""Programs that tests start: none outlives its test, and each takes an interrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PIPE = subprocess.PIPE
_IGNORE_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program, and kill it at the end with everything it started.

    ``with Popen`` waits for the program instead: a test that fails, or that runs out of time,
    would then wait for ever.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def in_background(command: Sequence[str]) -> list[str]:
    """Return a command that starts another as a shell does in the background."""
    return [sys.executable, "-c", _IGNORE_INTERRUPTS, *command]


def give_children_the_interrupt() -> None:
    """Start programs with SIGINT at its default where this process was started to ignore it.

    A shell that runs the suite in the background has it ignore SIGINT, and programs inherit that.
    A handler is not inherited: with one that does nothing this process still ignores the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
