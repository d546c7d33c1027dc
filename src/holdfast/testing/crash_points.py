"""Killing an attempt at every point in turn, to see whether the task bears it.

Each attempt runs in a thread with an event loop of its own, as if in a process of its own.
A kill stops that thread for good: no except or finally of the handler runs, as after kill -9.
"""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, cast
from unittest import mock

import msgspec

from holdfast.model.job import State
from holdfast.model.submission import SubmitOptions
from holdfast.tasks.context import JobContext
from holdfast.tasks.registry import RunnerKind
from holdfast.tasks.task import Task
from holdfast.testing.crash_steps import CURRENT, SteppingChannel, SteppingStore, Steps
from holdfast.testing.driver import sync_context
from holdfast.testing.override import put_under
from holdfast.testing.sandbox import Sandbox
from holdfast.worker.executor import Outcome, perform, perform_sync
from holdfast.worker.run import Run

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.store import Store

MOST_POINTS = 200

Hook = Callable[[Sandbox], object]
"""Called with the sandbox; may be a coroutine function."""


class CrashVerdict(StrEnum):
    """What a crash at one point led to."""

    SAFE = "SAFE"
    UNSAFE = "UNSAFE"
    NOT_REACHED = "NOT_REACHED"
    """The attempt took another way this time: the task does not do the same twice."""


class CrashPoint(msgspec.Struct, frozen=True):
    """One place where the attempt was killed, and how the next attempts dealt with it."""

    number: int
    name: str
    verdict: CrashVerdict
    detail: str = ""

    def __str__(self) -> str:
        told = f": {self.detail}" if self.detail else ""
        return f"{self.number:3}  {self.verdict:11}  {self.name}{told}"


class CrashReport(msgspec.Struct, frozen=True):
    """The verdict on every point; ``str`` is a table of them."""

    type: str
    points: tuple[CrashPoint, ...]

    @property
    def idempotent(self) -> bool:
        """Whether the task bears a crash at every point."""
        return all(point.verdict is CrashVerdict.SAFE for point in self.points)

    @property
    def unsafe(self) -> tuple[CrashPoint, ...]:
        """The points where a crash does harm, or that were not reached again."""
        return tuple(point for point in self.points if point.verdict is not CrashVerdict.SAFE)

    def assert_idempotent(self) -> None:
        """Raise AssertionError with the table unless the task bears a crash at every point."""
        if not self.idempotent:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        count = f"{len(self.points)} crash points, {len(self.unsafe)} of them unsafe"
        return "\n".join([f"{self.type}: {count}", *map(str, self.points)])


async def crash_points(
    task: Task[..., object],
    /,
    *args: object,
    check: Hook,
    prepare: Hook | None = None,
    effects: Sequence[str] = (),
    **kwargs: object,
) -> CrashReport:
    """Submit a task with these arguments and kill its first attempt, at every point in turn.

    The points: before the handler's first line; before and after every write through the
    context, every submission, and every call of the functions named in ``effects``
    ("package.module.name"); at every ``effect("name")`` in the handler; and after it
    returned, before that is written. After each kill the lease lapses, the job runs again
    until it has ended, and ``check(sandbox)`` looks at the world: it raises, or returns
    False, when something is wrong. ``prepare(sandbox)`` sets the world up before each run.
    """
    trial = _Trial(task, task.payload(*args, **kwargs), check, prepare)
    with _patched(effects):
        names, detail = await trial.run(None)
        if detail:
            raise AssertionError(f"{task.type} does not even pass without a crash: {detail}")
        if len(names) > MOST_POINTS:
            raise AssertionError(
                f"{task.type} has {len(names)} crash points, {MOST_POINTS} is most"
            )
        points = [await trial.point(number, name) for number, name in enumerate(names)]
    return CrashReport(task.type, tuple(points))


def crash_points_sync(
    task: Task[..., object],
    /,
    *args: object,
    check: Hook,
    prepare: Hook | None = None,
    effects: Sequence[str] = (),
    **kwargs: object,
) -> CrashReport:
    """Do as ``crash_points`` does, for plain tests."""
    return asyncio.run(
        crash_points(task, *args, check=check, prepare=prepare, effects=effects, **kwargs)
    )


class _Trial:
    """One task with its arguments, tried again and again."""

    def __init__(
        self, task: Task[..., object], payload: object, check: Hook, prepare: Hook | None
    ) -> None:
        from holdfast.app import Holdfast

        assert isinstance(task.app, Holdfast)
        self._app = task.app
        self._task = task
        self._payload = payload
        self._check = check
        self._prepare = prepare

    async def point(self, number: int, name: str) -> CrashPoint:
        """Kill at one point and judge."""
        names, detail = await self.run(number)
        if names[number : number + 1] != [name]:
            came = names[number] if number < len(names) else "its end"
            told = f"the attempt came to {came} instead"
            return CrashPoint(number, name, CrashVerdict.NOT_REACHED, told)
        return CrashPoint(
            number, name, CrashVerdict.UNSAFE if detail else CrashVerdict.SAFE, detail
        )

    async def run(self, kill_at: int | None) -> tuple[list[str], str]:
        """Run the job to its end; return the steps of its first attempt and what is wrong."""
        app = self._app
        crew = _Crew(app, Steps(kill_at))
        with Sandbox(app, execute=crew.execute) as box:
            await _called(self._prepare, box)
            submitted = await app.submit(self._task.type, self._payload, **self._options())
            crew.watch(submitted.job_id)
            await box.finish()
            job = box.job(submitted)
            if job.state is not State.COMPLETED:
                told = job.failure.message if job.failure else "no failure was noted"
                return crew.steps.names, f"the job ended {job.state}: {told}"
            return crew.steps.names, await self._wrong(box)

    def _options(self) -> SubmitOptions:
        """A task with a single attempt would never run again: it is given a second one."""
        handler = self._app.registry.get(self._task.type)
        single = handler is not None and handler.options.max_attempts == 1
        return {"max_attempts": 2} if single else {}

    async def _wrong(self, box: Sandbox) -> str:
        try:
            verdict = await _called(self._check, box)
        except Exception as error:  # noqa: BLE001  # whatever the check raises is its verdict
            return f"{type(error).__name__}: {error}"
        return "the check returned False" if verdict is False else ""


class _Crew:
    """Runs attempts apart from the test, the first one of the watched job by steps."""

    def __init__(self, app: Holdfast, steps: Steps) -> None:
        self.steps = steps
        self._app = app
        self._watched = ""
        self._begun = False

    def watch(self, job_id: str) -> None:
        """Kill, if at all, this job's first attempt."""
        self._watched = job_id

    async def execute(self, run: Run) -> Outcome | None:
        first = run.job.id == self._watched and not self._begun
        steps = self.steps if first else Steps()
        self._begun = self._begun or first
        store = self._app.store
        put_under(self._app, cast("Store", SteppingStore(store, steps)))  # all but one verb is its
        thread = threading.Thread(
            target=_body, args=(run, steps), name="holdfast-attempt", daemon=True
        )
        thread.start()
        try:
            return await asyncio.wrap_future(steps.answer)
        finally:
            put_under(self._app, store)


def _body(run: Run, steps: Steps) -> None:
    """Run one attempt from before its first line to before its answer is written."""
    CURRENT.set(steps)
    channel = SteppingChannel(run.context._channel, steps)
    run.context = JobContext(run.job, run.context.deadline, run.signals, channel)
    try:
        steps.take("before the first line")
        if run.handler.runner is RunnerKind.ASYNC:
            outcome = asyncio.run(perform(run.handler, run.job, run.context))
        else:
            outcome = perform_sync(run.handler, run.job, sync_context(run))
        steps.take("before the answer is written")
    except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits
        steps.answer.set_exception(error)
    else:
        steps.answer.set_result(outcome)


async def _called(hook: Hook | None, box: Sandbox) -> object:
    answer = hook(box) if hook is not None else None
    return await answer if isinstance(answer, Awaitable) else answer


@contextmanager
def _patched(names: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            place, _, attribute = name.rpartition(".")
            owner = pkgutil.resolve_name(place)
            stepping = _stepping(name, getattr(owner, attribute))
            stack.enter_context(mock.patch.object(owner, attribute, stepping))
        yield


def _stepping(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """A function, with a step before and after each call."""

    def call(*args: object, **kwargs: object) -> object:
        steps = CURRENT.get()
        if steps is None:
            return function(*args, **kwargs)
        before, after = steps.around(name)
        steps.take(before)
        answer = function(*args, **kwargs)
        if inspect.isawaitable(answer):
            return _finished(answer, steps, after)
        steps.take(after)
        return answer

    return call


async def _finished(answer: Awaitable[object], steps: Steps, after: str) -> object:
    value = await answer
    steps.take(after)
    return value
