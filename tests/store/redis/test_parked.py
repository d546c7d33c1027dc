"""Jobs that may not start are parked: looked at once, in their places, and woken when they may."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept, read
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim, LimitRule
from holdfast.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.model.job import Job
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

CLOCK = ManualClock()
ONE = LimitRule(concurrency=1)
MANY = 100


class Place:
    """A store under a new prefix, with a plain client."""

    def __init__(self, store: RedisStore, raw: Redis, prefix: str) -> None:
        self.store = store
        self.raw = raw
        self._prefix = prefix
        self._made = 0

    def key(self, name: str) -> str:
        return f"{self._prefix}:{name}"

    async def add(self, type_: str, count: int = 1, **options: object) -> list[str]:
        ids = [f"{type_}-{self._made + n}" for n in range(count)]
        self._made += count
        given = {"type": type_, "queue": "q", "priority": "CRITICAL", "payload": {}, **options}
        jobs = [accept(read(given), job_id=each, now=CLOCK.now()) for each in ids]
        await self.store.add(jobs)
        return ids

    async def claim(self, types: Sequence[str] | None = None, queue: str = "q") -> list[Job]:
        wanted = None if types is None else tuple(types)
        return await self.store.claim(
            Claim(queues=(queue,), limit=MANY, worker="w", token=uuid.uuid4().hex, types=wanted)
        )

    async def complete(self, job: Job) -> None:
        after = lifecycle.completed(job, b"null", now=CLOCK.now())
        assert [True] == [each.written for each in await self.store.swap([Change(job, after)])]

    async def is_marked(self, queue: str = "q") -> bool:
        return await self.raw.exists(self.key(f"{queue}:marker")) == 1

    async def traces(self) -> list[str]:
        """Return the keys that exist only while jobs are parked."""
        names = ("parked:*", "lane:*", "lanes:*", "parking")
        return [each for name in names async for each in self.raw.scan_iter(self.key(f"hf:{name}"))]

    async def commands(self) -> int:
        """Return how many commands the server has run, with those of scripts."""
        stats = await self.raw.info("commandstats")
        return sum(int(each["calls"]) for each in stats.values())


@pytest.fixture
async def place(valkey_server: Valkey) -> AsyncIterator[Place]:
    prefix = f"p{uuid.uuid4().hex[:10]}"
    async with (
        RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}", clock=CLOCK) as store,
        Redis(port=valkey_server.port, decode_responses=True) as raw,
    ):
        yield Place(store, raw, prefix)


@pytest.mark.parametrize("priority", ["CRITICAL", "NORMAL"])
async def test_claim_looks_once_at_jobs_that_wait(place: Place, priority: str) -> None:
    await place.store.limit("task:narrow", ONE)
    await place.add("narrow", 2_500, priority=priority)
    await place.add("unknown", 2_500, priority=priority)
    types = ("narrow", "other")
    assert 1 == len(await place.claim(types))
    assert [] == await place.claim(types)
    before = await place.commands()

    for n in range(10):
        await place.add("other", priority=priority)
        assert ["other"] == [job.type for job in await place.claim(types)], n

    assert 10 * 150 > await place.commands() - before


async def test_marks_end_with_the_last_parked_job(place: Place) -> None:
    await place.store.limit("key:keyed", ONE)
    await place.add("keyed", 3, limit_key="k")
    await place.add("unknown")
    running = await place.claim(("keyed",))
    assert [] != await place.traces()

    while running:
        for job in running:
            await place.complete(job)
        running = await place.claim()

    assert [] == await place.traces()


async def test_parked_jobs_that_vanish_without_an_event_are_forgotten(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    await place.add("narrow", 300)
    await place.claim()
    for each in await place.raw.lrange(place.key("q:wait"), 0, -1):
        await place.raw.delete(place.key(f"q:{each}"))
    await place.raw.delete(place.key("q:wait"))
    other, later = *await place.add("other"), *await place.add("narrow")

    assert [other] == [job.id for job in await place.claim()]
    assert [later] == await place.raw.zrange(place.key("hf:parked:q"), 0, -1)


async def test_job_put_in_front_of_parked_ones_is_claimed_first(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    narrow = await place.add("narrow", 4)
    (running,) = await place.claim()
    (other,) = await place.add("other")
    (moved,) = await place.add("narrow")
    for each in (moved, other):  # as a BullMQ client does with a stalled job, or with lifo
        await place.raw.lrem(place.key("q:wait"), 1, each)
        await place.raw.rpush(place.key("q:wait"), each)

    assert [other] == [job.id for job in await place.claim()]
    await place.complete(running)
    (first,) = await place.claim()
    await place.complete(first)
    assert [moved, narrow[1]] == [first.id, *(job.id for job in await place.claim())]


async def test_job_that_is_not_in_its_place_any_more_is_not_claimed(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    ids = await place.add("narrow", 3)
    (running,) = await place.claim()
    # A worker of BullMQ whose event was trimmed before this store read it took one, and another job
    # went to the front: as many are in front as before.
    await place.raw.lmove(place.key("q:wait"), place.key("q:active"), "RIGHT", "LEFT")
    (other,) = await place.add("other")
    await place.raw.lrem(place.key("q:wait"), 1, other)
    await place.raw.rpush(place.key("q:wait"), other)

    await place.complete(running)

    assert [ids[2], other] == [job.id for job in await place.claim()]


async def test_end_of_a_limited_job_wakes_workers_of_every_queue(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    await place.add("narrow")
    (running,) = await place.claim()
    await place.add("narrow", queue="r")
    assert [] == await place.claim(queue="r")
    await place.raw.delete(place.key("q:marker"), place.key("r:marker"))

    await place.complete(running)

    assert (False, True) == (await place.is_marked("q"), await place.is_marked("r"))


async def test_end_of_another_job_wakes_nobody(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    await place.add("narrow", 2)
    await place.add("other")
    _, other = await place.claim()
    await place.raw.delete(place.key("q:marker"))

    await place.complete(other)

    assert not await place.is_marked()


async def test_removed_limit_wakes_a_worker(place: Place) -> None:
    await place.store.limit("key:keyed", ONE)
    await place.add("keyed", 2, limit_key="k")
    await place.claim()
    await place.raw.delete(place.key("q:marker"))

    await place.store.limit("key:keyed", None)

    assert await place.is_marked()


async def test_job_parked_by_a_worker_without_its_handler_stays_announced(place: Place) -> None:
    await place.store.limit("task:narrow", ONE)
    await place.add("narrow")
    assert [] == await place.claim(("other",))
    await place.raw.delete(place.key("q:marker"))

    await place.store.promote(1)

    assert await place.is_marked()
    assert ["narrow"] == [job.type for job in await place.claim(("narrow",))]
