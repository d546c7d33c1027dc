"""Runs one attempt at a time, as a worker would, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime

from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.maintenance.cron import CronService
from holdfast.maintenance.reaper import Reaper
from holdfast.model.job import TERMINAL, CancelRequest, Job, State
from holdfast.observe import Outage, Silent
from holdfast.operations.dependents import release_dependents
from holdfast.store import Claim, JobNote, Order, Search, Store
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.job_view import Signals
from holdfast.tasks.registry import RunnerKind
from holdfast.tasks.schedule import instants
from holdfast.tasks.scope import run_now
from holdfast.testing.blocking import loop_runs_here
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.executor import perform, perform_sync
from holdfast.worker.outcomes import Interrupted, Interruption, Outcome
from holdfast.worker.run import Run
from holdfast.worker.settler import Settler

WORKER = "sandbox"
PAGE = 1000

Execute = Callable[[Run], Awaitable[Outcome | None]]
"""Runs the handler of a job; returns None when the attempt was killed."""


class Driver:
    """Runs attempts, and the maintenance between them."""

    def __init__(self, app: Holdfast, store: Store, execute: Execute | None = None) -> None:
        self._app = app
        self._store = store
        self._execute = execute or run_here
        self._notes = DirectNotes(store)
        self._submitter = app.submitter(store)
        outage = Outage(app.clock, Silent())
        self._settler = Settler(store, app.randomness, Silent(), outage=outage)
        self._reaper = Reaper(store, app.randomness, Silent())
        self._cron = CronService(app, store)
        self.raised: BaseException | None = None
        """The exception of the newest attempt, if its handler raised one."""

    async def attempt(self) -> str | None:
        """Claim the next ready job, run it and write its outcome; return its id, or None."""
        job = await self._claim()
        if job is None:
            return None
        run = self._run(job)
        outcome = await self._execute(run)
        if outcome is not None:
            await self._settler.write([(run, outcome)])
        return job.id

    async def maintain(self, *, cron: bool = True) -> None:
        """Do all maintenance that is due now."""
        if cron:
            await self._cron.once()
        await self._reaper.once()
        await release_dependents(self._store)
        await self._store.promote(PAGE)

    async def next_instant(self, *, cron: bool = True) -> datetime | None:
        """Return the next instant after now at which something is due."""
        now = self._store.now()
        upcoming = [moment for moment in self._instants() if moment > now]
        upcoming += [limit.until for limit in await self._store.limits() if limit.until]
        if cron:
            upcoming += [next(instants(entry, after=now)) for entry in self._app.crons.values()]
        return min(upcoming, default=None)

    def jobs(self) -> list[Job]:
        """Return all jobs in the order of submission."""
        found: list[Job] = []
        cursor: str | None = None
        while True:
            search = Search(order=Order.CREATED_ASC, cursor=cursor, limit=PAGE)
            page = run_now(self._store.find(search))
            found.extend(page.jobs)
            cursor = page.next_cursor
            if cursor is None:
                return found

    def unfinished(self) -> list[Job]:
        """Return the jobs that have not ended."""
        return [job for job in self.jobs() if job.state not in TERMINAL]

    def _instants(self) -> Iterator[datetime]:
        for job in self.unfinished():
            yield job.expires_at
            if job.state in (State.DELAYED, State.RETRYING) and job.due_at is not None:
                yield job.due_at
            if job.state is State.RUNNING and job.lease is not None and job.lease.until is not None:
                yield job.lease.until

    async def _claim(self) -> Job | None:
        queues = tuple(queue.name for queue in await self._store.queues())
        for served, types in self._app.registry.reach(queues):
            token = self._app.randomness.token()
            want = Claim(queues=served, limit=1, worker=WORKER, token=token, types=types)
            if jobs := await self._store.claim(want):
                return jobs[0]
        return None

    def _run(self, job: Job) -> Run:
        handler = self._app.registry.for_job(job)
        assert handler is not None
        self.raised = None
        recorded = replace(handler, function=self._recording_errors(handler.function))
        run = Run(job, recorded, self._channel, self._app.clock.monotonic())
        run.signals = StoreSignals(self._store, job.id)
        return run

    def _channel(self, run: Run) -> WorkerChannel:
        return WorkerChannel(run, self._store, self._notes, self._submitter)

    def _recording_errors(self, function: Callable[..., object]) -> Callable[..., object]:
        """Wrap a handler so that its exception is kept for the test."""

        def call(**arguments: object) -> object:
            try:
                result = function(**arguments)
            except BaseException as error:
                self.raised = error
                raise
            return self._awaited(result) if isinstance(result, Awaitable) else result

        return call

    async def _awaited(self, result: Awaitable[object]) -> object:
        try:
            return await result
        except BaseException as error:
            self.raised = error
            raise


class DirectNotes(Notes):
    """Writes every note at once, so that none is lost or late."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._direct = store

    async def keep(self, note: JobNote) -> bool:
        return (await self._direct.note([note]))[0]

    def post(self, note: JobNote) -> None:
        run_now(self._direct.note([note]))


class StoreSignals(Signals):
    """Reads cancel requests from the store, because no heartbeat runs in a sandbox."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        super().__init__()

    @property
    def cancel(self) -> CancelRequest | None:
        return run_now(self._store.cancels([self._job_id]))[0]

    @cancel.setter
    def cancel(self, request: CancelRequest | None) -> None:
        """Do nothing: only the store decides."""


async def run_here(run: Run) -> Outcome:
    """Run a handler in this thread and on this loop."""
    if run.handler.runner is not RunnerKind.ASYNC:
        return perform_sync(run.handler, run.job, sync_context(run, run.context()))
    try:
        async with asyncio.timeout(run.timeout):
            return await perform(run.handler, run.job, run.context())
    except TimeoutError:
        return Interrupted(Interruption.TIMEOUT)


def sync_context(run: Run, context: JobContext) -> SyncJobContext:
    """Return the context for a plain function, whose calls go through the other one."""

    def call(method: str, *args: object, **kwargs: object) -> object:
        coroutine = getattr(context, method)(*args, **kwargs)
        return run_now(coroutine) if loop_runs_here() else asyncio.run(coroutine)

    return SyncJobContext(run.job, context.deadline, run.signals, call)
