"""A schedule that ticks every second, while its leaders are killed one after the other."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.times import parse_timestamp
from holdfast.model.workers import LEADERSHIP
from holdfast.store import Search
from tests.conformance.stores import PLACES
from tests.worker.machines import Machines, worker_pids

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KEY = "cron:tick:"
SECOND = timedelta(seconds=1)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with PLACES[request.param](request) as place:
        machines = Machines(tmp_path, place.url)
        yield machines
        machines.clear()


async def test_every_tick_comes_once_although_four_leaders_are_killed(machines: Machines) -> None:
    async with machines.app() as app:
        for _ in range(3):
            machines.start("alone", app="tests.worker.ticking:app")
        killed: set[int] = set()
        for _ in range(4):
            leader = await new_leader(app, killed)
            await ticks(app, more=2)
            os.kill(leader, signal.SIGKILL)
            killed.add(leader)
            machines.start("alone", app="tests.worker.ticking:app")
        await new_leader(app, killed)
        found = await ticks(app, more=3)

    first, last = min(found), max(found)
    seconds = (last - first) // SECOND
    assert [first + n * SECOND for n in range(seconds + 1)] == sorted(found)
    assert seconds > 9  # two before each kill, at least


async def new_leader(app: Holdfast, killed: set[int]) -> int:
    """Return the process of the leader, when it is none of those that were killed."""
    while True:
        (held, *_) = [*await app.store.locks(LEADERSHIP), None]
        pid = (await worker_pids(app)).get(held.holder) if held else None
        if pid is not None and pid not in killed:
            return pid
        await asyncio.sleep(0.05)  # until another process leads


async def ticks(app: Holdfast, *, more: int) -> list[datetime]:
    """Return the instants of all ticks, by their keys, after so many more were submitted."""
    before = len(await instants(app))
    while True:
        found = await instants(app)
        if len(found) >= before + more:
            return found
        await asyncio.sleep(0.1)  # until the next second


async def instants(app: Holdfast) -> list[datetime]:
    page = await app.store.find(Search(types=("tick",), limit=500))
    assert page.next_cursor is None
    return [parse_timestamp(job.idempotency_key.removeprefix(KEY)) for job in page.jobs]
