"""The worker: claims as many jobs as it has free slots, runs them and settles their outcomes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.maintenance import Maintenance
from holdfast.model.job import DamagedJob, Job
from holdfast.model.workers import WorkerInfo
from holdfast.observe import Observer, Outage, Silent
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.host import HOST
from holdfast.store import Claim, Store
from holdfast.tasks.registry import RunnerKind
from holdfast.worker.announcer import Announcer
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.embedding import Embedded
from holdfast.worker.executor import needs_context, perform, perform_damaged, system_failure
from holdfast.worker.heartbeat import SHORT_LEASE, HeartbeatThread
from holdfast.worker.outcomes import Failed, Interrupted, Interruption, Outcome, Succeeded
from holdfast.worker.polling import POLL, PollDelay, more_within
from holdfast.worker.run import Run, event_fields, waited
from holdfast.worker.runners import Runner
from holdfast.worker.runners.process import ProcessRunner
from holdfast.worker.runners.thread import ThreadRunner
from holdfast.worker.settler import Settler
from holdfast.worker.slots import Slots
from holdfast.worker.startup import (
    checked_queues,
    declare,
    ends_worker,
    opened,
    report_other_queues,
    report_stopping,
    wait_unless,
)
from holdfast.worker.supervisor.protocol import LeaseListener
from holdfast.worker.timeouts import JobTimeouts

UNRESPONSIVE_AFTER = 5.0
"""How long an interrupted handler may take to stop before its slot is freed, in seconds."""

FINAL_WRITES = 1.0
"""How long a stopping worker waits for interrupted handlers and unwritten outcomes, in seconds."""


class Worker(Embedded):
    """Runs the tasks of an app.

    ``queues`` are served in the order given, or, as a mapping to weights, each first in
    proportion to its weight. ``slots`` jobs run at once; by default, see ``SlotCount``. ``grace``
    is how long a stop lets jobs finish. ``listener`` is informed of the leases that it holds.
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        slots: int | None = None,
        grace: timedelta = timedelta(seconds=30),
        maintenance: bool = True,
        observer: Observer | None = None,
        name: str | None = None,
        listener: LeaseListener | None = None,
    ) -> None:
        super().__init__()
        self.id = name or f"{HOST}-{os.getpid()}-{app.randomness.token()[:8]}"
        self._app = app
        self._weights = queues if isinstance(queues, Mapping) else None
        self._queues = checked_queues(queues, internal=app.registry.internal)
        self._types = tuple(handler.type for handler in app.registry)
        self._grace = grace
        self._with_maintenance = maintenance
        self._observer = observer or Silent()
        self._reports = not isinstance(self._observer, Silent)
        self._outage = Outage(app.clock, self._observer)
        self._listener = listener
        self._slots = Slots(app.registry, slots)
        self._timeouts = JobTimeouts(app.clock, self._slots.running)
        self._poll_delay = PollDelay(app.clock)
        self._threads = ThreadRunner(self._observer)
        self._abandoned: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._out_of_time = asyncio.Event()
        self._started_at = app.clock.now()
        self._arrivals = 0

    async def run(self, *, burst: bool = False) -> None:
        """Work until stopped or, in a burst, until no job is left."""
        async with opened(self._app, self._stopping, self._outage) as store:
            self._prepare(store)
            await self._run(store, burst=burst)

    @property
    def leaked_threads(self) -> int:
        """How many threads still run although their jobs were interrupted."""
        return self._threads.leaked

    @property
    def slots_in_use(self) -> tuple[int, int]:
        """How many slots are in use, and how many there are."""
        return len(self._slots.running), self._slots.count

    @property
    def not_ready(self) -> str:
        """Why it takes no job now; empty when it does."""
        held = "drained" if self._slots.draining else ""
        away = "the store is unavailable" if self._outage.is_on else held
        return "stopping" if self._stopping.is_set() else away

    def stop(self) -> None:
        """Stop claiming and let running jobs finish; called again, return them at once."""
        if self._stopping.is_set():
            self.halt()
        else:
            report_stopping(self._observer, len(self._slots.running), self._grace)
        self.drain()

    def drain(self) -> None:
        """Stop claiming and let running jobs finish within the grace period."""
        self._stopping.set()
        self._slots.wake()

    def halt(self) -> None:
        """Stop claiming and return running jobs to the queue at once."""
        self._out_of_time.set()
        self.drain()

    def _prepare(self, store: Store) -> None:
        if store.capabilities.groups_commits:
            self._slots.fill_at_once()
        self._notes = Notes(store)
        self._submitter = self._app.submitter(store)
        self._announcer = Announcer(store, self._observer, self._info, self._app, self._slots)
        self._settler = Settler(
            store,
            self._app.randomness,
            self._observer,
            outage=self._outage,
            listener=self._listener,
            on_written=self._slots.wake,
            notes=self._notes,
            redaction=self._app.redaction,
        )
        self._heartbeat = HeartbeatThread(
            self._app, self._slots.running, self._observer, self._listener
        )
        self._outage.on_over = self._heartbeat.wake
        self._runners: dict[RunnerKind, Runner] = {
            RunnerKind.THREAD: self._threads,
            RunnerKind.PROCESS: ProcessRunner(self._app, self._observer),
        }

    async def _run(self, store: Store, *, burst: bool) -> None:
        async with asyncio.TaskGroup() as group:
            await self._heartbeat.start(group)
            await self._announcer.announce()  # before the first claim, so that it can be found
            tasks = [group.create_task(self._announcer.run())]
            if self._with_maintenance:
                tasks.append(group.create_task(self._maintenance().run()))
            self._observer.emit("worker.started", worker=self.id, queues=self._queues)
            self.is_ready.set()
            if self._reports and self._listener is None:
                await report_other_queues(store, self._queues, self._types, self._observer)
            try:
                await self._claim_loop(store, burst=burst)
            except BaseException:
                self.halt()
                raise
            finally:
                await self._wind_down()
                await self._heartbeat.stop()
                for task in tasks:
                    task.cancel()
        await self._announcer.leave()
        self._observer.emit("worker.stopped", worker=self.id)

    async def _claim_loop(self, store: Store, *, burst: bool) -> None:
        declared, delay = False, None
        while not self._stopping.is_set():
            try:
                declared = declared or await declare(store, self._app.registry, self._announcer)
                if not await self._turn(store, burst=burst):
                    return
                delay = None
            except Exception as error:
                if ends_worker(error, burst=burst):
                    raise
                self._outage.failed(error)
                delay = delay or GrowingDelay(self._app.randomness)
                await self._outage.pause(delay.next(), unless=self._stopping)

    async def _turn(self, store: Store, *, burst: bool) -> bool:
        """Claim, then wait until another claim makes sense; False when a burst is over."""
        slots, settler = self._slots, self._settler
        was_idle, was_full = not slots.running and not settler.unwritten, slots.is_full
        wanted, claimed = slots.free(settler.unwritten), await self._claim(store)
        if burst and not claimed and not slots.running:
            if not was_idle:
                await settler.close()
            elif (wait := await more_within(store, self._app.registry.reach(self._queues))) is None:
                return False
            else:
                await self._idle(store, for_slot=True, longest=wait)
        elif not slots.free(settler.unwritten):
            await slots.changed()
        elif claimed < wanted:
            # The claim may have left out jobs whose slots were freed meanwhile.
            await self._idle(store, for_slot=burst or was_full)
        return True

    async def _claim(self, store: Store) -> int:
        """Claim for every group of types with free slots; return how many jobs were claimed."""
        claimed = 0
        for queues, types, limit in self._slots.claims(self._settler.unwritten, self._in_order()):
            sent = self._app.clock.monotonic()
            jobs = await store.claim(
                Claim(
                    queues=queues,
                    limit=limit,
                    worker=self.id,
                    token=self._app.randomness.token(),
                    types=types,
                )
            )
            if self._outage.is_on:
                self._outage.over()
            if jobs:
                self._poll_delay.last_work = sent
                self._start(jobs, sent)
                claimed += len(jobs)
        return claimed

    def _start(self, jobs: Sequence[Job], sent: float) -> None:
        """Start claimed jobs; their leases count from when the claim was sent."""
        now, handler_of = self._app.clock.monotonic(), self._app.registry.handler_of
        runs = [Run(job, handler_of(job), self._channel, now) for job in jobs]
        self._started(runs)
        for run in self._slots.refused(runs):
            run.answered = True
            runs.remove(run)
            self._settler.settle(run, Interrupted(Interruption.QUARANTINED))
        loop, on_interrupt = asyncio.get_running_loop(), self._interrupted
        for run in runs:
            run.renewed = sent
            run.on_interrupt = on_interrupt
            self._slots.take(run)
            if self._reports:
                self._observer.emit("job.started", **event_fields(run), waited=waited(run.job))
            run.task = loop.create_task(self._work(run))

    def _started(self, runs: Sequence[Run]) -> None:
        """Inform what watches over running jobs: lease listener, timeouts and heartbeat."""
        if self._listener is not None:
            self._listener.claimed(runs)
        earliest = min([run.deadline for run in runs])
        if earliest < self._timeouts.earliest:
            self._timeouts.set(earliest)
        if min([run.job.lease_ttl for run in runs]) < SHORT_LEASE:
            self._heartbeat.wake()

    async def _work(self, run: Run) -> None:
        """Run one job from its claim to its outcome."""
        try:
            if run.must_run_alone:  # if it kills this process, nothing else may die with it
                await self._settler.close()
            outcome = await self._perform(run)
        except asyncio.CancelledError:
            outcome = system_failure("the handler cancelled itself", "CANCELLED_ITSELF")
        except Exception as error:  # noqa: BLE001  # nothing may keep a slot for ever
            outcome = system_failure(f"the runner failed: {error!r}", "RUNNER_FAILED")
        if run.interruption is not None and not isinstance(outcome, Succeeded):
            outcome = Interrupted(run.interruption)
        self._answer(run, outcome)

    def _perform(self, run: Run) -> Awaitable[Outcome]:
        """Call the handler: a coroutine here on the loop, anything else through its runner."""
        handler = run.handler
        if isinstance(run.job, DamagedJob):
            return perform_damaged(run.job, self._app.store)
        if handler.runner is RunnerKind.ASYNC:
            context = run.context() if needs_context(handler, run.job) else None
            return perform(handler, run.job, context)
        return self._runners[handler.runner].run(run)

    def _answer(self, run: Run, outcome: Outcome) -> None:
        """Settle a job and free its slot; only the first outcome counts."""
        if run.answered:
            return
        run.answered = True
        if isinstance(outcome, Failed):
            outcome = Failed(self._app.redaction.failure(outcome.failure))
        if run.completed is not None:
            self._settler.settled_by_transaction(run, run.completed, outcome)
        elif isinstance(outcome, Interrupted) and outcome.why is Interruption.LEASE_LOST:
            self._settler.drop(run)
        else:
            self._settler.settle(run, outcome)
        self._slots.ended(run, outcome)  # after settling: the next claim is written later

    def _interrupted(self, run: Run) -> None:
        """Give an interrupted handler some time to stop, then abandon it."""
        asyncio.get_running_loop().call_later(UNRESPONSIVE_AFTER, self._abandon, run)

    def _abandon(self, run: Run) -> None:
        if run.answered or run.task is None:
            return
        self._observer.emit("job.unresponsive", **event_fields(run))
        run.task.set_name(f"job {run.job.type} {run.job.id}")  # named if it outlives the worker
        self._abandoned.add(run.task)
        run.task.add_done_callback(self._abandoned.discard)
        self._answer(run, Interrupted(run.interruption or Interruption.STOPPING))

    async def _idle(self, store: Store, *, for_slot: bool, longest: timedelta = POLL) -> None:
        """Wait until there may be work, for a free slot or one that is freed, or for the stop."""
        wait = min(longest, await self._poll_delay.next(store))
        arrival = asyncio.ensure_future(store.arrivals(self._queues, self._arrivals, wait))
        needs_slot = for_slot or self._slots.is_full
        other = asyncio.ensure_future(
            self._slots.changed() if needs_slot else self._stopping.wait()
        )
        try:
            await asyncio.wait({arrival, other}, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done() and arrival.result() != self._arrivals:
                self._arrivals = arrival.result()
                self._poll_delay.last_work = self._app.clock.monotonic()
        finally:
            arrival.cancel()
            other.cancel()

    async def _wind_down(self) -> None:
        """Let running jobs finish within the grace period, then return the rest."""
        loop = asyncio.get_running_loop()
        closing = loop.call_later(self._grace.total_seconds(), self._out_of_time.set)
        running = [run.task for run in self._slots.running.values() if run.task]
        await wait_unless(self._out_of_time, running)
        left = list(self._slots.running.values())
        for run in left:
            run.interrupt(Interruption.STOPPING)
        if left:
            await asyncio.wait([run.task for run in left if run.task], timeout=FINAL_WRITES)
        for run in left:
            self._abandon(run)
        writes = [loop.create_task(self._write_the_rest())]
        await wait_unless(self._out_of_time, writes, extra=FINAL_WRITES)
        if self._settler.unwritten:
            self._observer.emit("results.lost", worker=self.id, lost=self._settler.unwritten)
        closing.cancel()
        self._timeouts.cancel()
        for runner in self._runners.values():
            await runner.close()

    async def _write_the_rest(self) -> None:
        await self._settler.close()
        await self._notes.close()

    def _in_order(self) -> tuple[str, ...]:
        """The queues in the order to be served: as given, or drawn by weight."""
        if self._weights is None:
            return self._queues
        weights, draw = self._weights, self._app.randomness.fraction
        return tuple(sorted(weights, key=lambda q: draw() ** (1 / weights[q]), reverse=True))

    def _channel(self, run: Run) -> WorkerChannel:
        redaction = self._app.redaction
        return WorkerChannel(run, self._app.store, self._notes, self._submitter, redaction)

    def _maintenance(self) -> Maintenance:
        return Maintenance(
            self._app,
            self.id,
            self._queues,
            self._observer,
            self._outage,
            make_worker=delivery_worker,
        )

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=HOST,
            pid=os.getpid(),
            queues=self._queues,
            types=self._app.registry.served,
            slots=self._slots.count,
            running=len(self._slots.running),
            started_at=self._started_at,
            leaked_threads=self.leaked_threads,
        )


def delivery_worker(app: Holdfast, queues: Sequence[str], observer: Observer) -> Worker:
    """Return a worker for webhooks: queues take turns, because receivers of one may be silent."""
    fair = dict.fromkeys(queues, 1.0)
    return Worker(app, queues=fair, slots=50, maintenance=False, observer=observer)
