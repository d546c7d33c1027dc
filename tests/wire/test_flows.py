"""Flows made by Node whose children and parents run on either side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.operations.changes import decide_and_swap
from holdfast.operations.dependents import release_dependents
from holdfast.store import Claim
from tests.waiting import eventually

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side


def tree(*children: dict[str, object]) -> dict[str, object]:
    return {
        "name": "parent",
        "queueName": "par",
        "data": {"children": True},
        "children": [{"queueName": "kid", "data": {}, **child} for child in children],
    }


@pytest.mark.req("B-1")
async def test_children_that_we_finish_release_the_parent(side: Side, peer: Peer) -> None:
    made = await peer.ask("flow", tree=tree({"name": "a"}, {"name": "b"}))
    parent = await side.get(f"par:{made['id']}")
    assert State.PENDING is parent.state
    assert [] == await side.store.dependents(10)

    first, second = await side.take(2, queue="kid")
    await side.complete(first, b'"one"')
    assert State.PENDING is (await side.get(parent.id)).state
    await side.complete(second, b'"two"')
    assert State.SCHEDULED is (await side.get(parent.id)).state

    await peer.ask("work", queue="par")
    done = await side.becomes(parent.id, State.COMPLETED)
    assert done.result is not None
    assert b'"one"' in done.result
    assert b'"two"' in done.result


@pytest.mark.req("B-1")
async def test_parent_runs_with_us_after_node_ran_its_children(side: Side, peer: Peer) -> None:
    made = await peer.ask("flow", tree=tree({"name": "a"}))
    await peer.ask("work", queue="kid")
    await peer.until("completed")

    (parent,) = await side.take(queue="par")
    done = await side.complete(parent)

    assert f"par:{made['id']}" == done.id
    assert State.COMPLETED is done.state


@pytest.mark.req("B-1")
@pytest.mark.parametrize(
    ("option", "parent_runs", "parent_ends"),
    [
        ("failParentOnFailure", False, State.FAILED),
        ("continueParentOnFailure", True, State.COMPLETED),
        ("ignoreDependencyOnFailure", True, State.COMPLETED),
        ("removeDependencyOnFailure", True, State.COMPLETED),
        (None, False, State.PENDING),
    ],
)
async def test_child_that_we_fail_affects_its_parent_as_its_option_requires(
    side: Side, peer: Peer, option: str | None, parent_runs: bool, parent_ends: State
) -> None:
    opts = {option: True} if option else {}
    made = await peer.ask("flow", tree=tree({"name": "bad", "opts": opts}))
    (child,) = await side.take(queue="kid")
    await side.fail(child, "broken", category="PERMANENT")

    taken = await side.claim(queue="par")
    for parent in taken:
        await side.complete(parent)

    assert parent_runs == bool(taken)
    assert parent_ends is (await side.get(f"par:{made['id']}")).state


@pytest.mark.req("B-1")
async def test_child_that_node_fails_fails_the_parent_that_we_claim(side: Side, peer: Peer) -> None:
    bad = {"name": "bad", "data": {"fail": "broken"}, "opts": {"failParentOnFailure": True}}
    made = await peer.ask("flow", tree=tree(bad))
    await peer.ask("work", queue="kid")
    await peer.until("failed")

    assert [] == await side.claim(queue="par")

    parent = await side.get(f"par:{made['id']}")
    assert State.FAILED is parent.state
    assert parent.failure is not None
    assert "failed" in parent.failure.message


async def parent_after_its_child_failed(
    peer: Peer, raw: Redis, prefix: str, parent_id: str
) -> dict[str, Any]:
    """Return what an observer sees of a parent: its state, keys and events."""
    base = f"{prefix}:par:"
    events = [fields for _, fields in await raw.xrange(f"{base}events")]
    return {
        "state": await peer.ask("state", queue="par", id=parent_id),
        "wait": len(await raw.lrange(f"{base}wait", 0, -1)),
        "dependencies": await raw.scard(f"{base}{parent_id}:dependencies"),
        "kept": bool(await raw.exists(f"{base}{parent_id}")),
        "events": [(e["event"], e.get("prev")) for e in events if e.get("jobId") == parent_id],
    }


@pytest.mark.req("B-1", "B-3")
@pytest.mark.parametrize("keep", [True, {"count": 1}])
async def test_child_that_is_deleted_when_it_fails_leaves_its_parent_as_with_node(
    side: Side, peer: Peer, raw: Redis, prefix: str, keep: object
) -> None:
    bad = {"name": "bad", "data": {"fatal": "no"}, "opts": {"removeOnFail": keep}}
    other = {"name": "other", "data": {"fatal": "no", "sleep": 5}, "opts": {"removeOnFail": keep}}
    seen = []
    for runner in ("python", "node"):
        used = f"{prefix}{runner}" if runner == "node" else prefix
        await peer.ask("use", prefix=used)
        made = await peer.ask("flow", tree={**tree(bad), "opts": {"priority": 5, "delay": 60_000}})
        await peer.ask("add", queue="kid", **_as_job(other))
        if runner == "python":
            for child in await side.take(2, queue="kid"):
                await side.fail(child, "no", category="PERMANENT")
                await asyncio.sleep(0.005)  # the next ends in another millisecond
        else:
            await peer.ask("work", queue="kid")
            await peer.until("failed", 2)
        seen.append(await parent_after_its_child_failed(peer, raw, used, made["id"]))

    assert seen[0] == seen[1]
    assert ("waiting", 1) == (seen[0]["state"], seen[0]["wait"])


def _as_job(node: dict[str, Any]) -> dict[str, Any]:
    return {"job": node["name"], "data": node["data"], "opts": node["opts"]}


@pytest.mark.req("B-1", "B-3")
@pytest.mark.parametrize(("keep", "is_kept"), [(True, False), (False, True), (5, True)])
async def test_parent_that_fails_through_its_child_is_kept_as_its_own_option_requires(
    side: Side, peer: Peer, raw: Redis, prefix: str, keep: object, is_kept: bool
) -> None:
    bad = {"name": "bad", "data": {"fatal": "no"}, "opts": {"failParentOnFailure": True}}
    seen = []
    for runner in ("python", "node"):
        used = f"{prefix}{runner}" if runner == "node" else prefix
        await peer.ask("use", prefix=used)
        made = await peer.ask("flow", tree={**tree(bad), "opts": {"removeOnFail": keep}})
        if runner == "python":
            (child,) = await side.take(queue="kid")
            await side.fail(child, "no", category="PERMANENT")
            assert [] == await side.claim(queue="par")
        else:
            await peer.ask("work", queue="kid")
            await peer.ask("work", queue="par")
            await peer.until("failed", 2)
        seen.append(await parent_after_its_child_failed(peer, raw, used, made["id"]))

    assert seen[0] == seen[1]
    assert is_kept is seen[0]["kept"]


@pytest.mark.req("B-5")
@pytest.mark.parametrize(
    ("option", "state"),
    [
        ("failParentOnFailure", State.FAILED),
        ("continueParentOnFailure", State.RUNNING),
        ("ignoreDependencyOnFailure", State.RUNNING),
        ("removeDependencyOnFailure", State.RUNNING),
    ],
)
async def test_parent_is_released_and_claimed_by_the_claim_that_fails_its_stalled_child(
    side: Side, peer: Peer, raw: Redis, prefix: str, option: str, state: State
) -> None:
    made = await peer.ask("flow", tree=tree({"name": "a", "opts": {option: True}}))
    child, parent = made["children"][0]["id"], f"par:{made['id']}"
    await raw.hset(f"{prefix}:kid:{child}", "defa", "job stalled more than allowable limit")

    want = Claim(queues=("kid", "par"), limit=2, worker="python", token="token")
    claimed = await side.store.claim(want)

    assert state is (await side.get(parent)).state
    if state is State.RUNNING:
        assert [parent] == [job.id for job in claimed]
        assert State.COMPLETED is (await side.complete(claimed[0])).state


@pytest.mark.req("B-1")
@pytest.mark.parametrize("attempts", [1, 2])
async def test_job_with_pending_children_cannot_complete(
    side: Side, peer: Peer, raw: Redis, prefix: str, attempts: int
) -> None:
    seen = []
    for runner in ("python", "node"):
        used = f"{prefix}{runner}" if runner == "node" else prefix
        await peer.ask("use", prefix=used)
        parent = {"job": "p", "data": {}, "opts": {"jobId": "p", "attempts": attempts}}
        await peer.ask("add", queue="par", **parent)
        child = {"parent": {"id": "p", "queue": f"{used}:par"}}
        await peer.ask("add", queue="kid", job="c", data={}, opts=child)
        if runner == "python":
            for _ in range(attempts):
                (job,) = await side.take(queue="par")
                await decide_and_swap(
                    side.store, [job], lambda _, job, now: lifecycle.completed(job, b"1", now=now)
                )
        else:
            await peer.ask("work", queue="par")
            await peer.until("failed", attempts)
        names = ("failedReason", "atm", "ats", "returnvalue")
        seen.append(
            (
                await peer.ask("state", queue="par", id="p"),
                dict(zip(names, await raw.hmget(f"{used}:par:p", names), strict=True)),
                await raw.scard(f"{used}:par:p:dependencies"),
            )
        )

    assert seen[0] == seen[1]
    assert "failed" == seen[0][0]


@pytest.mark.req("B-1", "M-9")
@pytest.mark.parametrize(
    ("node_job", "ends"),
    [
        ({"data": {}, "opts": {"removeOnComplete": True}}, State.SCHEDULED),
        ({"data": {"fatal": "no"}, "opts": {"removeOnFail": True}}, State.FAILED),
        (
            {"data": {"fail": "no"}, "opts": {"attempts": 2, "removeOnFail": True}},
            State.DEAD_LETTER,
        ),
    ],
)
async def test_dependency_that_node_ran_and_removed_counts_as_it_ended(
    side: Side, peer: Peer, raw: Redis, prefix: str, node_job: dict[str, Any], ends: State
) -> None:
    wire_id = await peer.ask("add", queue="q", job="first", **node_job)
    first = await side.get(f"q:{wire_id}")
    dependent = await side.add("second", after=[first])

    await peer.ask("work", queue="q")
    await peer.until("failed" if "removeOnFail" in node_job["opts"] else "completed", id=wire_id)
    await eventually(lambda: _deleted(raw, f"{prefix}:q:{wire_id}"))
    await peer.ask("rest", queue="q")
    await release_dependents(side.store)

    assert ends is (await side.get(dependent.id)).state


@pytest.mark.req("B-1")
@pytest.mark.parametrize("runner", ["python", "node"])
async def test_wait_returns_the_end_of_a_job_that_is_removed_when_it_completes(
    side: Side, peer: Peer, runner: str
) -> None:
    options = {"removeOnComplete": True}
    wire_id = await peer.ask(
        "add", queue="q", job="t", data={"result": {"sum": 3}, "sleep": 50}, opts=options
    )
    async with Holdfast(store=side.store) as app:
        waiting = asyncio.create_task(app.wait(f"q:{wire_id}", timeout=10))
        await asyncio.sleep(0.3)  # it has read the job by then, which nothing announces

        if runner == "python":
            await side.complete((await side.take())[0], b'{"sum":3}')
        else:
            await peer.ask("work", queue="q")

        status = await waiting
        assert (State.COMPLETED, {"sum": 3}) == (status.state, status.result.output)
        assert [None] == await side.store.get([f"q:{wire_id}"])


async def _deleted(raw: Redis, key: str) -> bool:
    return not await raw.exists(key)
