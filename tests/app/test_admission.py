"""Quotas, keys and sizes together: what a duplicate costs, and what is too large for a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    JobContext,
    Limits,
    QuotaError,
    Submission,
    SubmissionStatus,
    ValidationError,
    Worker,
)
from holdfast.model.policy import MEBIBYTE
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from holdfast.store.redis import RedisStore

Limited = Callable[..., Holdfast]


@pytest.fixture
def limited(store: Store, clock: ManualClock) -> Limited:
    """Make an app over the store with limits."""

    def limited(**limits: int) -> Holdfast:
        chosen = Limits(**limits)
        return Holdfast(store=store, clock=clock, randomness=Randomness(1), limits=chosen)

    return limited


def keyed(key: str, number: int = 1) -> Submission:
    return Submission(type="a", payload=number, idempotency_key=key)


@pytest.mark.req("A-4", "M-2")
@pytest.mark.parametrize("limit", ["queue_depth", "submission_rate"])
async def test_duplicate_is_answered_although_the_quota_is_exhausted(
    limited: Limited, limit: str
) -> None:
    async with limited(**{limit: 2}) as app:
        first = await app.submit("a", 1, idempotency_key="k")
        await app.submit("a")

        again = await app.submit("a", 1, idempotency_key="k")
        batch = await app.submit_batch([keyed("k"), keyed("k")])
        with pytest.raises(QuotaError):
            await app.submit("a", 1, idempotency_key="new")
        with pytest.raises(QuotaError):
            await app.submit_batch([keyed("k"), keyed("new")])

        assert 2 == (await app.search()).total_count
    results = [again, *batch.results]
    assert {SubmissionStatus.DUPLICATE} == {result.status for result in results}
    assert {first.job_id} == {result.existing_job_id for result in results}


@pytest.mark.req("A-4", "M-2")
@pytest.mark.parametrize("limit", ["queue_depth", "submission_rate"])
async def test_duplicates_do_not_count(limited: Limited, limit: str) -> None:
    async with limited(**{limit: 10}) as app:
        for _ in range(8):
            await app.submit("a", 1, idempotency_key="k")
            await app.submit_batch([keyed("k"), keyed("k")])

        results = await app.submit_batch([keyed(f"n{n}") for n in range(9)] + [keyed("n1")])
        with pytest.raises(QuotaError):
            await app.submit("a")

    assert 9 == sum(r.status is SubmissionStatus.ACCEPTED for r in results.results)


@pytest.mark.req("A-4", "M-2", "M-9")
async def test_spawned_duplicate_needs_no_room(limited: Limited) -> None:
    app, answers = limited(submission_rate=2), list[str]()

    @app.task("parent", queue="parents")
    async def parent(ctx: JobContext) -> None:
        answers.append(await ctx.spawn("a", 1, idempotency_key="k"))

    async with app:
        first = await app.submit("a", 1, idempotency_key="k")
        await parent.submit()
        await Worker(app, queues=["parents"], maintenance=False).run(burst=True)

    assert [first.job_id] == answers


@pytest.mark.req("M-12")
async def test_job_that_is_too_large_for_redis_is_refused_there_and_nowhere_else(
    limited: Limited, store: Store
) -> None:
    large, nearly = b"x" * (8 * MEBIBYTE), "x" * (10 * MEBIBYTE - 1000)
    async with limited(payload_bytes=16 * MEBIBYTE) as app:
        fits = await app.submit("a", nearly)
        answers = [await _fault(app, large), await _fault(app, nearly, tags={"n": "y" * 1000})]
        batch = await app.submit_batch(
            [Submission(type="a", payload=large), Submission(type="a")], atomic=False
        )
        total = (await app.search()).total_count

    assert SubmissionStatus.ACCEPTED is fits.status
    if not isinstance(store, RedisStore):
        assert ["", ""] == answers
        assert (2, 5) == (batch.accepted, total)
        return
    assert "payload: Job payload size 10.7 MB exceeds limit of 10.0 MB" == answers[0]
    assert answers[1].endswith("bytes exceeds limit of 10485760 bytes")
    assert (1, 1, 2) == (batch.accepted, batch.rejected, total)


async def _fault(app: Holdfast, payload: object, **options: Any) -> str:
    try:
        await app.submit("a", payload, **options)
    except ValidationError as error:
        (fault,) = error.faults
        assert "TOO_LARGE" == fault.code
        return f"{fault.field}: {fault.message}"
    return ""
