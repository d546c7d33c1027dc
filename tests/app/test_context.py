"""What a handler can see and do, in coroutines and in plain functions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import (
    Holdfast,
    JobContext,
    State,
    SyncJobContext,
    TemporaryError,
    ValidationError,
)
from holdfast.runtime.clock import ManualClock
from tests.app.conftest import Drain


@pytest.mark.req("A-18", "M-10")
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_context_shows_the_job(app: Holdfast, drain: Drain, kind: str) -> None:
    seen: dict[str, object] = {}

    def look(ctx: JobContext | SyncJobContext) -> None:
        for name in [
            "job_id",
            "type",
            "queue",
            "attempt",
            "max_attempts",
            "attempt_id",
            "previous_attempt_id",
            "created_at",
            "correlation_id",
            "tags",
            "idempotency_key",
            "deadline",
            "lease_lost",
        ]:
            seen[name] = getattr(ctx, name)
        seen["cancelled"] = ctx.is_cancelled()

    async def coroutine(ctx: JobContext) -> None:
        look(ctx)

    def function(ctx: SyncJobContext) -> None:
        look(ctx)

    app.register("t", coroutine if kind == "coroutine" else function)
    job_id = (
        await app.submit("t", tags={"a": "b"}, correlation_id="c", idempotency_key="k", timeout=60)
    ).job_id
    await drain()

    now = app.clock.now()
    assert {
        "job_id": job_id,
        "type": "t",
        "queue": "default",
        "attempt": 1,
        "max_attempts": 3,
        "attempt_id": f"{job_id}.1",
        "previous_attempt_id": None,
        "created_at": now,
        "correlation_id": "c",
        "tags": {"a": "b"},
        "idempotency_key": "k",
        "deadline": now + timedelta(seconds=60),
        "lease_lost": False,
        "cancelled": False,
    } == seen


@pytest.mark.req("A-18", "A-6", "M-8")
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_reports_of_a_handler_are_stored(
    app: Holdfast, drain: Drain, clock: ManualClock, kind: str
) -> None:
    restored: list[object] = []

    async def coroutine(ctx: JobContext) -> None:
        restored.append(ctx.restore(dict[str, int]))
        await ctx.report_progress(70, "most")
        await ctx.log("warning", "watch out", {"page": 7})
        await ctx.checkpoint({"page": 7})
        if ctx.attempt == 1:
            raise TemporaryError("again", retry_after=1)

    def function(ctx: SyncJobContext) -> None:
        restored.append(ctx.restore(dict[str, int]))
        ctx.report_progress(70, "most")
        ctx.log("warning", "watch out", page=7)
        ctx.checkpoint({"page": 7})
        if ctx.attempt == 1:
            raise TemporaryError("again", retry_after=1)

    app.register("t", coroutine if kind == "coroutine" else function)
    job_id = (await app.submit("t")).job_id
    await drain()
    clock.advance(1)
    await drain()

    job = await app.get(job_id)
    lines = await app.logs(job_id)
    assert State.COMPLETED is job.state
    assert job.progress is not None
    assert (70, "most") == (job.progress.percent, job.progress.message)
    assert [
        (1, "WARNING", "watch out", {"page": "7"}),
        (2, "WARNING", "watch out", {"page": "7"}),
    ] == [(line.attempt, line.level, line.message, dict(line.fields)) for line in lines]
    assert [None, {"page": 7}] == restored


@pytest.mark.req("A-18", "A-3")
async def test_wrong_progress_and_level_are_refused(app: Holdfast, drain: Drain) -> None:
    fields: list[str] = []

    @app.task("t")
    async def task(ctx: JobContext) -> None:
        for call in (ctx.report_progress(101), ctx.log("loud", "x")):
            try:
                await call
            except ValidationError as error:
                fields.append(error.faults[0].field)

    await task.submit()
    await drain()

    assert ["percent", "level"] == fields


@pytest.mark.req("M-9", "A-18")
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_retried_attempt_does_not_spawn_the_same_key_twice(
    app: Holdfast, drain: Drain, clock: ManualClock, kind: str
) -> None:
    spawned: list[str] = []

    async def coroutine(ctx: JobContext) -> None:
        spawned.append(await ctx.spawn("child", {"n": 1}, key="one"))
        if ctx.attempt == 1:
            raise TemporaryError("again", retry_after=1)

    def function(ctx: SyncJobContext) -> None:
        spawned.append(ctx.spawn("child", {"n": 1}, key="one"))
        if ctx.attempt == 1:
            raise TemporaryError("again", retry_after=1)

    app.register("parent", coroutine if kind == "coroutine" else function)
    parent = (await app.submit("parent")).job_id
    await drain()
    clock.advance(1)
    await drain()

    (child,) = (await app.search(types=["child"])).jobs
    assert [child.job_id] * 2 == spawned
    assert parent == child.spawned_by


@pytest.mark.req("M-9")
async def test_fan_in_waits_for_everything_spawned_and_reads_the_results(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("part")
    async def part(n: int) -> int:
        return n * n

    @app.task("split")
    async def split(ctx: JobContext) -> str:
        for n in range(3):
            await ctx.spawn(part, {"n": n}, key=str(n))
        return "split"

    @app.task("merge")
    async def merge(ctx: JobContext) -> list[object]:
        return list((await ctx.dependency_results()).values())

    first = (await split.submit()).job_id
    last = (await merge.using(depends_on=[first], dependency_type="FAN_IN").submit()).job_id
    await drain()

    job = await app.get(last)
    assert State.COMPLETED is job.state
    assert ["split", 0, 1, 4] == job.output


@pytest.mark.req("M-9")
@pytest.mark.parametrize("as_list", [False, True])
async def test_chain_waits_for_what_a_step_spawned(
    app: Holdfast, drain: Drain, *, as_list: bool
) -> None:
    @app.task("part")
    async def part(n: int) -> int:
        return n * n

    @app.task("split")
    async def split(ctx: JobContext) -> str:
        for n in range(3):
            await ctx.spawn(part, {"n": n}, key=str(n))
        return "split"

    @app.task("report")
    async def report(ctx: JobContext) -> list[object]:
        return list((await ctx.dependency_results()).values())

    step = split.submission()
    *_, last = await app.chain([step] if as_list else step, report.submission())
    await drain()

    assert ["split", 0, 1, 4] == (await app.get(last.job_id)).output


@pytest.mark.req("M-9")
async def test_chain_passes_results_on_and_ends_with_its_first_failure(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("start")
    async def start(n: int) -> int:
        if n < 0:
            raise ValueError("below zero")
        return n

    @app.task("double")
    def double(ctx: SyncJobContext) -> int:
        (number,) = ctx.dependency_results().values()
        assert isinstance(number, int)
        return 2 * number

    @app.task("total")
    async def total(ctx: JobContext) -> int:
        return sum(n for n in (await ctx.dependency_results()).values() if isinstance(n, int))

    results = await app.chain(
        start.submission(5), [double.submission(), double.submission()], total.submission()
    )
    bad = await app.chain(start.using(max_attempts=1).submission(-1), double.submission())
    await drain()

    assert 20 == (await app.get(results[-1].job_id)).output
    states = [(await app.get(result.job_id)).state for result in bad]
    assert [State.DEAD_LETTER, State.DEAD_LETTER] == states
