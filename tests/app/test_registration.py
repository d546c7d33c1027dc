"""Registering handlers: registered, replaced, invalid, and the options of a task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

import pytest

from holdfast import Backoff, BackoffKind, Holdfast, Priority, State, ValidationError, Worker
from holdfast.model.results import RegistrationStatus
from holdfast.runtime.clock import ManualClock
from holdfast.tasks.registry import HandlerOptions, RunnerKind
from tests.app.conftest import Drain

if TYPE_CHECKING:
    from somewhere import Elsewhere


async def handler() -> None: ...


async def unresolved(thing: Elsewhere) -> Elsewhere: ...  # type: ignore[empty-body]


async def ambiguous(thing: dict[str, int] | Thing) -> None: ...


class Thing(TypedDict):
    n: int


def function() -> None: ...


@pytest.mark.req("A-17")
async def test_second_registration_replaces_the_first(app: Holdfast, drain: Drain) -> None:
    async def better() -> str:
        return "better"

    first = app.register("t", handler)
    second = app.register("t", better)
    job_id = (await app.submit("t")).job_id
    await drain()

    assert (RegistrationStatus.REGISTERED, False) == (first.status, first.previous)
    assert (RegistrationStatus.REPLACED, True) == (second.status, second.previous)
    assert "better" == (await app.get(job_id)).output


@pytest.mark.req("A-17")
@pytest.mark.parametrize(
    ("type_", "given", "options", "message"),
    [
        ("", handler, {}, "type must match"),
        ("no spaces", handler, {}, "type must match"),
        ("t", "handler", {}, "handler must be callable"),
        ("t", lambda *args: None, {}, "'args' cannot be given by name"),
        ("t", unresolved, {}, "name 'Elsewhere' is not defined; import it where"),
        ("t", ambiguous, {}, "cannot decode into its annotations"),
        ("t", handler, {"max_attempts": 101}, "max_attempts must be between 1 and 100"),
        ("t", handler, {"concurrency": 0}, "concurrency must be at least 1"),
        ("t", handler, {"queue": "a b"}, "queue must match"),
        ("t", handler, {"timeout": timedelta(0)}, "timeout must be above 0"),
        ("t", function, {"runner": RunnerKind.ASYNC}, "async needs a coroutine function"),
        ("t", handler, {"runner": RunnerKind.THREAD}, "thread needs a plain function"),
    ],
)
def test_invalid_handler_is_reported_with_the_reason(
    type_: str, given: object, options: dict[str, object], message: str
) -> None:
    app = Holdfast("memory://")

    result = app.register(type_, given, options=HandlerOptions(**options))  # type: ignore[arg-type]

    assert RegistrationStatus.INVALID is result.status
    assert message in result.message
    assert "t" not in app.registry


@pytest.mark.req("A-17")
def test_decorator_raises_for_an_invalid_handler() -> None:
    app = Holdfast("memory://")

    with pytest.raises(ValidationError, match="'t': max_attempts must be between 1 and 100"):
        app.task("t", max_attempts=0)(handler)
    with pytest.raises(ValueError, match="timeout must be an ISO 8601 duration"):
        app.task("t", timeout="soon")


@pytest.mark.req("A-17", "M-6", "M-7")
async def test_task_options_are_the_defaults_of_its_jobs(app: Holdfast) -> None:
    backoff = Backoff(strategy=BackoffKind.CONSTANT)
    app.task(
        "t",
        queue="q",
        priority="LOW",
        timeout=5,
        lifetime=60,
        lease=2,
        max_attempts=9,
        backoff=backoff,
        retry_timeouts=False,
    )(handler)

    default = (await app.submit("t")).job_id
    overridden = (
        await app.submit("t", queue="other", priority=0, max_attempts=1, timeout=1)
    ).job_id

    one, two = await app.store.get([default, overridden])
    assert one is not None
    assert two is not None
    assert ("q", Priority.LOW, 9, backoff, False) == (
        one.queue,
        one.priority,
        one.max_attempts,
        one.backoff,
        one.retry_timeouts,
    )
    spans = (one.timeout, one.lifetime, one.lease_ttl)
    assert tuple(timedelta(seconds=s) for s in (5, 60, 2)) == spans
    assert ("other", 0, 1, timedelta(seconds=1)) == (
        two.queue,
        two.priority,
        two.max_attempts,
        two.timeout,
    )


@pytest.mark.req("M-7")
async def test_custom_backoff_computes_the_delay(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    @app.task("t", backoff=lambda attempt, first, most: timedelta(seconds=40 + attempt))
    async def fails() -> None:
        raise ValueError

    job_id = (await fails.submit()).job_id
    await drain()

    job = await app.get(job_id)
    assert clock.now() + timedelta(seconds=41) == job.scheduled_for


@pytest.mark.req("A-17")
async def test_concurrency_bounds_how_many_of_a_task_run_at_once(
    app: Holdfast, drain: Drain
) -> None:
    running, most = 0, 0

    @app.task("t", concurrency=2)
    async def task() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)  # so that runs overlap if they may
        running -= 1

    await app.submit_batch([task.submission()] * 7)
    await drain()

    assert 2 == most
    assert 7 == (await app.search(states=["COMPLETED"])).total_count


@pytest.mark.req("S-14")
async def test_job_without_handler_waits(app: Holdfast) -> None:
    app.register("known", handler)
    unknown = (await app.submit("unknown")).job_id
    known = (await app.submit("known")).job_id

    await Worker(app, maintenance=False).run(burst=True)

    assert State.COMPLETED is (await app.get(known)).state
    assert State.SCHEDULED is (await app.get(unknown)).state


def test_task_keeps_name_and_docstring_of_its_function() -> None:
    app = Holdfast("memory://")

    @app.task("t")
    async def documented(n: int) -> None:
        """Does something."""

    assert ("documented", "Does something.") == (documented.__name__, documented.__doc__)
    assert "<Task t>" == repr(documented)
    assert {"n": 1} == documented.payload(1)
