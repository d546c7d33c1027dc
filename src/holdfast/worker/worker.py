"""The worker: claims as many jobs as it has room for, runs them, writes how they went."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.maintenance import Maintenance
from holdfast.model.job import Job
from holdfast.model.workers import WorkerInfo
from holdfast.observe import Observer, Outage, Silent
from holdfast.operations.workers import WORKER_TTL, announce
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.timeouts import NEVER
from holdfast.store import Claim, GroupCommitStore, ListeningStore, Store
from holdfast.tasks.registry import RunnerKind
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.executor import (
    HOST,
    Failed,
    Interrupted,
    Interruption,
    Outcome,
    Succeeded,
    system_failure,
)
from holdfast.worker.heartbeat import HeartbeatThread
from holdfast.worker.polling import POLL, Rates, more_within
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.run import Run
from holdfast.worker.runners import Runner
from holdfast.worker.runners.inline import AsyncRunner
from holdfast.worker.runners.process import ProcessRunner
from holdfast.worker.runners.thread import ThreadRunner
from holdfast.worker.settler import Settler
from holdfast.worker.slots import Slots
from holdfast.worker.startup import opened, pause_unless
from holdfast.worker.supervisor.protocol import LeaseListener, NoListener
from holdfast.worker.timeouts import JobTimeouts

UNRESPONSIVE_AFTER = 5.0
"""How long an interrupted handler may take to stop before its slot is given back, in seconds."""

LAST_WORDS = 1.0
"""How long a stopping worker waits for handlers it interrupted and answers it could not write."""


class Worker:
    """Runs the tasks of an app.

    ``queues`` are served in the order given, or, as a mapping to weights, each first in
    proportion to its weight. ``slots`` jobs run at once. ``grace`` is how long a graceful
    stop lets running jobs finish before they are given back to the queue. ``custody`` hears
    which jobs the worker holds.
    """

    def __init__(
        self,
        app: Holdfast,
        *,
        queues: Sequence[str] | Mapping[str, float] = ("default",),
        slots: int = 20,
        grace: timedelta = timedelta(seconds=30),
        maintenance: bool = True,
        observer: Observer | None = None,
        name: str | None = None,
        custody: LeaseListener | None = None,
    ) -> None:
        self.id = name or f"{HOST}-{os.getpid()}-{app.randomness.token()[:8]}"
        self._app = app
        self._weights = queues if isinstance(queues, Mapping) else None
        self._queues = tuple(queues)
        self._types = tuple(handler.type for handler in app.registry)
        self._slots = slots
        self._grace = grace
        self._with_maintenance = maintenance
        self._observer = observer or Silent()
        self._is_heard = not isinstance(self._observer, Silent)
        self._outage = Outage(app.clock, self._observer)
        self._custody = custody or NoListener()
        self._hands = Slots(app.registry, slots)
        self._quarantine = Quarantine(self._hands.wake)
        self._threads = ThreadRunner(self._observer)
        self._abandoned: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._out_of_time = asyncio.Event()
        self._started_at = app.clock.now()

    async def run(self, *, burst: bool = False) -> None:
        """Work until told to stop, or, in a burst, until there is nothing left to do."""
        async with opened(self._app, self._stopping, self._outage) as store:
            await self._run(store, burst=burst)

    async def _run(self, store: Store, *, burst: bool) -> None:
        self._notes = Notes(store)
        if isinstance(store, GroupCommitStore):
            self._hands.fill_at_once()
        self._settler = Settler(
            store,
            self._app.randomness,
            self._observer,
            self._custody,
            self._hands.wake,
            self._notes,
            outage=self._outage,
        )
        self._submitter = self._app.submitter(store)
        self._runners = self._make_runners()
        self._rates = Rates(self._app.clock)
        self._alarm = JobTimeouts(self._app.clock, self._hands.running)
        self._pulse = HeartbeatThread(self._app, self._hands.running, self._observer, self._custody)
        async with asyncio.TaskGroup() as group:
            await self._pulse.start(group)
            await self._say_present(store)  # before the first claim: whoever asks finds us
            tasks = [group.create_task(self._be_present(store))]
            if self._with_maintenance:
                service = Maintenance(
                    self._app,
                    self.id,
                    self._queues,
                    self._observer,
                    self._outage,
                    make_worker=delivery_worker,
                )
                tasks.append(group.create_task(service.run()))
            self._observer.emit("worker.started", worker=self.id, queues=self._queues)
            try:
                await self._claim_loop(store, burst=burst)
            except BaseException:
                self.halt()
                raise
            finally:
                await self._wind_down()
                await self._pulse.stop()
                for task in tasks:
                    task.cancel()
        with contextlib.suppress(StoreUnavailableError):
            await announce(store, self._info(), timedelta(0))
        self._observer.emit("worker.stopped", worker=self.id)

    @property
    def leaked_threads(self) -> int:
        """How many threads run on although their jobs were taken from them."""
        return self._threads.leaked

    def stop(self) -> None:
        """Stop claiming and let running jobs finish; called again, give them back at once."""
        if self._stopping.is_set():
            self.halt()
        self.drain()

    def drain(self) -> None:
        """Stop claiming and let running jobs finish within the grace period."""
        self._stopping.set()
        self._hands.wake()

    def halt(self) -> None:
        """Stop claiming and give running jobs back at once."""
        self._out_of_time.set()
        self.drain()

    async def _claim_loop(self, store: Store, *, burst: bool) -> None:
        seen, declared, pauses = 0, False, GrowingDelay(self._app.randomness)
        while not self._stopping.is_set():
            try:
                declared = declared or await self._declare_limits(store)
                quiet = not self._hands.running and not self._settler.unwritten
                wanted, taken = self._room, await self._claim(store)
                if burst and not taken and not self._hands.running:
                    if not quiet:
                        await self._settler.close()
                    elif (wait := await more_within(store, self._queues, self._types)) is None:
                        return
                    else:
                        seen = await self._idle(store, seen, burst=burst, most=wait)
                elif not self._room:
                    await self._hands.changed()
                elif taken < wanted:
                    seen = await self._idle(store, seen, burst=burst)
                pauses.over()
            except StoreUnavailableError as error:
                self._outage.failed(error)
                await pause_unless(self._stopping, pauses.next())

    async def _claim(self, store: Store) -> int:
        """Claim for every group of types that has room; return how many jobs came."""
        taken = 0
        for types, room in self._hands.claims(self._settler.unwritten):
            if self._quarantine.is_closed:
                break
            sent = self._app.clock.monotonic()
            jobs = await store.claim(
                Claim(
                    queues=self._in_order(),
                    limit=1 if self._quarantine.is_careful else room,
                    worker=self.id,
                    token=self._app.randomness.token(),
                    types=types,
                )
            )
            self._outage.over()
            if jobs:
                self._rates.stirred()
                self._take(jobs, sent)
                taken += len(jobs)
        return taken

    def _take(self, jobs: Sequence[Job], sent: float) -> None:
        """Start what a claim brought; its leases count from when the claim was sent."""
        now = self._app.clock.monotonic()
        runs = [Run(job, self._app.registry[job.type], self._channel, now) for job in jobs]
        self._custody.took(runs)
        for run in self._quarantine.refused(runs):
            run.answered = True
            runs.remove(run)
            self._settler.settle(run, Interrupted(Interruption.QUARANTINED))
        loop, interrupted = asyncio.get_running_loop(), self._interrupted
        for run in runs:
            run.renewed = sent
            run.interrupted = interrupted
            self._hands.take(run)
            if self._is_heard:
                self._observer.emit("job.started", **_names(run))
            run.task = loop.create_task(self._work(run))
        earliest = min(run.deadline for run in runs) if runs else NEVER
        if earliest < self._alarm.earliest:
            self._alarm.set(earliest)
        self._pulse.notice(runs)

    async def _work(self, run: Run) -> None:
        """Run one job from its claim to its answer."""
        try:
            if run.must_run_alone:  # were it to kill us now, they would die with it
                await self._settler.close()
            outcome = await self._runners[run.handler.runner].run(run)
        except asyncio.CancelledError:
            outcome = system_failure("the handler cancelled itself", "CANCELLED_ITSELF")
        except Exception as error:  # noqa: BLE001  # nothing may keep a slot for ever
            outcome = system_failure(f"the runner failed: {error!r}", "RUNNER_FAILED")
        if run.interruption is not None and not isinstance(outcome, Succeeded):
            outcome = Interrupted(run.interruption)
        self._answer(run, outcome)

    def _answer(self, run: Run, outcome: Outcome) -> None:
        """Hand over how a job went and free its slot; the first answer counts."""
        if run.answered:
            return
        run.answered = True
        if isinstance(outcome, Failed):
            outcome = Failed(self._app.redaction.failure(outcome.failure))
        if run.completed is not None:
            self._settler.conclude(run, run.completed, outcome)
        elif isinstance(outcome, Interrupted) and outcome.why is Interruption.LEASE_LOST:
            self._settler.drop(run)
        else:
            self._settler.settle(run, outcome)
        self._hands.drop(run)  # the claim that fills the slot comes after the answer

    def _interrupted(self, run: Run) -> None:
        """Give a handler some time to stop; one that will not is left behind."""
        asyncio.get_running_loop().call_later(UNRESPONSIVE_AFTER, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        if run.answered or run.task is None:
            return
        self._observer.emit("job.stubborn", **_names(run))
        self._abandoned.add(run.task)
        run.task.add_done_callback(self._abandoned.discard)
        self._answer(run, Interrupted(run.interruption or Interruption.STOPPING))

    async def _idle(self, store: Store, seen: int, *, burst: bool, most: timedelta = POLL) -> int:
        """Wait until there may be work we have room for, or we are to stop."""
        wait = min(most, await self._rates.patience(store))
        arrival = asyncio.ensure_future(store.arrivals(self._queues, seen, wait))
        freed = burst or self._hands.is_full
        other = asyncio.ensure_future(self._hands.changed() if freed else self._stopping.wait())
        try:
            await asyncio.wait({arrival, other}, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                return seen
            if arrival.result() != seen:
                self._rates.stirred()
            return arrival.result()
        finally:
            arrival.cancel()
            other.cancel()

    async def _wind_down(self) -> None:
        """Let running jobs finish within the grace period, then give the rest back."""
        loop = asyncio.get_running_loop()
        closing = loop.call_later(self._grace.total_seconds(), self._out_of_time.set)
        await self._in_time([run.task for run in self._hands.running.values() if run.task])
        left = list(self._hands.running.values())
        for run in left:
            run.interrupt(Interruption.STOPPING)
        if left:
            await asyncio.wait([run.task for run in left if run.task], timeout=LAST_WORDS)
        for run in left:
            self._give_up(run)
        await self._in_time([loop.create_task(self._write_the_rest())], LAST_WORDS)
        if self._settler.unwritten:
            self._observer.emit("results.lost", worker=self.id, lost=self._settler.unwritten)
        closing.cancel()
        self._alarm.cancel()
        for runner in self._runners.values():
            await runner.close()

    async def _in_time(self, tasks: Sequence[asyncio.Task[None]], extra: float = 0.0) -> None:
        """Wait for tasks while there is time."""
        if not tasks:
            return
        over = asyncio.ensure_future(self._out_of_time.wait())
        everything = asyncio.ensure_future(asyncio.wait(tasks))
        await asyncio.wait({over, everything}, return_when=asyncio.FIRST_COMPLETED)
        if extra and not everything.done():
            await asyncio.wait({everything}, timeout=extra)
        over.cancel()
        everything.cancel()

    async def _write_the_rest(self) -> None:
        await self._settler.close()
        await self._notes.close()

    @property
    def _room(self) -> int:
        """How many jobs the next claim may bring."""
        if self._quarantine.is_closed:
            return 0
        room = self._hands.room(self._settler.unwritten)
        return min(room, 1) if self._quarantine.is_careful else room

    def _in_order(self) -> tuple[str, ...]:
        """The queues in the order to be served: as given, or drawn by weight."""
        if self._weights is None:
            return self._queues
        weights, draw = self._weights, self._app.randomness.fraction
        return tuple(sorted(weights, key=lambda q: draw() ** (1 / weights[q]), reverse=True))

    def _channel(self, run: Run) -> WorkerChannel:
        redaction = self._app.redaction
        return WorkerChannel(run, self._app.store, self._notes, self._submitter, redaction)

    def _make_runners(self) -> dict[RunnerKind, Runner]:
        return {
            RunnerKind.ASYNC: AsyncRunner(),
            RunnerKind.THREAD: self._threads,
            RunnerKind.PROCESS: ProcessRunner(self._app, self._observer),
        }

    async def _declare_limits(self, store: Store) -> bool:
        for handler in self._app.registry:
            if handler.options.limit is not None:
                await store.limit(f"task:{handler.type}", handler.options.limit)
            if handler.options.key_limit is not None:
                await store.limit(f"key:{handler.type}", handler.options.key_limit)
        return True

    async def _be_present(self, store: Store) -> None:
        told = before = ""
        while True:
            await asyncio.sleep(WORKER_TTL.total_seconds() / 3)
            await self._say_present(store)
            why = store.not_notified_because if isinstance(store, ListeningStore) else ""
            if why and why == before and why != told:  # it was no passing matter
                self._observer.emit("store.deaf", error=why)
                told = why
            before = why

    async def _say_present(self, store: Store) -> None:
        with contextlib.suppress(StoreUnavailableError):
            await announce(store, self._info())

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=HOST,
            pid=os.getpid(),
            queues=self._queues,
            types=self._types,
            slots=self._slots,
            running=len(self._hands.running),
            started_at=self._started_at,
            leaked_threads=self.leaked_threads,
        )


def delivery_worker(app: Holdfast, queues: Sequence[str], observer: Observer) -> Worker:
    """Return the worker that delivers webhooks: slow receivers take no slot of other jobs."""
    return Worker(app, queues=queues, slots=20, maintenance=False, observer=observer)


def _names(run: Run) -> dict[str, object]:
    """What every line about a job says."""
    job = run.job
    return {"job_id": job.id, "type": job.type, "queue": job.queue, "attempt": job.attempt}
