"""Reading jobs, and waiting for them without many reads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from holdfast import Holdfast, JobContext, NotFoundError, State, Worker
from holdfast.model.status import ResultStatus
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from tests.app.conftest import Drain
from tests.waiting import eventually


@pytest.mark.req("A-5")
async def test_status_holds_the_result_and_on_demand_the_history(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("double")
    async def double(n: int) -> dict[str, int]:
        return {"n": 2 * n}

    job_id = (await double.submit(4)).job_id
    await drain()

    short = await app.get(job_id, include_result=False)
    full = await app.get(job_id, include_history=True)

    assert (State.COMPLETED, None, None) == (short.state, short.result, short.history)
    assert full.result is not None
    assert (ResultStatus.SUCCESS, {"n": 8}, 1) == (
        full.result.status,
        full.output,
        full.result.attempt,
    )
    assert full.history is not None
    assert ["submit", "enqueue", "claim", "complete"] == [edge.event for edge in full.history]


@pytest.mark.req("A-5")
async def test_unknown_job_is_an_error_that_names_it(app: Holdfast) -> None:
    for operation in (app.get, app.wait, app.failure, app.explain, app.logs):
        with pytest.raises(NotFoundError, match="'nobody'"):
            await operation("nobody")


@pytest.mark.req("A-6")
async def test_progress_of_a_running_job_can_be_read(app: Holdfast) -> None:
    reported, go_on = asyncio.Event(), asyncio.Event()

    @app.task("slow")
    async def slow(ctx: JobContext) -> None:
        await ctx.report_progress(40, "reading")
        await ctx.checkpoint({"page": 1})
        reported.set()
        await go_on.wait()

    job_id = (await slow.submit()).job_id
    async with asyncio.TaskGroup() as group:
        group.create_task(Worker(app, maintenance=False).run(burst=True))
        await reported.wait()
        job = await app.get(job_id)
        go_on.set()

    assert job.progress is not None
    assert (State.RUNNING, 40, "reading") == (job.state, job.progress.percent, job.progress.message)


@pytest.mark.req("A-5")
async def test_wait_returns_at_once_for_a_job_that_has_ended(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    await app.cancel(job_id)

    job = await app.wait(job_id, timeout=5)

    assert State.CANCELLED is job.state


@pytest.mark.req("A-5")
async def test_wait_raises_after_its_timeout(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id

    with pytest.raises(TimeoutError):
        await app.wait(job_id, timeout=0.05)


@pytest.mark.req("A-5")
async def test_many_waiters_share_one_reader_of_events(store: Store, clock: ManualClock) -> None:
    calls: Counter[str] = Counter()
    for verb in ("get", "events"):
        setattr(store, verb, _counted(calls, verb, getattr(store, verb)))
    async with Holdfast(store=store, clock=clock, randomness=Randomness(1)) as app:
        results = (await app.submit_batch([{"type": "x"}] * 200)).results
        waiters = [asyncio.create_task(app.wait(r.job_id, timeout=30)) for r in results]
        await eventually(lambda: calls["get"] >= len(waiters))
        for result in results:
            await app.cancel(result.job_id)
        jobs = await asyncio.gather(*waiters)

    assert {State.CANCELLED} == {job.state for job in jobs}
    # One read when the wait begins, one by cancel, one when the end was announced, and a margin
    # for a slow machine: each for itself would need one for every event.
    assert calls["get"] <= 4 * len(waiters)
    assert calls["events"] <= 2 * len(waiters)


def _counted(
    calls: Counter[str], verb: str, call: Callable[..., Awaitable[object]]
) -> Callable[..., Awaitable[object]]:
    async def counting(*args: object, **kwargs: object) -> object:
        calls[verb] += 1
        return await call(*args, **kwargs)

    return counting
