"""Rate limits at the outside: when handlers start, on every store, with two workers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Holdfast, LimitRule, Worker
from holdfast.model.job import Event
from holdfast.runtime.clock import ManualClock
from holdfast.store import Claim, MemoryStore, Search
from holdfast.worker import polling
from tests.conformance.conftest import SERVED
from tests.conformance.hand import make
from tests.conformance.stores import NAMES, PLACES, Place
from tests.waiting import PATIENCE
from tests.worker.rig import until

RATE = 20
SECOND = timedelta(seconds=1)
SECONDS = 3


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with PLACES[request.param](request) as place:
        yield place


def _apps(place: Place, starts: list[float]) -> list[Holdfast]:
    """Return one app for each worker, where the store is not in memory."""
    apps = [Holdfast(place.url) for _ in range(2 if place.is_shared else 1)]

    async def call() -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(0.02)  # a call of a service that refuses more than the rate

    for app in apps:
        app.task("call", limit=LimitRule(rate=RATE))(call)
    return apps * (2 // len(apps))


@pytest.mark.slow
async def test_twenty_per_second_start_evenly_and_no_more(place: Place) -> None:
    starts: list[float] = []
    apps = _apps(place, starts)
    async with contextlib.AsyncExitStack() as stack:
        for app in dict.fromkeys(apps):
            await stack.enter_async_context(app)
        await apps[0].submit_batch([{"type": "call"} for _ in range(RATE * (SECONDS + 1))])

        workers = [Worker(app, slots=10) for app in apps]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await until(lambda: starts and time.monotonic() > starts[0] + SECONDS)
        for worker in workers:
            worker.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*running)

        found = (await apps[0].store.find(Search(limit=1000))).jobs
        histories = await apps[0].store.history([job.id for job in found])

    claims = sorted(edge.at for edges in histories for edge in edges if edge.event is Event.CLAIM)
    assert max(sum(at <= each < at + SECOND for each in claims) for at in claims) <= 22
    begun = starts[0]
    starts = [at for at in starts if at < begun + SECONDS]
    most = max(sum(at <= each < at + 1 for each in starts) for at in starts)
    assert most <= 24  # 22 by the clock of the store; a handler may start a moment late
    assert len(starts) >= 18 * SECONDS


class Waiting:
    """An idle worker behind a rate, and others that take its starts."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.delay = polling.PollDelay(self.clock)
        self.delay.last_work = self.clock.monotonic()
        self._jobs = 0

    async def limit(self, **terms: int) -> None:
        await self.store.limit("queue:default", LimitRule(**terms))  # type: ignore[arg-type]  # no span is among them

    async def others_start(self, count: int) -> None:
        jobs = [make(f"n{self._jobs + n}", now=self.clock.now()) for n in range(count)]
        self._jobs += count
        await self.store.add(jobs)
        want = Claim(queues=("default",), limit=count, worker="w", token=f"t{self._jobs}")
        assert count == len(await self.store.claim(want))

    async def wait(self) -> float:
        return (await self.delay.next(self.store)) / timedelta(milliseconds=1)


async def test_idle_worker_comes_when_the_next_start_is_possible() -> None:
    idle = Waiting()
    await idle.limit(rate=20)
    await idle.others_start(3)

    assert 50 == await idle.wait()


async def test_idle_worker_waits_for_several_starts_of_a_high_rate() -> None:
    idle = Waiting()
    await idle.limit(rate=1000)
    await idle.others_start(101)

    assert 1 + polling.GATHERING / timedelta(milliseconds=1) == await idle.wait()


async def test_idle_worker_waits_for_several_starts_though_one_is_possible() -> None:
    idle = Waiting()
    await idle.limit(rate=1000)
    await idle.others_start(99)

    assert polling.GATHERING / timedelta(milliseconds=1) == await idle.wait()


async def test_idle_worker_leaves_out_turns_that_others_take() -> None:
    idle, waits = Waiting(), []
    await idle.limit(rate=20, burst=1)

    for _ in range(4):
        await idle.others_start(1)
        waits.append(await idle.wait())
        idle.clock.advance(timedelta(milliseconds=50))
    idle.delay.last_work = idle.clock.monotonic()
    await idle.others_start(1)

    assert [50, 100, 200, 250] == waits
    assert 50 == await idle.wait()


async def test_worker_that_came_too_early_looks_again_once() -> None:
    idle = Waiting()
    await idle.limit(rate=20, burst=1)
    await idle.others_start(1)
    await idle.wait()

    idle.clock.advance(timedelta(milliseconds=50))

    assert 1 == await idle.wait()
    assert 250 == await idle.wait()
