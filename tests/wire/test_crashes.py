"""Workers that die with jobs of BullMQ: the queue ends as it does without holdfast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.maintenance.reaper import Reaper
from holdfast.model.job import Event, State
from holdfast.observe.observer import Silent
from holdfast.runtime.randomness import Randomness
from holdfast.store import Fence
from holdfast.store.redis import RedisStore
from tests.waiting import eventually
from tests.wire.side import Side
from tests.worker.machines import Machines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer

SHORT = {"lockDuration": 500, "stalledInterval": 300, "maxStalledCount": 1}
TOO_OFTEN = "job stalled more than allowable limit"


@pytest.fixture
async def quick(valkey_server: Valkey, prefix: str) -> AsyncIterator[Side]:
    """A Python side that checks for stalled jobs every second."""
    url = f"{valkey_server.url}?prefix={prefix}&stalled_interval=1"
    async with RedisStore.from_url(url) as store:
        yield Side(store)


@pytest.fixture
def machines(tmp_path: Path, valkey_server: Valkey, prefix: str) -> Iterator[Machines]:
    """Real Python worker processes that check for stalled jobs every second."""
    machines = Machines(tmp_path, f"{valkey_server.url}?prefix={prefix}&stalled_interval=1")
    yield machines
    machines.clear()


async def crash(start_peer: Any, peer: Peer, queue: str = "q", **opts: object) -> str:
    """Kill a Node worker while it runs a new job; return the job's id in BullMQ."""
    victim = await start_peer(peer.package)
    await victim.ask("work", queue=queue, opts=SHORT)
    wire_id = str(await victim.ask("add", queue=queue, job="add", data={"hang": True}, opts=opts))
    await victim.until("started")
    await victim.kill()
    return wire_id


async def reaped(side: Side) -> Reaper:
    """Return a reaper that has looked after the queues for one round."""
    reaper = Reaper(side.store, Randomness(), Silent())
    await reaper.once()
    return reaper


async def left_behind(raw: Redis, key: str) -> dict[str, str | None]:
    """Return what a stall leaves in a job's hash."""
    names = ("stc", "atm", "ats", "defa", "failedReason", "finishedOn")
    return dict(zip(names, await raw.hmget(key, names), strict=True))


async def events_of(raw: Redis, stream: str, job_id: str) -> list[str]:
    entries = await raw.xrange(stream)
    return [fields["event"] for _, fields in entries if fields.get("jobId") == job_id]


@pytest.mark.req("B-5")
@pytest.mark.parametrize("checker", ["node", "python"])
async def test_job_of_a_crashed_node_worker_stalls_once_and_runs_again(
    quick: Side, start_peer: Any, peer: Peer, raw: Redis, prefix: str, checker: str
) -> None:
    wire_id = await crash(start_peer, peer)
    await quick.becomes(f"q:{wire_id}", State.RUNNING)
    key, stream = f"{prefix}:q:{wire_id}", f"{prefix}:q:events"

    if checker == "node":
        # A worker of a paused queue checks for stalled jobs, and fetches none.
        await peer.ask("call", queue="q", method="pause")
        await peer.ask("work", queue="q", opts=SHORT)
    else:
        await quick.claim()
        reaper = await reaped(quick)

    async def stalled() -> bool:
        if checker == "python":
            await reaper.once()
        return "stalled" in await events_of(raw, stream, wire_id)

    await eventually(stalled, every=0.1)
    await peer.ask("rest", queue="q")
    left = await left_behind(raw, key)
    assert {"stc": "1", "atm": None, "ats": "1"} == {n: left[n] for n in ("stc", "atm", "ats")}
    assert (None, None, None) == (left["defa"], left["failedReason"], left["finishedOn"])
    assert ["added", "waiting", "active", "waiting", "stalled"] == await events_of(
        raw, stream, wire_id
    )
    assert not await raw.exists(f"{key}:lock")
    job = await quick.get(f"q:{wire_id}")
    assert (State.SCHEDULED, 0, 1) == (job.state, job.attempt, job.lease_version)
    (history,) = await quick.store.history([job.id])
    assert [Event.LAPSE, Event.DUE] == [edge.event for edge in history[-2:]]


@pytest.mark.req("B-5")
async def test_job_that_stalls_too_often_fails_with_the_text_of_bullmq(
    quick: Side, start_peer: Any, peer: Peer, raw: Redis, prefix: str
) -> None:
    wire_id = await crash(start_peer, peer, attempts=5)
    await raw.hset(f"{prefix}:q:{wire_id}", "stc", "1")
    await quick.claim()
    reaper = await reaped(quick)

    async def failed() -> bool:
        await reaper.once()
        await quick.claim()
        return bool(await raw.zscore(f"{prefix}:q:failed", wire_id))

    await eventually(failed, every=0.1)
    seen = await peer.ask("job", queue="q", id=wire_id)
    assert ("failed", TOO_OFTEN) == (seen["state"], seen["failedReason"])
    assert 2 == seen["stalledCounter"]


@pytest.mark.req("B-5")
async def test_queue_that_no_python_worker_serves_is_left_alone(
    quick: Side, start_peer: Any, peer: Peer, raw: Redis, prefix: str
) -> None:
    wire_id = await crash(start_peer, peer, queue="theirs")
    delayed = await peer.ask("add", queue="theirs", job="late", data={}, opts={"delay": 1})
    key = f"{prefix}:theirs:{wire_id}"
    assert State.RUNNING is (await quick.get(f"theirs:{wire_id}")).state
    await quick.claim()
    reaper = await reaped(quick)
    await eventually(lambda: _absent(raw, f"{key}:lock"), every=0.05)
    await raw.delete(f"{prefix}:theirs:stalled-check")
    before = await raw.xlen(f"{prefix}:theirs:events")

    for _ in range(3):
        await reaper.once()
        await quick.store.promote(100)

    assert [wire_id] == await raw.lrange(f"{prefix}:theirs:active", 0, -1)
    assert await raw.zscore(f"{prefix}:theirs:delayed", delayed)
    assert before == await raw.xlen(f"{prefix}:theirs:events")
    assert (None, None) == tuple(await raw.hmget(key, "stc", "atm"))
    assert not await raw.exists(f"{prefix}:theirs:stalled-check")
    await raw.hset(key, "data", "{}")
    await peer.ask("work", queue="theirs", opts=SHORT)
    await peer.until("completed", id=wire_id)
    await peer.until("completed", id=delayed)


@pytest.mark.req("B-5")
async def test_node_job_of_a_crashed_python_worker_stalls_without_using_up_its_attempt(
    quick: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    wire_id = await peer.ask("add", queue="q", job="add", data={})
    (held,) = await quick.take()
    await raw.delete(f"{prefix}:q:{wire_id}:lock")
    reaper = await reaped(quick)

    async def ready() -> bool:
        await reaper.once()
        return bool(await raw.llen(f"{prefix}:q:wait"))

    await eventually(ready, every=0.1)
    (again,) = await quick.take()
    assert (held.id, 1, 2) == (again.id, again.attempt, again.lease_version)
    assert "1" == await raw.hget(f"{prefix}:q:{wire_id}", "stc")
    assert State.COMPLETED is (await quick.complete(again)).state


@pytest.mark.req("B-5")
async def test_node_job_of_a_python_process_known_to_be_dead_stalls_at_once(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    wire_id = await peer.ask("add", queue="q", job="add", data={})
    (held,) = await side.take()
    assert held.lease is not None
    reaper = Reaper(side.store, Randomness(), Silent())

    await reaper.recover([Fence(held.id, held.lease.token)], "worker process was killed")

    left = await left_behind(raw, f"{prefix}:q:{wire_id}")
    assert ("1", None, None) == (left["stc"], left["defa"], left["failedReason"])
    assert State.SCHEDULED is (await side.get(held.id)).state
    await peer.ask("work", queue="q")
    await peer.until("completed", id=wire_id)


@pytest.mark.req("B-5")
async def test_our_job_that_a_crashed_node_worker_held_stalls_as_bullmq_does(
    quick: Side, start_peer: Any, peer: Peer, raw: Redis, prefix: str
) -> None:
    ours = await quick.add("hold", {"hang": True}, max_attempts=1)
    victim = await start_peer(peer.package)
    await victim.ask("work", queue="q", opts=SHORT)
    await quick.becomes(ours.id, State.RUNNING)
    await victim.kill()
    await quick.claim()
    reaper = await reaped(quick)

    async def ready() -> bool:
        await reaper.once()
        return (await quick.get(ours.id)).state is State.SCHEDULED

    await eventually(ready, every=0.1)
    assert "1" == await raw.hget(f"{prefix}:q:{ours.id}", "stc")
    (again,) = await quick.take()
    assert (1, 2) == (again.attempt, again.lease_version)


@pytest.mark.req("B-5")
async def test_python_worker_process_runs_the_job_of_a_crashed_node_worker(
    side: Side, start_peer: Any, peer: Peer, machines: Machines, raw: Redis, prefix: str
) -> None:
    wire_id = await crash(start_peer, peer)
    await raw.hset(f"{prefix}:q:{wire_id}", "data", '{"a":1,"b":2}')

    machines.start("alone", queues=["q"])

    done = await side.becomes(f"q:{wire_id}", State.COMPLETED)
    assert (1, 2) == (done.attempt, done.lease_version)


async def _absent(raw: Redis, key: str) -> bool:
    return not await raw.exists(key)
