"""An app in a sandbox: jobs in memory, a clock that the test moves, a fixed seed."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.app import Holdfast
from holdfast.model.results import SubmissionResult
from holdfast.model.times import Span, parse_duration
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.tasks.spawning import BoundTask
from holdfast.testing.blocking import BlockingBridge, SandboxOperations
from holdfast.testing.driver import Driver, Execute
from holdfast.testing.jobs import SandboxJob, no_match, sandbox_job, unexpected
from holdfast.testing.override import overridden, sandbox_store

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_ATTEMPTS = 1000
FINISH_WITHIN = timedelta(days=30)


class Sandbox:
    """Runs an app in memory, under the control of a test.

    Inside ``with Sandbox(app) as box`` the app and its tasks keep their jobs in memory, read
    the time from ``box.clock`` and use random numbers from ``seed``. No job runs until the
    test calls ``drain``, ``advance`` or ``finish``; plain tests call them on ``box.sync``.
    Handlers run one at a time in the test's own thread. The limits of tasks and retention do
    not apply.

        with Sandbox(app) as box:
            await open_account.submit(owner="ada@example.org")
            await box.advance(days=3)
            box.assert_submitted(send_mail, to="ada@example.org")
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        start: datetime = START,
        seed: int = 0,
        execute: Execute | None = None,
    ) -> None:
        self.app = app
        self.clock = ManualClock(start)
        self.store = sandbox_store(app, self.clock)
        self.sync = SyncSandbox(self)
        self._randomness = Randomness(seed)
        self._execute = execute
        self._bridge = BlockingBridge()
        self._stack = ExitStack()
        self._driver: Driver | None = None

    def __enter__(self) -> Self:
        sync = SandboxOperations(self.app, self._bridge)
        self._stack.callback(self._bridge.close)
        self._stack.enter_context(
            overridden(self.app, self.store, self.clock, self._randomness, sync)
        )
        self._driver = Driver(self.app, self.store, self._execute)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._driver = None

    def submitted(
        self, task: BoundTask | str | None = None, /, **arguments: object
    ) -> list[SandboxJob]:
        """Return the jobs submitted so far, in order; with ``task``, only the jobs of that task.

        With ``arguments``, only jobs submitted with these values; other arguments may have
        any value.
        """
        type_ = _type(task)
        jobs = (sandbox_job(job) for job in self._active_driver.jobs())
        return [job for job in jobs if type_ in (None, job.type) and job.has(arguments)]

    def job(self, job: str | SubmissionResult | SandboxJob) -> SandboxJob:
        """Return the current snapshot of a job; raise AssertionError if it does not exist."""
        if isinstance(job, SubmissionResult):
            job = job.job_id
        job_id = job if isinstance(job, str) else job.id
        for one in self.submitted():
            if one.id == job_id:
                return one
        raise AssertionError(f"no job has the id {job_id}")

    def assert_submitted(self, task: BoundTask | str, /, **arguments: object) -> SandboxJob:
        """Return the only job of a task with these arguments; fail if there is none or several."""
        found = self.submitted(task, **arguments)
        if not found:
            raise AssertionError(no_match(_type(task), arguments, self.submitted()))
        if len(found) > 1:
            raise AssertionError(unexpected(found, f"one job of {_type(task)}"))
        return found[0]

    def assert_not_submitted(
        self, task: BoundTask | str | None = None, /, **arguments: object
    ) -> None:
        """Fail if a job of a task with these arguments was submitted."""
        found = self.submitted(task, **arguments)
        if found:
            raise AssertionError(unexpected(found, f"no job of {_type(task) or 'any type'}"))

    async def drain(
        self,
        *,
        until: datetime | timedelta | None = None,
        raising: bool = False,
        most: int = MAX_ATTEMPTS,
    ) -> list[SandboxJob]:
        """Run every ready job, and the jobs that these submit, until no job is ready.

        With ``until``, an instant or a span from now, also move the clock there, and stop
        wherever something is due: delays, retries, expired leases, cron. Return a snapshot of
        each job after its attempt, in order. With ``raising``, raise the exceptions of
        handlers. Raise AssertionError after ``most`` attempts.
        """
        end = self._end(until)
        done: list[SandboxJob] = []
        while True:
            await self._run_ready(done, raising=raising, most=most)
            instant = await self._active_driver.next_instant()
            if instant is None or instant > end:
                self.clock.set(end)
                return done
            self.clock.set(instant)

    async def advance(self, *, raising: bool = False, **span: float) -> list[SandboxJob]:
        """Move the clock, as in ``advance(days=3)``, and run in order what becomes due."""
        return await self.drain(until=timedelta(**span), raising=raising)

    async def finish(
        self, *, within: Span = FINISH_WITHIN, raising: bool = False, most: int = MAX_ATTEMPTS
    ) -> list[SandboxJob]:
        """Run until every job has ended, and move the clock as far as needed; cron is off.

        Raise AssertionError with the unfinished jobs if that takes longer than ``within``.
        """
        end = self.clock.now() + parse_duration(within)
        done: list[SandboxJob] = []
        while True:
            await self._run_ready(done, raising=raising, most=most, cron=False)
            unfinished = self._active_driver.unfinished()
            if not unfinished:
                return done
            instant = await self._active_driver.next_instant(cron=False)
            if instant is None or instant > end:
                raise AssertionError(unexpected(map(sandbox_job, unfinished), "every job to end"))
            self.clock.set(instant)

    def block(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on the sandbox's event loop, for plain tests."""
        return self._bridge.run(coroutine)

    @property
    def _active_driver(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the sandbox is closed: use 'with Sandbox(app) as box'")
        return self._driver

    async def _run_ready(
        self, done: list[SandboxJob], *, raising: bool, most: int, cron: bool = True
    ) -> None:
        driver = self._active_driver
        while True:
            await driver.maintain(cron=cron)
            ran = False
            while (job_id := await driver.attempt()) is not None:
                ran = True
                done.append(self.job(job_id))
                if raising and driver.raised is not None:
                    raise driver.raised
                if len(done) >= most:
                    message = f"{most} attempts were made and jobs are still ready, the last:"
                    raise AssertionError("\n".join([message, *(f"  {job}" for job in done[-3:])]))
            if not ran:
                return

    def _end(self, until: datetime | timedelta | None) -> datetime:
        now = self.clock.now()
        if until is None:
            return now
        end = now + until if isinstance(until, timedelta) else until
        if end < now:
            raise ValueError(f"until must not be before {now}, got {end}")
        return end


class SyncSandbox:
    """The blocking forms of ``drain``, ``advance`` and ``finish``, for plain tests."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def drain(
        self,
        *,
        until: datetime | timedelta | None = None,
        raising: bool = False,
        most: int = MAX_ATTEMPTS,
    ) -> list[SandboxJob]:
        """Run every ready job; see ``Sandbox.drain``."""
        return self._sandbox.block(self._sandbox.drain(until=until, raising=raising, most=most))

    def advance(self, *, raising: bool = False, **span: float) -> list[SandboxJob]:
        """Move the clock and run what becomes due; see ``Sandbox.advance``."""
        return self._sandbox.block(self._sandbox.advance(raising=raising, **span))

    def finish(
        self, *, within: Span = FINISH_WITHIN, raising: bool = False, most: int = MAX_ATTEMPTS
    ) -> list[SandboxJob]:
        """Run until every job has ended; see ``Sandbox.finish``."""
        return self._sandbox.block(self._sandbox.finish(within=within, raising=raising, most=most))


def _type(task: BoundTask | str | None) -> str | None:
    return task if task is None or isinstance(task, str) else task.type
