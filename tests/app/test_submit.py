"""Submitting one job: every option, every fault, every duplicate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import (
    Backoff,
    BackoffKind,
    DuplicateError,
    Holdfast,
    Limits,
    QuotaError,
    State,
    Submission,
    SubmissionStatus,
    ValidationError,
)
from holdfast.model.submission import SubmitOptions
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store

NOT_GIVEN: SubmitOptions = {
    "queue": None,
    "priority": None,
    "delay": None,
    "scheduled_at": None,
    "timeout": None,
    "lifetime": None,
    "lease": None,
    "max_attempts": None,
    "backoff": None,
    "retry_timeouts": None,
    "retry_crashes": None,
    "idempotency_key": None,
    "idempotency_window": None,
    "correlation_id": None,
    "tags": None,
    "headers": None,
    "dependency_type": None,
    "callback_url": None,
    "limit_key": None,
}


@pytest.mark.req("A-1")
async def test_none_means_that_an_option_is_not_given(app: Holdfast) -> None:
    @app.task("email.send", max_attempts=7)
    async def send(to: str) -> None: ...

    given = await send.using(**NOT_GIVEN).submit("a@b.c")
    plain = await send.submit("a@b.c")

    one, two = await app.store.get([given.job_id, plain.job_id])
    assert one is not None
    assert two is not None
    assert two == replace(one, id=two.id)


@pytest.mark.req("A-1", "M-1", "M-3")
async def test_submitted_job_is_stored_and_ready(app: Holdfast, clock: ManualClock) -> None:
    result = await app.submit("email.send", {"to": "a@b.c"})

    job = await app.get(result.job_id, include_history=True)
    assert SubmissionStatus.ACCEPTED is result.status
    assert State.SCHEDULED is result.state is job.state
    assert clock.now() == result.created_at == job.created_at
    assert ("email.send", "default", "NORMAL", 0, 3) == (
        job.type,
        job.queue,
        job.priority,
        job.attempt,
        job.max_attempts,
    )
    assert job.history is not None
    assert [State.PENDING, State.SCHEDULED] == [edge.to_state for edge in job.history]


@pytest.mark.req("A-1", "M-6", "M-7", "M-13")
async def test_every_option_of_a_submission_reaches_the_job(app: Holdfast) -> None:
    backoff = Backoff(strategy=BackoffKind.LINEAR, initial_delay=timedelta(seconds=7))

    result = await app.submit(
        "email.send",
        {"to": "a@b.c"},
        queue="mail",
        priority="HIGH",
        delay=60,
        timeout="PT2M",
        lifetime=timedelta(hours=2),
        lease=9.5,
        max_attempts=7,
        backoff=backoff,
        retry_timeouts=False,
        retry_crashes=False,
        idempotency_key="k",
        idempotency_window=3600,
        correlation_id="trace-1",
        tags={"team": "a"},
        callback_url="https://example.org/hook",
        limit_key="customer-1",
    )

    (job,) = await app.store.get([result.job_id])
    assert job is not None
    assert ("mail", 1, State.DELAYED) == (job.queue, job.priority, job.state)
    assert job.created_at + timedelta(seconds=60) == job.due_at == result.scheduled_for
    assert (timedelta(minutes=2), timedelta(hours=2), timedelta(seconds=9.5)) == (
        job.timeout,
        job.lifetime,
        job.lease_ttl,
    )
    assert (7, backoff) == (job.max_attempts, job.backoff)
    assert (False, False) == (job.retry_timeouts, job.retry_crashes)
    assert ("k", "trace-1", {"team": "a"}) == (job.idempotency_key, job.correlation_id, job.tags)
    assert ("https://example.org/hook", "customer-1") == (job.callback_url, job.limit_key)


@pytest.mark.req("A-9")
@pytest.mark.parametrize(
    "moment", ["2026-01-01T01:00:00+01:00", datetime(2026, 1, 1, 0, 30, tzinfo=UTC)]
)
async def test_scheduled_time_may_be_text_or_value_of_any_zone(
    app: Holdfast, moment: str | datetime
) -> None:
    result = await app.submit("later", scheduled_at=moment)

    read = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    job = await app.get(result.job_id)
    assert read == (job.scheduled_for or read)
    assert (State.SCHEDULED if isinstance(moment, str) else State.DELAYED) is job.state


@pytest.mark.req("A-3")
async def test_all_faults_are_reported_at_once_and_nothing_is_written(app: Holdfast) -> None:
    with pytest.raises(ValidationError) as caught:
        await app.submit(
            "bad type!",
            {"x": float("nan")},
            queue="no queue",
            priority="URGENT",
            max_attempts=0,
            delay=-1,
            tags={"": "x"},
            callback_url="ftp://x",
            depends_on=["nobody"],
        )

    fields = {fault.field.partition(".")[0] for fault in caught.value.faults}
    assert {
        "type",
        "payload",
        "queue",
        "priority",
        "max_attempts",
        "delay",
        "tags",
        "callback_url",
        "depends_on",
    } == fields
    assert all(fault.code and fault.message for fault in caught.value.faults)
    assert 0 == (await app.search()).total_count


@pytest.mark.req("M-2", "A-1")
async def test_same_key_and_payload_is_a_duplicate_with_the_first_jobs_state(
    app: Holdfast,
) -> None:
    first = await app.submit("pay", {"n": 1}, idempotency_key="k", delay=60)

    again = await app.submit("pay", {"n": 1}, idempotency_key="k")

    assert SubmissionStatus.DUPLICATE is again.status
    assert first.job_id == again.existing_job_id == again.job_id
    assert (State.DELAYED, first.created_at, first.scheduled_for) == (
        again.state,
        again.created_at,
        again.scheduled_for,
    )
    assert 1 == (await app.search()).total_count


@pytest.mark.req("M-2", "M-12")
async def test_payload_with_another_order_of_keys_is_the_same_and_stored_as_it_came(
    app: Holdfast,
) -> None:
    given = b'{ "b": 1.0,  "a": {"d": 1, "c": 2} }'
    first = await app.submit("pay", Raw(given), idempotency_key="k")

    again = await app.submit("pay", {"a": {"c": 2, "d": 1}, "b": 1.0}, idempotency_key="k")
    (in_batch,) = (
        await app.submit_batch(
            [
                Submission(
                    type="pay", payload=Raw(b'{"b":1.0,"a":{"c":2,"d":1}}'), idempotency_key="k"
                )
            ]
        )
    ).results

    assert [first.job_id] * 2 == [again.existing_job_id, in_batch.existing_job_id]
    (stored,) = await app.store.get([first.job_id])
    assert stored is not None
    assert given == stored.payload


@pytest.mark.req("M-2")
async def test_same_key_with_another_payload_is_an_error_that_names_the_job(app: Holdfast) -> None:
    first = await app.submit("pay", {"n": 1}, idempotency_key="k")

    with pytest.raises(DuplicateError) as caught:
        await app.submit("pay", {"n": 2}, idempotency_key="k")

    assert (first.job_id, "k") == (caught.value.existing_job_id, caught.value.key)
    assert 1 == (await app.search()).total_count


@pytest.mark.req("M-2")
async def test_key_of_a_deleted_job_holds_and_the_answers_say_that_it_is_deleted(
    app: Holdfast, clock: ManualClock
) -> None:
    first = await app.submit("pay", {"n": 1}, idempotency_key="k", idempotency_window=60)
    await app.cancel(first.job_id)
    await app.delete(first.job_id)

    again = await app.submit("pay", {"n": 1}, idempotency_key="k")
    batch = await app.submit_batch(
        [Submission(type="pay", payload={"n": n}, idempotency_key="k") for n in (1, 2)],
        atomic=False,
    )
    with pytest.raises(DuplicateError, match="which was deleted; the key holds until") as caught:
        await app.submit("pay", {"n": 2}, idempotency_key="k")
    clock.advance(60)
    later = await app.submit("pay", {"n": 2}, idempotency_key="k")

    assert (SubmissionStatus.DUPLICATE, None, True) == (
        again.status,
        again.state,
        again.existing_job_deleted,
    )
    assert first.job_id == again.existing_job_id == caught.value.existing_job_id
    same, other = batch.results
    assert (first.job_id, True) == (same.existing_job_id, same.existing_job_deleted)
    assert isinstance(other.error, DuplicateError)
    assert other.error.existing_job_deleted
    assert (SubmissionStatus.ACCEPTED, False) == (later.status, later.existing_job_deleted)


@pytest.mark.req("M-2")
async def test_key_is_free_for_another_type_and_after_its_window(
    app: Holdfast, clock: ManualClock
) -> None:
    first = await app.submit("pay", idempotency_key="k", idempotency_window=60)
    other = await app.submit("refund", idempotency_key="k")

    clock.advance(60)
    later = await app.submit("pay", idempotency_key="k")

    statuses = {result.status for result in (first, other, later)}
    assert {SubmissionStatus.ACCEPTED} == statuses
    assert 3 == len({first.job_id, other.job_id, later.job_id})


@pytest.mark.req("A-4")
async def test_full_queue_refuses_jobs_until_one_ends(store: Store, clock: ManualClock) -> None:
    limits = Limits(queue_depth=2)
    async with Holdfast(store=store, clock=clock, randomness=Randomness(1), limits=limits) as app:
        await app.submit("a")
        held = await app.submit("a", delay=60)
        with pytest.raises(QuotaError) as caught:
            await app.submit("a")
        elsewhere = await app.submit("a", queue="other")

        await app.cancel(held.job_id)
        clock.advance(caught.value.retry_after)
        accepted = await app.submit("a")

    assert ("queue default depth", 2, 2) == (
        caught.value.limit,
        caught.value.current,
        caught.value.maximum,
    )
    assert {SubmissionStatus.ACCEPTED} == {elsewhere.status, accepted.status}


@pytest.mark.req("A-4")
async def test_submissions_above_the_rate_get_the_time_to_retry(
    store: Store, clock: ManualClock
) -> None:
    limits = Limits(submission_rate=10)
    async with Holdfast(store=store, clock=clock, randomness=Randomness(1), limits=limits) as app:
        await app.submit_batch([{"type": "a"}] * 10)
        with pytest.raises(QuotaError) as caught:
            await app.submit("a")
        clock.advance(caught.value.retry_after)
        accepted = await app.submit("a")

    assert timedelta(seconds=0.1) == caught.value.retry_after
    assert SubmissionStatus.ACCEPTED is accepted.status


@pytest.mark.req("A-4")
async def test_depth_is_not_read_for_every_submission(store: Store, clock: ManualClock) -> None:
    reads = 0
    queues = store.queues

    async def counting() -> object:
        nonlocal reads
        reads += 1
        return await queues()

    store.queues = counting  # type: ignore[method-assign,assignment]  # count, then as before
    limits = Limits(queue_depth=1000)
    async with Holdfast(store=store, clock=clock, randomness=Randomness(1), limits=limits) as app:
        for _ in range(100):
            await app.submit("a")

    assert 1 == reads


@pytest.mark.req("A-4")
@pytest.mark.parametrize("limit", ["queue_depth", "submission_rate"])
def test_quota_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(ValueError, match=f"{limit} must be at least 1, got 0"):
        Limits(**{limit: 0})


async def test_app_that_is_not_started_raises_with_advice() -> None:
    app = Holdfast("memory://")

    with pytest.raises(RuntimeError, match="async with app"):
        await app.submit("a")


@pytest.mark.req("A-19")
async def test_callback_address_that_will_be_refused_is_refused_at_submit(app: Holdfast) -> None:
    with pytest.raises(ValidationError, match=r"callback_url is refused: 10\.0\.0\.1 "):
        await app.submit("a", callback_url="https://10.0.0.1/")

    assert () == tuple((await app.search()).jobs)
