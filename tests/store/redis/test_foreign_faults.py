"""Keys that another client of the server damaged hurt one job or one queue, never the others."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast import Holdfast, State
from holdfast.operations.doctor import examine
from holdfast.operations.quarantine import quarantined
from holdfast.store import FailureSearch, Search
from tests.waiting import eventually
from tests.worker.rig import EventLog, ended, working

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

VALID = {"name": "work", "data": "{}", "opts": "{}", "timestamp": "1768473000000"}
DEEP = '{"a":' * 5000 + "1" + "}" * 5000
QUEUE_KEYS = (
    *("meta", "events", "wait", "paused", "active", "prioritized", "delayed", "completed"),
    *("failed", "waiting-children", "marker", "pc", "id", "stalled"),
)


@pytest.fixture
def url(valkey_server: Valkey) -> str:
    return f"{valkey_server.url}?prefix=f{uuid.uuid4().hex[:10]}"


async def _damage(raw: Redis, prefix: str, kind: str) -> None:
    """Add a job to the queue of a foreign client, and damage it."""
    key, wait, delayed = f"{prefix}:q:bad", f"{prefix}:q:wait", f"{prefix}:q:delayed"
    await raw.hset(f"{prefix}:q:meta", "opts.maxLenEvents", 10000)
    if kind == "a string in place of the hash":
        await raw.set(key, "x")
        await raw.lpush(wait, "bad")
    elif kind == "deep options":
        await raw.hset(key, mapping={**VALID, "opts": DEEP})
        await raw.lpush(wait, "bad")
    elif kind == "data that is not JSON":
        await raw.hset(key, mapping={**VALID, "data": "{{"})
        await raw.lpush(wait, "bad")
    elif kind == "a list in place of the lock":
        await raw.hset(key, mapping={**VALID, "ats": "1"})
        await raw.lpush(f"{prefix}:q:active", "bad")
        await raw.lpush(f"{key}:lock", "x")
    elif kind == "damaged fields of holdfast":
        await raw.hset(
            key, mapping={**VALID, "hf:now": "RUNNING|x|y", "hf:rest": "{{", "hf:ttl": "1"}
        )
        await raw.lpush(f"{prefix}:q:active", "bad")
    else:
        await raw.hset(key, mapping=VALID)
        await raw.zadd(delayed, {"bad": float(kind)})
    await raw.xadd(f"{prefix}:q:events", {"event": "added", "jobId": "bad"})


KINDS = (
    *("a string in place of the hash", "deep options", "data that is not JSON"),
    *("a list in place of the lock", "damaged fields of holdfast", "-inf", "+inf", "-1e300"),
)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("kind", KINDS)
async def test_damaged_foreign_job_stops_neither_maintenance_nor_lists(url: str, kind: str) -> None:
    prefix, log = url.rpartition("=")[2], EventLog()
    app = Holdfast(url)
    app.task("work", queue="q", max_attempts=1)(lambda: None)
    async with Redis.from_url(url.partition("?")[0]) as raw:
        await _damage(raw, prefix, kind)
        async with working(app, queues=["q"], observer=log) as worker:
            good = await app.submit("work", delay=0.05)

            state = await ended(app, good.job_id)

            assert State.COMPLETED is state
            await app.store.find(Search())
            await app.store.failures(FailureSearch())
            await app.store.stats(timedelta(hours=1))
            await app.store.queues()
            assert worker.id in [each.id for each in await app.workers()]
    assert [] == log.all("maintenance.failed")


@pytest.mark.req("R-2")
@pytest.mark.parametrize("name", QUEUE_KEYS)
async def test_damaged_key_of_a_queue_stops_no_other_queue(url: str, name: str) -> None:
    prefix, log = url.rpartition("=")[2], EventLog()
    app = Holdfast(url)
    app.task("work", queue="good")(lambda: None)
    async with Redis.from_url(url.partition("?")[0]) as raw:
        await raw.hset(f"{prefix}:q:meta", "opts.maxLenEvents", 10000)
        await raw.hset(f"{prefix}:q:1", mapping=VALID)
        await raw.delete(f"{prefix}:q:{name}")
        await raw.set(f"{prefix}:q:{name}", "x")
        async with working(app, queues=["q", "good"], observer=log):
            first = await app.submit("work", delay=0.05)
            assert State.COMPLETED is await ended(app, first.job_id)
            await app.store.find(Search())
            await app.store.stats(timedelta(hours=1))
            await app.store.queues()
            await app.store.events(None, 10, timedelta(0))
    assert [] == log.all("maintenance.failed")


@pytest.mark.req("R-1", "R-2")
async def test_queue_named_like_the_keys_of_the_store_is_ignored(url: str) -> None:
    prefix, log = url.rpartition("=")[2], EventLog()
    app = Holdfast(url)
    app.task("work")(lambda: None)
    async with Redis.from_url(url.partition("?")[0]) as raw:
        await raw.hset(f"{prefix}:hf:meta", "opts.maxLenEvents", 10000)
        await raw.sadd(f"{prefix}:hf:queues", "hf")
        await raw.hset(f"{prefix}:hf:1", mapping=VALID)
        await raw.zadd(f"{prefix}:hf:delayed", {"1": 0})
        async with working(app, observer=log):
            job = await app.submit("work", delay=0.05)
            assert State.COMPLETED is await ended(app, job.job_id)
    assert [] == log.all("maintenance.failed")


@pytest.mark.req("R-2")
async def test_what_was_set_aside_is_reported(url: str) -> None:
    prefix, log = url.rpartition("=")[2], EventLog()
    app = Holdfast(url)
    app.task("work", queue="q")(lambda: None)
    async with Redis.from_url(url.partition("?")[0]) as raw:
        await _damage(raw, prefix, "a string in place of the hash")
        async with working(app, queues=["q"], observer=log):
            (event,) = await log.wait_for("item.quarantined")
            findings = await examine(app.store)

    assert "q:bad" == event["item"]
    assert "WRONGTYPE" in str(event["error"])
    assert ["q:bad"] == [f.text.split("'")[1] for f in findings if f.name == "quarantine"]


@pytest.mark.req("R-2")
async def test_job_with_data_that_is_not_json_fails_without_a_call_of_its_handler(url: str) -> None:
    calls: list[object] = []
    prefix = url.rpartition("=")[2]
    app = Holdfast(url)
    app.task("work", queue="q")(lambda: calls.append(1))
    async with Redis.from_url(url.partition("?")[0]) as raw:
        await _damage(raw, prefix, "data that is not JSON")
        async with working(app, queues=["q"]):

            async def has_failed() -> bool:
                (job,) = await app.store.get(["q:bad"])
                return job is not None and job.state is State.FAILED

            await eventually(has_failed)
            (job,) = await app.store.get(["q:bad"])
            reports = await quarantined(app.store)

    assert job is not None
    assert job.failure is not None
    assert "DAMAGED" == job.failure.code
    assert ["q:bad"] == [report.name for report in reports]
    assert [] == calls
