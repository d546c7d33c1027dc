"""Submit, claim and settle in a process that is made to be killed; forked, for that is quick.

Each line on the standard input is a folder with a database. The fork stops itself before it
begins, and its number goes to the standard output; what was acknowledged to it goes to a file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import lifecycle
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor
from tests.conformance.hand import make

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DATABASE, ACKNOWLEDGED = "jobs.db", "acknowledged"


def opened(folder: Path) -> SQLiteStore:
    """Return the store of a folder: one thread, and a clock that stands still."""
    location = Location(path=folder / DATABASE)
    return SQLiteStore(location, clock=ManualClock(), executor=LoopExecutor, sockets=False)


async def submit(store: SQLiteStore) -> None:
    """Accept two jobs, one of which waits for the other."""
    first = make("first", now=store.now())
    await store.add([first, make("second", now=store.now(), after=[first])])


async def claim(store: SQLiteStore) -> None:
    """Claim the first."""
    await store.claim(Claim(queues=("default",), limit=1, worker="w", token="t"))


async def settle(store: SQLiteStore) -> None:
    """Complete it."""
    (job,) = await store.get([make("first", now=store.now()).id])
    assert job is not None
    if lifecycle.may_answer(job, "t"):
        await store.swap([Change(job, lifecycle.completed(job, b"1", now=store.now()))])


CALLS: tuple[Callable[[SQLiteStore], Awaitable[None]], ...] = (submit, claim, settle)


async def _live(folder: Path) -> None:
    async with opened(folder) as store:
        os.kill(os.getpid(), signal.SIGSTOP)
        file = os.open(folder / ACKNOWLEDGED, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for call in CALLS:
            await call(store)
            os.write(file, b".")


def main() -> None:
    """Fork one victim for each folder."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(_live(Path(line.strip())))
            os._exit(0)
        os.waitpid(pid, os.WUNTRACED)
        print(pid, flush=True)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
