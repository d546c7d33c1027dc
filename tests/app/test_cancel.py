"""Cancelling jobs, one or many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast import Holdfast, JobContext, State, ValidationError, Worker
from holdfast.model.results import CancellationStatus
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Store, Swapped
from tests.app.conftest import Drain
from tests.waiting import eventually


@pytest.mark.req("A-11")
@pytest.mark.parametrize(
    ("options", "state"),
    [({}, State.SCHEDULED), ({"delay": 60}, State.DELAYED), ({"hold": True}, State.PENDING)],
)
async def test_waiting_job_is_cancelled_at_once(
    app: Holdfast, options: dict[str, object], state: State
) -> None:
    job_id = (await app.submit("x", **options)).job_id  # type: ignore[arg-type]

    result = await app.cancel(job_id, reason="changed my mind")

    job = await app.get(job_id, include_history=True)
    assert (CancellationStatus.CANCELLED, state) == (result.status, result.previous_state)
    assert State.CANCELLED is job.state
    assert job.history is not None
    assert "changed my mind" == job.history[-1].reason


@pytest.mark.req("A-11")
async def test_ended_and_unknown_jobs_cannot_be_cancelled(app: Holdfast, drain: Drain) -> None:
    @app.task("quick")
    async def quick() -> None: ...

    job_id = (await quick.submit()).job_id
    await drain()

    ended = await app.cancel(job_id)
    unknown = await app.cancel("nobody")

    assert (CancellationStatus.ALREADY_COMPLETE, State.COMPLETED) == (
        ended.status,
        ended.previous_state,
    )
    assert CancellationStatus.NOT_FOUND is unknown.status


@pytest.mark.req("A-12")
async def test_cancelled_running_job_stops_at_its_next_checkpoint(live_app: Holdfast) -> None:
    started, seen = asyncio.Event(), []

    @live_app.task("stepwise")
    async def stepwise(ctx: JobContext) -> None:
        started.set()
        await eventually(ctx.is_cancelled)
        seen.append(ctx.is_cancelled())
        await ctx.checkpoint({"step": 1})
        seen.append("went on")

    job_id = (await stepwise.submit()).job_id
    async with asyncio.TaskGroup() as group:
        group.create_task(Worker(live_app, maintenance=False).run(burst=True))
        await started.wait()
        result = await live_app.cancel(job_id)

    job = await live_app.get(job_id)
    assert CancellationStatus.CANCEL_REQUESTED is result.status
    assert [True] == seen
    assert (State.CANCELLED, 1) == (job.state, job.attempt)


@pytest.mark.req("A-12")
async def test_force_interrupts_a_running_job(live_app: Holdfast) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    @live_app.task("endless")
    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    job_id = (await endless.submit()).job_id
    async with asyncio.TaskGroup() as group:
        group.create_task(Worker(live_app, maintenance=False).run(burst=True))
        await started.wait()
        result = await live_app.cancel(job_id, force=True, reason="enough")
        job = await live_app.wait(job_id, timeout=10)

    assert CancellationStatus.CANCEL_REQUESTED is result.status
    assert cleaned.is_set()
    assert State.CANCELLED is job.state


@pytest.mark.req("A-13")
async def test_jobs_are_cancelled_by_filter(app: Holdfast) -> None:
    for n in range(3):
        await app.submit("spam", tags={"n": str(n)})
    kept = await app.submit("ham")

    result = await app.cancel_batch(filter={"types": ["spam"]}, reason="spam")

    states = {job.type: job.state for job in (await app.search()).jobs}
    assert (3, 3, 0, 0) == (result.requested, result.cancelled, result.skipped, result.failed)
    assert {"spam": State.CANCELLED, "ham": State.SCHEDULED} == states
    assert State.SCHEDULED is (await app.get(kept.job_id)).state


@pytest.mark.req("A-13")
async def test_jobs_are_cancelled_by_id_each_with_its_own_result(app: Holdfast) -> None:
    live, ended = [(await app.submit("x")).job_id for _ in range(2)]
    await app.cancel(ended)

    result = await app.cancel_batch(job_ids=[live, ended, "nobody"])

    assert (3, 1, 1, 1) == (result.requested, result.cancelled, result.skipped, result.failed)
    assert ["nobody"] == [error.job_id for error in result.errors]


@pytest.mark.req("A-13")
async def test_dry_run_counts_and_changes_nothing(app: Holdfast) -> None:
    live, ended = [(await app.submit("x")).job_id for _ in range(2)]
    await app.cancel(ended)

    result = await app.cancel_batch(job_ids=[live, ended, "nobody"], dry_run=True)

    assert (3, 1, 1, 1, True) == (
        result.requested,
        result.cancelled,
        result.skipped,
        result.failed,
        result.dry_run,
    )
    assert State.SCHEDULED is (await app.get(live)).state


@pytest.mark.req("A-13", "A-3")
async def test_ids_or_filter_must_be_given_but_not_both(app: Holdfast) -> None:
    for given, message in (({}, "must be given"), ({"job_ids": [], "filter": {}}, "not both")):
        with pytest.raises(ValidationError, match=message):
            await app.cancel_batch(**given)  # type: ignore[arg-type]


@pytest.mark.req("A-13")
async def test_many_jobs_are_cancelled_in_few_calls(store: Store, clock: ManualClock) -> None:
    calls = 0
    swap = store.swap

    async def counting(changes: Sequence[Change]) -> list[Swapped]:
        nonlocal calls
        calls += 1
        return await swap(changes)

    store.swap = counting  # type: ignore[method-assign]  # count, then as before
    async with Holdfast(store=store, clock=clock) as app:
        await app.submit_batch([{"type": "x"}] * 700)
        first = (await app.search(limit=1)).jobs[0].job_id

        result = await app.cancel_batch(filter={"types": ["x"]})
        twice = await app.cancel_batch(job_ids=[first, first])

    assert (700, 0) == (result.cancelled, result.skipped)
    assert 2 == calls
    assert 2 == twice.skipped


@pytest.mark.req("A-13", "A-3")
@pytest.mark.parametrize("page", [{"limit": 1}, {"cursor": "x"}, {"order": "CREATED_ASC"}])
async def test_filter_of_many_jobs_must_not_select_a_page(
    app: Holdfast, page: dict[str, object]
) -> None:
    job_id = (await app.submit("x")).job_id

    for change in (app.cancel_batch, app.retry_batch, app.delete_batch):
        with pytest.raises(ValidationError, match="every job that matches is changed") as caught:
            await change(filter={"types": ["x"], **page})  # type: ignore[typeddict-item]  # refused
        assert [f"filter.{name}" for name in page] == [f.field for f in caught.value.faults]

    assert State.SCHEDULED is (await app.get(job_id)).state


@pytest.mark.req("A-13")
async def test_jobs_that_changed_after_as_of_are_not_cancelled(
    app: Holdfast, clock: ManualClock
) -> None:
    seen = (await app.submit("x")).job_id
    as_of = clock.now()
    clock.advance(1)
    newer = (await app.submit("x")).job_id

    counted = await app.cancel_batch(filter={"types": ["x"]}, as_of=as_of, dry_run=True)
    result = await app.cancel_batch(filter={"types": ["x"]}, as_of=as_of)

    for each in (counted, result):
        assert (2, 1, 1) == (each.requested, each.cancelled, each.skipped)
    assert State.CANCELLED is (await app.get(seen)).state
    assert State.SCHEDULED is (await app.get(newer)).state


@pytest.mark.req("A-13", "A-3")
async def test_as_of_must_be_a_time(app: Holdfast) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.delete_batch(job_ids=["x"], as_of="yesterday")

    assert ["as_of"] == [fault.field for fault in caught.value.faults]


@pytest.mark.req("A-13")
async def test_ended_jobs_are_deleted_by_filter(app: Holdfast, clock: ManualClock) -> None:
    seen, newer, live, needed = [(await app.submit("x")).job_id for _ in range(4)]
    await app.submit("y", depends_on=[needed], dependency_type="AFTER_ALL", hold=True)
    await app.cancel_batch(job_ids=[seen, needed])
    as_of = clock.now()
    clock.advance(1)
    await app.cancel(newer)

    counted = await app.delete_batch(filter={"types": ["x"]}, as_of=as_of, dry_run=True)
    result = await app.delete_batch(filter={"types": ["x"]}, as_of=as_of)
    unknown = await app.delete_batch(job_ids=[seen])

    assert (4, 2, 2, True) == (
        counted.requested,
        counted.deleted,
        counted.skipped,
        counted.dry_run,
    )
    assert (4, 1, 3, 0) == (result.requested, result.deleted, result.skipped, result.failed)
    assert [seen] == [error.job_id for error in unknown.errors]
    left = {job.job_id for job in (await app.search(types=["x"])).jobs}
    assert {newer, live, needed} == left
