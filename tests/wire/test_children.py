"""Jobs that wait for children which they added while they ran, on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model import children
from holdfast.model.job import DependencyKind, Job, State
from holdfast.operations.dependents import release_dependents
from holdfast.store import Fence

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

ALL, STRICT = DependencyKind.AFTER_ALL, DependencyKind.AFTER
pytestmark = pytest.mark.req("B-1")


async def _spawn(side: Side, parent: Job, type_: str, queue: str = "kid") -> Job:
    child = side.new(type_, queue=queue, spawned_by=parent)
    assert parent.lease is not None
    await side.store.add([child], fence=Fence(parent.id, parent.lease.token))
    return child


async def _wait(side: Side, job: Job, kind: DependencyKind = ALL) -> Job:
    return await side.swap(job, children.waiting(job, kind, now=side.store.now()))


def _bare(job: Job) -> str:
    return job.id.removeprefix(f"{job.queue}:")


@pytest.fixture(params=["python", "node"])
async def job(request: pytest.FixtureRequest, side: Side, peer: Peer) -> Job:
    """A running job that either side made."""
    if request.param == "python":
        await side.add("parent")
    else:
        await peer.ask("add", queue="q", job="parent", data={}, opts={"attempts": 1})
    (taken,) = await side.take()
    return taken


async def test_node_sees_a_waiting_parent_and_releases_it(side: Side, peer: Peer, job: Job) -> None:
    child = await _spawn(side, job, "a")
    await _wait(side, job)
    assert "waiting-children" == await peer.ask("state", queue="q", id=_bare(job))
    assert (
        1
        == (await peer.ask("onJob", queue="q", id=_bare(job), method="getDependenciesCount"))[
            "unprocessed"
        ]
    )

    await peer.ask("work", queue="kid")
    await peer.until("completed")

    again = await side.becomes(job.id, State.SCHEDULED)
    assert 0 == again.attempt
    (again,) = await side.take()
    values = await peer.ask("onJob", queue="q", id=_bare(job), method="getChildrenValues")
    assert [{"ran": "a"}] == list(values.values())
    assert [child.id] == await side.store.children(job.id)
    assert State.COMPLETED is (await side.complete(again)).state
    assert "completed" == await peer.ask("state", queue="q", id=_bare(job))


async def test_node_sees_the_events_and_fields_of_its_own_move(
    side: Side, peer: Peer, raw: Redis, prefix: str, job: Job
) -> None:
    await _spawn(side, job, "a")

    await _wait(side, job)

    stream = [fields for _, fields in await raw.xrange(f"{prefix}:q:events")]
    assert {"event": "waiting-children", "jobId": _bare(job), "prev": "active"} == stream[-1]
    assert ["1", None] == [
        await raw.hget(f"{prefix}:q:{_bare(job)}", "ats"),
        await raw.get(f"{prefix}:q:{_bare(job)}:lock"),
    ]
    assert "0" == (await raw.hget(f"{prefix}:q:{_bare(job)}", "atm") or "0")
    assert [] == await raw.lrange(f"{prefix}:q:active", 0, -1)


@pytest.mark.parametrize("kind", [ALL, STRICT])
async def test_child_that_node_fails_counts_by_the_kind(
    side: Side, peer: Peer, job: Job, kind: DependencyKind
) -> None:
    child = side.new("a", {"fatal": "broke"}, queue="kid", spawned_by=job)
    assert job.lease is not None
    await side.store.add([child], fence=Fence(job.id, job.lease.token))
    await _wait(side, job, kind)

    await peer.ask("work", queue="kid")
    await peer.until("failed")
    await side.becomes(child.id, State.FAILED)
    await release_dependents(side.store)

    if kind is ALL:
        await side.becomes(job.id, State.SCHEDULED)
        ignored = await peer.ask(
            "onJob", queue="q", id=_bare(job), method="getIgnoredChildrenFailures"
        )
        assert ["broke"] == list(ignored.values())
    else:
        taken = await side.claim()
        assert [] == [each for each in taken if each.id != job.id]
        assert await peer.ask("state", queue="q", id=_bare(job)) in ("failed", "active")


async def test_children_that_node_added_are_waited_for_too(
    side: Side, peer: Peer, prefix: str, job: Job
) -> None:
    parent = {"id": _bare(job), "queue": f"{prefix}:q"}
    made = await peer.ask("add", queue="other", job="theirs", data={}, opts={"parent": parent})
    ours = await _spawn(side, job, "ours")
    assert [ours.id, f"other:{made}"] == await side.store.children(job.id)
    await _wait(side, job)

    (taken,) = await side.take(queue="kid")
    await side.complete(taken, b"1")
    await release_dependents(side.store)
    assert State.PENDING is (await side.get(job.id)).state
    await peer.ask("work", queue="other")

    await side.becomes(job.id, State.SCHEDULED)
    values = await peer.ask("onJob", queue="q", id=_bare(job), method="getChildrenValues")
    assert [1, {"ran": "theirs"}] == sorted(values.values(), key=str)


async def test_job_of_ours_waits_for_children_that_a_node_handler_adds(
    side: Side, peer: Peer
) -> None:
    job = await side.add("steps", {"steps": ["a", "b"]}, max_attempts=1)
    await peer.ask("work", queue="q")

    waiting = await side.becomes(job.id, State.PENDING)
    assert ["claim", "wait"] == [edge.event for edge in (await side.store.history([job.id]))[0]][
        -2:
    ]
    assert 0 == waiting.attempt
    for child in await side.take(2, queue="kid"):
        await side.complete(child, b'"py"')

    done = await side.becomes(job.id, State.COMPLETED)
    assert done.result is not None
    assert 2 == done.result.count(b'"py"')


async def test_child_that_ended_before_the_wait_does_not_hold_the_job(
    side: Side, peer: Peer, job: Job
) -> None:
    await _spawn(side, job, "a")
    (child,) = await side.take(queue="kid")
    await side.complete(child, b'"early"')

    await _wait(side, job)
    await release_dependents(side.store)

    (again,) = await side.take()
    values = await peer.ask("onJob", queue="q", id=_bare(job), method="getChildrenValues")
    assert ["early"] == list(values.values())
    await side.complete(again)
