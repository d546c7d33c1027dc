"""Stopping handlers: timeouts, cancellation, lost leases, and handlers that do not stop."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest

from holdfast import FailureCategory, Holdfast, JobContext, State, SyncJobContext
from holdfast.errors import StaleLeaseError
from holdfast.model import lifecycle
from holdfast.model.job import Event
from holdfast.store import Change, Claim, MemoryStore
from holdfast.worker import worker as worker_module
from tests.waiting import forever, in_time
from tests.worker.rig import EventLog, ended, until, until_running, working


@pytest.fixture
def app() -> Holdfast:
    return Holdfast(store=MemoryStore())


@pytest.fixture
def events() -> EventLog:
    return EventLog()


async def category(app: Holdfast, job_id: str) -> FailureCategory:
    failure = (await app.failure(job_id)).failure
    assert failure is not None
    return failure.category


# --- coroutines ----------------------------------------------------------------------------


@pytest.mark.req("S-8", "M-6")
async def test_a_coroutine_is_cancelled_at_its_timeout_and_retried(app: Holdfast) -> None:
    stopped = []

    @app.task("sleep", timeout=0.1, max_attempts=2, backoff=lambda *_: timedelta(0))
    async def sleep(ctx: JobContext) -> None:
        try:
            await forever()
        finally:
            stopped.append(ctx.attempt)

    async with working(app):
        job = await app.submit("sleep")
        assert State.DEAD_LETTER is await ended(app, job.job_id)
        details = await app.failure(job.job_id)

    assert [1, 2] == stopped
    assert [FailureCategory.TIMEOUT] * 2 == [
        a.failure.category for a in details.attempts if a.failure
    ]


@pytest.mark.req("M-6")
async def test_a_timeout_is_final_when_the_task_does_not_retry_timeouts(app: Holdfast) -> None:
    @app.task("sleep", timeout=0.1, retry_timeouts=False)
    async def sleep() -> None:
        await forever()

    async with working(app):
        job = await app.submit("sleep")

        assert State.FAILED is await ended(app, job.job_id)


@pytest.mark.req("A-12", "A-11")
async def test_a_forced_cancel_interrupts_a_coroutine(app: Holdfast) -> None:
    @app.task("sleep")
    async def sleep() -> None:
        await forever()

    async with working(app):
        job = await app.submit("sleep")
        await until_running(app, job.job_id)
        requested = time.monotonic()
        await app.cancel(job.job_id, force=True, reason="enough")

        assert State.CANCELLED is await ended(app, job.job_id)
        assert time.monotonic() - requested < 2.0
        failure = (await app.failure(job.job_id)).failure

    assert failure is not None
    assert (FailureCategory.CANCELLED, "enough") == (failure.category, failure.message)


@pytest.mark.req("A-12")
async def test_a_request_to_cancel_is_visible_and_raised_by_the_next_checkpoint(
    app: Holdfast,
) -> None:
    seen = []

    @app.task("polite")
    async def polite(ctx: JobContext) -> None:
        while not ctx.is_cancelled():  # noqa: ASYNC110  # what a handler would do
            await asyncio.sleep(0.005)
        seen.append("requested")
        await ctx.checkpoint({"kept": True})
        seen.append("went on")

    async with working(app):
        job = await app.submit("polite")
        await until_running(app, job.job_id)
        await app.cancel(job.job_id)

        assert State.CANCELLED is await ended(app, job.job_id)

    assert ["requested"] == seen


@pytest.mark.req("A-12")
async def test_a_handler_that_ignores_a_request_to_cancel_may_finish(app: Holdfast) -> None:
    go = asyncio.Event()

    @app.task("deaf")
    async def deaf() -> str:
        await go.wait()
        return "done"

    async with working(app):
        job = await app.submit("deaf")
        await until_running(app, job.job_id)
        await app.cancel(job.job_id)
        go.set()

        assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.req("S-8")
async def test_a_coroutine_that_swallows_its_cancellation_loses_its_slot(
    app: Holdfast, events: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "UNRESPONSIVE_AFTER", 0.2)
    free = asyncio.Event()

    @app.task("unresponsive", timeout=0.1, max_attempts=1)
    async def unresponsive() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    @app.task("next")
    async def following() -> None: ...

    async with working(app, slots=1, observer=events):
        job = await app.submit("unresponsive")
        other = await app.submit("next")

        assert State.DEAD_LETTER is await ended(app, job.job_id)
        assert FailureCategory.TIMEOUT is await category(app, job.job_id)
        assert State.COMPLETED is await ended(app, other.job_id)
        assert 1 == len(events.all("job.unresponsive"))
        free.set()


async def test_an_unresponsive_coroutine_is_abandoned_after_a_forced_cancel_too(
    app: Holdfast, events: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "UNRESPONSIVE_AFTER", 0.2)
    free = asyncio.Event()

    @app.task("unresponsive")
    async def unresponsive() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    async with working(app, slots=1, observer=events):
        job = await app.submit("unresponsive")
        await until_running(app, job.job_id)
        await app.cancel(job.job_id, force=True)

        assert State.CANCELLED is await ended(app, job.job_id)
        free.set()


async def test_a_handler_that_cancels_itself_fails_and_is_retried(app: Holdfast) -> None:
    @app.task("suicidal", max_attempts=1)
    async def suicidal() -> None:
        raise asyncio.CancelledError

    async with working(app):
        job = await app.submit("suicidal")

        assert State.DEAD_LETTER is await ended(app, job.job_id)
        assert FailureCategory.SYSTEM is await category(app, job.job_id)


async def test_an_error_on_the_way_out_does_not_hide_the_interruption(app: Holdfast) -> None:
    @app.task("clumsy", timeout=0.1, max_attempts=1)
    async def clumsy() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while cleaning up")

    async with working(app):
        job = await app.submit("clumsy")

        assert State.DEAD_LETTER is await ended(app, job.job_id)
        assert FailureCategory.TIMEOUT is await category(app, job.job_id)


# --- threads -------------------------------------------------------------------------------


@pytest.mark.req("S-8")
async def test_a_thread_past_its_timeout_is_fenced_off_counted_and_its_slot_reused(
    app: Holdfast, events: EventLog
) -> None:
    free, refused = threading.Event(), []

    @app.task("hang", timeout=0.1, max_attempts=1)
    def hang(ctx: SyncJobContext) -> str:
        free.wait(30)
        try:
            ctx.report_progress(99)
        except StaleLeaseError:
            refused.append("progress")
        return "too late"

    @app.task("next")
    def following() -> None: ...

    async with working(app, slots=1, observer=events) as worker:
        job = await app.submit("hang")
        other = await app.submit("next")
        assert State.DEAD_LETTER is await ended(app, job.job_id)
        assert State.COMPLETED is await ended(app, other.job_id)
        (leak,) = events.all("thread.leaked")
        assert (job.job_id, 1) == (leak["job_id"], leak["leaked"])
        assert 1 == worker.leaked_threads

        free.set()

        await until(lambda: worker.leaked_threads == 0)
        assert ["progress"] == refused
        status = await app.get(job.job_id)
        assert (State.DEAD_LETTER, None, None) == (status.state, status.progress, status.output)


@pytest.mark.req("A-12")
async def test_a_forced_cancel_frees_the_slot_of_a_thread(app: Holdfast) -> None:
    free = threading.Event()

    @app.task("hang")
    def hang() -> None:
        free.wait(30)

    async with working(app, slots=1):
        job = await app.submit("hang")
        await until_running(app, job.job_id)
        requested = time.monotonic()
        await app.cancel(job.job_id, force=True)

        assert State.CANCELLED is await ended(app, job.job_id)
        assert time.monotonic() - requested < 2.0
        free.set()


@pytest.mark.req("A-12", "A-18")
async def test_a_thread_receives_a_request_to_cancel(app: Holdfast) -> None:
    @app.task("polite")
    def polite(ctx: SyncJobContext) -> str:
        in_time(ctx.is_cancelled)
        ctx.checkpoint({"kept": True})
        return "went on"

    async with working(app):
        job = await app.submit("polite")
        await until_running(app, job.job_id)
        await app.cancel(job.job_id)

        assert State.CANCELLED is await ended(app, job.job_id)


@pytest.mark.req("A-18", "A-6", "M-8", "M-9")
async def test_the_context_of_a_thread_reaches_the_store(app: Holdfast) -> None:
    @app.task("child")
    def child(number: int) -> int:
        return number

    @app.task("parent")
    def parent(ctx: SyncJobContext) -> list[str]:
        ctx.report_progress(10, "begun")
        ctx.log("warning", "careful", depth=3)
        ctx.checkpoint([1, 2])
        return [
            ctx.spawn(child, {"number": 5}, key="k"),
            ctx.spawn("child", {"number": 5}, key="k"),
        ]

    @app.task("collect")
    def collect(ctx: SyncJobContext) -> list[object]:
        return [value for value in ctx.dependency_results().values() if isinstance(value, int)]

    async with working(app):
        job = await app.submit("parent")
        fan_in = await app.submit("collect", depends_on=[job.job_id], dependency_type="FAN_IN")
        status = await app.wait(fan_in.job_id, timeout=10)
        first = await app.get(job.job_id)
        (line,) = await app.logs(job.job_id)

    assert [5] == status.output
    assert isinstance(first.output, list)
    assert 1 == len(set(first.output))
    assert first.progress is not None
    assert 10 == first.progress.percent
    assert ("WARNING", {"depth": "3"}) == (line.level, line.fields)


async def test_a_handler_that_exits_the_thread_fails_only_its_job(app: Holdfast) -> None:
    @app.task("exit", max_attempts=1)
    def leave() -> None:
        raise SystemExit(3)

    async with working(app):
        job = await app.submit("exit")
        assert State.DEAD_LETTER is await ended(app, job.job_id)


async def test_idle_threads_are_reused(app: Holdfast) -> None:
    @app.task("who")
    def who() -> int:
        return threading.get_ident()

    idents = set()
    async with working(app, slots=5):
        for _ in range(20):
            job = await app.submit("who")
            idents.add((await app.wait(job.job_id, timeout=5)).output)

    assert len(idents) <= 2


# --- leases --------------------------------------------------------------------------------


@pytest.mark.req("S-7", "S-5")
async def test_a_handler_whose_lease_is_lost_is_signalled_and_stopped(
    app: Holdfast, events: EventLog
) -> None:
    lost = []

    @app.task("slow", lease=0.6)
    async def slow(ctx: JobContext) -> None:
        try:
            await forever()
        finally:
            lost.append(ctx.lease_lost)

    async with working(app, observer=events, maintenance=False):
        job = await app.submit("slow")
        await until_running(app, job.job_id)
        await _steal(app, job.job_id)

        await events.wait_for("job.lease_lost")
        await until(lambda: lost)
        status = await app.get(job.job_id)

    assert [True] == lost
    assert State.RUNNING is status.state


@pytest.mark.req("S-5")
async def test_a_late_result_under_an_older_lease_is_dropped_and_counted(
    app: Holdfast, events: EventLog
) -> None:
    go = asyncio.Event()

    @app.task("slow")
    async def slow() -> str:
        await go.wait()
        return "stale"

    async with working(app, observer=events, maintenance=False, slots=1):
        job = await app.submit("slow")
        await until_running(app, job.job_id)
        await _steal(app, job.job_id)
        go.set()

        await events.wait_for("job.stale")
        status = await app.get(job.job_id)

    assert (State.RUNNING, None, 2) == (status.state, status.output, status.attempt)


@pytest.mark.req("S-5", "S-6")
async def test_a_late_result_under_the_newest_lease_is_accepted(
    app: Holdfast, events: EventLog
) -> None:
    go = asyncio.Event()

    @app.task("slow")
    async def slow() -> str:
        await go.wait()
        return "late"

    async with working(app, observer=events, maintenance=False, slots=1):
        job = await app.submit("slow")
        await until_running(app, job.job_id)
        await _lapse(app, job.job_id)
        go.set()
        status = await app.wait(job.job_id, timeout=5)
        (history,) = await app.store.history([job.job_id])

    assert (State.COMPLETED, "late") == (status.state, status.output)
    assert [Event.LAPSE, Event.DUE, Event.RESUME, Event.COMPLETE] == [e.event for e in history][-4:]


async def _lapse(app: Holdfast, job_id: str) -> None:
    """Expire the lease as the reaper does."""
    (job,) = await app.store.get([job_id])
    assert job is not None
    after = lifecycle.lease_lost(job, now=app.store.now(), jitter=-1.0)
    (swapped,) = await app.store.swap([Change(job, after)])
    assert swapped.written


async def _steal(app: Holdfast, job_id: str) -> None:
    """Expire the lease and have another worker claim the job."""
    await _lapse(app, job_id)
    await app.store.promote(10)
    want = Claim(queues=("default",), limit=1, worker="thief", token="stolen")
    (taken,) = await app.store.claim(want)
    assert job_id == taken.id
