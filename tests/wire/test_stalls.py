"""Workers that die without releasing their jobs, on either side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.model import lifecycle
from holdfast.model.job import Event, State
from holdfast.store import Change
from holdfast.store.redis import RedisStore
from tests.waiting import eventually
from tests.wire.side import Side
from tests.worker.machines import Machines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer

SHORT = {"lockDuration": 500, "stalledInterval": 300, "maxStalledCount": 1}


@pytest.fixture
def machines(tmp_path: Path, valkey_server: Valkey, prefix: str) -> Iterator[Machines]:
    """Real Python worker processes on the same queues."""
    machines = Machines(tmp_path, f"{valkey_server.url}?prefix={prefix}")
    yield machines
    machines.clear()


@pytest.mark.req("S-7")
async def test_node_worker_that_renews_its_lock_is_not_overdue(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q", opts=SHORT)
    wire_id = await peer.ask("add", queue="q", job="slow", data={"sleep": 1500})
    await side.becomes(f"q:{wire_id}", State.RUNNING)

    for _ in range(10):
        assert [] == await side.store.overdue(10)
        await side.store.events(None, 0, lifecycle.SECOND)
        await asyncio.sleep(0.1)  # looks spread over several of its lock times

    await side.becomes(f"q:{wire_id}", State.COMPLETED)


@pytest.mark.req("S-6", "B-5")
async def test_our_silent_job_is_taken_over_by_a_node_worker(side: Side, peer: Peer) -> None:
    job = await side.add("orphan", {}, lease=0.3, max_attempts=3)
    (held,) = await side.take()
    assert job.id == held.id

    await peer.ask("work", queue="q", opts=SHORT)
    done = await side.becomes(job.id, State.COMPLETED)

    assert 2 == done.lease_version
    (history,) = await side.store.history([job.id])
    assert [Event.CLAIM, Event.LAPSE, Event.DUE, Event.CLAIM, Event.COMPLETE] == [
        edge.event for edge in history[2:]
    ]


@pytest.mark.req("S-5")
async def test_late_answer_is_refused_once_node_has_taken_the_job(side: Side, peer: Peer) -> None:
    job = await side.add("orphan", {"sleep": 300}, lease=0.3)
    (held,) = await side.take()
    await peer.ask("work", queue="q", opts=SHORT)
    await peer.until("started", id=job.id)

    late = lifecycle.completed(held, b"1", now=side.store.now())
    (answer,) = await side.store.swap([Change(held, late)])

    assert not answer.written
    assert not await side.extend(held)
    done = await side.becomes(job.id, State.COMPLETED)
    assert b'{"ran":"orphan"}' == done.result


@pytest.mark.req("S-5")
async def test_late_answer_is_accepted_while_no_other_worker_has_the_job(
    side: Side, raw: Redis, prefix: str
) -> None:
    job = await side.add("late", {}, lease=0.2)
    (held,) = await side.take()
    await raw.delete(f"{prefix}:q:{job.id}:lock")

    done = await side.complete(held)

    assert State.COMPLETED is done.state
    assert 1.0 <= await raw.zscore(f"{prefix}:q:completed", job.id)


@pytest.mark.req("B-5")
async def test_job_that_node_found_stalled_too_often_is_failed_not_run(
    side: Side, raw: Redis, prefix: str
) -> None:
    job = await side.add("stalled", {})
    await raw.hset(f"{prefix}:q:{job.id}", "defa", "job stalled more than allowable limit")

    assert [] == await side.claim()

    dead = await side.get(job.id)
    assert State.DEAD_LETTER is dead.state
    assert dead.failure is not None
    assert "job stalled more than allowable limit" == dead.failure.message


@pytest.mark.req("S-6", "B-5")
async def test_job_of_a_killed_python_worker_is_run_by_a_node_worker(
    side: Side, peer: Peer, machines: Machines
) -> None:
    payload = {"started": machines.file("started"), "seconds": 60}
    ours = await side.add("hold", payload, lease=1, max_attempts=3)
    process = machines.start("alone", queues=["q"], maintenance=False)
    await side.becomes(ours.id, State.RUNNING)

    process.kill()
    process.wait()
    await peer.ask("work", queue="q", opts=SHORT)

    done = await side.becomes(ours.id, State.COMPLETED)
    assert (b'{"ran":"hold"}', 2) == (done.result, done.lease_version)
    (history,) = await side.store.history([ours.id])
    assert Event.LAPSE in [edge.event for edge in history]


@pytest.mark.req("B-5")
async def test_stalls_are_found_as_the_worker_of_the_queue_says(
    side: Side, start_peer: Any, peer: Peer, valkey_server: Valkey, prefix: str
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}&stalled_interval=1&max_stalled_count=0"
    async with RedisStore.from_url(url) as serving:
        assert [] == await Side(serving).claim()
    killed = await start_peer(peer.package)
    await killed.ask("work", queue="q", opts={"lockDuration": 500, "skipStalledCheck": True})
    wire_id = await peer.ask("add", queue="q", job="hangs", data={"hang": True})
    await killed.until("started")
    await killed.kill()

    async def is_deferred() -> bool:  # the leader, whose own settings are others
        await side.store.promote(10)
        await side.store.overdue(10)
        return (await peer.ask("job", queue="q", id=wire_id))["state"] == "waiting"

    await eventually(is_deferred, within=8)

    assert [] == await side.claim()
    assert "failed" == await peer.ask("state", queue="q", id=wire_id)
