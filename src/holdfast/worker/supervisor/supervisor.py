"""Several worker processes under one parent: restarted when they crash, drained together.

The parent runs no user code beyond importing the app, so it is the one that keeps the store
in order (maintenance), renews leases while a process hangs in a call that stops its own
heartbeat, and takes the jobs of a process back the moment it dies.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import Fault, StoreError, ValidationError
from holdfast.maintenance import Maintenance
from holdfast.maintenance.reaper import Reaper
from holdfast.model.policy import SECOND
from holdfast.observe import Observer, Outage
from holdfast.operations.submitter import with_retries
from holdfast.store import Store
from holdfast.worker.executor import HOST
from holdfast.worker.loading import load_app, load_object
from holdfast.worker.startup import opened, pause_unless
from holdfast.worker.supervisor.lease_guard import LeaseGuard, orphans
from holdfast.worker.supervisor.main import CANNOT_START
from holdfast.worker.supervisor.process import WorkerProcess
from holdfast.worker.supervisor.protocol import WorkerPlan
from holdfast.worker.worker import FINAL_WRITES, delivery_worker

SILENT = "holdfast.observe:Silent"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
STEADY = 5.0
"""A process that lived so long, in seconds, did not fail at once."""

HOPELESS = 5
"""So often in a row a process may fail before it is ready."""

PATIENCE = 10 * SECOND
"""How long a dead process's jobs are tried to be taken back before the reaper finds them."""

OVERTIME = 5.0
"""How long past its grace a process may take before it is killed, in seconds."""


def supervise(
    app_path: str,
    *,
    processes: int,
    queues: Sequence[str] | Mapping[str, float] = ("default",),
    slots: int = 20,
    grace: timedelta = 30 * SECOND,
    burst: bool = False,
    observer: str = SILENT,
) -> int:
    """Run worker processes until told to stop; return the exit code.

    ``app_path`` is ``module:attribute``, ``observer`` the path of something that makes an
    ``Observer`` in each process. The first TERM or INT drains, the second stops at once.
    In a burst the processes end when there is nothing left to do.
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
    return asyncio.run(Supervisor(plan, processes).run())


class Supervisor:
    """Keeps a number of worker processes going."""

    def __init__(self, plan: WorkerPlan, processes: int) -> None:
        self._plan = plan
        self._processes = processes
        self._app = load_app(plan.app)
        self._observer: Observer = load_object(plan.observer)()  # type: ignore[operator]  # a factory
        self._guard = LeaseGuard(self._app.clock)
        self._members: set[WorkerProcess] = set()
        self._draining = asyncio.Event()
        self._halting = False
        self._code = 0

    async def run(self) -> int:
        """Supervise until every process has ended for good."""
        _must_be_shared(self._app)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            outage = Outage(self._app.clock, self._observer)
            async with opened(self._app, self._draining, outage) as store:
                await self._supervise(store, outage)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._code

    async def _supervise(self, store: Store, outage: Outage) -> None:
        name = f"{HOST}-supervisor-{self._app.randomness.token()[:8]}"
        queues = tuple(self._plan.queues)
        service = Maintenance(
            self._app, name, queues, self._observer, outage, make_worker=delivery_worker
        )
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(service.run()),
                group.create_task(self._guard.stand(store, self._observer)),
            ]
            await asyncio.wait([group.create_task(self._keep()) for _ in range(self._processes)])
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Drain every process; called again, stop them at once."""
        if self._draining.is_set():
            self._halting = True
        self._draining.set()
        for member in self._members:
            self._dismiss(member)

    def _dismiss(self, member: WorkerProcess) -> None:
        patience = FINAL_WRITES if self._halting else self._plan.grace.total_seconds() + OVERTIME
        member.dismiss(halt=self._halting)
        asyncio.get_running_loop().call_later(patience + FINAL_WRITES, member.kill)

    async def _keep(self) -> None:
        """Keep one seat taken: start a process, and another when it crashed."""
        failures = 0
        while not self._draining.is_set():
            member = WorkerProcess(self._plan, self._app, self._guard)
            self._members.add(member)
            self._observer.emit("process.started", worker=member.name, pid=member.pid)
            code = await member.ended()
            self._members.discard(member)
            if code == 0:
                return
            self._observer.emit("process.died", worker=member.name, pid=member.pid, code=code)
            await self._take_back(member, code)
            failures = failures + 1 if member.age < STEADY else 0
            if code == CANNOT_START or (failures >= HOPELESS and not member.was_ready):
                self._code = 1
                self.stop()
            await self._pause(failures)

    async def _take_back(self, member: WorkerProcess, code: int) -> None:
        """Let others run the jobs of a process that died, now rather than when leases end."""
        store = self._app.store
        reaper = Reaper(store, self._app.randomness, self._observer)

        async def take_back() -> None:
            fences = await orphans(store, member.name)
            await reaper.take_back(fences, f"worker process {member.exit_reason(code)}")
            await store.promote(max(1, len(fences)))

        try:
            await with_retries(take_back, self._app.randomness, PATIENCE)
        except StoreError as error:
            self._observer.emit("store.unavailable", error=str(error))

    async def _pause(self, failures: int) -> None:
        """Start again at once after a first crash, later and later when it goes on."""
        if failures >= 2:
            pause = min(FIRST_PAUSE * 2.0 ** (failures - 2), LONGEST_PAUSE)
            await pause_unless(self._draining, pause)


def _must_be_shared(app: Holdfast) -> None:
    if app.shares_store:
        told = "must be one that several processes can open, got one that lives in memory"
        raise ValidationError([Fault("store", "UNSUPPORTED", told)])
