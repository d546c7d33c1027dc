"""holdfast for a driver that compares job queues; the store is named by ``$HB_HOLDFAST``.

The driver brings ``lib`` (which reads the command line) and ``tick`` (which records that a job
ran): copy this file beside its other adapters, register it with ``env={"HB_HOLDFAST": "redis"}``
(or ``pg``, ``sqlite``), ``bulk=True`` and the variants 20, 100 and 200 (on PostgreSQL also 500 and
2,000), and let it install ``holdfast-queue[redis,postgres,speed]`` from this checkout.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import lib
from lib import HANG, PG_DSN, REDIS_URL, SQLITE, tick

from holdfast import Holdfast
from holdfast.model.job import TERMINAL

URLS = {"redis": REDIS_URL, "pg": PG_DSN, "sqlite": f"sqlite:///{SQLITE}"}
URL = URLS[os.environ["HB_HOLDFAST"]]
IS_ASYNC = True
BULK = True
UVLOOP_CLIENT = True

app = Holdfast(URL)


@app.task("noop")
async def noop(i: int) -> int:
    """Do nothing but be counted."""
    tick(i)
    return i


@app.task("hang", timeout=7200)
async def hang_task() -> None:
    """Begin and never end."""
    tick(HANG)
    await asyncio.sleep(3600)


async def setup() -> None:
    """Make the schema, where there is one."""
    async with Holdfast(URL):
        pass


async def open_client() -> Holdfast:
    """Return a started client."""
    return await Holdfast(URL).start()


async def close_client(client: Holdfast) -> None:
    """Let go of the store."""
    await client.close()


async def submit(client: Holdfast, i: int) -> None:
    """Submit one job."""
    await client.submit("noop", {"i": i})


async def submit_bulk(client: Holdfast, ids: Sequence[int]) -> None:
    """Submit a batch."""
    await client.submit_batch([{"type": "noop", "payload": {"i": i}} for i in ids])


async def hang(client: Holdfast) -> None:
    """Submit the job that never ends."""
    await client.submit("hang")


async def pending(client: Holdfast) -> int:
    """Return how many jobs have not ended."""
    return sum(
        count
        for queue in await client.queues()
        for state, count in queue.counts.items()
        if state not in TERMINAL
    )


def worker(slots: int) -> None:
    """Become a worker."""
    os.environ["HOLDFAST_URL"] = URL
    os.environ["PYTHONPATH"] = f"{lib.HERE}:{os.path.dirname(lib.HERE)}"  # noqa: PTH120  # a path list
    command = [lib.bindir("holdfast"), "worker", "holdfast_any:app", "--slots", str(slots)]
    os.execv(command[0], [*command, "--log-level", "warning"])


if __name__ == "__main__":
    import holdfast_any

    lib.main(vars(holdfast_any))
