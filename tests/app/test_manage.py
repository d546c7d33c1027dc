"""Held jobs, deletion, events, queues and statistics."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, JobContext, NotFoundError, State, Submission, ValidationError
from holdfast.model.results import DeletionStatus, ReleaseStatus
from holdfast.runtime.clock import ManualClock
from holdfast.store import EventKind
from tests.app.conftest import Drain


@pytest.mark.req("L-2")
async def test_held_job_waits_until_it_is_released(app: Holdfast, drain: Drain) -> None:
    @app.task("x")
    async def x() -> None: ...

    job_id = (await x.using(hold=True).submit()).job_id
    await drain()
    held = await app.get(job_id)

    result = await app.release(job_id)
    again = await app.release(job_id)
    await drain()

    assert (State.PENDING, True) == (held.state, held.held)
    assert (ReleaseStatus.RELEASED, State.SCHEDULED) == (result.status, result.new_state)
    assert ReleaseStatus.NOT_HELD is again.status
    assert ReleaseStatus.NOT_FOUND is (await app.release("nobody")).status
    assert State.COMPLETED is (await app.get(job_id)).state


@pytest.mark.req("L-2", "M-9")
async def test_released_job_whose_dependencies_have_ended_is_queued_at_once(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("x")
    async def x() -> None: ...

    first, second = (
        await app.submit_batch(
            [
                Submission(type="x", ref="a"),
                Submission(type="x", depends_on=["a"], hold=True),
            ]
        )
    ).results
    await drain()

    result = await app.release(second.job_id)

    assert State.COMPLETED is (await app.get(first.job_id)).state
    assert State.SCHEDULED is result.new_state


async def test_only_ended_jobs_without_live_dependents_are_deleted(app: Holdfast) -> None:
    live = (await app.submit("x")).job_id
    ended = (await app.submit("x")).job_id
    needed = (await app.submit("x", hold=True)).job_id
    await app.submit("y", depends_on=[needed, live], dependency_type="AFTER_ANY", hold=True)
    for job_id in (ended, needed):
        await app.cancel(job_id)

    statuses = [(await app.delete(i)).status for i in (live, ended, ended, needed, "nobody")]

    assert [
        DeletionStatus.NOT_ENDED,
        DeletionStatus.DELETED,
        DeletionStatus.NOT_FOUND,
        DeletionStatus.NEEDED,
        DeletionStatus.NOT_FOUND,
    ] == statuses


async def test_events_report_what_happened_and_continue_after_a_cursor(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("x")
    async def x(ctx: JobContext) -> None:
        await ctx.report_progress(50, "half")
        await ctx.checkpoint(1)

    job_id = (await x.submit()).job_id
    await drain()

    events = [event async for event in app.events(follow=False)]
    rest = [event async for event in app.events(after=events[1].cursor, follow=False)]

    states = [event.transition.to_state for event in events if event.transition]
    assert {job_id} == {event.job_id for event in events}
    assert [State.PENDING, State.SCHEDULED, State.RUNNING, State.COMPLETED] == states
    assert [50] == [event.progress.percent for event in events if event.progress]
    assert events[2:] == rest
    assert EventKind.PROGRESS in {event.kind for event in rest}
    with pytest.raises(ValidationError):
        await anext(aiter(app.events(after="garbage", follow=False)))


async def test_following_events_start_now_and_wake_for_new_ones(app: Holdfast) -> None:
    await app.submit("before")
    stream = app.events()
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.1)  # until it has taken its place in the stream

    job_id = (await app.submit("after")).job_id

    event = await asyncio.wait_for(first, 5)
    assert (job_id, "after") == (event.job_id, event.type)
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator


async def test_paused_queue_starts_nothing_until_it_is_resumed(app: Holdfast, drain: Drain) -> None:
    @app.task("x", queue="q")
    async def x() -> None: ...

    await app.pause("q")
    job_id = (await x.submit()).job_id
    await drain(["q"])
    (paused,) = [queue for queue in await app.queues() if queue.name == "q"]

    await app.resume("q")
    await drain(["q"])
    (resumed,) = [queue for queue in await app.queues() if queue.name == "q"]

    assert (True, 1) == (paused.paused, paused.counts[State.SCHEDULED])
    assert (False, 1) == (resumed.paused, resumed.counts[State.COMPLETED])
    assert State.COMPLETED is (await app.get(job_id)).state


@pytest.mark.req("A-8")
async def test_statistics_count_and_break_down(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    @app.task("x")
    async def x() -> None: ...

    await app.submit("other", priority="LOW")
    await x.submit()
    await drain()
    clock.advance(1)

    stats = await app.stats(time_range=60, breakdown_by=["TYPE", "PRIORITY", "STATE"])

    assert (1, 1) == (stats.scheduled, stats.completed)
    assert stats.submission_rate > stats.completion_rate > 0
    assert 1 == stats.queue_latency.count == stats.execution_time.count
    assert stats.by_type is not None
    assert stats.by_priority is not None
    assert stats.by_state is not None
    assert (1, 1) == (stats.by_type["x"].completed, stats.by_type["other"].scheduled)
    assert 1 == stats.by_priority["LOW"].scheduled
    with pytest.raises(ValidationError, match="breakdown_by"):
        await app.stats(breakdown_by=["COLOUR"])
    with pytest.raises(ValidationError, match="time_range"):
        await app.stats(time_range="a while")


@pytest.mark.req("M-12")
async def test_payload_is_read_as_it_was_submitted(app: Holdfast) -> None:
    ids = [(await app.submit("x", payload)).job_id for payload in ({"n": [1, None]}, b"\0\xff")]

    text, data = [await app.payload(job_id) for job_id in ids]

    assert ({"n": [1, None]}, "json") == (text.payload, text.payload_encoding)
    assert (b"\0\xff", "base64") == (data.payload, data.payload_encoding)
    with pytest.raises(NotFoundError):
        await app.payload("nobody")


@pytest.mark.req("M-4")
async def test_ageing_is_set_and_ended_by_an_operator(app: Holdfast) -> None:
    await app.set_ageing("default", 60)
    (aged,) = await app.queues()
    await app.set_ageing("default", None)
    (strict,) = await app.queues()

    assert (timedelta(seconds=60), None) == (aged.ageing, strict.ageing)
    for wrong in (0, "soon"):
        with pytest.raises(ValidationError, match="interval"):
            await app.set_ageing("default", wrong)
