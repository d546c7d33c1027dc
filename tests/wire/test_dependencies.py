"""Dependencies between Python jobs, as Node sees them: flows whose jobs run on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.maintenance.reaper import Reaper
from holdfast.model import lifecycle
from holdfast.model.job import TERMINAL, Event, State
from holdfast.observe.observer import Silent
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.randomness import Randomness
from holdfast.store.redis import RedisStore
from tests.waiting import eventually
from tests.wire.side import Side

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from holdfast.model.job import Job
    from tests.servers import Valkey
    from tests.wire.peer import Peer

STRICT = ("AFTER", "CHAIN", "FAN_IN")
"""The kinds that fail with a dependency."""
KINDS = (*STRICT, "AFTER_ALL")
SHORT = {"lockDuration": 500, "stalledInterval": 300}


async def children(peer: Peer, job: Job, queue: str = "q") -> dict[str, Any]:
    """Return what Node reads of a job's children."""
    found = await peer.ask("onJob", queue=queue, id=job.id, method="getDependencies")
    return {name: value for name, value in found.items() if not name.startswith("next")}


async def counts(peer: Peer, job: Job) -> dict[str, int]:
    options = {"processed": True, "unprocessed": True, "failed": True, "ignored": True}
    return dict(
        await peer.ask("onJob", queue="q", id=job.id, method="getDependenciesCount", args=[options])
    )


async def values(peer: Peer, job: Job) -> dict[str, Any]:
    return dict(await peer.ask("onJob", queue="q", id=job.id, method="getChildrenValues"))


async def run_with_node(peer: Peer, queue: str, job: Job, outcome: str = "completed") -> None:
    """Let Node run what is ready in a queue until a job has ended; then stop its worker."""
    await peer.ask("work", queue=queue)
    await peer.until(outcome, id=job.id)
    await peer.ask("rest", queue=queue)


@pytest.mark.req("B-1", "B-7", "M-9")
@pytest.mark.parametrize("kind", KINDS)
async def test_node_sees_dependencies_as_children(
    side: Side, peer: Peer, prefix: str, kind: str
) -> None:
    first, second = await side.add("first"), await side.add("second", queue="other")
    parent = await side.add("parent", after=[first, second], dependency_type=kind)

    keys = {f"{prefix}:q:{first.id}", f"{prefix}:other:{second.id}"}
    assert "waiting-children" == await peer.ask("state", queue="q", id=parent.id)
    assert keys == set((await children(peer, parent))["unprocessed"])
    tree = await peer.ask("tree", queue="q", id=parent.id)
    assert {("first", "waiting"), ("second", "waiting")} == {
        (child["name"], child["state"]) for child in tree["children"]
    }
    child = await peer.ask("job", queue="q", id=first.id)
    assert f"{prefix}:q:{parent.id}" == child["parentKey"]
    assert parent.id == child["parent"]["id"]


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize("kind", [*KINDS, "AFTER_ANY"])
async def test_children_that_node_completes_release_a_parent_of_ours(
    side: Side, peer: Peer, prefix: str, kind: str
) -> None:
    child = await side.add("child", {"result": {"sum": 3}})
    parent = await side.add("parent", {"children": True}, after=[child], dependency_type=kind)

    await peer.ask("work", queue="q")
    await peer.until("completed", id=parent.id)

    done = await side.get(parent.id)
    key = f"{prefix}:q:{child.id}"
    assert State.COMPLETED is done.state
    assert done.result is not None
    assert {key: {"sum": 3}} == await values(peer, parent)
    assert key.encode() in done.result


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize("last", ["python", "node"])
async def test_parent_runs_once_after_children_of_both_sides(
    side: Side, peer: Peer, prefix: str, last: str
) -> None:
    ours = await side.add("ours", queue="ours")
    theirs = await side.add("theirs", {"result": "node"}, queue="theirs")
    parent = await side.add("parent", {"children": True}, after=[ours, theirs])

    async def complete_ours() -> None:
        (job,) = await side.take(queue="ours")
        await side.complete(job, b'"python"')

    if last == "node":
        await complete_ours()
    await run_with_node(peer, "theirs", theirs)
    assert State.PENDING is (await side.get(parent.id)).state or last == "node"
    if last == "python":
        await complete_ours()
    await release_dependents(side.store)

    assert "waiting" == await peer.ask("state", queue="q", id=parent.id)
    expected = {f"{prefix}:ours:{ours.id}": "python", f"{prefix}:theirs:{theirs.id}": "node"}
    assert expected == await values(peer, parent)
    await peer.ask("work", queue="q")
    await peer.until("completed", id=parent.id)
    (history,) = await side.store.history([parent.id])
    edges = [edge.event for edge in history]
    assert 1 == edges.count(Event.ENQUEUE)
    assert 1 == edges.count(Event.CLAIM)


@pytest.mark.req("B-1", "M-9")
async def test_results_of_our_children_reach_a_handler_in_node(
    side: Side, peer: Peer, prefix: str
) -> None:
    first, second = await side.add("first"), await side.add("second")
    parent = await side.add("parent", {"children": True}, after=[first, second])
    for job in await side.take(2):
        await side.complete(job, b'"%s"' % job.type.encode())
    await release_dependents(side.store)

    await run_with_node(peer, "q", parent)

    job = await peer.ask("job", queue="q", id=parent.id)
    assert {
        f"{prefix}:q:{first.id}": "first",
        f"{prefix}:q:{second.id}": "second",
    } == job["returnvalue"]
    tree = await peer.ask("tree", queue="q", id=parent.id)
    assert ["completed", "completed"] == [child["state"] for child in tree["children"]]


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize("kind", STRICT)
@pytest.mark.parametrize("runner", ["python", "node"])
@pytest.mark.parametrize(("data", "ends"), [("fatal", State.FAILED), ("fail", State.DEAD_LETTER)])
async def test_failed_child_ends_its_parent_alike(
    side: Side, peer: Peer, prefix: str, kind: str, runner: str, data: str, ends: State
) -> None:
    attempts = 1 if data == "fatal" else 2
    child = await side.add(
        "child", {data: "no"}, queue="kids", max_attempts=attempts, backoff={"initial_delay": 0.001}
    )
    parent = await side.add("parent", after=[child], dependency_type=kind)
    after = await side.add("after", after=[parent])

    if runner == "node":
        await peer.ask("work", queue="kids")
        await peer.until("failed", attempts, id=child.id)
        await peer.ask("rest", queue="kids")
    else:
        for _ in range(attempts):
            (job,) = await side.take(queue="kids")
            category = "PERMANENT" if data == "fatal" else "TEMPORARY"
            await side.fail(job, "no", category=category)
    await release_dependents(side.store)

    for job in (parent, after):
        ended = await side.get(job.id)
        assert ends is ended.state
        (history,) = await side.store.history([job.id])
        assert Event.INHERIT is history[-1].event
        assert "failed" == await peer.ask("state", queue="q", id=job.id)
    assert [f"{prefix}:kids:{child.id}"] == (await children(peer, parent))["failed"]
    assert [] == await side.claim()


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize(("data", "ends"), [("fatal", State.FAILED), ("fail", State.DEAD_LETTER)])
async def test_parent_that_node_fails_for_its_child_ends_like_the_child(
    side: Side, peer: Peer, data: str, ends: State
) -> None:
    child = await side.add(
        "child",
        {data: "no"},
        max_attempts=1 if data == "fatal" else 2,
        backoff={"initial_delay": 0.001},
    )
    parent = await side.add("parent", after=[child])
    after = await side.add("after", after=[parent])

    await peer.ask("work", queue="q")
    await peer.until("failed", id=after.id)

    for job in (child, parent, after):
        assert ends is (await side.get(job.id)).state
    assert [] == [entry for entry in await peer.ask("seen") if entry.get("name") == "parent"]


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize("runner", ["python", "node"])
async def test_parent_that_needs_ends_only_runs_after_a_failed_child(
    side: Side, peer: Peer, prefix: str, runner: str
) -> None:
    bad = await side.add("bad", {"fatal": "no"}, queue="kids")
    good = await side.add("good", {"result": 1}, queue="kids")
    parent = await side.add("parent", after=[bad, good], dependency_type="AFTER_ALL")

    if runner == "node":
        await peer.ask("work", queue="kids")
        await peer.until("failed", id=bad.id)
        await peer.until("completed", id=good.id)
    else:
        first, second = await side.take(2, queue="kids")
        await side.fail(first, "no", category="PERMANENT")
        await side.complete(second, b"1")
        await release_dependents(side.store)

    assert "waiting" == await peer.ask("state", queue="q", id=parent.id)
    seen = await children(peer, parent)
    assert {f"{prefix}:kids:{bad.id}": "no"} == seen["ignored"]
    assert {f"{prefix}:kids:{good.id}": 1} == seen["processed"]
    (claimed,) = await side.take()
    assert State.COMPLETED is (await side.complete(claimed)).state


@pytest.mark.req("B-1", "M-9")
async def test_job_that_needs_any_end_completes_while_others_are_open(
    side: Side, peer: Peer
) -> None:
    open_job, quick = await side.add("slow", queue="slow"), await side.add("quick", queue="quick")
    parent = await side.add("parent", after=[open_job, quick], dependency_type="AFTER_ANY")
    assert 2 == (await counts(peer, parent))["unprocessed"]

    await run_with_node(peer, "quick", quick)
    await release_dependents(side.store)
    await run_with_node(peer, "q", parent)

    assert State.COMPLETED is (await side.get(parent.id)).state
    assert {"unprocessed": 0, "processed": 1, "failed": 0, "ignored": 0} == await counts(
        peer, parent
    )


@pytest.mark.req("B-1", "M-9")
async def test_second_dependent_of_a_job_waits_for_it_too(
    side: Side, peer: Peer, prefix: str
) -> None:
    shared = await side.add("shared", {"result": 7}, queue="shared")
    own = await side.add("own", queue="own")
    first = await side.add("first", after=[shared])
    second = await side.add("second", after=[own, shared])

    await run_with_node(peer, "own", own)
    assert "waiting-children" == await peer.ask("state", queue="q", id=second.id)
    await run_with_node(peer, "shared", shared)
    assert "waiting" == await peer.ask("state", queue="q", id=first.id)
    await release_dependents(side.store)

    assert "waiting" == await peer.ask("state", queue="q", id=second.id)
    assert 7 == (await values(peer, second))[f"{prefix}:shared:{shared.id}"]


@pytest.mark.req("B-1", "M-9")
async def test_node_does_not_run_a_parent_one_of_whose_children_failed(
    side: Side, peer: Peer
) -> None:
    bad, good = await side.add("bad", queue="bad"), await side.add("good", queue="good")
    parent = await side.add("parent", after=[bad, good])
    await side.fail((await side.take(queue="bad"))[0], "no", category="PERMANENT")

    await peer.ask("work", queue="q")
    await run_with_node(peer, "good", good)
    await peer.until("failed", id=parent.id)

    assert State.FAILED is (await side.get(parent.id)).state
    assert [] == [entry for entry in await peer.ask("seen") if entry.get("name") == "parent"]


@pytest.mark.req("B-1", "M-9")
async def test_held_parent_waits_for_its_release(side: Side, peer: Peer) -> None:
    child = await side.add("child")
    parent = await side.add("parent", after=[child], hold=True)

    await run_with_node(peer, "q", child)
    await release_dependents(side.store)
    assert "waiting-children" == await peer.ask("state", queue="q", id=parent.id)
    held = await side.get(parent.id)
    await side.swap(held, lifecycle.released(held, now=side.store.now()))
    await release_dependents(side.store)

    assert "waiting" == await peer.ask("state", queue="q", id=parent.id)


@pytest.mark.req("B-1", "M-9")
async def test_parent_with_a_time_of_its_own_is_due_at_that_time(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    child = await side.add("child", {"sleep": 300})
    parent = await side.add("parent", after=[child], delay=60)
    assert parent.due_at is not None

    await run_with_node(peer, "q", child)
    assert "delayed" == await peer.ask("state", queue="q", id=parent.id)

    assert State.DELAYED is (await side.get(parent.id)).state
    score = await raw.zscore(f"{prefix}:q:delayed", parent.id)
    assert score is not None
    assert int(parent.due_at.timestamp() * 1000) == score // 4096


@pytest.mark.req("A-16", "B-1", "M-9")
@pytest.mark.parametrize("runner", ["python", "node"])
async def test_failed_tree_that_is_retried_runs_in_order(
    side: Side, peer: Peer, prefix: str, runner: str
) -> None:
    child = await side.add("child", {"fail": "no", "times": 1, "result": 5}, max_attempts=1)
    parent = await side.add("parent", {"children": True}, after=[child])
    if runner == "node":
        await run_with_node(peer, "q", child, "failed")
    else:
        await side.fail((await side.take())[0], "no", category="PERMANENT")
    await release_dependents(side.store)

    for job in (parent, child):
        failed = await side.get(job.id)
        await side.swap(failed, lifecycle.reopened(failed, now=side.store.now()))
    assert {"unprocessed": 1, "processed": 0, "failed": 0, "ignored": 0} == await counts(
        peer, parent
    )
    await peer.ask("work", queue="q")
    await peer.until("completed", id=parent.id)

    assert State.COMPLETED is (await side.get(parent.id)).state
    assert {f"{prefix}:q:{child.id}": 5} == await values(peer, parent)


@pytest.mark.req("B-1", "M-9")
async def test_parent_does_not_wait_for_a_child_that_node_removes(side: Side, peer: Peer) -> None:
    removed = await side.add("removed", queue="kids")
    other = await side.add("other", queue="kids")
    parent = await side.add("parent", after=[removed, other])

    await peer.ask("onJob", queue="kids", id=removed.id, method="remove")
    await release_dependents(side.store)
    assert State.PENDING is (await side.get(parent.id)).state
    await peer.ask("onJob", queue="kids", id=other.id, method="remove")

    assert "waiting" == await peer.ask("state", queue="q", id=parent.id)
    assert State.SCHEDULED is (await side.get(parent.id)).state


@pytest.mark.req("B-1", "M-9")
async def test_cancelled_parent_stays_cancelled_when_its_child_ends(side: Side, peer: Peer) -> None:
    child = await side.add("child")
    parent = await side.add("parent", after=[child])
    waiting = await side.get(parent.id)
    await side.swap(waiting, lifecycle.cancelled(waiting, now=side.store.now()))

    await run_with_node(peer, "q", child)
    await release_dependents(side.store)

    assert State.CANCELLED is (await side.get(parent.id)).state
    assert "failed" == await peer.ask("state", queue="q", id=parent.id)


@pytest.mark.req("B-1", "B-5", "M-9")
@pytest.mark.parametrize("victim", ["child", "parent"])
async def test_tree_completes_after_its_node_worker_was_killed(
    valkey_server: Valkey, start_peer: Any, peer: Peer, prefix: str, victim: str
) -> None:
    killed = await start_peer(peer.package)
    url = f"{valkey_server.url}?prefix={prefix}&stalled_interval=1"
    async with RedisStore.from_url(url) as store:
        side = Side(store)
        child = await side.add("child", {"hang": True} if victim == "child" else {"result": 1})
        parent = await side.add("parent", {"hang": victim == "parent"}, after=[child])

        await killed.ask("work", queue="q", opts=SHORT)
        await killed.until("started", name=victim)
        await killed.kill()
        await eventually(lambda: _work_until_ended(side, parent))

        assert State.COMPLETED is (await side.get(parent.id)).state
        assert 1 == (await values(peer, parent))[f"{prefix}:q:{child.id}"]
        (history,) = await store.history([parent.id])
        assert 1 == [edge.event for edge in history].count(Event.ENQUEUE)


async def _work_until_ended(side: Side, job: Job) -> bool:
    """Do what a worker and the leader do, once; return whether a job has ended."""
    await Reaper(side.store, Randomness(), Silent()).once()
    await side.store.promote(10)
    for claimed in await side.claim(2):
        await side.complete(claimed, b"1")
    await release_dependents(side.store)
    return (await side.get(job.id)).state in TERMINAL
