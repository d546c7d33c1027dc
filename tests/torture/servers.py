"""A run on its own store, whose server it can crash."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from holdfast.torture.faults import Crash
from holdfast.torture.plan import TorturePlan
from holdfast.torture.report import Outcome
from holdfast.torture.run import torture
from tests.servers import Postgres, Server, ServerUnavailable, Valkey

STORES = ("postgres", "sqlite", "valkey")
MAX_DOWNTIME = 1.0
MAX_STARTS = 30


async def on_store(
    store: str, plan: TorturePlan, folder: Path, *, progress: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Run the torture on one kind of store."""
    if store == "sqlite":
        return await torture(f"sqlite:///{folder}/jobs.db", plan, progress=progress)
    server: Postgres | Valkey = (
        Postgres() if store == "postgres" else Valkey(["--appendfsync", "always"])
    )
    with server:
        url = server.dsn if isinstance(server, Postgres) else server.url
        return await torture(url, plan, crash=_crasher(server, plan.seed), progress=progress)


def _crasher(server: Server, seed: int) -> Crash:
    randomness = random.Random(seed)

    async def crash() -> None:
        server.kill()
        await asyncio.sleep(randomness.random() * MAX_DOWNTIME)  # the downtime of a crash
        await _start(server)

    return crash


async def _start(server: Server) -> None:
    """Start again, however long the processes of the killed server take to end."""
    for starts_left in range(MAX_STARTS, -1, -1):
        try:
            await asyncio.to_thread(server.start)
        except ServerUnavailable:
            if not starts_left:
                raise
            await asyncio.sleep(1.0)  # until more of its processes are gone
        else:
            return
