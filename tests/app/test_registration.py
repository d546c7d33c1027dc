"""Registering handlers: registered, replaced, invalid, and the options of a task."""

from __future__ import annotations

import asyncio
import re
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from holdfast import (
    Backoff,
    BackoffKind,
    Holdfast,
    LimitRule,
    Priority,
    State,
    ValidationError,
    Worker,
)
from holdfast.model.results import RegistrationStatus
from holdfast.model.submission import Submission
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
        ("t", handler, {"limit": LimitRule(rate=0)}, "limit.rate must be a whole number from 1"),
        ("t", handler, {"limit": 5}, "limit must be a LimitRule, got 5"),
        (
            "t",
            handler,
            {"key_limit": LimitRule(rate="5", per=5)},  # type: ignore[arg-type]  # as in a slip
            "key_limit.rate must be a whole number from 1",
        ),
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
    with pytest.raises(ValidationError, match="timeout must be an ISO 8601 duration"):
        app.task("t", timeout="soon")
    with pytest.raises(ValidationError, match="runner must be one of async, thread, process"):
        app.task("t", runner="fibre")
    with pytest.raises(TypeError, match="a task has no option colour"):
        app.task("t", colour="red")  # type: ignore[call-overload]


@pytest.mark.req("A-17")
def test_registration_takes_the_options_of_the_source_document() -> None:
    app = Holdfast("memory://")

    result = app.register("t", handler, timeout="PT5S", max_attempts=7, concurrency=2)

    options = app.registry["t"].options
    given = (options.timeout, options.max_attempts, options.concurrency)
    assert RegistrationStatus.REGISTERED is result.status
    assert (timedelta(seconds=5), 7, 2) == given


@pytest.mark.req("A-17")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": "soon"}, "timeout must be an ISO 8601 duration"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"timeout": [5]}, "timeout must be seconds, a timedelta or"),
        ({"max_attempts": 0}, "max_attempts must be between 1 and 100, got 0"),
        ({"max_attempts": "3"}, "max_attempts must be between 1 and 100, got '3'"),
        ({"concurrency": 0.5}, "concurrency must be at least 1, got 0.5"),
        ({"priority": "URGENT"}, "priority must be one of CRITICAL, HIGH"),
        ({"backoff": 3}, "backoff must be a Backoff or a function, got 3"),
        ({"retry_timeouts": "no"}, "retry_timeouts must be True or False, got 'no'"),
        ({"retry_crashes": 0}, "retry_crashes must be True or False, got 0"),
        ({"queue": 3.5}, "queue must match"),
        ({"permanent": 3}, "permanent"),
    ],
)
def test_wrong_value_of_a_registration_is_reported_as_invalid(
    options: dict[str, object], message: str
) -> None:
    app = Holdfast("memory://")

    result = app.register("t", handler, **options)  # type: ignore[arg-type]

    assert RegistrationStatus.INVALID is result.status
    assert message in result.message
    assert "t" not in app.registry


def test_keywords_of_a_registration_override_its_options() -> None:
    app = Holdfast("memory://")

    app.register("t", handler, options=HandlerOptions(queue="q", concurrency=3), concurrency=4)

    assert ("q", 4) == (app.registry["t"].options.queue, app.registry["t"].options.concurrency)


@pytest.mark.req("A-17")
@pytest.mark.parametrize("is_coroutine", [True, False])
async def test_handler_of_the_source_document_needs_no_annotations(
    app: Holdfast, drain: Drain, is_coroutine: bool
) -> None:
    async def coroutine(context, payload):  # type: ignore[no-untyped-def]
        return [context.type, payload]

    def plain(ctx, payload):  # type: ignore[no-untyped-def]
        return [ctx.type, payload]

    app.register("t", coroutine if is_coroutine else plain)
    job_id = (await app.submit("t", {"n": 1})).job_id
    await drain()

    assert ["t", {"n": 1}] == (await app.get(job_id)).output


@pytest.mark.req("A-17")
def test_task_without_parentheses_is_named_after_its_module_and_function() -> None:
    app = Holdfast("memory://")

    bare = app.task(handler)
    empty = app.task()(function)

    assert "tests.app.test_registration.handler" == bare.type
    assert "tests.app.test_registration.function" == empty.type
    assert handler is app.registry[bare.type].function


@pytest.mark.parametrize("module", ["__main__", "__holdfast_main__"])
def test_task_of_a_script_is_named_after_its_file(module: str) -> None:
    space: dict[str, Any] = {"__name__": module, "__file__": "/srv/jobs.py", "__spec__": None}
    exec("def send(): ...", space)

    assert "jobs.send" == Holdfast("memory://").task(space["send"]).type


@pytest.mark.req("A-17")
def test_second_task_of_a_type_is_refused_unless_it_replaces_the_first() -> None:
    app = Holdfast("memory://")
    app.task("t")(handler)

    with pytest.raises(ValidationError, match=r"'t' is registered already: .* replace=True"):
        app.task("t")(function)
    assert handler is app.registry["t"].function
    app.task("t", replace=True)(function)
    assert function is app.registry["t"].function


@pytest.mark.req("A-17")
async def test_two_decorators_register_one_function_for_two_types(
    app: Holdfast, drain: Drain
) -> None:
    @app.task("new", priority="HIGH")
    @app.task("old", max_attempts=9)
    async def task(n: int) -> int:
        return n + 1

    new = (await task.submit(1)).job_id
    old = (await app.submit("old", {"n": 2})).job_id
    await drain()

    assert "new" == task.type
    assert (2, 3) == ((await app.get(new)).output, (await app.get(old)).output)
    assert app.registry["new"].function is app.registry["old"].function
    options = app.registry["new"].options
    assert (Priority.HIGH, 9) == (options.priority, options.max_attempts)


async def counts(n: int, when: date | None = None) -> int:
    return n


@pytest.mark.req("A-1")
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"n": "one"}, "payload must fit the task: Expected `int`, got `str` - at `$.n`"),
        ({"n": 1, "when": "soon"}, "payload must fit the task: Invalid RFC3339 .*`$.when`"),
        ({"m": 1}, "payload must fit the task: Object"),
        (None, "payload must fit the task: Object missing required field `n`"),
        (b"1", "payload must fit the task: it is bytes, expected JSON"),
    ],
)
async def test_payload_that_does_not_fit_the_code_is_refused_at_submit(
    app: Holdfast, payload: object, message: str
) -> None:
    app.register("t", counts)
    pattern = re.escape(message).replace(re.escape(".*"), ".*")

    for options in ({}, {"delay": 5}, {"idempotency_key": "k"}):
        with pytest.raises(ValidationError, match=pattern):
            await app.submit("t", payload, **options)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=re.escape("jobs[1].payload must fit the task")):
        await app.submit_batch([Submission(type="t", payload={"n": 1}), {"type": "t"}])
    assert 0 == (await app.search()).total_count


@pytest.mark.req("A-1")
async def test_wrong_argument_type_is_refused_at_submit(app: Holdfast) -> None:
    task = app.task("t")(counts)

    with pytest.raises(ValidationError, match="Expected `int`, got `str`"):
        await task.submit("one")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="Expected `int`, got `str`"):
        await asyncio.to_thread(task.submit_sync, "one")  # type: ignore[arg-type]
    assert (await task.submit(1, date(2026, 1, 1))).job_id


def test_cron_of_a_task_that_needs_an_argument_is_refused() -> None:
    app = Holdfast("memory://")
    task = app.task("t")(counts)

    with pytest.raises(ValidationError, match=r"payload must fit task 't': .*required field `n`"):
        app.cron("@daily")(task)
    with pytest.raises(ValidationError, match="payload must fit task 't': Expected `int`"):
        app.cron("@daily", payload={"n": "x"})(task)
    with pytest.raises(ValidationError, match="payload must"):
        app.cron("@daily", payload={"n": float("nan")})(task)
    assert {} == app.crons
    app.cron("@daily", payload={"n": 1})(task)
    assert {"t"} == app.crons.keys()


def test_cron_of_a_plain_function_is_refused() -> None:
    app = Holdfast("memory://")

    with pytest.raises(ValidationError, match=r"cron must decorate a task: .*above @app\.task"):
        app.cron("@daily")(handler)  # type: ignore[arg-type]
    assert {} == app.crons


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
        retry_crashes=False,
    )(handler)

    default = (await app.submit("t")).job_id
    overridden = (
        await app.submit("t", queue="other", priority=0, max_attempts=1, timeout=1)
    ).job_id

    one, two = await app.store.get([default, overridden])
    assert one is not None
    assert two is not None
    assert ("q", Priority.LOW, 9, backoff, False, False) == (
        one.queue,
        one.priority,
        one.max_attempts,
        one.backoff,
        one.retry_timeouts,
        one.retry_crashes,
    )
    spans = (one.timeout, one.lifetime, one.lease_ttl)
    assert tuple(timedelta(seconds=s) for s in (5, 60, 2)) == spans
    assert ("other", 0, 1, timedelta(seconds=1)) == (
        two.queue,
        two.priority,
        two.max_attempts,
        two.timeout,
    )


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
