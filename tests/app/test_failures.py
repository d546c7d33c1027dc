"""Reading failures, and an operator's retry."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import (
    FailureCategory,
    Holdfast,
    JobContext,
    PermanentError,
    State,
    TemporaryError,
    ValidationError,
)
from holdfast.model.results import AttemptResult, RetryStatus
from holdfast.model.submission import Submission
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from tests.app.conftest import Drain


class OutOfPaper(Exception):
    pass


class Jammed(OutOfPaper):
    pass


@pytest.fixture
def raising(app: Holdfast) -> dict[str, BaseException]:
    """A task that raises what this map holds for its type."""
    errors: dict[str, BaseException] = {}

    @app.task("fails", max_attempts=2, permanent=[OutOfPaper], temporary=[Jammed])
    async def fails(ctx: JobContext) -> None:
        if error := errors.get(ctx.type):
            raise error.with_traceback(None)

    return errors


@pytest.mark.req("M-11", "A-14")
@pytest.mark.parametrize(
    ("error", "category", "code", "state"),
    [
        (PermanentError("no", code="NO"), FailureCategory.PERMANENT, "NO", State.FAILED),
        (TemporaryError("later"), FailureCategory.TEMPORARY, "TemporaryError", State.RETRYING),
        (ValueError("odd"), FailureCategory.TEMPORARY, "ValueError", State.RETRYING),
        (OutOfPaper("empty"), FailureCategory.PERMANENT, "OutOfPaper", State.FAILED),
        (Jammed("pull"), FailureCategory.TEMPORARY, "Jammed", State.RETRYING),
        (SystemExit(3), FailureCategory.TEMPORARY, "SystemExit", State.RETRYING),
    ],
)
async def test_exception_of_a_handler_decides_the_category(
    app: Holdfast,
    drain: Drain,
    raising: dict[str, BaseException],
    error: BaseException,
    category: FailureCategory,
    code: str,
    state: State,
) -> None:
    raising["fails"] = error
    job_id = (await app.submit("fails")).job_id

    await drain()

    details = await app.failure(job_id)
    assert details.failure is not None
    assert (category, code, state) == (
        details.failure.category,
        details.failure.code,
        details.final_state,
    )
    assert "test_failures.py" in details.failure.stack_trace
    assert "execution.py" not in details.failure.stack_trace


@pytest.mark.req("M-11", "M-6")
async def test_execution_timeout_is_a_failure_of_its_own_category(live_app: Holdfast) -> None:
    from holdfast import Worker

    @live_app.task("slow", timeout=0.05, retry_timeouts=False)
    async def slow() -> None:
        await asyncio.Event().wait()

    job_id = (await slow.submit()).job_id
    await Worker(live_app, maintenance=False).run(burst=True)

    details = await live_app.failure(job_id)
    assert details.failure is not None
    assert (State.FAILED, FailureCategory.TIMEOUT) == (
        details.final_state,
        details.failure.category,
    )
    assert [AttemptResult.TIMEOUT] == [attempt.result for attempt in details.attempts]


@pytest.mark.req("M-7")
async def test_retry_after_overrides_the_backoff(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = TemporaryError("busy", retry_after=90)
    job_id = (await app.submit("fails")).job_id

    await drain()

    job = await app.get(job_id)
    assert clock.now() + timedelta(seconds=90) == job.scheduled_for


@pytest.mark.req("A-14", "M-10")
async def test_failed_job_shows_all_its_attempts(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = TemporaryError("first")
    job_id = (await app.submit("fails")).job_id
    await drain()
    clock.advance(3600)
    raising["fails"] = PermanentError("second", code="GONE")
    await drain()

    details = await app.failure(job_id)
    newest = await app.failure(job_id, include_all_attempts=False)

    one, two = details.attempts
    assert (State.FAILED, 2) == (details.final_state, details.total_attempts)
    assert one.failure is not None
    assert two.failure is not None
    assert ("first", "second") == (one.failure.message, two.failure.message)
    assert (None, one.attempt_id) == (one.previous_attempt_id, two.previous_attempt_id)
    assert () == newest.attempts
    assert newest.failure == details.failure


@pytest.mark.req("A-15")
async def test_failures_are_listed_with_aggregations(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = PermanentError("no", code="NO")
    failed = [(await app.submit("fails")).job_id for _ in range(3)]
    await drain()
    clock.advance(60)
    raising["fails"] = TemporaryError("later", code="BUSY")
    dead = (await app.submit("fails", max_attempts=1)).job_id
    await drain()

    everything = await app.failures(limit=2)
    rest = await app.failures(limit=2, cursor=everything.next_cursor)
    permanent = await app.failures(failure_category=["PERMANENT"], states=["FAILED"])
    busy = await app.failures(error_code="BUSY")
    recent = await app.failures(after=clock.now() - timedelta(seconds=1))

    assert (4, {"NO": 3, "BUSY": 1}) == (everything.total_count, everything.by_code)
    assert {"PERMANENT": 3, "TEMPORARY": 1} == everything.by_category
    assert {"fails": 4} == everything.by_type
    assert {*failed, dead} == {f.job_id for page in (everything, rest) for f in page.failures}
    assert set(failed) == {f.job_id for f in permanent.failures}
    assert [dead] == [f.job_id for f in busy.failures] == [f.job_id for f in recent.failures]


@pytest.mark.req("A-15", "A-3")
async def test_wrong_failure_filters_are_named(app: Holdfast) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.failures(states=["COMPLETED"], failure_category=["BAD"], limit=0)

    assert {"states", "failure_category", "limit"} == {f.field for f in caught.value.faults}


@pytest.mark.req("A-16")
async def test_retry_grants_one_further_attempt(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException]
) -> None:
    raising["fails"] = PermanentError("no")
    job_id = (await app.submit("fails", max_attempts=1)).job_id
    await drain()

    result = await app.retry(job_id)
    del raising["fails"]
    await drain()

    job = await app.get(job_id)
    assert (RetryStatus.QUEUED, State.SCHEDULED) == (result.status, result.new_state)
    assert (State.COMPLETED, 2, 2) == (job.state, job.attempt, job.max_attempts)


@pytest.mark.req("A-16")
async def test_retry_can_reset_attempts_change_priority_and_wait(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = PermanentError("no")
    job_id = (await app.submit("fails")).job_id
    await drain()

    result = await app.retry(job_id, reset_attempts=True, priority="CRITICAL", delay=60)

    job = await app.get(job_id)
    assert (RetryStatus.QUEUED, State.DELAYED) == (result.status, result.new_state)
    assert clock.now() + timedelta(seconds=60) == result.scheduled_for
    assert (0, 2, "CRITICAL") == (job.attempt, job.max_attempts, job.priority)


@pytest.mark.req("A-16", "M-9")
@pytest.mark.parametrize("backwards", [False, True])
async def test_failed_chain_that_is_retried_runs_in_order(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], *, backwards: bool
) -> None:
    @app.task("second")
    async def second() -> None: ...

    @app.task("third")
    async def third() -> None: ...

    raising["fails"] = PermanentError("no")
    steps = [Submission(type=name) for name in ("fails", "second", "third")]
    ids = [step.job_id for step in await app.chain(*steps)]
    await drain()
    del raising["fails"]

    results = [await app.retry(job_id) for job_id in (reversed(ids) if backwards else ids)]
    await drain()

    waiting = [State.PENDING] * 2
    states = [State.SCHEDULED, *waiting]
    assert states == [r.new_state for r in (reversed(results) if backwards else results)]
    jobs = [await app.get(job_id) for job_id in ids]
    assert [State.COMPLETED] * 3 == [job.state for job in jobs]
    assert sorted(job.started_at for job in jobs if job.started_at) == [j.started_at for j in jobs]


@pytest.mark.req("A-16")
async def test_only_failed_jobs_can_be_retried(app: Holdfast) -> None:
    waiting = (await app.submit("x")).job_id
    cancelled = (await app.submit("x")).job_id
    await app.cancel(cancelled)

    results = [await app.retry(job_id) for job_id in (waiting, cancelled, "nobody")]

    assert [RetryStatus.NOT_RETRIABLE, RetryStatus.NOT_RETRIABLE, RetryStatus.NOT_FOUND] == [
        result.status for result in results
    ]
    with pytest.raises(ValidationError, match="priority"):
        await app.retry(waiting, priority="URGENT")
    with pytest.raises(ValidationError, match="delay"):
        await app.retry(waiting, delay="soon")


@pytest.mark.req("L-4", "L-1")
async def test_document_queue_reports_its_own_words_and_metadata(
    store: Store, clock: ManualClock
) -> None:
    from holdfast import Worker

    documents = Holdfast(
        store=store, clock=clock, randomness=Randomness(1), queues={"docs": "document"}
    )

    @documents.task("convert", queue="docs")
    async def convert() -> None:
        raise TemporaryError("page 7 is upside down")

    async with documents as app:
        job_id = (await convert.submit()).job_id
        created = (await app.get(job_id)).profile_state
        await Worker(app, queues=["docs"], maintenance=False).run(burst=True)
        job = await app.get(job_id)

    assert ("QUEUED", "RETRYING") == (created, job.profile_state)
    assert job.document is not None
    assert (1, 3, "page 7 is upside down", "RETRYABLE") == (
        job.document.retry_count,
        job.document.max_retries,
        job.document.last_error,
        job.document.error_type,
    )


@pytest.mark.req("A-16", "A-13", "M-9")
async def test_failed_graph_is_retried_by_filter_and_runs_in_order(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException]
) -> None:
    @app.task("then")
    async def then() -> None: ...

    raising["fails"] = PermanentError("no")
    first = (await app.submit("fails")).job_id
    second = (await app.submit("then", depends_on=[first])).job_id
    third = (await app.submit("then", depends_on=[second], dependency_type="CHAIN")).job_id
    await drain()
    del raising["fails"]

    counted = await app.retry_batch(filter={"states": ["FAILED"]}, dry_run=True)
    untouched = await app.get(first)
    result = await app.retry_batch(filter={"states": ["FAILED"]}, reset_attempts=True)
    await drain()

    assert (3, 3, 0, True) == (
        counted.requested,
        counted.retried,
        counted.skipped,
        counted.dry_run,
    )
    assert State.FAILED is untouched.state
    assert (3, 3, 0, 0) == (result.requested, result.retried, result.skipped, result.failed)
    jobs = [await app.get(job_id) for job_id in (first, second, third)]
    assert [State.COMPLETED] * 3 == [job.state for job in jobs]


@pytest.mark.req("A-16", "A-13")
async def test_jobs_that_changed_after_as_of_are_not_retried(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = PermanentError("no")
    seen = (await app.submit("fails")).job_id
    await drain()
    as_of = clock.now()
    clock.advance(1)
    newer = (await app.submit("fails")).job_id
    await drain()

    result = await app.retry_batch(job_ids=[seen, newer, "nobody"], as_of=as_of)

    assert (3, 1, 1, 1) == (result.requested, result.retried, result.skipped, result.failed)
    assert State.SCHEDULED is (await app.get(seen)).state
    assert State.FAILED is (await app.get(newer)).state


@pytest.mark.req("A-15")
async def test_failures_are_searched_by_time_range_and_pagination(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = PermanentError("no")
    old = (await app.submit("fails")).job_id
    await drain()
    clock.advance(100)
    between = clock.now()
    new = [(await app.submit("fails")).job_id for _ in range(2)]
    await drain()

    first = await app.failures(time_range=50, pagination={"limit": 1})
    rest = await app.failures(time_range=50, pagination={"cursor": first.next_cursor})
    before = await app.failures(time_range={"before": between})

    assert set(new) == {one.job_id for page in (first, rest) for one in page.failures}
    assert [old] == [one.job_id for one in before.failures]
    with pytest.raises(ValidationError) as caught:
        await app.failures(
            time_range={"after": between, "until": between},  # type: ignore[typeddict-unknown-key]
            after=between,
            pagination={"limit": 0},
        )
    assert {
        "time_range.until": "UNKNOWN_FIELD",
        "after": "CONFLICT",
        "limit": "OUT_OF_RANGE",
    } == {fault.field: fault.code for fault in caught.value.faults}
    with pytest.raises(ValidationError, match="time_range"):
        await app.failures(time_range="soon")


@pytest.mark.req("A-14", "A-16")
async def test_attempts_before_a_reset_count_and_waiting_is_no_duration(
    app: Holdfast, drain: Drain, raising: dict[str, BaseException], clock: ManualClock
) -> None:
    raising["fails"] = PermanentError("no")
    job_id = (await app.submit("fails")).job_id
    await drain()
    await app.retry(job_id, reset_attempts=True)
    await drain()
    twice = await app.failure(job_id, include_all_attempts=False)

    await app.retry(job_id, delay=60)
    clock.advance(30)
    await app.cancel(job_id)
    ended = await app.get(job_id)

    assert (2, ()) == (twice.total_attempts, twice.attempts)
    assert ended.result is not None
    assert ended.result.duration_ms is None
    assert clock.now() == ended.completed_at
