"""The worker: claims as many jobs as it has room for, runs them, writes how they went."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.handlers import RunnerKind
from holdfast.job import Job
from holdfast.maintenance import Maintenance
from holdfast.observe import Observer, Silent
from holdfast.presence import PRESENCE, WorkerInfo, announce
from holdfast.releasing import release_dependents
from holdfast.store import Claim, Store
from holdfast.submitting import FIRST_PAUSE, LONGEST_PAUSE
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.execution import HOST, Interrupted, Interruption, Outcome, system_failure
from holdfast.worker.pulse import Pulse
from holdfast.worker.run import Run
from holdfast.worker.runners import Runner
from holdfast.worker.runners.inline import AsyncRunner
from holdfast.worker.runners.process import ProcessRunner
from holdfast.worker.runners.thread import ThreadRunner
from holdfast.worker.settling import Settler

POLL = timedelta(seconds=2)
"""How long a worker trusts that it would be told of new work."""

STUBBORN = 5.0
"""How long an interrupted handler may take to stop before its slot is given back, in seconds."""


class Worker:
    """Runs the tasks of an app.

    ``queues`` are served in the order given, or, as a mapping to weights, each first in
    proportion to its weight. ``slots`` jobs run at once. ``grace`` is how long a graceful
    stop lets running jobs finish before they are given back to the queue.
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
    ) -> None:
        self.id = name or f"{HOST}-{os.getpid()}-{app.chance.token()[:8]}"
        self._app = app
        self._weights = queues if isinstance(queues, Mapping) else None
        self._queues = tuple(queues)
        self._slots = slots
        self._grace = grace
        self._with_maintenance = maintenance
        self._observer = observer or Silent()
        self._running: dict[str, Run] = {}
        self._per_type: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._started_at = app.clock.now()

    async def run(self, *, burst: bool = False) -> None:
        """Work until told to stop, or, in a burst, until there is nothing left to do."""
        async with self._app:
            store = self._app.store
            self._notes = Notes(store)
            self._settler = Settler(store, self._app.chance, self._observer)
            self._submitter = self._app.submitter(store)
            self._runners = self._make_runners()
            pulse = Pulse(self._app, self._running, self._observer)
            await self._declare_limits(store)
            async with asyncio.TaskGroup() as group:
                await pulse.start(group)
                tasks = [group.create_task(self._be_present(store))]
                if self._with_maintenance:
                    service = Maintenance(self._app, self.id, self._queues, self._observer)
                    tasks.append(group.create_task(service.run()))
                self._observer.tell("worker.started", worker=self.id, queues=self._queues)
                await self._claim_loop(store, burst=burst)
                await self._wind_down()
                await pulse.stop()
                for task in tasks:
                    task.cancel()
            await announce(store, self._info(), timedelta(0))
            self._observer.tell("worker.stopped", worker=self.id)

    def stop(self) -> None:
        """Stop claiming, let running jobs finish; called again, give them back at once."""
        if self._stopping.is_set():
            self._grace = timedelta(0)
        self._stopping.set()
        self._freed.set()

    async def _claim_loop(self, store: Store, *, burst: bool) -> None:
        seen, pause = 0, FIRST_PAUSE
        while not self._stopping.is_set():
            self._freed.clear()
            try:
                seen = await store.arrivals(self._queues, seen, timedelta(0))
                wanted, taken = self._room(), await self._claim(store)
                if burst and not taken and not self._running and not await self._more(store):
                    return
                if taken < wanted:
                    seen = await self._idle(store, seen)
                elif not self._room():
                    await self._freed.wait()
                pause = FIRST_PAUSE
            except StoreUnavailableError as error:
                self._observer.tell("store.unavailable", error=str(error))
                await asyncio.sleep(pause * (0.5 + self._app.chance.fraction()))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _claim(self, store: Store) -> int:
        """Claim for every group of types that has room; return how many jobs came."""
        taken = 0
        for types, room in self._wishes():
            jobs = await store.claim(
                Claim(
                    queues=self._in_order(),
                    limit=room,
                    worker=self.id,
                    token=self._app.chance.token(),
                    types=types,
                )
            )
            for job in jobs:
                self._start(job)
            taken += len(jobs)
        return taken

    def _start(self, job: Job) -> None:
        handler = self._app.registry.get(job.type)
        assert handler is not None
        run = Run(job, handler, self._channel, self._app.clock.monotonic())
        self._running[job.id] = run
        self._per_type[job.type] += 1
        self._observer.tell("job.started", **_names(run))
        run.task = asyncio.get_running_loop().create_task(self._work(run))

    async def _work(self, run: Run) -> None:
        """Run one job from its claim to its answer."""
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(run.timeout, self._interrupt, run, Interruption.TIMEOUT)
        try:
            outcome = await self._runners[run.handler.runner].run(run)
        except asyncio.CancelledError:
            if run.interruption is None:
                outcome = system_failure("the handler cancelled itself", "CANCELLED_ITSELF")
            else:
                outcome = Interrupted(run.interruption)
        finally:
            alarm.cancel()
        self._answer(run, outcome)

    def _answer(self, run: Run, outcome: Outcome) -> None:
        """Hand over how a job went and free its slot; the first answer counts."""
        if run.answered:
            return
        run.answered = True
        del self._running[run.job.id]
        self._per_type[run.job.type] -= 1
        self._freed.set()
        if outcome != Interrupted(Interruption.LEASE_LOST):
            self._settler.settle(run, outcome)

    def _interrupt(self, run: Run, why: Interruption) -> None:
        """Stop a handler; one that will not stop is given up after a while."""
        run.interrupt(why)
        asyncio.get_running_loop().call_later(STUBBORN, self._give_up, run)

    def _give_up(self, run: Run) -> None:
        if not run.answered:
            self._observer.tell("job.stubborn", **_names(run))
            self._answer(run, Interrupted(run.interruption or Interruption.STOPPING))

    async def _idle(self, store: Store, seen: int) -> int:
        """Wait until there may be work we have room for, or we are to stop."""
        arrival = asyncio.ensure_future(store.arrivals(self._queues, seen, POLL))
        freed = asyncio.ensure_future(self._freed.wait())
        try:
            await asyncio.wait({arrival, freed}, return_when=asyncio.FIRST_COMPLETED)
            return arrival.result() if arrival.done() else seen
        finally:
            arrival.cancel()
            freed.cancel()

    async def _more(self, store: Store) -> bool:
        """In a burst: whether finished jobs or passed time made new work."""
        await self._settler.close()
        released = await release_dependents(store)
        return bool(released or (await store.promote(self._slots)).count)

    async def _wind_down(self) -> None:
        """Let running jobs finish within the grace period, then give the rest back."""
        tasks = {run.task for run in self._running.values() if run.task}
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace.total_seconds())
        left = [run for run in self._running.values() if run.task]
        for run in left:
            run.interrupt(Interruption.STOPPING)
        if left:
            await asyncio.wait([run.task for run in left if run.task], timeout=STUBBORN)
        for run in left:
            self._give_up(run)
        await self._settler.close()
        await self._notes.close()
        for runner in self._runners.values():
            await runner.close()

    def _room(self) -> int:
        """Free slots; fewer while answers pile up because the store is slow."""
        free = self._slots - len(self._running)
        return max(0, min(free, free + self._slots - self._settler.unwritten))

    def _wishes(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Groups of types to claim and how many: those with a limit of their own go alone."""
        limited = {h.type: h.options.concurrency for h in self._app.registry}
        free = tuple(type_ for type_, most in limited.items() if most is None)
        if free and self._room():
            yield free, self._room()
        for type_, most in limited.items():
            room = min(self._room(), (most or 0) - self._per_type[type_])
            if room > 0:
                yield (type_,), room

    def _in_order(self) -> tuple[str, ...]:
        """The queues in the order to be served: as given, or drawn by weight."""
        if self._weights is None:
            return self._queues
        weights, chance = self._weights, self._app.chance
        return tuple(
            sorted(
                weights, key=lambda queue: chance.fraction() ** (1 / weights[queue]), reverse=True
            )
        )

    def _channel(self, run: Run) -> WorkerChannel:
        return WorkerChannel(run, self._app.store, self._notes, self._submitter)

    def _make_runners(self) -> dict[RunnerKind, Runner]:
        return {
            RunnerKind.ASYNC: AsyncRunner(),
            RunnerKind.THREAD: ThreadRunner(self._observer),
            RunnerKind.PROCESS: ProcessRunner(self._observer),
        }

    async def _declare_limits(self, store: Store) -> None:
        for handler in self._app.registry:
            if handler.options.limit is not None:
                await store.limit(f"task:{handler.type}", handler.options.limit)
            if handler.options.key_limit is not None:
                await store.limit(f"key:{handler.type}", handler.options.key_limit)

    async def _be_present(self, store: Store) -> None:
        while True:
            with contextlib.suppress(StoreUnavailableError):
                await announce(store, self._info())
            await asyncio.sleep(PRESENCE.total_seconds() / 3)

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=HOST,
            pid=os.getpid(),
            queues=self._queues,
            types=tuple(handler.type for handler in self._app.registry),
            slots=self._slots,
            running=len(self._running),
            started_at=self._started_at,
        )


def _names(run: Run) -> dict[str, object]:
    """What every line about a job says."""
    job = run.job
    return {"job_id": job.id, "type": job.type, "queue": job.queue, "attempt": job.attempt}
