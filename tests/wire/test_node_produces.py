"""Jobs made by unmodified BullMQ producers, run through holdfast."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, JobContext, Worker
from holdfast.model import lifecycle
from holdfast.model.job import Event, State
from holdfast.model.policy import BackoffKind, Retention
from holdfast.store import Search
from holdfast.store.redis import RedisStore
from tests.waiting import forever
from tests.wire.side import WITHIN

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side


@pytest.mark.req("B-1")
async def test_we_run_nodes_job_and_node_sees_it_completed(side: Side, peer: Peer) -> None:
    await peer.ask("listen", queue="q")
    wire_id = await peer.ask("add", queue="q", job="greet", data={"who": "ü"})

    (job,) = await side.take()
    await side.complete(job, b'{"hello":"\xc3\xbc"}')

    assert f"q:{wire_id}" == job.id
    assert ("greet", b'{"who":"\xc3\xbc"}') == (job.type, job.payload)
    (event,) = await peer.until("event:completed", jobId=wire_id)
    assert {"hello": "ü"} == event["returnvalue"]
    seen = await peer.ask("job", queue="q", id=wire_id)
    assert ("completed", 1, {"hello": "ü"}) == (
        *(seen["state"], seen["attemptsMade"], seen["returnvalue"]),
    )


@pytest.mark.req("B-1")
@pytest.mark.parametrize("data", [7, "text", [1, 2], {"a": {"b": None}}, True])
async def test_any_json_is_a_payload(side: Side, peer6: Peer, data: object) -> None:
    await peer6.ask("add", queue="q", job="any", data=data)

    (job,) = await side.take()

    assert ({} if data is None else data) == (
        json.loads(job.payload) or ({} if data is None else data)
    )


@pytest.mark.req("B-1")
async def test_nodes_options_become_attempts_and_backoff(side: Side, peer: Peer) -> None:
    options = {"attempts": 4, "backoff": {"type": "exponential", "delay": 250}, "jobId": "mine"}
    await peer.ask("add", queue="q", job="opts", data={}, opts=options)
    await peer.ask("add", queue="q", job="bare", data={})

    first, second = await side.take(2)

    assert ("q:mine", 4, timedelta(milliseconds=250)) == (
        first.id,
        first.max_attempts,
        first.backoff.initial_delay,
    )
    assert BackoffKind.EXPONENTIAL is first.backoff.strategy
    assert 1 == second.max_attempts


@pytest.mark.req("B-1", "A-16")
async def test_nodes_job_that_we_fail_is_retried_then_dead(side: Side, peer: Peer) -> None:
    await peer.ask("listen", queue="q")
    options = {"attempts": 2, "backoff": 20}
    wire_id = await peer.ask("add", queue="q", job="flaky", data={}, opts=options)

    (job,) = await side.take()
    retrying = await side.fail(job, "first")
    assert State.RETRYING is retrying.state
    seen = await peer.ask("job", queue="q", id=wire_id)
    assert ("delayed", 1, "first") == (seen["state"], seen["attemptsMade"], seen["failedReason"])

    (job,) = await side.take()
    dead = await side.fail(job, "second", stack_trace="at line 3")

    assert State.DEAD_LETTER is dead.state
    await peer.until("event:failed", jobId=wire_id, failedReason="second")
    await peer.until("event:retries-exhausted", jobId=wire_id)
    seen = await peer.ask("job", queue="q", id=wire_id)
    assert ("failed", 2, 2) == (seen["state"], seen["attemptsMade"], len(seen["stacktrace"]))


@pytest.mark.req("B-1", "A-16")
async def test_node_retries_a_job_that_we_failed(side: Side, peer: Peer) -> None:
    wire_id = await peer.ask("add", queue="q", job="again", data={})
    (job,) = await side.take()
    await side.fail(job, "no", category="PERMANENT")

    await peer.ask("onJob", queue="q", id=wire_id, method="retry", args=["failed"])

    (again,) = await side.take()
    assert job.id == again.id
    assert again.lease_version > job.lease_version
    (history,) = await side.store.history([job.id])
    assert Event.REOPEN in [edge.event for edge in history]


@pytest.mark.req("A-16")
async def test_we_reopen_a_job_that_node_failed(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")
    wire_id = await peer.ask("add", queue="q", job="once", data={"fail": "boom", "times": 1})
    failed = await side.until(f"q:{wire_id}", lambda job: job.finished_at is not None)
    assert failed.failure is not None
    assert "boom" == failed.failure.message

    await side.swap(failed, lifecycle.reopened(failed, now=side.store.now()))

    done = await side.becomes(failed.id, State.COMPLETED)
    assert 2 == done.lease_version


@pytest.mark.req("A-11")
async def test_we_cancel_a_job_that_node_queued(side: Side, peer: Peer) -> None:
    wire_id = await peer.ask("add", queue="q", job="unwanted", data={}, opts={"priority": 7})
    job = await side.get(f"q:{wire_id}")
    assert 4 == job.priority

    request = lifecycle.cancel_requested(job, reason="not now", force=False, now=side.store.now())
    gone = await side.swap(job, request)

    assert State.CANCELLED is gone.state
    seen = await peer.ask("job", queue="q", id=wire_id)
    assert ("failed", "not now") == (seen["state"], seen["failedReason"])
    assert [] == await side.claim()


@pytest.mark.req("A-7")
async def test_nodes_jobs_are_found_counted_and_dated(side: Side, peer: Peer) -> None:
    await peer.ask(
        "addBulk", queue="q", jobs=[{"name": "a", "data": {}}, {"name": "b", "data": {}}]
    )
    await peer.ask("add", queue="q", job="a", data={}, opts={"delay": 60_000})

    page = await side.store.find(Search(types=("a",), queues=("q",)))

    assert (2, {State.SCHEDULED, State.DELAYED}) == (page.total, {job.state for job in page.jobs})
    (queue,) = await side.store.queues()
    assert {State.SCHEDULED: 2, State.DELAYED: 1} == dict(queue.counts)


@pytest.mark.req("B-2")
async def test_nodes_order_is_kept(side: Side, peer: Peer) -> None:
    for name, opts in (
        *(("a", {}), ("b", {}), ("lifo", {"lifo": True}), ("p5", {"priority": 5})),
        *(("p1", {"priority": 1}), ("p5b", {"priority": 5}), ("p1b", {"priority": 1})),
    ):
        await peer.ask("add", queue="q", job=name, data={}, opts=opts)

    taken = await side.take(7)

    assert ["lifo", "a", "b", "p1", "p1b", "p5", "p5b"] == [job.type for job in taken]


@pytest.mark.req("B-2")
async def test_foreign_priority_keeps_its_number_over_a_retry(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    options = {"priority": 900, "attempts": 2, "backoff": 10}
    wire_id = await peer.ask("add", queue="q", job="far", data={}, opts=options)
    (job,) = await side.take()

    await side.fail(job)

    assert "900" == await raw.hget(f"{prefix}:q:{wire_id}", "priority")


@pytest.mark.req("S-14")
async def test_jobs_of_other_types_keep_their_place(side: Side, peer: Peer) -> None:
    for name in ("x", "y", "x", "y"):
        await peer.ask("add", queue="q", job=name, data={})

    (y,) = await side.claim(1, types=("y",))
    rest = await side.take(3)

    assert "y" == y.type
    assert ["x", "x", "y"] == [job.type for job in rest]


@pytest.mark.req("B-1")
async def test_job_removed_by_node_is_gone_for_us(side: Side, peer: Peer) -> None:
    wire_id = await peer.ask("add", queue="q", job="short", data={})
    await side.get(f"q:{wire_id}")

    await peer.ask("onJob", queue="q", id=wire_id, method="remove")

    assert [None] == await side.store.get([f"q:{wire_id}"])
    assert 0 == (await side.store.find(Search(queues=("q",)))).total


@pytest.mark.req("B-3")
@pytest.mark.parametrize(
    ("keep", "left"), [(True, 0), (0, 0), (1, 1), (False, 3), ({"count": 2}, 2)]
)
async def test_retention_options_are_honoured(
    side: Side, peer6: Peer, keep: object, left: int
) -> None:
    for _ in range(3):
        await peer6.ask("add", queue="q", job="kept", data={}, opts={"removeOnComplete": keep})
    for job in await side.take(3):
        await side.complete(job)

    counts = await peer6.ask("call", queue="q", method="getJobCounts", args=["completed"])
    page = await side.store.find(Search(queues=("q",)))

    assert left == counts["completed"] == page.total == len(page.jobs)


@pytest.mark.req("B-3", "A-8")
async def test_jobs_that_node_evicts_silently_leave_our_counters(side: Side, peer: Peer) -> None:
    await side.add("ours", {})
    await peer.ask("work", queue="q")
    jobs = [{"name": "gone", "data": {}, "opts": {"removeOnComplete": 2}} for _ in range(30)]
    await peer.ask("addBulk", queue="q", jobs=jobs)
    await peer.until("completed", 31)

    for _ in range(5):
        await side.store.promote(1)

    (queue,) = await side.store.queues()
    counts = await peer.ask("call", queue="q", method="getJobCounts", args=["completed"])
    assert counts["completed"] == queue.counts[State.COMPLETED]
    page = await side.store.find(Search(states=(State.COMPLETED,)))
    assert counts["completed"] == page.total == len(page.jobs)


async def test_queue_full_of_old_jobs_is_found_at_start(
    peer: Peer, valkey_server: Valkey, prefix: str
) -> None:
    jobs = [{"name": "old", "data": {"n": n}} for n in range(1200)]
    await peer.ask("addBulk", queue="before", jobs=jobs)

    url = f"{valkey_server.url}?prefix={prefix}"
    async with RedisStore.from_url(url) as store:
        for _ in range(20):
            await store.promote(1)
        page = await store.find(Search(queues=("before",), limit=1))

    assert 1200 == page.total


@pytest.mark.req("B-1")
async def test_nodes_jobs_are_kept_as_long_as_node_keeps_them(
    side: Side, peer6: Peer, raw: Redis, prefix: str
) -> None:
    jobs = [{"name": "kept", "data": {}} for _ in range(150)]
    await peer6.ask("addBulk", queue="q", jobs=jobs)
    ours = await side.add("ours", {})
    for job in await side.take(151):
        await side.complete(job)
    nothing = timedelta(0)
    policy = Retention(completed=nothing, failed=nothing, dead_letter=nothing, cancelled=nothing)

    gone = [await side.store.prune(policy, 1) for _ in range(5)]

    assert 1 == sum(gone)
    assert [None] == await side.store.get([ours.id])
    assert 150 == await raw.zcard(f"{prefix}:q:completed")


@pytest.mark.req("B-1")
async def test_nodes_job_never_expires_unless_the_url_sets_a_lifetime(
    side: Side, peer6: Peer, valkey_server: Valkey, prefix: str
) -> None:
    wire_id = await peer6.ask("add", queue="q", job="old", data={})
    assert timedelta(days=10_000) < (await side.get(f"q:{wire_id}")).expires_at - side.store.now()

    await peer6.ask("add", queue="short", job="new", data={})
    url = f"{valkey_server.url}?prefix={prefix}&foreign_lifetime=60"
    async with RedisStore.from_url(url) as store:
        (job,) = (await store.find(Search(queues=("short",)))).jobs

    assert timedelta(minutes=2) > job.expires_at - side.store.now() > timedelta(0)
    assert timedelta(minutes=2) > job.lifetime


@pytest.mark.req("M-6", "B-1")
async def test_the_timeout_of_a_task_stops_nodes_job(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    async with Holdfast(f"{valkey_server.url}?prefix={prefix}") as app:
        deadlines = []

        @app.task("slow", timeout=0.2)
        async def slow(ctx: JobContext) -> None:
            deadlines.append(ctx.deadline)
            await forever()

        await peer.ask("listen", queue="q")
        wire_id = await peer.ask("add", queue="q", job="slow", data={})
        await Worker(app, queues=["q"]).run(burst=True)

        job = await app.get(f"q:{wire_id}")
        assert job.failure is not None
        assert ("TIMEOUT", "execution took longer than 0.2 s") == (
            *(job.failure.category, job.failure.message),
        )
        assert job.started_at is not None
        assert [job.started_at + timedelta(seconds=0.2)] == deadlines
    await peer.until("event:failed", jobId=wire_id)


@pytest.mark.req("B-1")
async def test_waiting_worker_makes_a_due_job_ready_without_a_leader(
    side: Side, peer: Peer
) -> None:
    assert [] == await side.claim()
    ids = [
        await peer.ask("add", queue="q", job="late", data={}, opts={"delay": delay})
        for delay in (300, 600)
    ]

    taken: list[str] = []
    seen = 0
    async with asyncio.timeout(WITHIN):
        while len(taken) < 2:
            taken += [job.id for job in await side.claim()]
            seen = await side.store.arrivals(["q"], seen, timedelta(seconds=1))

    assert [f"q:{job_id}" for job_id in ids] == taken
