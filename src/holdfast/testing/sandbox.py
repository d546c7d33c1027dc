"""An app in a sandbox: its jobs in memory, its clock in the test's hand, its chance seeded."""

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
from holdfast.tasks.context import Named
from holdfast.testing.blocking import BlockingBridge, SandboxOperations
from holdfast.testing.driver import Driver, Execute
from holdfast.testing.jobs import SandboxJob, missing, sandbox_job, unwanted
from holdfast.testing.override import borrowed, sandbox_store

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ATTEMPTS = 1000
PATIENCE = timedelta(days=30)


class Sandbox:
    """Holds an app still while a test looks at it.

    Inside ``with Sandbox(app) as box`` the app and its tasks keep their jobs in memory, take
    the time from ``box.clock`` and their chance from a seed; nothing runs until the test says
    so. Coroutine methods are for async tests; ``box.sync`` has them for plain ones. Handlers
    run one at a time in the test's own thread. Limits of tasks and retention do not apply.
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
        self._open = ExitStack()
        self._driver: Driver | None = None

    def __enter__(self) -> Self:
        sync = SandboxOperations(self.app, self._bridge)
        self._open.callback(self._bridge.close)
        self._open.enter_context(borrowed(self.app, self.store, self.clock, self._randomness, sync))
        self._driver = Driver(self.app, self.store, self._execute)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()
        self._driver = None

    # --- looking -------------------------------------------------------------------------

    def submitted(
        self, task: Named | str | None = None, /, **arguments: object
    ) -> list[SandboxJob]:
        """Return the jobs that were submitted so far, in order: of a task, with these arguments.

        Arguments that are not named may have any value.
        """
        type_ = _type(task)
        jobs = (sandbox_job(job) for job in self._drives.jobs())
        return [job for job in jobs if type_ in (None, job.type) and job.has(arguments)]

    def job(self, job: str | SubmissionResult | SandboxJob) -> SandboxJob:
        """Return a job as it is now."""
        if isinstance(job, SubmissionResult):
            job = job.job_id
        wanted = job if isinstance(job, str) else job.id
        for one in self.submitted():
            if one.id == wanted:
                return one
        raise AssertionError(f"no job has the id {wanted}")

    def assert_submitted(self, task: Named | str, /, **arguments: object) -> SandboxJob:
        """Return the one job of a task with these arguments; it is an error to find none or two."""
        found = self.submitted(task, **arguments)
        if not found:
            raise AssertionError(missing(_type(task), arguments, self.submitted()))
        if len(found) > 1:
            raise AssertionError(unwanted(found, f"one job of {_type(task)}"))
        return found[0]

    def assert_not_submitted(self, task: Named | str | None = None, /, **arguments: object) -> None:
        """Make sure that no such job was submitted."""
        found = self.submitted(task, **arguments)
        if found:
            raise AssertionError(unwanted(found, f"no job of {_type(task) or 'any type'}"))

    # --- running -------------------------------------------------------------------------

    async def drain(
        self,
        *,
        until: datetime | timedelta | None = None,
        raising: bool = False,
        most: int = MOST_ATTEMPTS,
    ) -> list[SandboxJob]:
        """Run everything that is ready, and what that submits, until nothing is.

        With ``until``, an instant or a span from now, the clock moves there, stopping
        wherever something is due: delays, retries, lapsed leases, cron. Returns each job as
        its attempt left it, in order. ``raising`` lets what a handler raises through.
        """
        end = self._moment(until)
        done: list[SandboxJob] = []
        while True:
            await self._run_ready(done, raising=raising, most=most)
            instant = await self._drives.next_instant()
            if instant is None or instant > end:
                self.clock.set(end)
                return done
            self.clock.set(instant)

    async def advance(self, *, raising: bool = False, **span: float) -> list[SandboxJob]:
        """Move the clock, ``advance(days=3)``, and run in order what becomes due on the way."""
        return await self.drain(until=timedelta(**span), raising=raising)

    async def finish(
        self, *, within: Span = PATIENCE, raising: bool = False, most: int = MOST_ATTEMPTS
    ) -> list[SandboxJob]:
        """Run until every job has ended, moving the clock as far as that takes; cron stands still.

        AssertionError names the jobs that are still there after ``within``.
        """
        end = self.clock.now() + parse_duration(within)
        done: list[SandboxJob] = []
        while True:
            await self._run_ready(done, raising=raising, most=most, cron=False)
            live = self._drives.live()
            if not live:
                return done
            instant = await self._drives.next_instant(cron=False)
            if instant is None or instant > end:
                raise AssertionError(unwanted(map(sandbox_job, live), "every job to end"))
            self.clock.set(instant)

    def block(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a plain test, on the sandbox's own event loop."""
        return self._bridge.run(coroutine)

    # --- inside --------------------------------------------------------------------------

    @property
    def _drives(self) -> Driver:
        if self._driver is None:
            raise RuntimeError("the sandbox is closed: use 'with Sandbox(app) as box'")
        return self._driver

    async def _run_ready(
        self, done: list[SandboxJob], *, raising: bool, most: int, cron: bool = True
    ) -> None:
        driver = self._drives
        while True:
            await driver.maintain(cron=cron)
            moved = False
            while (job_id := await driver.attempt()) is not None:
                moved = True
                done.append(self.job(job_id))
                if raising and driver.raised is not None:
                    raise driver.raised
                if len(done) >= most:
                    told = f"{most} attempts were made and jobs are still ready, the last:"
                    raise AssertionError("\n".join([told, *(f"  {job}" for job in done[-3:])]))
            if not moved:
                return

    def _moment(self, until: datetime | timedelta | None) -> datetime:
        now = self.clock.now()
        if until is None:
            return now
        end = now + until if isinstance(until, timedelta) else until
        if end < now:
            raise ValueError(f"until must not lie before {now}, got {end}")
        return end


class SyncSandbox:
    """The running methods of a sandbox, blocking, for plain tests."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def drain(
        self,
        *,
        until: datetime | timedelta | None = None,
        raising: bool = False,
        most: int = MOST_ATTEMPTS,
    ) -> list[SandboxJob]:
        """Run everything that is ready; see ``Sandbox.drain``."""
        return self._sandbox.block(self._sandbox.drain(until=until, raising=raising, most=most))

    def advance(self, *, raising: bool = False, **span: float) -> list[SandboxJob]:
        """Move the clock and run what becomes due; see ``Sandbox.advance``."""
        return self._sandbox.block(self._sandbox.advance(raising=raising, **span))

    def finish(
        self, *, within: Span = PATIENCE, raising: bool = False, most: int = MOST_ATTEMPTS
    ) -> list[SandboxJob]:
        """Run until every job has ended; see ``Sandbox.finish``."""
        return self._sandbox.block(self._sandbox.finish(within=within, raising=raising, most=most))


def _type(task: Named | str | None) -> str | None:
    return task if task is None or isinstance(task, str) else task.type
