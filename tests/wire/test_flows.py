"""Flows made by Node whose children and parents run on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import State

if TYPE_CHECKING:
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
