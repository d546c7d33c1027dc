"""What BullMQ configures at a worker: metrics, names, stream length, retention."""

from __future__ import annotations

import functools
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreError
from holdfast.runtime.clock import ManualClock
from holdfast.store.redis import RedisStore
from tests.waiting import eventually
from tests.wire.side import Side
from tests.worker.rig import working

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from redis.asyncio import Redis

    from holdfast.runtime.clock import Clock
    from tests.servers import Valkey
    from tests.wire.peer import Peer

    Configured = Callable[..., AbstractAsyncContextManager[Side]]

MINUTE = timedelta(minutes=1)


@pytest.fixture
def configured(valkey_server: Valkey, prefix: str) -> Configured:
    """Return a function that starts a Python side with more settings in its URL."""

    @asynccontextmanager
    async def start(more: str, clock: Clock | None = None) -> AsyncIterator[Side]:
        url = f"{valkey_server.url}?prefix={prefix}&{more}"
        async with RedisStore.from_url(url, clock=clock) as store:
            yield Side(store)

    return start


async def metrics(peer: Peer, kind: str) -> dict[str, object]:
    found: dict[str, object] = await peer.ask(
        "call", queue="q", method="getMetrics", args=[kind, 0, -1]
    )
    return found


@pytest.mark.req("B-1")
async def test_metrics_count_what_python_and_node_ended(configured: Configured, peer: Peer) -> None:
    points = {"metrics": {"maxDataPoints": 100}, "concurrency": 1}
    async with configured("metrics=100") as side:
        for n in range(3):
            await peer.ask("add", queue="q", job="a", data={"n": n})
        own = [await side.add("own") for _ in range(2)]
        for job in await side.take(5):
            await side.complete(job)
        bad = await peer.ask("add", queue="q", job="a", data={"n": 1})
        (job,) = await side.take()
        await side.fail(job, category="PERMANENT")
        await peer.ask("work", queue="q", opts=points)
        await peer.ask("add", queue="q", job="a", data={})
        await peer.until("completed")
        await peer.ask("rest", queue="q")

    completed, failed = await metrics(peer, "completed"), await metrics(peer, "failed")
    assert len(own) == 2
    assert "failed" == await peer.ask("state", queue="q", id=bad)
    assert 6 == completed["meta"]["count"]  # type: ignore[index]  # of JSON
    assert 1 == failed["meta"]["count"]  # type: ignore[index]  # of JSON


@pytest.mark.req("B-1")
async def test_metrics_have_one_point_per_minute_up_to_their_number(
    configured: Configured, peer: Peer
) -> None:
    clock = ManualClock(datetime.now(UTC).replace(second=30, microsecond=0))
    async with configured("metrics=3", clock) as side:
        for ended, pause in ((3, MINUTE), (2, 2 * MINUTE), (1, 9 * MINUTE), (1, MINUTE)):
            for _ in range(ended):
                await side.add("own")
            for job in await side.claim(ended):
                await side.complete(job)
            clock.advance(pause)
            points = (await metrics(peer, "completed"))["data"]
            if ended == 2:
                assert [3] == points

        found = await metrics(peer, "completed")
    assert [0, 0, 1] == found["data"]
    assert 7 == found["meta"]["count"]  # type: ignore[index]  # of JSON
    assert 6 == found["meta"]["prevCount"]  # type: ignore[index]  # of JSON


@pytest.mark.req("B-1")
async def test_no_metrics_are_collected_unless_asked_for(side: Side, peer6: Peer) -> None:
    await side.add("own")
    (job,) = await side.take()
    await side.complete(job)

    assert 0 == (await metrics(peer6, "completed"))["meta"]["count"]  # type: ignore[index]  # of JSON


@pytest.mark.req("B-1", "B-5")
async def test_get_workers_shows_the_names_of_python_workers(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

    @app.handler("q")
    async def one(payload: object) -> None: ...

    @app.handler("r")
    async def other(payload: object) -> None: ...

    async with working(app, queues=("q", "r")) as worker:
        names = [
            each["rawname"]
            for queue in ("q", "r")
            for each in await eventually(
                functools.partial(peer.ask, "call", queue=queue, method="getWorkers"), every=0.05
            )
        ]
        count = await peer.ask("call", queue="q", method="getWorkersCount")

    assert {worker.id} == {name.partition(":w:")[2] for name in names}
    assert 1 == count


@pytest.mark.req("B-4")
async def test_streams_have_the_length_of_the_queue_or_of_the_url(
    configured: Configured, side: Side, peer: Peer, prefix: str, raw: Redis
) -> None:
    meta = f"{prefix}:q:meta"
    await peer.ask("call", queue="q", method="count")
    await raw.hset(meta, "opts.maxLenEvents", 50)
    for _ in range(20):
        for _ in range(10):
            await side.add("own")
        for job in await side.claim(10):
            await side.complete(job)
    assert await raw.xlen(f"{prefix}:q:events") < 300
    assert "50" == await raw.hget(meta, "opts.maxLenEvents")

    async with configured("stream_length=100000") as other:
        for _ in range(100):
            await other.add("own")
        assert "100000" == await raw.hget(meta, "opts.maxLenEvents")
        assert await raw.xlen(f"{prefix}:q:events") >= 200


@pytest.mark.req("B-1")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ("remove_on_complete=true", 0),
        ("remove_on_complete=2", 2),
        ('remove_on_complete={"count":1,"age":3600}', 1),
        ("remove_on_complete=false", 3),
    ],
)
async def test_worker_defaults_remove_completed_jobs_as_in_node(
    configured: Configured, peer: Peer, options: str, kept: int
) -> None:
    async with configured(f"{options}&remove_on_fail=true") as side:
        ids = [await peer.ask("add", queue="q", job="a", data={}) for _ in range(3)]
        own = await peer.ask("add", queue="q", job="b", data={}, opts={"removeOnFail": False})
        gone = await peer.ask("add", queue="q", job="c", data={})
        jobs = await side.take(5)
        for job in jobs[:3]:
            await side.complete(job)
        for job in jobs[3:]:
            await side.fail(job, category="PERMANENT")

    states = [await peer.ask("state", queue="q", id=each) for each in ids]
    assert ["unknown"] * (3 - kept) + ["completed"] * kept == states
    assert "failed" == await peer.ask("state", queue="q", id=own)
    assert "unknown" == await peer.ask("state", queue="q", id=gone)


@pytest.mark.parametrize(
    "options", ["remove_on_fail=-1", "remove_on_complete={}", "metrics=0", "stream_length=x"]
)
def test_bad_worker_settings_are_refused(options: str) -> None:
    with pytest.raises(StoreError, match=options.partition("=")[0]):
        RedisStore.from_url(f"redis://localhost/0?{options}")


@pytest.mark.req("B-1")
async def test_job_that_was_started_too_often_fails_as_in_node(
    configured: Configured, peer: Peer
) -> None:
    found = []
    async with configured("max_started_attempts=1") as side:
        for queue in ("node", "python"):
            job_id = await peer.ask(
                "add", queue=queue, job="a", data={"again": 1}, opts={"attempts": 3}
            )
            if queue == "node":
                await peer.ask("work", queue=queue, opts={"maxStartedAttempts": 1})
                await peer.until("failed")
                await peer.ask("rest", queue=queue)
            else:
                (job,) = await side.take(queue=queue)
                await side.fail(job, uses_attempt=False)
                assert [] == await side.claim(queue=queue)
            shown = await peer.ask("job", queue=queue, id=job_id)
            names = ("state", "failedReason", "attemptsMade", "attemptsStarted")
            found.append([shown.get(name) for name in names])

    assert found[0] == found[1]
    assert ["failed", "job started more than allowable limit"] == found[1][:2]


@pytest.mark.req("B-5")
async def test_limiter_of_our_workers_and_of_nodes_is_one_window(
    configured: Configured, peer: Peer, raw: Redis, prefix: str
) -> None:
    for n in range(4):
        await peer.ask("add", queue="q", job="some", data={"n": n})

    async with configured("limiter=2/1500") as side:
        assert 2 == len(await side.claim(10))
        assert [] == await side.claim(10)
        assert "2" == await raw.get(f"{prefix}:q:limiter")
        assert 0 < await raw.pttl(f"{prefix}:q:limiter") <= 1500
        assert 0 < await peer.ask("call", queue="q", method="getRateLimitTtl", args=[2]) <= 1500
        await peer.ask("work", queue="q", opts={"limiter": {"max": 2, "duration": 1500}})

        assert None is await peer.ask("until", match={"on": "started"}, ms=300)
        await peer.until("completed", 2)
        await peer.ask("add", queue="q", job="some", data={"n": 5})

        assert [] == await side.claim(10)
        await peer.ask("rest", queue="q")
        assert 1 == len(await side.take())


@pytest.mark.req("B-5")
async def test_global_rate_limit_counts_before_the_limiter_of_a_worker(
    configured: Configured, peer: Peer, raw: Redis, prefix: str
) -> None:
    await peer.ask("call", queue="q", method="setGlobalRateLimit", args=[1, 60_000])
    for n in range(3):
        await peer.ask("add", queue="q", job="some", data={"n": n})

    async with configured("limiter=2/1500") as side:
        assert 1 == len(await side.claim(10))
        assert [] == await side.claim(10)
        assert 0 < await raw.pttl(f"{prefix}:q:limiter") <= 1500


@pytest.mark.req("B-5")
async def test_worker_without_a_limiter_does_not_heed_that_of_another(
    configured: Configured, side: Side, peer6: Peer
) -> None:
    for n in range(3):
        await peer6.ask("add", queue="q", job="some", data={"n": n})

    async with configured("limiter=1/60000") as limited:
        assert 1 == len(await limited.claim(10))
        assert [] == await limited.claim(10)

    assert 2 == len(await side.claim(10))


@pytest.mark.parametrize("limiter", ["", "5", "0/1000", "5/", "5/0", "-1/10", "a/b", "5/1.5"])
def test_bad_limiter_is_refused(limiter: str) -> None:
    with pytest.raises(StoreError, match="limiter"):
        RedisStore.from_url(f"redis://localhost/0?limiter={limiter}")


@pytest.mark.req("B-5")
async def test_job_of_node_is_locked_and_renewed_for_the_lock_duration(
    configured: Configured, peer: Peer, raw: Redis, prefix: str
) -> None:
    """BullMQ: lockDuration of a worker."""
    wire_id = await peer.ask("add", queue="q", job="a", data={})
    lock = f"{prefix}:q:{wire_id}:lock"
    async with configured("lock_duration=2") as side:
        (job,) = await side.take()
        assert 1000 < await raw.pttl(lock) <= 2000
        assert timedelta(seconds=2) == job.lease_ttl

        await raw.pexpire(lock, 500)
        assert await side.extend(job)

        assert 1000 < await raw.pttl(lock) <= 2000
        own = await side.add("own", lease=20)
        (mine,) = await side.take()
        assert (own.id, timedelta(seconds=20)) == (mine.id, mine.lease_ttl)


@pytest.mark.req("B-5", "S-6")
async def test_node_takes_over_from_a_python_worker_that_is_gone_for_the_lock_duration(
    configured: Configured, peer: Peer
) -> None:
    wire_id = await peer.ask("add", queue="q", job="a", data={})
    async with configured("lock_duration=1") as side:
        await side.take()  # and never answers

    await peer.ask("work", queue="q", opts={"stalledInterval": 300, "lockDuration": 500})

    await peer.until("completed", id=wire_id, ms=8000)
    assert 1 == (await peer.ask("job", queue="q", id=wire_id))["stalledCounter"]
