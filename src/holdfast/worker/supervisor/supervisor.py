"""Several worker processes under one parent: restarted when they crash, drained together.

The parent runs no user code beyond importing the app. So it runs maintenance, renews leases
while a process hangs in a call that stops its own heartbeat, and recovers the jobs of a
process the moment it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import Fault, ValidationError
from holdfast.maintenance import Maintenance
from holdfast.maintenance.reaper import Reaper
from holdfast.model.policy import SECOND
from holdfast.observe import Observer, Outage
from holdfast.operations.batcher import with_retries
from holdfast.operations.draining import FOLLOWED_EVERY, is_drained
from holdfast.runtime.host import HOST
from holdfast.store import Store
from holdfast.worker.loading import load_app, load_object
from holdfast.worker.probe import Probe, forget_process
from holdfast.worker.startup import opened, pause_unless, report_other_queues, report_stopping
from holdfast.worker.supervisor.deaths import Deaths
from holdfast.worker.supervisor.lease_guard import LeaseGuard, held_by
from holdfast.worker.supervisor.main import CANNOT_START
from holdfast.worker.supervisor.process import WorkerProcess
from holdfast.worker.supervisor.protocol import WorkerPlan
from holdfast.worker.worker import FINAL_WRITES, delivery_worker

SILENT = "holdfast.observe:Silent"
FIRST_DELAY = 0.1
LONGEST_DELAY = 10.0
STEADY = 5.0
"""A process that ran so long, in seconds, did not fail at its start."""

MOST_FAILURES = 5
"""How often in a row a process may fail before it is ready."""

RECOVER_WITHIN = 10 * SECOND
"""How long to retry recovering a dead process's jobs; after that the reaper finds them."""

OVERTIME = 5.0
"""How long past its grace a process may take before it is killed, in seconds."""


def supervise(
    app_path: str,
    *,
    processes: int,
    queues: Sequence[str] | Mapping[str, float] = ("default",),
    slots: int | None = None,
    grace: timedelta = 30 * SECOND,
    burst: bool = False,
    observer: str = SILENT,
    probe: tuple[str, int] | None = None,
) -> int:
    """Run worker processes until a signal stops them; return the exit code.

    ``app_path`` is ``module:attribute``, ``observer`` the path of a factory that makes an
    ``Observer`` in each process. The first TERM or INT drains, the second stops at once.
    In a burst the processes exit when no job is left. ``probe`` is where to serve their numbers.
    """
    plan = WorkerPlan(
        app=app_path,
        queues=dict(queues) if isinstance(queues, Mapping) else list(queues),
        slots=slots,
        grace=grace,
        burst=burst,
        maintenance=False,
        observer=observer,
        name="",
    )
    return asyncio.run(Supervisor(plan, processes, probe).run())


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(
        self, plan: WorkerPlan, processes: int, probe: tuple[str, int] | None = None
    ) -> None:
        self._plan = plan
        self._probe = probe
        self._processes = processes
        self._app = load_app(plan.app)
        self._observer: Observer = load_object(plan.observer)()  # type: ignore[operator]  # a factory
        self._types = [handler.type for handler in self._app.registry]
        self._guard = LeaseGuard(self._app.clock)
        self._deaths = Deaths(self._app.clock)
        self._running: set[WorkerProcess] = set()
        self._drained: set[str] = set()
        """The processes that an operator has drained."""
        self._draining = asyncio.Event()
        self._halting = False
        self._code = 0

    async def run(self) -> int:
        """Supervise until every process has exited for good."""
        _must_be_shared(self._app)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            outage = Outage(self._app.clock, self._observer)
            async with self._probed(outage), opened(self._app, self._draining, outage) as store:
                await self._supervise(store, outage)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._code

    @contextlib.asynccontextmanager
    async def _probed(self, outage: Outage) -> AsyncGenerator[None, None]:
        """Serve the probe while the block runs, if there is one."""
        if self._probe is None:
            yield
            return
        forget_process(os.getpid())  # it has no gauges: its loop runs no jobs
        probe = Probe(self._app.clock, lambda: self._not_ready(outage), several=True)
        async with probe.serving(*self._probe):
            yield

    def _not_ready(self, outage: Outage) -> str:
        if self._draining.is_set():
            return "stopping"
        ready = {process.name for process in self._running if process.was_ready}
        if not ready:
            return "no worker process is ready"
        if ready <= self._drained:
            return "drained"
        return "the store is unavailable" if outage.is_on else ""

    async def _supervise(self, store: Store, outage: Outage) -> None:
        name = f"{HOST}-supervisor-{self._app.randomness.token()[:8]}"
        queues = tuple(self._plan.queues)
        service = Maintenance(
            self._app, name, queues, self._observer, outage, make_worker=delivery_worker
        )
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(service.run()),
                group.create_task(self._guard.run(store, self._observer)),
                group.create_task(self._follow_drains(store)),
                group.create_task(report_other_queues(store, queues, self._types, self._observer)),
            ]
            await asyncio.wait([group.create_task(self._keep()) for _ in range(self._processes)])
            for task in tasks:
                task.cancel()

    async def _follow_drains(self, store: Store) -> None:
        """Look which processes are drained, as often as they do."""
        while self._probe is not None:
            with contextlib.suppress(Exception):  # what is wrong with the store is reported
                names = [process.name for process in self._running]
                self._drained = {name for name in names if await is_drained(store, name)}
            await asyncio.sleep(FOLLOWED_EVERY)

    def stop(self) -> None:
        """Drain every process; called again, stop them at once."""
        if self._draining.is_set():
            self._halting = True
        else:
            report_stopping(self._observer, self._guard.held, self._plan.grace)
        self._draining.set()
        for process in self._running:
            self._stop(process)

    def _stop(self, process: WorkerProcess) -> None:
        grace = FINAL_WRITES if self._halting else self._plan.grace.total_seconds() + OVERTIME
        process.stop(halt=self._halting)
        asyncio.get_running_loop().call_later(grace + FINAL_WRITES, process.kill)

    async def _keep(self) -> None:
        """Keep one process running: start it, and another one when it crashed."""
        failures = 0
        while not self._draining.is_set():
            process = WorkerProcess(self._plan, self._app, self._guard)
            self._running.add(process)
            self._observer.emit("process.started", worker=process.name, pid=process.pid)
            code = await process.ended()
            self._running.discard(process)
            if self._probe is not None:
                forget_process(process.pid)
            if code == 0:
                return
            self._observer.emit("process.died", worker=process.name, pid=process.pid, code=code)
            await self._recover(process, code)
            failures = failures + 1 if process.age < STEADY else 0
            if code == CANNOT_START or (failures >= MOST_FAILURES and not process.was_ready):
                self._code = 1
                self.stop()
            await self._pause(failures)

    async def _recover(self, process: WorkerProcess, code: int) -> None:
        """Return the jobs of a dead process to the queue now, not when their leases expire."""
        store, died_at = self._app.store, self._app.store.now()
        reaper = Reaper(store, self._app.randomness, self._observer)
        by_itself = not self._draining.is_set()
        by_job = by_itself and await self._deaths.by_job(process, code)

        async def recover() -> None:
            fences = await held_by(store, process.name)
            why = f"worker process {process.exit_reason(code)}"
            await reaper.recover(fences, why, died_at if by_job else None)
            await store.promote(max(1, len(fences)))

        try:
            await with_retries(recover, self._app.randomness, RECOVER_WITHIN)
        except Exception as error:  # noqa: BLE001  # their leases expire; the next process starts
            self._observer.emit("store.unavailable", error=str(error))

    async def _pause(self, failures: int) -> None:
        """Restart at once after a first crash, and later with each that follows."""
        if failures >= 2:
            delay = min(FIRST_DELAY * 2.0 ** (failures - 2), LONGEST_DELAY)
            await pause_unless(self._draining, delay)


def _must_be_shared(app: Holdfast) -> None:
    if app.shares_store:
        message = "must be one that several processes can open, got one in memory"
        raise ValidationError([Fault("store", "UNSUPPORTED", message)])
