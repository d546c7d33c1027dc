"""Keeping leases alive, and hearing who lost one or was asked to stop.

It stops at a job's deadline: a worker that hangs holds a job no longer than the job may run.
A beat that fails is no news until the lease has surely ended by the local monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.model.job import CancelRequest
from holdfast.model.profiles import RENEWALS_PER_LEASE
from holdfast.observe import Observer
from holdfast.runtime.clock import Clock
from holdfast.store import Renewal, Store
from holdfast.worker.run import Run
from holdfast.worker.supervisor.protocol import LeaseListener, NoListener

LOOK_EVERY = 1.0
"""How often a worker looks for wishes to cancel, in seconds."""

DEADLINE_MARGIN = 5.0
"""How long past its deadline a lease is still renewed, so that the timeout can be written."""

Deliver = Callable[[Callable[[], None]], object]
"""Runs something on the worker's loop."""


class Heartbeat:
    """Renews the leases of the jobs in hand and passes on what it hears."""

    def __init__(
        self,
        store: Store,
        runs: Callable[[], Collection[Run]],
        clock: Clock,
        observer: Observer,
        deliver: Deliver,
        custody: LeaseListener | None = None,
    ) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock
        self._observer = observer
        self._deliver = deliver
        self._custody = custody or NoListener()

    async def once(self) -> float:
        """Renew what is due, look for cancellations, and return seconds until the next look."""
        now = self._clock.monotonic()
        runs = [run for run in self._runs() if run.completed is None]
        due = [run for run in runs if _is_due(run, now)]
        others = [run for run in runs if not _is_due(run, now)]
        try:
            if due:
                await self._renew(due, now)
            if others:
                await self._look(others)
        except StoreUnavailableError as error:
            self._observer.emit("heartbeat.missed", error=str(error), leases=len(due))
        self._give_up(runs)
        return min([LOOK_EVERY, *(interval(run) / 2 for run in runs)])

    async def _renew(self, due: Sequence[Run], sent: float) -> None:
        beats = await self._store.extend([run.fence for run in due])
        for run, beat in zip(due, beats, strict=True):
            if beat.held and beat.renewed:
                run.renewed = sent
            self._pass_on(run, beat)
        self._custody.renewed([run for run in due if run.renewed == sent])

    async def _look(self, runs: Sequence[Run]) -> None:
        claims = await self._store.cancels([run.job.id for run in runs])
        for run, wish in zip(runs, claims, strict=True):
            if wish is not None:
                self._cancel(run, wish)

    def _pass_on(self, run: Run, beat: Renewal) -> None:
        if not beat.held:
            self._lose(run)
        elif beat.cancel is not None:
            self._cancel(run, beat.cancel)

    def _cancel(self, run: Run, wish: CancelRequest) -> None:
        if run.signals.cancel is None or wish.force != run.signals.cancel.force:
            run.signals.cancel = wish
            self._deliver(lambda: run.cancel(wish))

    def _lose(self, run: Run) -> None:
        if not (run.answered or run.completing or run.signals.lease_lost):
            run.signals.lease_lost = True
            self._observer.emit(
                "job.lease_lost", job_id=run.job.id, type=run.job.type, attempt=run.job.attempt
            )
            self._deliver(run.lose_lease)

    def _give_up(self, runs: Sequence[Run]) -> None:
        """Leases that nobody renewed in time are lost, whatever the store would say."""
        now = self._clock.monotonic()
        for run in runs:
            if run.lease_over(now):
                self._lose(run)


def interval(run: Run) -> float:
    """How often a job's lease is renewed, in seconds."""
    return run.job.lease_ttl.total_seconds() / RENEWALS_PER_LEASE


def _is_due(run: Run, now: float) -> bool:
    return now - run.renewed >= interval(run) and now < run.deadline + DEADLINE_MARGIN


SHORT_LEASE = timedelta(seconds=LOOK_EVERY * RENEWALS_PER_LEASE)
RESTART_SECONDS = 1.0
LONGEST_FAREWELL = 5.0


class HeartbeatThread:
    """Keeps a heartbeat going for as long as a worker runs."""

    def __init__(
        self, app: Holdfast, running: Mapping[str, Run], observer: Observer, custody: LeaseListener
    ) -> None:
        self._app = app
        self._running = running
        self._observer = observer
        self._custody = custody
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._stopped = False

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start beating."""
        loop = asyncio.get_running_loop()
        if self._app.shares_store:
            self._loop = loop
            group.create_task(self._beat(self._heartbeat(self._app.store, loop)))
            return
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._beat_apart(loop)), name="holdfast-pulse", daemon=True
        )
        self._thread.start()

    def notice(self, runs: Sequence[Run]) -> None:
        """Hear of new jobs: one with a short lease cannot wait for the next look."""
        if any(ttl < SHORT_LEASE for ttl in {run.job.lease_ttl for run in runs}):
            self._wake()

    async def stop(self) -> None:
        """Stop beating."""
        self._stopped = True
        self._wake()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, LONGEST_FAREWELL)

    def _wake(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    async def _beat_apart(self, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Beat in this thread's own loop over a connection of its own, come what may."""
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not self._stopped:
            store = self._app.open_store()
            try:
                await store.start()
                await self._beat(self._heartbeat(store, worker_loop))
            except Exception as error:  # noqa: BLE001  # leases depend on it: tell, begin anew
                self._observer.emit("heartbeat.missed", error=str(error), leases=len(self._running))
                await self._nap(RESTART_SECONDS)
            finally:
                await store.close()

    async def _beat(self, heartbeat: Heartbeat) -> None:
        while not self._stopped:
            self._woken.clear()
            await self._nap(await heartbeat.once())

    async def _nap(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _heartbeat(self, store: Store, loop: asyncio.AbstractEventLoop) -> Heartbeat:
        return Heartbeat(
            store,
            lambda: list(self._running.values()),
            self._app.clock,
            self._observer,
            lambda heard: loop.call_soon_threadsafe(heard),  # noqa: PLW0108  # a plain signature
            self._custody,
        )
