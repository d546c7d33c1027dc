"""Restarts a command when a source file below the current folder changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from holdfast.cli.errors import OK

LOOK_EVERY = 0.5
STOPPING = (signal.SIGINT, signal.SIGTERM)
WATCHED = (".py", ".toml")
FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages"})
PARENT = "HOLDFAST_RELOADED_BY"
"""The id of the process that restarts the command."""


def run_reloading(arguments: Sequence[str], folder: Path) -> int:
    """Run ``holdfast`` with these arguments until a signal stops it; return the last exit code.

    A command that exits by itself, for example on an import error, starts again at the next
    change.
    """
    stopped = threading.Event()
    seen = _stamps(folder)
    child = _start(arguments)

    def stop(number: int, _frame: object) -> None:
        stopped.set()
        if child.poll() is None:
            child.send_signal(number)

    for number in STOPPING:
        signal.signal(number, stop)
    while not stopped.wait(LOOK_EVERY):
        now = _stamps(folder)
        if now == seen:
            continue
        changed = sorted(path for path in now | seen if now.get(path) != seen.get(path))
        click.echo(f"holdfast: {', '.join(changed[:3])} changed, restarting", err=True)
        seen = now
        _end(child)
        child = _start(arguments)
    code = child.wait()
    return OK if -code in STOPPING else code  # it may not have got as far as to catch them


def reloading_parent() -> int | None:
    """The process that restarts this one when sources change, if there is one."""
    parent = os.environ.get(PARENT, "")
    return int(parent) if parent.isdigit() else None


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    # In a process group of its own: a signal from the terminal arrives once, through this process.
    return subprocess.Popen(  # noqa: S603  # ourselves
        [sys.executable, "-m", "holdfast", *arguments],
        env={**os.environ, PARENT: str(os.getpid())},
        process_group=0,
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        child.wait()


def _stamps(folder: Path) -> dict[str, int]:
    """When each source file was last written, by its path."""
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for place, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = [f for f in folders if f not in FOREIGN and not f.startswith(".")]
        for name in names:
            if name.endswith(WATCHED):
                path = Path(place, name)
                try:
                    yield str(path.relative_to(folder)), path.stat().st_mtime_ns
                except OSError:
                    continue  # gone since it was listed
