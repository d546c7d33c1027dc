"""Handlers that wait for the jobs they spawned."""

from __future__ import annotations

import pytest

from holdfast import (
    ChildJob,
    Holdfast,
    JobContext,
    PermanentError,
    State,
    SyncJobContext,
    ValidationError,
    WaitForChildren,
)
from holdfast.model.job import Event
from holdfast.runtime.clock import ManualClock
from holdfast.testing import Rehearsal
from tests.app.conftest import Drain

pytestmark = pytest.mark.req("M-9", "A-18")


def _parts(app: Holdfast) -> None:
    @app.task("part")
    async def part(n: int) -> int:
        if n < 0:
            raise PermanentError("negative")
        return n * n


async def _waits(app: Holdfast, job_id: str) -> int:
    (history,) = await app.store.history([job_id])
    return [edge.event for edge in history].count(Event.WAIT)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_handler_runs_again_with_the_results_of_its_children(
    app: Holdfast, drain: Drain, clock: ManualClock, kind: str
) -> None:
    runs: list[int] = []
    _parts(app)

    async def coroutine(ctx: JobContext) -> object:
        runs.append(ctx.attempt)
        for n in (1, 2, 3):
            await ctx.spawn("part", {"n": n}, key=str(n), delay=1)
        return [child.result for child in await ctx.wait_for_children()]

    def function(ctx: SyncJobContext) -> object:
        runs.append(ctx.attempt)
        for n in (1, 2, 3):
            ctx.spawn("part", {"n": n}, key=str(n), delay=1)
        return [child.result for child in ctx.wait_for_children()]

    app.register("whole", coroutine if kind == "coroutine" else function)
    job = await app.submit("whole", max_attempts=1)
    await drain()
    assert State.PENDING is (await app.get(job.job_id)).state
    clock.advance(1)
    await drain()

    status = await app.get(job.job_id)
    assert (State.COMPLETED, [1, 4, 9]) == (status.state, status.output)
    assert [1, 1] == runs
    assert 1 == await _waits(app, job.job_id)


async def test_children_that_failed_are_returned_with_their_failure(
    app: Holdfast, drain: Drain
) -> None:
    _parts(app)

    @app.task("whole")
    async def whole(ctx: JobContext) -> object:
        for n in (2, -1):
            await ctx.spawn("part", {"n": n}, key=str(n))
        found = await ctx.wait_for_children()
        return [[c.type, c.state, c.result, c.failure.message if c.failure else ""] for c in found]

    job = await whole.submit()
    await drain()

    status = await app.get(job.job_id)
    assert [
        ["part", "COMPLETED", 4, ""],
        ["part", "FAILED", None, "negative"],
    ] == status.output


async def test_after_fails_the_job_with_its_child(app: Holdfast, drain: Drain) -> None:
    _parts(app)

    @app.task("whole")
    async def whole(ctx: JobContext) -> None:
        await ctx.spawn("part", {"n": -1}, key="k")
        await ctx.wait_for_children("AFTER")

    job = await whole.submit()
    await drain()

    status = await app.get(job.job_id)
    assert State.FAILED is status.state
    assert status.failure is not None
    assert "DEPENDENCY_ENDED" == status.failure.code


async def test_step_job_waits_after_each_step(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    _parts(app)

    @app.task("steps")
    async def steps(ctx: JobContext) -> object:
        step = ctx.restore(int) or 0
        while step < 3:
            await ctx.spawn("part", {"n": step}, key=f"step {step}", delay=1)
            step += 1
            await ctx.checkpoint(step)
            await ctx.wait_for_children()
        return [child.result for child in await ctx.wait_for_children()]

    job = await app.submit("steps", max_attempts=1)
    for _ in range(4):
        await drain()
        clock.advance(1)

    status = await app.get(job.job_id)
    assert (State.COMPLETED, [0, 1, 4]) == (status.state, status.output)
    assert 3 == await _waits(app, job.job_id)


async def test_except_exception_does_not_stop_the_wait(app: Holdfast, drain: Drain) -> None:
    _parts(app)

    @app.task("whole")
    async def whole(ctx: JobContext) -> object:
        await ctx.spawn("part", {"n": 5}, key="k")
        try:
            return [child.result for child in await ctx.wait_for_children()]
        except Exception:  # noqa: BLE001  # as a careless handler does
            return "swallowed"

    job = await whole.submit()
    await drain()

    assert [25] == (await app.get(job.job_id)).output


async def test_job_that_waits_for_children_is_explained(app: Holdfast, drain: Drain) -> None:
    @app.task("whole")
    async def whole(ctx: JobContext) -> None:
        await ctx.spawn("later", key="k", delay=3600)
        await ctx.wait_for_children()

    job = await whole.submit()
    await drain()

    explanation = await app.explain(job.job_id)
    assert State.PENDING is (await app.get(job.job_id)).state
    assert "it waits for later job " in explanation.message
    assert "which it spawned and which is DELAYED" in explanation.message


async def test_other_kinds_are_refused(app: Holdfast, drain: Drain) -> None:
    faults: list[str] = []

    @app.task("whole")
    async def whole(ctx: JobContext) -> None:
        try:
            await ctx.wait_for_children("AFTER_ANY")
        except ValidationError as error:
            faults.append(error.faults[0].field)

    await whole.submit()
    await drain()

    assert ["kind"] == faults


async def test_rehearsal_waits_or_receives_the_children() -> None:
    app = Holdfast("memory://")

    @app.task("whole")
    async def whole(ctx: JobContext) -> object:
        await ctx.spawn("part", {"n": 5}, key="k")
        return [child.result for child in await ctx.wait_for_children()]

    with pytest.raises(WaitForChildren):
        await Rehearsal(whole)()
    child = ChildJob(job_id="c", type="part", state=State.COMPLETED, result={"n": 25})
    assert [{"n": 25}] == await Rehearsal(whole, children=[child])()
