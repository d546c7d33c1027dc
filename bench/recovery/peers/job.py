"""What the programs share: the settings of a trial, and the job that notes each of its starts."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

URL = os.environ["RECOVERY_URL"]
FAST = os.environ["RECOVERY_SETTING"] == "fastest"
FOREVER = 3600.0


def started() -> None:
    """Note the process and the time; the clock is the same in every process."""
    with Path(os.environ["RECOVERY_NOTES"]).open("a") as notes:
        notes.write(f"{os.getpid()} {time.monotonic()}\n")


def endless() -> None:
    """Run until killed, in a thread or a process."""
    started()
    time.sleep(FOREVER)


async def endless_coroutine() -> None:
    """Run until killed, on the event loop."""
    started()
    await asyncio.sleep(FOREVER)


def become(program: str, *arguments: str) -> None:
    """Turn into a program of this environment."""
    path = str(Path(sys.executable).with_name(program))
    os.execv(path, [path, *arguments])


def main(**verbs: Callable[[], None]) -> None:
    """Run the verb of the command line."""
    verbs[sys.argv[1]]()
