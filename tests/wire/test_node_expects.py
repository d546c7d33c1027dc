"""What a Node fleet sees of a queue beside its jobs: drained, logs, attempts, obliterate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import LogLine, State
from holdfast.store import Fence, JobNote

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side


async def drained_after(peer: Peer, side: Side | None, job: str) -> int:
    """Run the job after two others, by Node or by Python; return the number of drained events."""
    await peer.ask("listen", queue="q")
    options = {"attempts": 1}
    for name in ("one", "two", job):
        data = {"fail": "broke"} if name == "bad" else {}
        await peer.ask("add", queue="q", job=name, data=data, opts=options)
    if side is None:
        await peer.ask("work", queue="q")
    else:
        for name in ("one", "two", job):
            (taken,) = await side.take()
            await (side.fail(taken) if name == "bad" else side.complete(taken))
    await peer.until("event:drained")
    seen = await peer.ask("seen")
    return sum(each["on"] == "event:drained" for each in seen)


@pytest.mark.req("B-1", "B-4")
@pytest.mark.parametrize("job", ["good", "bad"])
async def test_queue_is_drained_once_when_its_last_job_ends(
    side: Side, peer: Peer, job: str
) -> None:
    assert 1 == await drained_after(peer, side, job)


@pytest.mark.req("B-1", "B-4")
async def test_node_worker_drains_a_queue_as_often(side: Side, peer: Peer) -> None:
    assert 1 == await drained_after(peer, None, "good")


@pytest.mark.req("B-4")
async def test_queue_with_a_running_job_is_not_drained(side: Side, peer6: Peer) -> None:
    await peer6.ask("listen", queue="q")
    await side.add("one", {})
    await side.add("two", {})
    first, second = await side.take(2)

    await side.complete(first)
    await peer6.until("event:completed", jobId=first.id)
    assert "event:drained" not in [each["on"] for each in await peer6.ask("seen")]

    await side.complete(second)
    await peer6.until("event:drained")


@pytest.mark.req("B-1", "B-5")
async def test_keep_logs_of_a_node_job_bounds_our_lines(side: Side, peer: Peer) -> None:
    number = await peer.ask("add", queue="q", job="logged", data={}, opts={"keepLogs": 2})
    (job,) = await side.take()
    assert job.lease is not None
    fence, now = Fence(job.id, job.lease.token), side.store.now()

    for n in range(4):
        await side.store.note([JobNote(fence=fence, log=LogLine(now, "info", f"line {n}"))])

    assert 2 == (await peer.ask("logs", queue="q", id=number))["count"]


@pytest.mark.req("B-1")
async def test_node_job_keeps_more_than_a_hundred_attempts(side: Side, peer: Peer) -> None:
    number = await peer.ask("add", queue="q", job="stubborn", data={}, opts={"attempts": 105})

    for _ in range(104):
        (job,) = await side.take()
        await side.fail(job)

    assert "waiting" == await peer.ask("state", queue="q", id=number)
    (last,) = await side.take()
    await side.fail(last)
    assert "failed" == await peer.ask("state", queue="q", id=number)


@pytest.mark.req("B-1", "B-7")
async def test_nothing_of_a_queue_is_left_after_obliterate(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    await peer.ask("add", queue="q", job="theirs", data={})
    waiting, other = await side.add("ours", {}), await side.add("other", {}, queue="r")
    (done,) = await side.take()
    await side.complete(done)
    for state in (State.SCHEDULED, State.COMPLETED):
        assert 1 == sum(q.counts.get(state, 0) for q in await side.store.queues() if q.name == "q")

    await peer.ask("call", queue="q", method="pause")
    await peer.ask("call", queue="q", method="obliterate", args=[{"force": True}])
    await side.store.promote(100)

    assert [] == [key async for key in raw.scan_iter(f"{prefix}:q:*")]
    assert [None, None] == await side.store.get([waiting.id, done.id])
    assert [other.id] == await raw.hkeys(f"{prefix}:hf:jobs")
    assert ["r"] == [queue.name for queue in await side.store.queues()]


@pytest.mark.req("B-1")
@pytest.mark.parametrize("kind", ["fixed", "exponential"])
async def test_retry_of_a_node_job_is_delayed_by_bullmqs_formula(
    side: Side, peer: Peer, kind: str
) -> None:
    backoff = {"type": kind, "delay": 5_000_000, "jitter": 0.5}
    options = {"attempts": 3, "backoff": backoff}
    number = await peer.ask("add", queue="q", job="late", data={}, opts=options)
    (job,) = await side.take()

    drawn = [job.backoff.delay(2, jitter=each).total_seconds() for each in (-1.0, 0.0, 1.0)]
    await side.fail(job)

    longest = 5000.0 if kind == "fixed" else 10_000.0
    assert [longest / 2, longest * 3 / 4, longest] == drawn
    assert 3_750_000 == (await peer.ask("job", queue="q", id=number))["delay"]


@pytest.mark.req("B-1")
async def test_delay_of_a_retry_is_stored_as_a_node_worker_stores_it(
    side: Side, peer: Peer
) -> None:
    options = {"attempts": 3, "backoff": {"type": "exponential", "delay": 7_200_000}}
    ids = [
        await peer.ask("add", queue=queue, job="late", data={"fail": "x"}, opts=options)
        for queue in ("q", "node")
    ]
    (job,) = await side.take()
    await side.fail(job)
    await peer.ask("work", queue="node")
    await peer.until("failed")

    ours, theirs = [
        (await peer.ask("job", queue=queue, id=each))["delay"]
        for queue, each in zip(("q", "node"), ids, strict=True)
    ]
    assert 7_200_000 == theirs == ours


@pytest.mark.req("B-4")
@pytest.mark.parametrize("job", ["good", "bad"])
async def test_listener_of_a_queue_that_keeps_no_events_receives_the_ends_of_jobs(
    side: Side, peer: Peer, raw: Redis, prefix: str, job: str
) -> None:
    await peer.ask("listen", queue="q")
    job_id = await peer.ask("add", queue="q", job=job, data={}, opts={"attempts": 1})
    await raw.hset(f"{prefix}:q:meta", "opts.maxLenEvents", 0)

    (taken,) = await side.take()
    await (side.fail(taken) if job == "bad" else side.complete(taken))

    await peer.until("event:failed" if job == "bad" else "event:completed", jobId=job_id)
    await peer.until("event:drained")
    assert 4 > await raw.xlen(f"{prefix}:q:events")
