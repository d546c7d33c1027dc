"""Limits, pauses of queues, drained workers and autoscaling, on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, LimitRule, NotFoundError, State, ValidationError
from holdfast.errors import ForbiddenError
from holdfast.maintenance.keeper import Keeper
from holdfast.observe import Silent
from holdfast.operations import pauses
from holdfast.operations.limits import declare_limits
from holdfast.operations.workers import workers
from holdfast.runtime.version import __version__
from holdfast.store import Claim
from holdfast.store.tenants import TenantStore
from holdfast.worker import announcer
from tests.waiting import eventually
from tests.worker.rig import working

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock

CODE = LimitRule(concurrency=5)


async def test_limit_set_at_run_time_holds_against_the_code_until_it_is_lifted(
    app: Holdfast,
) -> None:
    await declare_limits(app.store, {"task:t": CODE})
    made = await app.set_limit("task:t", concurrency=2, rate=10, per="PT1M")
    await declare_limits(app.store, {"task:t": CODE})  # a worker starts
    (held,) = await app.limit_states()
    lifted = await app.lift_limit("task:t")
    (after,) = await app.limit_states()

    assert (2, 10, timedelta(minutes=1)) == (
        made.rule.concurrency,
        made.rule.rate,
        made.rule.per,
    )
    assert (made.rule, True, CODE) == (held.rule, held.overridden, held.declared)
    assert (CODE, False) == (after.rule, after.overridden)
    assert lifted == after


async def test_limit_that_no_code_declares_is_gone_when_it_is_lifted(app: Holdfast) -> None:
    await app.set_limit("queue:default", concurrency=1)

    assert await app.lift_limit("queue:default") is None
    assert [] == await app.limit_states()


async def test_override_that_an_older_worker_replaced_is_restored(app: Holdfast) -> None:
    await app.set_limit("task:t", concurrency=2)
    await app.store.limit("task:t", CODE)  # as a worker that knows no overrides does

    await Keeper(app.store, Silent()).once()

    assert 2 == (await app.limit_states())[0].rule.concurrency


async def test_use_of_a_limit_is_listed(app: Holdfast) -> None:
    app.task("t")(_nothing)
    await app.set_limit("queue:default", concurrency=3, rate=5, per=60, burst=2)
    async with app:
        await app.submit("t")
        await app.submit("t")
        await app.store.claim(Claim(queues=("default",), limit=2, worker="w", token="x"))
        (state,) = await app.limit_states()

    assert (2, 2, 2) == (state.running, state.started, state.rule.burst)
    assert state.until is not None


@pytest.mark.parametrize(
    ("scope", "rule", "field"),
    [
        ("t", {"rate": 1}, "scope"),
        ("host:t", {"rate": 1}, "scope"),
        ("task:t", {}, "concurrency"),
        ("task:t", {"concurrency": 0}, "concurrency"),
        ("task:t", {"concurrency": True}, "concurrency"),
        ("task:t", {"rate": "5"}, "rate"),
        ("task:t", {"rate": 5, "per": 0}, "per"),
        ("task:t", {"rate": 5, "burst": 0}, "burst"),
        ("task:t", {"concurrency": 5, "burst": 2}, "burst"),
        ("task:t", {"rate": 5, "per": "soon"}, "per"),
    ],
)
async def test_wrong_limit_is_refused(scope: str, rule: dict[str, object], field: str) -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as raised:
            await app.set_limit(scope, **rule)  # type: ignore[arg-type]

        assert field == raised.value.faults[0].field
        assert [] == await app.limit_states()


async def test_namespace_limits_its_own_queues_only(app: Holdfast) -> None:
    tenant = app.over(TenantStore(app.store, "acme"))
    await tenant.set_limit("queue:q", concurrency=1)
    with pytest.raises(ValidationError):
        await tenant.set_limit("task:t", concurrency=1)
    await app.set_limit("queue:q", concurrency=2)
    await Keeper(app.store, Silent()).once()

    assert ["queue:q"] == [each.scope for each in await tenant.limit_states()]
    assert ["queue:acme/q", "queue:q"] == [each.scope for each in await app.limit_states()]


async def test_paused_queue_shows_why_and_resumes_at_its_time(
    app: Holdfast, clock: ManualClock
) -> None:
    until = app.store.now() + timedelta(minutes=5)
    await app.pause("default", reason="mail is down", until=until, by="ann")
    (queue,) = await app.queues()
    keeper = Keeper(app.store, Silent())
    clock.advance(299)
    await keeper.once()
    (before,) = await app.queues()
    clock.advance(2)
    await keeper.once()
    after = {each.name: each for each in await app.queues()}.get("default")

    assert queue.pause is not None
    assert ("mail is down", until, "ann") == (
        queue.pause.reason,
        queue.pause.until,
        queue.pause.by,
    )
    assert before.paused
    assert after is None or (False, None) == (after.paused, after.pause)


async def test_pause_that_was_renewed_is_not_ended(app: Holdfast, clock: ManualClock) -> None:
    await app.pause("default", until=app.store.now() + timedelta(seconds=1))
    clock.advance(2)
    (stale,) = await app.store.browse("queue-pause")
    await app.pause("default", reason="longer")

    await pauses._end(app.store, stale)  # a leader that read the record before

    (queue,) = await app.queues()
    assert queue.paused
    assert queue.pause is not None
    assert "longer" == queue.pause.reason


@pytest.mark.parametrize("hours", [-3, 3])
async def test_pause_ends_at_its_instant_when_the_clock_was_set(
    app: Holdfast, clock: ManualClock, hours: int
) -> None:
    keeper = Keeper(app.store, Silent())
    await app.pause("default", until=app.store.now() + timedelta(hours=1))
    clock.shift(timedelta(hours=hours))
    await keeper.once()
    before = [queue.name for queue in await app.queues() if queue.paused]
    clock.advance(timedelta(hours=4.1))
    await keeper.once()
    after = [queue.name for queue in await app.queues() if queue.paused]

    assert (["default"] if hours < 0 else [], []) == (before, after)


@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "soon", 5])
async def test_end_of_a_pause_must_be_a_time_to_come(until: object) -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as raised:
            await app.pause("q", until=until)  # type: ignore[arg-type]

        assert "until" == raised.value.faults[0].field
        assert [] == await app.queues()


async def test_worker_reports_its_versions_memory_and_jobs(app: Holdfast) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    app.version = "7.1"

    @app.task("t")
    async def task() -> None:
        started.set()
        await go_on.wait()

    async with working(app, maintenance=False) as worker:
        job = await app.submit("t")
        await asyncio.wait_for(started.wait(), 20)
        await worker._announcer.announce()  # now, not within five seconds
        (info,) = await app.workers()
        go_on.set()
        await app.wait(job.job_id, timeout=20)

    assert (__version__, "7.1", False) == (info.version, info.app_version, info.draining)
    assert info.memory > 1_000_000
    assert [(job.job_id, "t", "default")] == [
        (each.job_id, each.type, each.queue) for each in info.running_jobs
    ]


async def test_drained_worker_finishes_stays_and_claims_again_when_undrained(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "FOLLOWED_EVERY", 0.05)
    app.task("t")(_nothing)
    async with working(app, maintenance=False) as worker:
        first = await app.submit("t")
        await app.wait(first.job_id, timeout=20)
        answer = await app.drain(worker.id)
        await eventually(lambda: worker._slots.draining)  # no event reports it to a test
        held = await app.submit("t")
        await worker._announcer.announce()  # a heartbeat does not end it
        (info,) = await workers(app.store)
        waiting = (await app.get(held.job_id)).state
        await app.undrain(worker.id)
        done = await app.wait(held.job_id, timeout=20)

    assert (True, True) == (answer.draining, info.draining)
    assert (State.SCHEDULED, State.COMPLETED) == (waiting, done.state)


async def test_unknown_worker_and_one_of_others_cannot_be_drained(app: Holdfast) -> None:
    with pytest.raises(NotFoundError):
        await app.drain("nobody")
    with pytest.raises(ForbiddenError):
        await app.over(TenantStore(app.store, "acme")).drain("w")


async def test_scale_counts_what_is_ready_and_running(app: Holdfast, clock: ManualClock) -> None:
    unknown = await app.scale("default")
    for _ in range(45):
        await app.submit("t")
    await app.submit("t", delay=3600)
    clock.advance(30)

    found = await app.scale("default", slots=20)

    assert (0, 0.0, 0) == (unknown.ready, unknown.oldest_ready_seconds, unknown.desired_workers)
    assert (45, 30.0, 3) == (found.ready, found.oldest_ready_seconds, found.desired_workers)
    with pytest.raises(ValidationError):
        await app.scale("default", slots=0)


async def _nothing() -> None: ...
