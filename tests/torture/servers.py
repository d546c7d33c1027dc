"""A run on a store of its own, whose server it may crash."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from holdfast.torture import Outcome, Plan, torture
from holdfast.torture.chaos import Crash
from tests.servers import Postgres, Server, Valkey

STORES = ("postgres", "sqlite", "valkey")
LONGEST_AWAY = 1.0


async def on_store(
    store: str, plan: Plan, folder: Path, *, tell: Callable[[str], None] = lambda _: None
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
        await asyncio.to_thread(server.start)

    return crash
