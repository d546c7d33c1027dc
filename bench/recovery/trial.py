"""One trial: a job runs, its worker dies, another worker waits, and the job starts again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bench.recovery.entrants import Entrant

START_WITHIN = 60.0
SETTLE = (3.0, 8.0)
"""Seconds until the death, at random: the second worker waits for jobs by then, and the first dies
at any point between two heartbeats."""
QUIET = 3.0
"""Seconds after the death in which few others are started: the quick ones recover in these."""


class Failed(Exception):
    """The job did not start at all."""


@dataclass(frozen=True)
class Case:
    """What is killed, with which settings."""

    entrant: Entrant
    death: str
    """``process``: that which runs the job. ``host``: also every process above and beside it."""
    setting: str
    """``default`` or ``fastest``."""


@dataclass(frozen=True)
class Bench:
    """Where trials happen, and how long each one waits."""

    folder: Path
    bound: float
    turn: asyncio.Semaphore
    """Held while processes start and die: the machine has few processors."""


async def seconds_to_restart(case: Case, url: str, bench: Bench) -> float:
    """Return the seconds from the death to the next start; infinite beyond the bound."""
    notes = bench.folder / f"notes-{time.monotonic_ns()}"
    notes.touch()
    settings = {"RECOVERY_URL": url, "RECOVERY_SETTING": case.setting, "RECOVERY_NOTES": str(notes)}
    environment = {**os.environ, **settings}
    with contextlib.ExitStack() as workers:
        async with bench.turn:
            await asyncio.to_thread(_submit, case.entrant, environment)
            worker = workers.enter_context(_worker(case.entrant, environment, notes))
            await _start(notes, 1, START_WITHIN) or _failed(notes)
            workers.enter_context(_worker(case.entrant, environment, notes))
            await asyncio.sleep(random.uniform(*SETTLE))
            starts = _lines(notes)  # more than one where a live worker lost the job
            runner, died = int(starts[-1].split()[0]), time.monotonic()
            _kill([runner] if case.death == "process" else family(worker.pid))
            again = await _start(notes, len(starts) + 1, QUIET)
        again = again or await _start(notes, len(starts) + 1, bench.bound - QUIET)
    return again - died if again else float("inf")


def family(root: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    members = [root]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def _submit(entrant: Entrant, environment: dict[str, str]) -> None:
    done = subprocess.run(
        entrant.submit,
        cwd=entrant.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=START_WITHIN,
        check=False,
    )
    if done.returncode:
        raise Failed(done.stdout[-1000:])


@contextlib.contextmanager
def _worker(
    entrant: Entrant, environment: dict[str, str], notes: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with notes.with_suffix(".log").open("ab") as log:
        worker = subprocess.Popen(
            entrant.work, cwd=entrant.folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        _kill(family(worker.pid))
        worker.wait()


def _kill(processes: list[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


async def _start(notes: Path, number: int, within: float) -> float | None:
    """Wait for a start by its number; return its time."""
    until = time.monotonic() + within
    while len(lines := _lines(notes)) < number:
        if time.monotonic() > until:
            return None
        await asyncio.sleep(0.02)
    return float(lines[number - 1].split()[1])


def _lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


def _failed(notes: Path) -> NoReturn:
    raise Failed(notes.with_suffix(".log").read_text("utf-8", "replace")[-1000:])
