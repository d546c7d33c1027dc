"""Operations on many jobs in the background, on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, NotFoundError, QuotaError, State, Submission, ValidationError
from holdfast.model.bulk import BulkOperation, BulkState
from holdfast.observe import Silent
from holdfast.operations import bulk_records
from holdfast.operations.bulk_runner import TERM, TRIES, BulkRunner
from holdfast.store import Claim
from holdfast.store.tenants import TenantStore

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock
    from tests.app.conftest import Drain

pytestmark = pytest.mark.req("O-1")

SECOND = timedelta(seconds=1)


@pytest.fixture
def runner(app: Holdfast) -> BulkRunner:
    return BulkRunner(app.store, "one", Silent())


async def run(runner: BulkRunner, times: int = 20) -> None:
    for _ in range(times):
        await runner.once()


async def submitted(app: Holdfast, count: int, **more: object) -> list[str]:
    jobs = [{"type": "t", **more} for _ in range(count)]
    return [result.job_id for result in (await app.submit_batch(jobs)).results]


async def states(app: Holdfast, ids: list[str]) -> list[State]:
    return [job.state for job in await app.store.get(ids) if job is not None]


async def test_operation_changes_every_matching_job_page_by_page(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    others = await submitted(app, 3, queue="other")
    for _ in range(2):
        await submitted(app, 600)
    clock.advance(SECOND)

    made = await app.bulk.start("cancel", filter={"queues": ["default"]}, reason="wrong", by="ann")
    await runner.once()
    half = await app.bulk.get(made.id)
    await run(runner)
    done = await app.bulk.get(made.id)

    assert (BulkState.WAITING, 1200, True, "ann") == (
        made.state,
        made.matched,
        made.matched_exact,
        made.by,
    )
    assert (BulkState.RUNNING, 500, 1200) == (half.state, half.done, half.matched)
    assert (BulkState.COMPLETED, 1200, 0, 0) == (done.state, done.done, done.skipped, done.failed)
    assert (1200, True, {"reason": "wrong"}) == (done.matched, done.matched_exact, done.options)
    assert done.started_at is not None
    assert done.finished_at is not None
    assert [State.SCHEDULED] * 3 == await states(app, others)
    cancelled = await app.search(states=["CANCELLED"], limit=1)
    assert 1200 == cancelled.total_count
    assert [done] == await app.bulk.list()


async def test_jobs_that_match_or_change_after_the_preview_are_not_touched(
    app: Holdfast, runner: BulkRunner, drain: Drain, clock: ManualClock
) -> None:
    app.task("t", max_attempts=1)(_fails)
    seen, again = await submitted(app, 2)
    await drain()
    clock.advance(SECOND)
    preview = await app.bulk.preview("retry", filter={"types": ["t"]})
    clock.advance(SECOND)
    (later,) = await submitted(app, 1)
    await app.retry(again)
    await drain()
    clock.advance(SECOND)

    made = await app.bulk.start("retry", filter={"types": ["t"]}, as_of=preview.as_of)
    await run(runner)
    done = await app.bulk.get(made.id)

    assert (2, True, {seen, again}) == (
        preview.matched,
        preview.matched_exact,
        set(preview.examples),
    )
    assert (1, 1, 0) == (done.done, done.skipped, done.failed)
    assert [State.SCHEDULED, State.DEAD_LETTER, State.DEAD_LETTER] == [
        (await app.get(job_id)).state for job_id in (seen, again, later)
    ]


async def test_each_action_changes_the_jobs_that_it_applies_to(
    app: Holdfast, runner: BulkRunner, drain: Drain, clock: ManualClock
) -> None:
    app.task("bad", max_attempts=1)(_fails)
    (failed,) = await submitted(app, 1, type="bad")
    (first,) = await submitted(app, 1, hold=True, queue="later")
    (held,) = await submitted(app, 1, hold=True, queue="later", depends_on=[first])
    await drain()
    (ready,) = await submitted(app, 1)
    clock.advance(SECOND)

    raised = await app.bulk.start("reprioritise", filter={}, priority="HIGH")
    await run(runner, 2)
    retried = await app.bulk.start("retry", filter={}, priority="LOW", delay=60)
    released = await app.bulk.start("release", filter={"queues": ["later"]})
    await run(runner, 2)

    assert [3, 1, 2] == [(await app.bulk.get(one.id)).done for one in (raised, retried, released)]
    jobs = {job.id: job for job in await app.store.get([failed, first, held, ready]) if job}
    assert (State.DELAYED, 3) == (jobs[failed].state, jobs[failed].priority)
    assert (State.SCHEDULED, 1) == (jobs[first].state, jobs[first].priority)
    assert (State.PENDING, False) == (jobs[held].state, jobs[held].held)
    assert (State.SCHEDULED, 1) == (jobs[ready].state, jobs[ready].priority)

    clock.advance(SECOND)
    stopped = await app.bulk.start("cancel", filter={"states": ["SCHEDULED", "DELAYED"]})
    await run(runner, 2)
    clock.advance(SECOND)
    deleted = await app.bulk.start("delete", filter={})
    await run(runner, 2)

    assert 3 == (await app.bulk.get(stopped.id)).done
    gone = await app.bulk.get(deleted.id)
    # What waits for a cancelled job may have been cancelled with it: then it is deleted, too.
    assert gone.done + gone.skipped == gone.matched
    assert [None, None] == await app.store.get([failed, ready])


async def test_ids_are_changed_and_unknown_ones_are_named(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    ids = await submitted(app, 2)
    clock.advance(SECOND)

    made = await app.bulk.start("cancel", ids=[*ids, "missing", ids[0]])
    await run(runner, 2)
    done = await app.bulk.get(made.id)

    assert (2, 0, 1) == (done.done, done.skipped, done.failed)
    assert [("missing", "there is no such job")] == [
        (one.job_id, one.message) for one in done.problems
    ]
    assert (3, 4) == (done.matched, done.id_count)


async def test_dry_run_counts_and_changes_nothing(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    ids = await submitted(app, 3)
    clock.advance(SECOND)

    made = [
        await app.bulk.start("cancel", ids=ids, dry_run=True),
        await app.bulk.start("reprioritise", filter={}, priority=0, dry_run=True),
        await app.bulk.start("delete", ids=ids, dry_run=True),
    ]
    await run(runner, 2)

    counted = [await app.bulk.get(one.id) for one in made]
    assert [3, 3, 0] == [one.done for one in counted]
    assert all(one.dry_run for one in counted)
    assert [State.SCHEDULED] * 3 == await states(app, ids)
    assert {2} == {job.priority for job in await app.store.get(ids) if job}


async def test_cancelled_operation_stops_and_keeps_what_it_has_changed(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    for _ in range(2):
        await submitted(app, 600)
    clock.advance(SECOND)
    made = await app.bulk.start("cancel", filter={})
    await runner.once()

    stopped = await app.bulk.cancel(made.id)
    await run(runner)
    twice = await app.bulk.cancel(made.id)

    assert (BulkState.CANCELLED, 500) == (stopped.state, stopped.done)
    assert stopped == twice == await app.bulk.get(made.id)
    assert 700 == (await app.search(states=["SCHEDULED"], limit=1)).total_count


async def test_counts_of_the_page_in_progress_are_kept_when_it_is_cancelled(
    app: Holdfast, runner: BulkRunner, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(app, 3)
    clock.advance(SECOND)
    made = await app.bulk.start("cancel", filter={})
    swap = type(app.store).swap

    async def cancelled_meanwhile(*args: object) -> object:
        await app.bulk.cancel(made.id)
        return await swap(*args)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(type(app.store), "swap", cancelled_meanwhile)
    await runner.once()

    done = await app.bulk.get(made.id)
    assert (BulkState.CANCELLED, 3) == (done.state, done.done)


async def test_two_processes_never_run_one_operation_at_once(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    await submitted(app, 600)
    clock.advance(SECOND)
    made = await app.bulk.start("cancel", filter={})
    other = BulkRunner(app.store, "two", Silent())

    await runner.once()
    await other.once()
    held = await app.bulk.get(made.id)
    clock.advance(TERM + SECOND)  # the first process died
    await other.once()
    done = await app.bulk.get(made.id)

    assert 500 == held.done
    assert (BulkState.COMPLETED, 600) == (done.state, done.done)


async def test_many_runners_change_each_job_once(app: Holdfast, clock: ManualClock) -> None:
    for _ in range(2):
        await submitted(app, 600)
    clock.advance(SECOND)
    made = await app.bulk.start("cancel", filter={})
    runners = [BulkRunner(app.store, f"r{n}", Silent()) for n in range(4)]

    await asyncio.gather(*(run(each, 6) for each in runners))

    done = await app.bulk.get(made.id)
    assert (BulkState.COMPLETED, 1200, 0) == (done.state, done.done, done.skipped)


async def test_frozen_process_writes_nothing_when_it_wakes_up(
    app: Holdfast, runner: BulkRunner, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(app, 3)
    clock.advance(SECOND)
    made = await app.bulk.start("cancel", filter={})
    swap, frozen = type(app.store).swap, list[bool]()

    async def others_go_on(*args: object) -> object:
        if not frozen:
            frozen.append(True)
            clock.advance(TERM + SECOND)
            await run(BulkRunner(app.store, "two", Silent()), 2)
        return await swap(*args)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(type(app.store), "swap", others_go_on)
    await runner.once()

    done = await app.bulk.get(made.id)
    assert (BulkState.COMPLETED, 3, 0) == (done.state, done.done, done.skipped)
    trails = await app.store.history(await _ids(app))
    assert {1} == {sum(each.to_state is State.CANCELLED for each in trail) for trail in trails}


async def test_operation_that_cannot_go_on_fails_and_says_why(
    app: Holdfast, runner: BulkRunner
) -> None:
    made = await app.bulk.start("cancel", filter={})
    stored, version = await bulk_records.read(app.store, made.id)
    assert stored is not None
    newer = replace(stored, operation=replace(made, filter={"unheard": 1}))
    await bulk_records.write(app.store, newer, version)

    await run(runner, TRIES)

    failed = await app.bulk.get(made.id)
    assert BulkState.FAILED is failed.state
    assert "unheard" in failed.error
    assert [] == await bulk_records.open_ids(app.store)


async def test_namespace_changes_its_own_jobs_and_sees_its_own_operations(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    mine = await submitted(app, 1)
    tenant = app.over(TenantStore(app.store, "acme"))
    theirs = [(await tenant.submit(Submission(type="t"))).job_id]
    acme, plain = tenant.bulk, app.over(TenantStore(app.store, "")).bulk
    clock.advance(SECOND)

    first = await acme.start("cancel", filter={})
    clock.advance(SECOND)
    both = await acme.start("cancel", ids=[*mine, *theirs])
    second = await plain.start("reprioritise", filter={}, priority="LOW")
    await run(runner, 2)

    assert (1, 1) == ((await acme.get(first.id)).done, (await plain.get(second.id)).done)
    assert (0, 1, 1) == (
        (found := await acme.get(both.id)).done,
        found.skipped,
        found.failed,
    )
    assert [State.SCHEDULED, State.CANCELLED] == await states(app, [*mine, *theirs])
    assert {first.id, both.id} == {one.id for one in await acme.list()}
    with pytest.raises(NotFoundError):
        await plain.get(first.id)
    with pytest.raises(NotFoundError):
        await plain.cancel(first.id)


async def test_old_operations_are_deleted_and_open_ones_are_limited(
    app: Holdfast,
    runner: BulkRunner,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_records, "MOST_KEPT", 3)
    made: list[BulkOperation] = []
    for _ in range(5):
        made.append(await app.bulk.start("cancel", ids=["x"]))
        clock.advance(SECOND)
        await run(runner, 2)

    assert [one.id for one in made[:1:-1]] == [one.id for one in await app.bulk.list()]
    assert [made[3].id] == [one.id for one in await app.bulk.list(after=made[4].id, limit=1)]
    for _ in range(bulk_records.MOST_OPEN):
        await app.bulk.start("cancel", ids=["x"])
    with pytest.raises(QuotaError):
        await app.bulk.start("cancel", ids=["x"])


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("action", {"action": "explode", "filter": {}}),
        ("ids", {"action": "cancel"}),
        ("ids", {"action": "cancel", "filter": {}, "ids": ["a"]}),
        ("ids", {"action": "cancel", "ids": []}),
        ("ids", {"action": "cancel", "ids": ["x"] * 1001}),
        ("ids", {"action": "cancel", "ids": "abc"}),
        ("ids", {"action": "cancel", "ids": [1]}),
        ("filter", {"action": "cancel", "filter": [1]}),
        ("filter", {"action": "cancel", "filter": {"types": ["x" * 100] * 1000}}),
        ("filter.limit", {"action": "cancel", "filter": {"limit": 5}}),
        ("nonsense", {"action": "cancel", "filter": {"nonsense": 5}}),
        ("priority", {"action": "reprioritise", "filter": {}}),
        ("priority", {"action": "reprioritise", "filter": {}, "priority": "URGENT"}),
        ("priority", {"action": "delete", "filter": {}, "priority": 0}),
        ("reason", {"action": "retry", "filter": {}, "reason": "why"}),
        ("delay", {"action": "retry", "filter": {}, "delay": -1}),
        ("as_of", {"action": "cancel", "filter": {}, "as_of": "yesterday"}),
        ("surprise", {"action": "cancel", "filter": {}, "surprise": 1}),
    ],
)
async def test_wrong_operation_is_refused_with_the_field_and_nothing_is_stored(
    field: str, given: dict[str, object]
) -> None:
    async with Holdfast("memory://") as app:
        action = str(given.pop("action"))

        with pytest.raises(ValidationError) as error:
            await app.bulk.start(action, **given)  # type: ignore[arg-type]  # wrong on purpose

        assert field in {fault.field for fault in error.value.faults}
        assert [] == await app.bulk.list()


async def test_unknown_operation_and_impossible_states() -> None:
    async with Holdfast("memory://") as app:
        await app.submit("t")
        with pytest.raises(NotFoundError):
            await app.bulk.get("x")
        with pytest.raises(NotFoundError):
            await app.bulk.cancel("x")
        with pytest.raises(ValidationError):
            await app.bulk.list(limit=0)

        none = await app.bulk.preview("retry", filter={"states": ["RUNNING"]})
        made = await app.bulk.start("retry", filter={"states": ["RUNNING"]})
        await BulkRunner(app.store, "one", Silent()).once()

        assert (0, True) == (none.matched, none.matched_exact)
        assert BulkState.COMPLETED is (await app.bulk.wait(made.id, timeout=5)).state


async def test_running_jobs_are_asked_to_stop(
    app: Holdfast, runner: BulkRunner, clock: ManualClock
) -> None:
    (job_id,) = await submitted(app, 1)
    await app.store.claim(Claim(queues=("default",), limit=1, worker="w", token="x"))
    clock.advance(SECOND)

    made = await app.bulk.start("cancel", filter={}, force=True)
    await run(runner, 2)

    assert 1 == (await app.bulk.get(made.id)).done
    (request,) = await app.store.cancels([job_id])
    assert request is not None
    assert request.force


async def _ids(app: Holdfast) -> list[str]:
    return [job.job_id for job in (await app.search()).jobs]


def _fails() -> None:
    raise ValueError("no")
