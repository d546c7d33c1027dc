"""A run on a store of its own, whose server it may crash."""

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
LONGEST_AWAY = 1.0
TRIES = 30


async def on_store(
    store: str, plan: TorturePlan, folder: Path, *, tell: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Torture one kind of store."""
    if store == "sqlite":
        return await torture(f"sqlite:///{folder}/jobs.db", plan, tell=tell)
    server: Postgres | Valkey = (
        Postgres() if store == "postgres" else Valkey(["--appendfsync", "always"])
    )
    with server:
        url = server.dsn if isinstance(server, Postgres) else server.url
        return await torture(url, plan, crash=_crasher(server, plan.seed), tell=tell)


def _crasher(server: Server, seed: int) -> Crash:
    draw = random.Random(seed)

    async def crash() -> None:
        server.kill()
        await asyncio.sleep(draw.random() * LONGEST_AWAY)
        await _start(server)

    return crash


async def _start(server: Server) -> None:
    """Start again, however long processes of the killed server take to go."""
    for left in range(TRIES, -1, -1):
        try:
            await asyncio.to_thread(server.start)
        except ServerUnavailable:
            if not left:
                raise
            await asyncio.sleep(1.0)
        else:
            return
