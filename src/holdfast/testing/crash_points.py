"""Kills an attempt at each point in turn, to show whether the task survives a crash.

Each attempt runs in a thread with its own event loop, as it would in another process. A kill
stops that thread forever: no except or finally of the handler runs, as after kill -9.
"""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import msgspec

from holdfast.model.job import State
from holdfast.model.submission import SubmitOptions
from holdfast.tasks.context import JobContext
from holdfast.tasks.registry import RunnerKind
from holdfast.tasks.task import Task
from holdfast.testing.crash_steps import CURRENT_STEPS, SteppingChannel, SteppingStore, Steps
from holdfast.testing.driver import sync_context
from holdfast.testing.override import use_store
from holdfast.testing.sandbox import Sandbox
from holdfast.worker.executor import perform, perform_sync
from holdfast.worker.outcomes import Outcome
from holdfast.worker.run import Run

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store import Store

MAX_POINTS = 200

Hook = Callable[[Sandbox], object]
"""A function or coroutine function that is called with the sandbox."""


class CrashVerdict(StrEnum):
    """The result of a crash at one point."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"
    NOT_REACHED = "NOT_REACHED"
    """The attempt took other steps this time: the task is not deterministic."""


class CrashPoint(msgspec.Struct, frozen=True):
    """One point where an attempt was killed, and whether the job survived it."""

    number: int
    name: str
    verdict: CrashVerdict
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.number:3}  {self.verdict:11}  {self.name}{detail}"


class CrashReport(msgspec.Struct, frozen=True):
    """The verdict for every point; ``str(report)`` is a table."""

    type: str
    points: tuple[CrashPoint, ...]

    @property
    def idempotent(self) -> bool:
        """Whether the task survives a crash at every point."""
        return all(point.verdict is CrashVerdict.SAFE for point in self.points)

    @property
    def unsafe(self) -> tuple[CrashPoint, ...]:
        """The points where a crash does harm, or that were not reached again."""
        return tuple(point for point in self.points if point.verdict is not CrashVerdict.SAFE)

    def assert_idempotent(self) -> None:
        """Raise AssertionError with the table unless the task survives a crash at every point."""
        if not self.idempotent:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        count = f"{len(self.points)} crash points, {len(self.unsafe)} of them unsafe"
        return "\n".join([f"{self.type}: {count}", *map(str, self.points)])


async def crash_points(
    task: Task[..., Any],
    /,
    *args: object,
    check: Hook,
    prepare: Hook | None = None,
    effects: Sequence[str] = (),
    **kwargs: object,
) -> CrashReport:
    """Submit a task with these arguments and kill its first attempt, at each point in turn.

    The points are: before the handler's first line; before and after every write through the
    context, every submission, and every call of the functions named in ``effects``
    ("package.module.name"); at every ``effect("name")`` in the handler; and after the handler
    has returned, before its outcome is written.

    ``prepare(sandbox)`` resets your own state before each run. After each kill the lease
    expires and the job runs again until it ends; then ``check(sandbox)`` raises or returns
    False if the crash did harm.

        report = await crash_points(charge, "ada", prepare=empty_bank, check=charged_once)
        report.assert_idempotent()

    Raise AssertionError if the check fails without a crash, or after 200 points.
    """
    trial = _CrashTrial(task, task.payload(*args, **kwargs), check, prepare)
    with _patched(effects):
        names, detail = await trial.run(None)
        if detail:
            raise AssertionError(f"{task.type} must pass without a crash: {detail}")
        if len(names) > MAX_POINTS:
            raise AssertionError(
                f"{task.type} has {len(names)} crash points, at most {MAX_POINTS} are supported"
            )
        points = [await trial.point(number, name) for number, name in enumerate(names)]
    return CrashReport(task.type, tuple(points))


def crash_points_sync(
    task: Task[..., Any],
    /,
    *args: object,
    check: Hook,
    prepare: Hook | None = None,
    effects: Sequence[str] = (),
    **kwargs: object,
) -> CrashReport:
    """Do the same as ``crash_points``, for plain tests."""
    return asyncio.run(
        crash_points(task, *args, check=check, prepare=prepare, effects=effects, **kwargs)
    )


class _CrashTrial:
    """One task with its arguments, run once for each crash point."""

    def __init__(
        self, task: Task[..., Any], payload: object, check: Hook, prepare: Hook | None
    ) -> None:
        from holdfast.app import Holdfast

        assert isinstance(task.app, Holdfast)
        self._app = task.app
        self._task = task
        self._payload = payload
        self._check = check
        self._prepare = prepare

    async def point(self, number: int, name: str) -> CrashPoint:
        """Kill the attempt at one point and return the verdict."""
        names, detail = await self.run(number)
        if names[number : number + 1] != [name]:
            reached = names[number] if number < len(names) else "its end"
            detail = f"the attempt reached {reached} instead"
            return CrashPoint(number, name, CrashVerdict.NOT_REACHED, detail)
        return CrashPoint(
            number, name, CrashVerdict.UNSAFE if detail else CrashVerdict.SAFE, detail
        )

    async def run(self, kill_at: int | None) -> tuple[list[str], str]:
        """Run the job to its end; return the steps of its first attempt and what went wrong."""
        app = self._app
        runner = _AttemptRunner(app, Steps(kill_at))
        with Sandbox(app, execute=runner.execute) as box:
            await _call(self._prepare, box)
            submitted = await app.submit(self._task.type, self._payload, **self._options())
            runner.step_through(submitted.job_id)
            await box.finish()
            job = box.job(submitted)
            if job.state is not State.COMPLETED:
                reason = job.failure.message if job.failure else "no failure was recorded"
                return runner.steps.names, f"the job ended {job.state}: {reason}"
            return runner.steps.names, await self._run_check(box)

    def _options(self) -> SubmitOptions:
        """Give a task with a single attempt a second one, which it needs after the crash."""
        handler = self._app.registry.get(self._task.type)
        single = handler is not None and handler.options.max_attempts == 1
        return {"max_attempts": 2} if single else {}

    async def _run_check(self, box: Sandbox) -> str:
        try:
            verdict = await _call(self._check, box)
        except Exception as error:  # noqa: BLE001  # any exception means that the check failed
            return f"{type(error).__name__}: {error}"
        return "the check returned False" if verdict is False else ""


class _AttemptRunner:
    """Runs attempts in threads, the first one of the given job step by step."""

    def __init__(self, app: Holdfast, steps: Steps) -> None:
        self.steps = steps
        self._app = app
        self._job_id = ""
        self._begun = False

    def step_through(self, job_id: str) -> None:
        """Record the steps of this job's first attempt, which may be killed."""
        self._job_id = job_id

    async def execute(self, run: Run) -> Outcome | None:
        first = run.job.id == self._job_id and not self._begun
        steps = self.steps if first else Steps()
        self._begun = self._begun or first
        store = self._app.store
        use_store(self._app, cast("Store", SteppingStore(store, steps)))  # it overrides one verb
        thread = threading.Thread(
            target=_run_attempt, args=(run, steps), name="holdfast-attempt", daemon=True
        )
        thread.start()
        try:
            return await asyncio.wrap_future(steps.outcome)
        finally:
            use_store(self._app, store)


def _run_attempt(run: Run, steps: Steps) -> None:
    """Run one attempt, from before its first line until before its outcome is written."""
    CURRENT_STEPS.set(steps)
    channel = SteppingChannel(run.channel(), steps)
    context = JobContext(run.job, run.times_out_at, run.signals, channel)
    try:
        steps.reach("before the first line")
        if run.handler.runner is RunnerKind.ASYNC:
            outcome = asyncio.run(perform(run.handler, run.job, context))
        else:
            outcome = perform_sync(run.handler, run.job, sync_context(run, context))
        steps.reach("before the outcome is written")
    except BaseException as error:  # noqa: BLE001  # the caller raises it
        steps.outcome.set_exception(error)
    else:
        steps.outcome.set_result(outcome)


async def _call(hook: Hook | None, box: Sandbox) -> object:
    result = hook(box) if hook is not None else None
    return await result if isinstance(result, Awaitable) else result


@contextmanager
def _patched(names: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            path, _, attribute = name.rpartition(".")
            owner = pkgutil.resolve_name(path)
            stepping = _stepping(name, getattr(owner, attribute))
            stack.enter_context(mock.patch.object(owner, attribute, stepping))
        yield


def _stepping(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """Wrap a function with a step before and after each call."""

    def call(*args: object, **kwargs: object) -> object:
        steps = CURRENT_STEPS.get()
        if steps is None:
            return function(*args, **kwargs)
        before, after = steps.before_and_after(name)
        steps.reach(before)
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            return _awaited(result, steps, after)
        steps.reach(after)
        return result

    return call


async def _awaited(result: Awaitable[object], steps: Steps, after: str) -> object:
    value = await result
    steps.reach(after)
    return value
