"""One attempt at a time, as a worker would make it, on a clock that a test moves."""

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
from holdfast.tasks.context import JobContext, Signals, SyncJobContext
from holdfast.tasks.inline import run_now
from holdfast.tasks.registry import RunnerKind
from holdfast.tasks.schedule import instants
from holdfast.testing.blocking import loop_runs_here
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.executor import (
    Interrupted,
    Interruption,
    Outcome,
    perform,
    perform_sync,
)
from holdfast.worker.run import Run
from holdfast.worker.settler import Settler

WORKER = "sandbox"
PAGE = 1000

Execute = Callable[[Run], Awaitable[Outcome | None]]
"""Runs the handler of a job; None when the attempt was killed and nobody will answer for it."""


class Driver:
    """Makes attempts and does the maintenance between them."""

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
        """What the newest attempt's handler raised."""

    async def attempt(self) -> str | None:
        """Claim the next ready job, run it, write how it went; return its id, None if none is."""
        job = await self._claimed()
        if job is None:
            return None
        run = self._run(job)
        outcome = await self._execute(run)
        if outcome is not None:
            await self._settler.write([(run, outcome)])
        return job.id

    async def maintain(self, *, cron: bool = True) -> None:
        """Do everything that is due now besides running jobs."""
        if cron:
            await self._cron.once()
        await self._reaper.once()
        await release_dependents(self._store)
        await self._store.promote(PAGE)

    async def next_instant(self, *, cron: bool = True) -> datetime | None:
        """Return when something will be due next, after now."""
        now = self._store.now()
        ahead = [moment for moment in self._instants() if moment > now]
        ahead += [limit.until for limit in await self._store.limits() if limit.until]
        if cron:
            ahead += [next(instants(entry, after=now)) for entry in self._app.crons.values()]
        return min(ahead, default=None)

    def jobs(self) -> list[Job]:
        """Every job, in the order of submission."""
        found: list[Job] = []
        cursor: str | None = None
        while True:
            wanted = Search(order=Order.CREATED_ASC, cursor=cursor, limit=PAGE)
            page = run_now(self._store.find(wanted))
            found.extend(page.jobs)
            cursor = page.next_cursor
            if cursor is None:
                return found

    def live(self) -> list[Job]:
        """The jobs that have not ended."""
        return [job for job in self.jobs() if job.state not in TERMINAL]

    def _instants(self) -> Iterator[datetime]:
        for job in self.live():
            yield job.expires_at
            if job.state in (State.DELAYED, State.RETRYING) and job.due_at is not None:
                yield job.due_at
            if job.state is State.RUNNING and job.lease is not None and job.lease.until is not None:
                yield job.lease.until

    async def _claimed(self) -> Job | None:
        queues = tuple(queue.name for queue in await self._store.queues())
        jobs = await self._store.claim(
            Claim(
                queues=queues,
                limit=1,
                worker=WORKER,
                token=self._app.randomness.token(),
                types=tuple(handler.type for handler in self._app.registry),
            )
        )
        return jobs[0] if jobs else None

    def _run(self, job: Job) -> Run:
        handler = self._app.registry.get(job.type)
        assert handler is not None
        self.raised = None
        watched = replace(handler, function=self._watching(handler.function))
        run = Run(job, watched, self._channel, self._app.clock.monotonic())
        run.signals = LiveSignals(self._store, job.id)
        run.context = JobContext(job, run.context.deadline, run.signals, self._channel(run))
        return run

    def _channel(self, run: Run) -> WorkerChannel:
        return WorkerChannel(run, self._store, self._notes, self._submitter)

    def _watching(self, function: Callable[..., object]) -> Callable[..., object]:
        """Remember what a handler raises: a test may want to see it."""

        def call(**arguments: object) -> object:
            try:
                answer = function(**arguments)
            except BaseException as error:
                self.raised = error
                raise
            return self._awaited(answer) if isinstance(answer, Awaitable) else answer

        return call

    async def _awaited(self, answer: Awaitable[object]) -> object:
        try:
            return await answer
        except BaseException as error:
            self.raised = error
            raise


class DirectNotes(Notes):
    """Notes that are written at once: nothing is lost and nothing waits."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._direct = store

    async def keep(self, note: JobNote) -> bool:
        return (await self._direct.note([note]))[0]

    def mention(self, note: JobNote) -> None:
        run_now(self._direct.note([note]))


class LiveSignals(Signals):
    """Signals that look for themselves: no heartbeat runs in a sandbox."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        super().__init__()

    @property
    def cancel(self) -> CancelRequest | None:
        return run_now(self._store.cancels([self._job_id]))[0]

    @cancel.setter
    def cancel(self, request: CancelRequest | None) -> None:
        """Only the store says so."""


async def run_here(run: Run) -> Outcome:
    """Run a handler in this thread, on this loop."""
    if run.handler.runner is not RunnerKind.ASYNC:
        return perform_sync(run.handler, run.job, sync_context(run))
    try:
        async with asyncio.timeout(run.timeout):
            return await perform(run.handler, run.job, run.context)
    except TimeoutError:
        return Interrupted(Interruption.TIMEOUT)


def sync_context(run: Run) -> SyncJobContext:
    """Return the context of a plain function."""

    def call(method: str, *args: object, **kwargs: object) -> object:
        asked = getattr(run.context, method)(*args, **kwargs)
        return run_now(asked) if loop_runs_here() else asyncio.run(asked)

    return SyncJobContext(run.job, run.context.deadline, run.signals, call)
