"""The lock is the fence: a holder that lost it changes nothing, also when no event tells of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StaleLeaseError
from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import Progress, State
from holdfast.model.submission import Submission
from holdfast.store import Change, Fence, JobNote
from tests.waiting import eventually

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from holdfast.model.job import Job
    from tests.wire.peer import Peer
    from tests.wire.side import Side

SHORT = {"lockDuration": 5000, "stalledInterval": 100, "maxStalledCount": 5}


@pytest.fixture(params=["ours", "theirs"])
async def held(request: pytest.FixtureRequest, side: Side, peer: Peer) -> Job:
    """A job of either side that Python has claimed."""
    if request.param == "ours":
        await side.add("job", {"sleep": 2000})
    else:
        await peer.ask("add", queue="q", job="job", data={"sleep": 2000}, opts={"attempts": 3})
    (job,) = await side.take()
    return job


def wire_id(job: Job) -> str:
    return job.id.removeprefix("q:")


async def taken_by_node(peer: Peer, raw: Redis, prefix: str, job: Job) -> None:
    """Have Node find the job stalled and start it, then delete every event of it."""
    await raw.delete(f"{prefix}:q:{wire_id(job)}:lock")
    await peer.ask("work", queue="q", opts=SHORT)
    await peer.until("started", id=wire_id(job))
    await peer.ask("call", queue="q", method="trimEvents", args=[0])


async def answers(side: Side, job: Job) -> list[bool]:
    """Return which of all answers of a holder are accepted."""
    assert job.lease is not None
    now = side.store.now()
    fence = Fence(job.id, job.lease.token)
    (note,) = await side.store.note([JobNote(fence=fence, progress=Progress(50, "", now))])
    extended = await side.extend(job)
    changes = [
        lifecycle.given_back(job, now=now),
        lifecycle.lease_lost(job, now=now),
        lifecycle.completed(job, b"1", now=now),
    ]
    swapped = [(await side.store.swap([Change(job, after)]))[0].written for after in changes]
    return [note, extended, *swapped]


@pytest.mark.req("S-5", "B-8")
async def test_stale_holder_changes_nothing_after_the_events_were_trimmed(
    side: Side, peer: Peer, held: Job, raw: Redis, prefix: str
) -> None:
    await taken_by_node(peer, raw, prefix, held)
    key = f"{prefix}:q:{wire_id(held)}"
    lock = await raw.get(f"{key}:lock")

    assert [False] * 5 == await answers(side, held)

    assert lock == await raw.get(f"{key}:lock")
    assert [wire_id(held)] == await raw.lrange(f"{prefix}:q:active", 0, -1)
    assert not await raw.hexists(key, "returnvalue")
    await peer.until("completed", id=wire_id(held))
    assert '{"ran":"job"}' == await raw.hget(key, "returnvalue")


@pytest.mark.req("S-5", "B-8")
async def test_start_by_node_is_seen_although_the_events_were_trimmed(
    side: Side, peer: Peer, held: Job, raw: Redis, prefix: str
) -> None:
    await taken_by_node(peer, raw, prefix, held)

    seen = await side.get(held.id)

    assert seen.lease is not None
    assert await raw.get(f"{prefix}:q:{wire_id(held)}:lock") == seen.lease.token


@pytest.mark.req("S-5", "B-8")
async def test_stale_spawner_spawns_nothing_after_the_events_were_trimmed(
    side: Side, peer: Peer, held: Job, raw: Redis, prefix: str
) -> None:
    new = Submission(type="child", queue="q")
    child = accept(new, job_id=str(uuid.uuid4()), now=side.store.now())
    await taken_by_node(peer, raw, prefix, held)
    assert held.lease is not None

    with pytest.raises(StaleLeaseError):
        await side.store.add([child], fence=Fence(held.id, held.lease.token))


@pytest.mark.req("S-5", "B-8")
async def test_late_answer_is_refused_while_the_job_waits_after_a_stall_without_events(
    side: Side, peer: Peer, held: Job, raw: Redis, prefix: str
) -> None:
    await peer.ask("call", queue="q", method="pause")
    await raw.delete(f"{prefix}:q:{wire_id(held)}:lock")
    await peer.ask("work", queue="q", opts=SHORT)
    await eventually(lambda: _not_active(raw, prefix), every=0.05)
    await peer.ask("rest", queue="q")
    await peer.ask("call", queue="q", method="trimEvents", args=[0])

    assert [False] * 5 == await answers(side, held)

    assert State.SCHEDULED is (await side.get(held.id)).state
    assert 0 == await raw.zcard(f"{prefix}:q:completed")


@pytest.mark.req("S-5", "B-8")
async def test_late_answer_is_refused_while_another_token_has_the_lock(
    side: Side, held: Job, raw: Redis, prefix: str
) -> None:
    key = f"{prefix}:q:{wire_id(held)}:lock"
    await raw.set(key, "another", px=60_000)

    assert [False] * 5 == await answers(side, held)

    assert "another" == await raw.get(key)


@pytest.mark.req("S-5", "B-8")
async def test_late_answer_is_accepted_when_nothing_shows_another_holder(
    side: Side, peer: Peer, held: Job, raw: Redis, prefix: str
) -> None:
    key = f"{prefix}:q:{wire_id(held)}"
    await raw.delete(f"{key}:lock")
    await peer.ask("call", queue="q", method="trimEvents", args=[0])

    assert await side.extend(held)
    await raw.delete(f"{key}:lock")
    done = await side.complete(held)

    assert State.COMPLETED is done.state
    assert [] == await raw.lrange(f"{prefix}:q:active", 0, -1)


async def _not_active(raw: Redis, prefix: str) -> bool:
    return not await raw.llen(f"{prefix}:q:active")
