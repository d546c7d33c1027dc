"""Dependencies: values that the app provides to handlers, made and closed with each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated

import pytest

from holdfast import (
    Depends,
    Holdfast,
    JobContext,
    State,
    SyncJobContext,
    ValidationError,
    Worker,
    current_job,
)
from holdfast.testing import Rehearsal, Sandbox
from tests.worker.rig import ended, until_running, working
from tests.worker.seam_tasks import app as tasks


class Steps(list[str]):
    """What happened, in order."""


async def run(app: Holdfast, type_: str, payload: object = None) -> State:
    async with app:
        job = await app.submit(type_, payload)
        await Worker(app).run(burst=True)
        return (await app.get(job.job_id)).state


def kinds(steps: Steps) -> dict[str, Callable[..., object]]:
    """Return a dependency of each kind, which all provide the same."""

    def plain() -> str:
        return "value"

    async def coroutine() -> str:
        await asyncio.sleep(0)
        return "value"

    def generator() -> Iterator[str]:
        steps.append("open")
        yield "value"
        steps.append("close")

    async def async_generator() -> AsyncIterator[str]:
        await asyncio.sleep(0)
        steps.append("open")
        yield "value"
        await asyncio.sleep(0)
        steps.append("close")

    return {
        "plain": plain,
        "coroutine": coroutine,
        "generator": generator,
        "async_generator": async_generator,
    }


@pytest.mark.parametrize("runner", ["async", "thread"])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async_generator"])
async def test_every_kind_of_dependency_serves_every_kind_of_handler(
    kind: str, runner: str
) -> None:
    app, steps = Holdfast("memory://"), Steps()
    provider = kinds(steps)[kind]

    if runner == "async":

        @app.task("work")
        async def work(number: int, value: str = Depends(provider)) -> None:
            steps.append(f"{number} {value}")
    else:

        @app.task("work")
        def work_in_thread(number: int, value: str = Depends(provider)) -> None:
            steps.append(f"{number} {value}")

    assert State.COMPLETED is await run(app, "work", {"number": 7})
    expected = ["7 value"] if "generator" not in kind else ["open", "7 value", "close"]
    assert expected == steps


STEPS = Steps()


async def connection_of(ctx: JobContext, given: Holdfast) -> AsyncIterator[str]:
    STEPS.append(f"open for {ctx.type} of {given.version}")
    yield "connection"
    STEPS.append("close")


def users_of(connection: Annotated[str, Depends(connection_of)]) -> Iterator[str]:
    yield f"users over {connection}"
    STEPS.append("users closed")


async def pool_of() -> AsyncIterator[str]:
    STEPS.append("open")
    yield "real"
    STEPS.append("close")


async def test_dependencies_nest_and_are_made_once_per_attempt() -> None:
    app = Holdfast("memory://", version="v1")
    STEPS.clear()

    @app.task("work")
    async def work(
        users: Annotated[str, Depends(users_of)],
        connection: Annotated[str, Depends(connection_of)],
    ) -> None:
        assert current_job() is not None
        STEPS.append(f"{users}, {connection}")

    assert State.COMPLETED is await run(app, "work")
    assert [
        "open for work of v1",
        "users over connection, connection",
        "users closed",
        "close",
    ] == STEPS


@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_a_dependency_sees_the_exception_and_is_closed(runner: str) -> None:
    app, steps = Holdfast("memory://"), Steps()

    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            steps.append("roll back")
            raise
        else:
            steps.append("commit")

    async def work(_: None = Depends(transaction)) -> None:
        raise ValueError("no")

    def work_in_thread(_: None = Depends(transaction)) -> None:
        raise ValueError("no")

    app.register("work", work if runner == "async" else work_in_thread, max_attempts=1)

    assert State.DEAD_LETTER is await run(app, "work")
    assert ["roll back"] == steps


async def test_a_dependency_that_fails_fails_the_attempt_and_is_named() -> None:
    app = Holdfast("memory://")

    def broken() -> str:
        raise ConnectionError("no database")

    @app.task("work", max_attempts=1)
    async def work(value: str = Depends(broken)) -> None:
        raise AssertionError("must not run")

    async with app:
        job = await app.submit("work")
        await Worker(app).run(burst=True)
        failure = (await app.failure(job.job_id)).failure

    assert failure is not None
    assert "ConnectionError" == failure.code
    assert failure.context["dependency"].endswith("broken")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_dependencies_are_closed_when_the_handler_is_stopped(how: str) -> None:
    app, steps = Holdfast("memory://"), Steps()

    async def connection() -> AsyncIterator[str]:
        try:
            yield "connection"
        finally:
            await asyncio.sleep(0)
            steps.append("close")

    @app.task("work", max_attempts=1)
    async def work(connection: str = Depends(connection)) -> None:
        await asyncio.Event().wait()

    async with working(app):
        job = await app.submit("work", timeout=0.2 if how == "timeout" else 60)
        if how == "cancel":
            await until_running(app, job.job_id)
            await app.cancel(job.job_id, force=True)
        state = await ended(app, job.job_id)

    assert state is (State.DEAD_LETTER if how == "timeout" else State.CANCELLED)
    assert ["close"] == steps


@pytest.mark.parametrize("type_", ["seam.needs.async", "seam.needs.thread", "seam.needs.process"])
async def test_a_lifespan_resource_is_a_dependency_in_every_runner(type_: str) -> None:
    async with working(tasks, slots=4):
        first = await tasks.wait((await tasks.submit(type_)).job_id, timeout=15)
        second = await tasks.wait((await tasks.submit(type_)).job_id, timeout=15)

    assert isinstance(first.output, dict)
    assert first.output["resource"]["pid"] == first.output["pid"]
    assert first.output == second.output


async def test_tests_replace_dependencies_and_resources() -> None:
    app = Holdfast("memory://")
    app.lifespan(pool_of)
    STEPS.clear()

    @app.task("work")
    async def work(pool: Annotated[str, Depends(pool_of)]) -> str:
        return pool

    with Sandbox(app) as box, app.override(pool_of, lambda: "fake"):
        job = await app.submit("work")
        await box.drain()
        replaced = box.job(job).result
        direct = await work()  # type: ignore[call-arg]  # an annotation alone does not say so
    assert [] == STEPS

    with Sandbox(app) as box:
        job = await app.submit("work")
        await box.drain()
        real = box.job(job).result

    assert ("fake", "fake", "real") == (replaced, direct, real)
    assert ["open", "close"] == STEPS


async def test_direct_calls_and_rehearsals_have_dependencies() -> None:
    app, steps = Holdfast("memory://"), Steps()

    async def connection() -> AsyncIterator[str]:
        yield "connection"
        steps.append("close")

    @app.task
    def plain(number: int, connection: str = Depends(connection)) -> str:
        return f"{number} {connection}"

    @app.task
    async def coroutine(ctx: JobContext, number: int, connection: str = Depends(connection)) -> str:
        return f"{number} {connection} {ctx.attempt}"

    assert "1 connection" == plain(1)
    assert "2 given" == plain(2, connection="given")
    assert "3 connection 1" == await coroutine(3)
    assert "4 connection 2" == await Rehearsal(coroutine, attempt=2)(4)
    assert ["close"] * 3 == steps


async def test_a_dependency_is_no_part_of_the_payload() -> None:
    app = Holdfast("memory://")

    @app.task("work")
    async def work(number: int, value: str = Depends(str)) -> None: ...

    async with app:
        with pytest.raises(ValidationError, match="payload"):
            await app.submit("work", {"number": 1, "value": "mine"})
        with pytest.raises(TypeError, match="value"):
            await work.submit(1, value="mine")


def test_dependencies_that_cannot_be_called_are_refused() -> None:
    app = Holdfast("memory://")

    def needs_a_number(number: int) -> int:
        return number

    async def work(value: int = Depends(needs_a_number)) -> None: ...

    result = app.register("work", work)

    assert "parameter 'number' must be a Depends()" in result.message
    with pytest.raises(TypeError, match="needs a function"):
        Depends(3)  # type: ignore[arg-type]


def test_a_sync_context_is_what_a_dependency_of_a_thread_receives() -> None:
    app, seen = Holdfast("memory://"), list[object]()

    def attempt(ctx: SyncJobContext) -> int:
        seen.append(type(ctx))
        return ctx.attempt

    @app.task
    def work(attempt: int = Depends(attempt)) -> int:
        return attempt

    assert 1 == work()
    assert [SyncJobContext] == seen


async def test_a_context_that_would_block_the_loop_says_so() -> None:
    app, errors = Holdfast("memory://"), list[str]()

    async def progress(ctx: SyncJobContext) -> None:
        try:
            ctx.report_progress(1)
        except RuntimeError as error:
            errors.append(str(error))

    @app.task("work")
    def work(_: None = Depends(progress)) -> None: ...

    assert State.COMPLETED is await run(app, "work")
    assert [
        "ctx.report_progress() would block the event loop: call it in the handler's thread"
    ] == (errors)
