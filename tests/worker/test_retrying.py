"""How a worker settles a handler that fails."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import (
    FailureCategory,
    Holdfast,
    JobContext,
    PermanentError,
    State,
    SyncJobContext,
    TemporaryError,
    ValidationError,
)
from holdfast.model.job import Event
from holdfast.store import MemoryStore
from tests.worker.rig import EventLog, ended, working


def at_once(attempt: int, first: timedelta, most: timedelta) -> timedelta:
    return timedelta(0)


@pytest.fixture
def app() -> Holdfast:
    return Holdfast(store=MemoryStore())


@pytest.mark.req("M-7", "M-10")
async def test_every_attempt_counts_from_its_start_and_has_the_previous_failure(
    app: Holdfast,
) -> None:
    seen = []

    @app.task("fail", max_attempts=3, backoff=at_once)
    async def fail(ctx: JobContext) -> None:
        seen.append((ctx.attempt, ctx.attempt_id, ctx.previous_attempt_id))
        raise ValueError("again")

    async with working(app):
        job = await app.submit("fail")
        assert State.DEAD_LETTER is await ended(app, job.job_id)
        details = await app.failure(job.job_id)

    ids = [attempt_id for _, attempt_id, _ in seen]
    assert [1, 2, 3] == [number for number, _, _ in seen]
    assert 3 == len(set(ids))
    assert [None, *ids[:2]] == [previous for _, _, previous in seen]
    assert 3 == details.total_attempts


@pytest.mark.req("M-7")
async def test_a_handler_may_set_when_to_retry(app: Holdfast) -> None:
    @app.task("later", max_attempts=2)
    async def later() -> None:
        raise TemporaryError("not now", retry_after=0.2, code="BUSY")

    async with working(app):
        job = await app.submit("later")
        await ended(app, job.job_id)
        (history,) = await app.store.history([job.job_id])

    retry = next(edge for edge in history if edge.event is Event.RETRY)
    again = [edge for edge in history if edge.event is Event.CLAIM][1]
    assert timedelta(seconds=0.2) <= again.at - retry.at < timedelta(seconds=1)


@pytest.mark.req("M-7")
async def test_a_task_may_compute_its_own_backoff(app: Holdfast) -> None:
    requested = []

    def backoff(attempt: int, first: timedelta, most: timedelta) -> timedelta:
        requested.append(attempt)
        return timedelta(milliseconds=attempt)

    @app.task("fail", max_attempts=4, backoff=backoff)
    async def fail() -> None:
        raise ValueError("again")

    async with working(app):
        job = await app.submit("fail")
        assert State.DEAD_LETTER is await ended(app, job.job_id)

    assert [1, 2, 3] == requested


@pytest.mark.req("M-11")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_failures_are_classified_alike_wherever_they_happen(app: Holdfast, kind: str) -> None:
    def what(error: str) -> None:
        raise {"permanent": PermanentError("p", code="P"), "odd": KeyError("k")}.get(
            error, ValueError(error)
        )

    async def coroutine(error: str) -> None:
        what(error)

    handler = coroutine if kind == "coroutine" else what
    app.task("fail", max_attempts=1, permanent=[LookupError])(handler)

    async with working(app):
        found = {}
        for error in ("permanent", "odd", "other"):
            job = await app.submit("fail", {"error": error})
            state = await ended(app, job.job_id)
            failure = (await app.failure(job.job_id)).failure
            assert failure is not None
            found[error] = (state, failure.category, failure.code)

    assert {
        "permanent": (State.FAILED, FailureCategory.PERMANENT, "P"),
        "odd": (State.FAILED, FailureCategory.PERMANENT, "KeyError"),
        "other": (State.DEAD_LETTER, FailureCategory.TEMPORARY, "ValueError"),
    } == found


@pytest.mark.req("M-11")
async def test_a_payload_that_does_not_fit_fails_for_good_and_names_the_field(
    app: Holdfast,
) -> None:
    async def typed(count: int) -> None: ...

    async with app:
        job = await app.submit("typed", {"count": "many"})  # before its code is known
        app.register("typed", typed, on_mismatch="fail")
    async with working(app):
        assert State.FAILED is await ended(app, job.job_id)
        failure = (await app.failure(job.job_id)).failure

    assert failure is not None
    assert (FailureCategory.PERMANENT, "PAYLOAD_INVALID") == (failure.category, failure.code)
    assert "$.count" in failure.message


@pytest.mark.req("M-8")
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_checkpoint_survives_to_the_next_attempt(app: Holdfast, kind: str) -> None:
    @app.task("coroutine", max_attempts=2, backoff=at_once)
    async def coroutine(ctx: JobContext) -> object:
        if ctx.attempt == 1:
            await ctx.checkpoint({"page": 7})
            raise ValueError("half way")
        return ctx.restore(dict)

    @app.task("thread", max_attempts=2, backoff=at_once)
    def thread(ctx: SyncJobContext) -> object:
        if ctx.attempt == 1:
            ctx.checkpoint({"page": 7})
            raise ValueError("half way")
        return ctx.restore(dict)

    async with working(app):
        job = await app.submit(kind)
        status = await app.wait(job.job_id, timeout=10)

    assert {"page": 7} == status.output


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_an_updated_payload_reaches_the_next_attempt_and_every_reader(
    app: Holdfast, kind: str
) -> None:
    @app.task("coroutine", max_attempts=2, backoff=at_once)
    async def coroutine(ctx: JobContext, step: int) -> int:
        if ctx.attempt == 1:
            await ctx.update_payload({"step": step + 1})
            raise ValueError("half way")
        return step

    @app.task("thread", max_attempts=2, backoff=at_once)
    def thread(ctx: SyncJobContext, step: int) -> int:
        if ctx.attempt == 1:
            ctx.update_payload({"step": step + 1})
            raise ValueError("half way")
        return step

    async with working(app):
        job = await app.submit(kind, {"step": 7})
        status = await app.wait(job.job_id, timeout=10)
        (stored,) = await app.store.get([job.job_id])

    assert 8 == status.output
    assert stored is not None
    assert b'{"step":8}' == stored.payload


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"bytes", "must be JSON, as it was before"),
        ({"x": float("nan")}, "must not hold NaN"),
        ({"x": "y" * 2**20}, "exceeds limit of 1048576 bytes"),
    ],
)
async def test_a_payload_that_cannot_be_submitted_is_no_update(
    app: Holdfast, payload: object, text: str
) -> None:
    @app.task("update", max_attempts=1)
    async def update(ctx: JobContext, step: int) -> str:
        with pytest.raises(ValidationError) as refused:
            await ctx.update_payload(payload)
        return str(refused.value)

    async with working(app):
        job = await app.submit("update", {"step": 1})
        status = await app.wait(job.job_id, timeout=10)
        (stored,) = await app.store.get([job.job_id])

    assert text in str(status.output)
    assert stored is not None
    assert b'{"step":1}' == stored.payload


async def test_a_result_that_cannot_be_kept_fails_the_job_once(app: Holdfast) -> None:
    ran = []

    @app.task("odd")
    async def odd() -> object:
        ran.append(1)
        return object()

    async with working(app):
        job = await app.submit("odd")
        assert State.FAILED is await ended(app, job.job_id)
        failure = (await app.failure(job.job_id)).failure

    assert failure is not None
    assert "RESULT_INVALID" == failure.code
    assert [1] == ran


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError("no such user"), "ValueError: no such user"),
        (ValueError(), "ValueError"),
        (PermanentError("gone", code="NO_USER"), "NO_USER: gone"),
    ],
    ids=repr,
)
async def test_the_event_of_a_failure_names_its_kind(
    app: Holdfast, error: Exception, text: str
) -> None:
    @app.task("fail", max_attempts=1)
    async def fail() -> None:
        raise error

    events = EventLog()
    async with working(app, observer=events):
        job = await app.submit("fail")
        await ended(app, job.job_id)

    (line,) = events.all("job.failed") + events.all("job.dead")
    assert text == line["error"]


class _EndingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _HiddenError(Exception):
    @property
    def __class__(self) -> type:  # what isinstance asks
        raise KeyboardInterrupt


@pytest.mark.req("M-7")
@pytest.mark.parametrize("error", [_EndingError, _SilentError, _HiddenError])
async def test_exception_whose_own_code_raises_fails_its_job_only(
    app: Holdfast, error: type[Exception]
) -> None:
    @app.task("loop", max_attempts=1)
    async def on_the_loop() -> None:
        raise error

    @app.task("thread", max_attempts=1)
    def in_a_thread() -> None:
        raise error

    @app.task("next")
    async def following() -> None: ...

    async with working(app):
        jobs = [await app.submit(type_) for type_ in ("loop", "thread")]
        failed = [await app.wait(job.job_id, timeout=10) for job in jobs]
        after = await app.wait((await app.submit("next")).job_id, timeout=10)

    assert [State.DEAD_LETTER] * 2 == [status.state for status in failed]
    failures = [status.failure for status in failed if status.failure is not None]
    assert ["UNDESCRIBED"] * 2 == [failure.code for failure in failures]
    assert all(error.__name__ in failure.message for failure in failures)
    assert State.COMPLETED is after.state
