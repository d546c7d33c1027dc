"""Renews the leases of running jobs, and receives lost leases and requests to cancel.

Renewing stops at a job's deadline: a worker that hangs holds a job no longer than the job may run.
A failed heartbeat ends no job: the store decides when it answers again, and a lease that expired
meanwhile is renewed unless the job was taken.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.model.job import CancelRequest
from holdfast.model.profiles import RENEWALS_PER_LEASE
from holdfast.observe import Observer, Outage, Reasons, unobserved_reported
from holdfast.runtime.clock import Clock
from holdfast.runtime.shared_loop import SharedLoop
from holdfast.store import Renewal, Store
from holdfast.worker.loop_watch import LoopWatch
from holdfast.worker.outcomes import Interrupted, Interruption
from holdfast.worker.run import Run
from holdfast.worker.settler import Settler
from holdfast.worker.supervisor.protocol import LeaseListener

LOOK_EVERY = 1.0
"""How often a worker looks for requests to cancel, in seconds."""

DEADLINE_MARGIN = 5.0
"""How long past its deadline a lease is still renewed, so that the timeout can be written."""

SHORT_LEASE = timedelta(seconds=LOOK_EVERY * RENEWALS_PER_LEASE)
"""A shorter lease needs a renewal before the next look."""

RESTART_SECONDS = 1.0
LONGEST_STOP = 5.0

RunOnLoop = Callable[[Callable[[], None]], object]
"""Runs a function on the worker's loop."""


class Heartbeat:
    """Renews the leases of running jobs and delivers what the store answers."""

    def __init__(
        self,
        store: Store,
        runs: Callable[[], Collection[Run]],
        clock: Clock,
        observer: Observer,
        run_on_loop: RunOnLoop,
        listener: LeaseListener | None = None,
        missed: Reasons | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._observer = observer
        self._run_on_loop = run_on_loop
        self._listener = listener
        self._missed = missed or Reasons()

    async def once(self) -> float:
        """Renew what is due, look for requests to cancel; return seconds until the next look."""
        now = self._clock.monotonic()
        runs = [run for run in self._runs() if run.completed is None]
        due = [run for run in runs if _is_due(run, now)]
        others = [run for run in runs if not _is_due(run, now)]
        try:
            if due:
                await self._renew(due, now)
            if others:
                await self._look(others)
            if runs:
                self._missed.clear()
        except Exception as error:  # noqa: BLE001  # leases depend on it: report and go on
            if self._missed.is_new(error):
                self._observer.emit("heartbeat.missed", error=str(error), leases=len(due))
        self._lose_expired(runs)
        return min([LOOK_EVERY, *(interval(run) / 2 for run in runs)])

    async def _renew(self, due: Sequence[Run], sent: float) -> None:
        renewals = await self._store.extend([run.fence for run in due])
        for run, renewal in zip(due, renewals, strict=True):
            if renewal.held and renewal.renewed:
                run.renewed = sent
            self._deliver(run, renewal)
        if self._listener is not None:
            self._listener.renewed([run for run in due if run.renewed == sent])

    async def _look(self, runs: Sequence[Run]) -> None:
        requests = await self._store.cancels([run.job.id for run in runs])
        for run, request in zip(runs, requests, strict=True):
            if request is not None:
                self._cancel(run, request)

    def _deliver(self, run: Run, renewal: Renewal) -> None:
        if not renewal.held:
            self._lose(run)
        elif renewal.cancel is not None:
            self._cancel(run, renewal.cancel)

    def _cancel(self, run: Run, request: CancelRequest) -> None:
        if run.signals.cancel is None or request.force != run.signals.cancel.force:
            run.signals.cancel = request
            self._run_on_loop(lambda: run.cancel(request))

    def _lose(self, run: Run) -> None:
        if not (run.answered or run.completing or run.signals.lease_lost):
            run.signals.lease_lost = True
            self._observer.emit(
                "job.lease_lost", job_id=run.job.id, type=run.job.type, attempt=run.job.attempt
            )
            self._run_on_loop(run.lose_lease)

    def _lose_expired(self, runs: Sequence[Run]) -> None:
        """Give up leases that are not renewed any more because the job is past its deadline."""
        now = self._clock.monotonic()
        for run in runs:
            if run.lease_over(now) and now >= run.deadline + DEADLINE_MARGIN:
                self._lose(run)


def interval(run: Run) -> float:
    """How often a job's lease is renewed, in seconds."""
    return run.job.lease_ttl.total_seconds() / RENEWALS_PER_LEASE


def _is_due(run: Run, now: float) -> bool:
    return now - run.renewed >= interval(run) and now < run.deadline + DEADLINE_MARGIN


_HEARTBEATS = SharedLoop("holdfast-heartbeat")


class HeartbeatThread:
    """Runs a heartbeat for as long as its worker runs.

    It runs in a thread of all workers of the process, with a store of its own, so that handlers
    that block the worker's loop do not stop it. A store that cannot be opened twice is renewed
    on that loop.
    """

    def __init__(
        self,
        app: Holdfast,
        running: Mapping[str, Run],
        observer: Observer,
        listener: LeaseListener | None = None,
    ) -> None:
        self._app = app
        self._running = running
        self._observer = observer
        self._listener = listener
        self._beating: concurrent.futures.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopped = False
        self._missed = Reasons()

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start the heartbeat."""
        loop = asyncio.get_running_loop()
        if self._app.shares_store:
            self._loop = loop
            group.create_task(self._beat(self._heartbeat(self._app.store, loop)))
            return
        self._beating = _HEARTBEATS.start(self._run(loop))

    def wake(self) -> None:
        """Look now: a job with a short lease cannot wait for the next look."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def stop(self) -> None:
        """Stop the heartbeat."""
        self._stopped = True
        self.wake()
        if self._beating is not None:
            with contextlib.suppress(TimeoutError):  # which cancels it
                await asyncio.wait_for(asyncio.wrap_future(self._beating), LONGEST_STOP)

    async def _run(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Run on the loop of that thread over a connection of its own; restart after any error."""
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        with unobserved_reported(self._observer):
            while not self._stopped:
                await self._beat_until_it_fails(worker_loop)

    async def _beat_until_it_fails(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        try:
            await self._beat_over_own_connection(worker_loop)
        except Exception as error:  # noqa: BLE001  # leases depend on it: report and restart
            if self._missed.is_new(error):
                leases = len(self._running)
                self._observer.emit("heartbeat.missed", error=str(error), leases=leases)
            self._woken.clear()
            await self._sleep(RESTART_SECONDS)

    async def _beat_over_own_connection(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        store = self._app.open_store()
        try:
            await store.start()
            watch = self._loop_watch(store, worker_loop)
            await self._beat(self._heartbeat(store, worker_loop), watch)
        finally:
            await store.close()

    async def _beat(self, heartbeat: Heartbeat, watch: LoopWatch | None = None) -> None:
        while not self._stopped:
            self._woken.clear()
            wait = await heartbeat.once()
            if watch is not None:
                await watch.look(list(self._running.values()))
            await self._sleep(wait)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _loop_watch(self, store: Store, loop: asyncio.AbstractEventLoop) -> LoopWatch:
        outage = Outage(self._app.clock, self._observer)
        settler = Settler(
            store,
            self._app.randomness,
            self._observer,
            outage=outage,
            redaction=self._app.redaction,
        )

        async def time_out(run: Run) -> None:
            """Write the timeout from this thread; later writes of the job are refused."""
            run.on_written = None  # it belongs to the blocked loop
            run.signals.lease_lost = True
            await settler.write([(run, Interrupted(Interruption.TIMEOUT))])
            loop.call_soon_threadsafe(run.lose_lease)

        return LoopWatch(loop, self._app.clock, self._observer, time_out, self._listener)

    def _heartbeat(self, store: Store, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        return Heartbeat(
            store,
            lambda: list(self._running.values()),
            self._app.clock,
            self._observer,
            lambda call: loop.call_soon_threadsafe(call),  # noqa: PLW0108  # a plain signature
            self._listener,
            self._missed,
        )
