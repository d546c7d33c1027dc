"""The processes of a simulation: real workers and clients, on apps of their own."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast import Backoff, BackoffKind, Holdfast, JobContext, PermanentError, TemporaryError
from holdfast.errors import StoreUnavailableError
from holdfast.runtime.randomness import Randomness
from holdfast.worker import Worker
from tests.simulation.faults import FaultyStore, Network
from tests.simulation.loop import PROCESS
from tests.simulation.record import Execution, Record

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from holdfast.store import Store
    from tests.simulation.loop import SimLoop

BEGIN = datetime(2026, 1, 1, 0, 0, 45, tzinfo=UTC)
"""A quarter of a minute before a schedule is due."""

LEASE = 3.0
QUEUES = ("default", "other")
CRON = "* * * * *"
BACKOFF = Backoff(
    strategy=BackoffKind.EXPONENTIAL,
    initial_delay=timedelta(seconds=0.3),
    max_delay=timedelta(seconds=3),
    jitter=True,
)


TASKS = Holdfast("memory://")
"""The tasks of every process; reading their signatures for each anew would take a while."""

_OPTIONS: dict[str, Any] = {"lease": LEASE, "backoff": BACKOFF, "lifetime": 1800}


async def work(ctx: JobContext, steps: list[list[Any]]) -> int:
    """Do the steps of a job's payload, in this process."""
    loop: Any = asyncio.get_running_loop()
    return await Handler(loop.world, PROCESS.get(), ctx).run(steps)


TASKS.task("work", timeout=5, max_attempts=4, **_OPTIONS)(work)
TASKS.task("rare", timeout=4, max_attempts=2, queue="other", concurrency=1, **_OPTIONS)(work)
TASKS.cron(CRON, missed="all", payload={"steps": [["sleep", 0.5], ["effect"]]})(
    TASKS.task("tick", timeout=5, max_attempts=6, **_OPTIONS)(work)
)


class TrueClock:
    """The clock of the store."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()


class WrongClock:
    """A process's own clock: hours off, and a little too fast or slow."""

    def __init__(self, loop: SimLoop, draw: random.Random) -> None:
        self._loop = loop
        self._offset = timedelta(seconds=draw.choice([0, 0, -5, 60, 86_400, -86_400]))
        self._rate = draw.uniform(0.98, 1.02)
        self._base = draw.random() * 1000

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self._loop.time()) + self._offset

    def monotonic(self) -> float:
        return self._base + self._loop.time() * self._rate


class Mishap(TemporaryError):
    """What handlers raise when their steps say so."""


class World:
    """Starts processes and lists those that run."""

    def __init__(
        self,
        loop: SimLoop,
        network: Network,
        record: Record,
        draw: random.Random,
        open_store: Callable[[], Store],
    ) -> None:
        self.loop = loop
        loop.world = self
        self.record = record
        self.network = network
        self.workers: dict[str, Worker] = {}
        self._draw = draw
        self._open_store = open_store
        self._count = 0

    def name(self, kind: str) -> str:
        """A name no process had before."""
        self._count += 1
        return f"{kind}-{self._count}"

    def app(self, process: str) -> Holdfast:
        """An app as one process of a deployment has it."""
        store: Any = FaultyStore(self._open_store(), self.network, self.record, process)
        app = Holdfast(
            store=store,
            clock=WrongClock(self.loop, self._draw),
            randomness=Randomness(self._draw.getrandbits(32)),
        )
        app.registry, app.crons = TASKS.registry, TASKS.crons
        return app

    async def worker(self, process: str) -> None:
        """The life of a worker process."""
        worker = Worker(
            self.app(process),
            queues=QUEUES,
            slots=self._draw.randint(1, 4),
            grace=timedelta(seconds=self._draw.choice([0.2, 3, 10])),
            name=process,
            observer=_Listener(self.record, process),
        )
        self.workers[process] = worker
        self.record.note(process, "starts")
        try:
            await worker.run()
        except StoreUnavailableError:
            if process in self.workers:
                raise
            self.record.note(process, "was stopped before the store answered")
        self.record.note(process, "has stopped")
        if self.workers.pop(process, None) is not None:
            self.record.wrongs.append(f"{process} stopped without a request")

    def kill(self, process: str) -> None:
        """Kill a process where it stands."""
        self.record.note(process, "is killed")
        self.record.happened("kill")
        self.record.deaths[process] = self.loop.time()
        self.loop.kill(process)
        self.workers.pop(process, None)


class Handler:
    """Does the steps of a job's payload."""

    def __init__(self, world: World, process: str, ctx: JobContext) -> None:
        self._world = world
        self._ctx = ctx
        self._process = process
        self.version = int(ctx.attempt_id.rpartition(".")[2])
        self._execution = Execution(process, ctx.job_id, self.version, world.loop.time())

    async def run(self, steps: list[list[Any]]) -> int:
        record = self._world.record
        record.executions.append(self._execution)
        record.note(self._process, f"runs {self._ctx.job_id} version {self.version}")
        for name, *values in steps:
            await getattr(self, f"_{name}")(*values)
        self._execution.finished = self._world.loop.time()
        record.note(self._process, f"finished {self._ctx.job_id} version {self.version}")
        return self.version

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _effect(self) -> None:
        self._execution.effects += 1

    async def _checkpoint(self) -> None:
        await self._ctx.checkpoint({"version": self.version})

    async def _progress(self, percent: int) -> None:
        await self._ctx.report_progress(percent)

    async def _spawn(self, key: str, steps: list[list[Any]]) -> None:
        await self._ctx.spawn("work", {"steps": steps}, key=key)

    async def _fail(self, until: int) -> None:
        if self._ctx.attempt <= until:
            raise Mishap("as requested")

    async def _hopeless(self) -> None:
        raise PermanentError("as requested")

    async def _poll(self, seconds: float) -> None:
        """Work for a while, with checkpoints in between."""
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            await asyncio.sleep(0.4)
            if self._ctx.is_cancelled() or self._ctx.lease_lost:
                await self._ctx.checkpoint("requested to stop")

    async def _unresponsive(self, seconds: float) -> None:
        """Do not stop when cancelled."""
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(end - self._world.loop.time())

    async def _die(self, until: int) -> None:
        """Kill the whole process."""
        if self._ctx.attempt <= until:
            self._world.kill(self._process)
            await asyncio.sleep(0)


class _Listener:
    """Counts the events of workers."""

    COUNTED = frozenset(
        {"job.lease_lost", "job.stale", "job.unresponsive", "job.released", "heartbeat.missed"}
        | {"store.unavailable", "store.available", "maintenance.leading", "job.reaped"}
    )

    def __init__(self, record: Record, process: str) -> None:
        self._record = record
        self._process = process

    def emit(self, event: str, **fields: object) -> None:
        if event in self.COUNTED:
            self._record.happened(event)
            job = fields.get("job_id", fields.get("error", ""))
            self._record.note(self._process, f"{event} {job}")
        if event == "job.unresponsive":
            self._record.left_behind.add((self._process, str(fields["job_id"])))
