"""Queues with what happens in them, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Submission
from holdfast.maintenance.summariser import Summariser
from holdfast.model.workers import WorkerInfo
from holdfast.operations.workers import announce
from holdfast.store import Claim
from holdfast.store.tenants import TenantStore

if TYPE_CHECKING:
    from holdfast.model.queues import QueueActivity
    from holdfast.operations.operations import Operations
    from holdfast.runtime.clock import ManualClock
    from tests.app.conftest import Drain

pytestmark = pytest.mark.req("O-5")

MINUTE = timedelta(minutes=1)


async def activity(app: Holdfast | Operations) -> dict[str, QueueActivity]:
    return {queue.name: queue.activity for queue in await app.queues() if queue.activity}


async def test_overview_has_ages_rates_and_failures_of_each_queue(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    app.task("bad", max_attempts=1)(_fails)
    for _ in range(3):
        await app.submit("bad")
    await drain()
    clock.advance(30 * MINUTE)
    await Summariser(app.store).once()
    for _ in range(6):
        await app.submit("t", queue="side")
    clock.advance(10)
    await app.store.claim(Claim(queues=("side",), limit=1, worker="w", token="x"))

    found = await activity(app)
    stats = await app.stats()

    default, side = found["default"], found["side"]
    assert (0, 0, None) == (default.ready, default.running, default.oldest_ready_seconds)
    assert (3, 0, 3) == (default.submitted, default.completed, default.failed)
    assert (0, 0) == (default.in_rate, default.out_rate)
    assert (5, 1, 6) == (side.ready, side.running, side.submitted)
    assert 10.0 == side.oldest_ready_seconds == stats.oldest_ready_seconds
    assert 6 / 360 <= side.in_rate <= 6 / 300


async def test_overview_names_workers_slots_and_limits_that_hold_jobs_back(
    app: Holdfast, clock: ManualClock
) -> None:
    for number, draining in enumerate((False, False, True)):
        worker = WorkerInfo(
            id=f"w{number}",
            host="h",
            pid=1,
            queues=("default", "side"),
            types=("t",),
            slots=4,
            running=0,
            started_at=clock.now(),
            draining=draining,
        )
        await announce(app.store, worker)
    await app.set_limit("queue:default", concurrency=1)
    await app.set_limit("task:t", rate=1, per=60)
    await app.set_limit("task:other", concurrency=1)
    for queue in ("default", "default", "side"):
        await app.submit("t", queue=queue)
    await app.submit("u", queue="third")
    await app.store.claim(Claim(queues=("default",), limit=1, worker="w0", token="x"))

    found = await activity(app)
    clock.advance(61)
    later = await activity(app)

    assert (2, 8) == (found["default"].workers, found["default"].slots)
    assert (0, 0) == (found["third"].workers, found["third"].slots)
    assert {
        "default": ("queue:default", "task:t"),
        "side": ("task:t",),
        "third": (),
    } == {name: each.held_back_by for name, each in found.items()}
    assert ("queue:default",) == later["default"].held_back_by


@pytest.mark.parametrize("namespace", ["", "acme"])
async def test_overview_of_a_namespace_has_its_own_queues(app: Holdfast, namespace: str) -> None:
    tenants = {name: app.over(TenantStore(app.store, name)) for name in ("", "acme")}
    for count, tenant in enumerate(tenants.values(), 1):
        for _ in range(count):
            await tenant.submit(Submission(type="t"))

    found = await activity(tenants[namespace])

    assert {"default": 1 if not namespace else 2} == {
        name: each.submitted for name, each in found.items()
    }


def _fails() -> None:
    raise ValueError("no")
