"""One run: a phase full of faults, then a phase without in which every job must end."""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.job import TERMINAL, State
from holdfast.model.lifecycle import cancel_requested, released
from holdfast.store import Change, MemoryStore, Order, Search
from holdfast.store.sqlite.location import Durability, Location
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.sqlite.threads import LoopExecutor
from tests.simulation.checking import Evidence, violations
from tests.simulation.client import Client
from tests.simulation.faults import Network, Weather
from tests.simulation.loop import SimLoop, Stuck
from tests.simulation.record import Record
from tests.simulation.world import LEASE, QUEUES, TrueClock, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.job import Job
    from holdfast.store import Store

SAFETY = 40.0
"""Seconds with faults."""

HEALING = 900.0
"""Seconds after the last fault in which every job must end."""

SETTLED = 12.0
"""Seconds to wait for what comes late."""

WORKERS = 3
SHM = Path("/dev/shm")


@dataclass
class Run:
    """The result of one seed."""

    seed: int
    store: str
    violations: list[str]
    record: Record
    jobs: list[Job]
    simulated: float
    steps: int

    def report(self) -> str:
        """The trace as text: what is wrong, then everything that happened."""
        labels = {job.id: f"j{i}" for i, job in enumerate(self.jobs, 1)}
        wrong = "\n".join(f"  {text}" for text in self.violations)
        for job_id, label in labels.items():
            wrong = wrong.replace(job_id, label)
        return f"{self.record.text(labels)}\n\nseed {self.seed} on {self.store}:\n{wrong}"


def simulate(seed: int, store: str = "memory") -> Run:
    """Run one seed."""
    draw = random.Random(f"{seed}-{store}")
    loop = SimLoop(random.Random(draw.getrandbits(64)))
    record = Record(loop.time)
    jobs: list[Job] = []
    found: list[str] = []
    with ExitStack() as stack:
        open_store = _opener(store, loop, stack)
        scenario = Scenario(loop, record, draw, open_store)
        try:
            evidence = loop.run_until_complete(scenario.run())
            jobs, found = evidence.jobs, violations(evidence)
        except Stuck as error:
            found = [f"stuck: {error}"]
        finally:
            simulated, steps = loop.time(), loop.steps
            loop.take_back()
    found += [f"complaint: {text}" for text in loop.complaints]
    return Run(seed, store, found, record, jobs, simulated, steps)


def _opener(store: str, loop: SimLoop, stack: ExitStack) -> Callable[[], Store]:
    clock = TrueClock(loop)
    if store == "memory":
        only = MemoryStore(clock)
        return lambda: only
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=SHM if SHM.is_dir() else None)
    )
    place = Location(path=Path(folder) / "jobs.db", durability=Durability.PROCESS)
    return lambda: SQLiteStore(place, clock=clock, executor=LoopExecutor, sockets=False)


class Scenario:
    """Faults, then none."""

    def __init__(
        self,
        loop: SimLoop,
        record: Record,
        draw: random.Random,
        open_store: Callable[[], Store],
    ) -> None:
        self._loop = loop
        self._record = record
        self._draw = draw
        self._open_store = open_store
        self._network = Network(loop, random.Random(draw.getrandbits(64)), record)
        self._world = World(loop, self._network, record, draw, open_store)
        self._known: list[str] = []
        self._clients: list[str] = []
        self._store = open_store()
        self._misfortunes = (
            *(self._kill, self._kill, self._kill_client, self._interval, self._hang),
            *(self._skip_beats, self._stop, self._cut, self._outage),
        )

    async def run(self) -> Evidence:
        """Run both phases and return what there is to judge."""
        await self._store.start()
        self._network.weather = Weather.drawn(self._draw)
        for _ in range(self._draw.randint(1, WORKERS)):
            self._start_worker()
        for _ in range(self._draw.randint(1, 2)):
            self._start_client()
        await self._misfortune()
        ended = await self._heal()
        jobs = await self._jobs()
        history = await self._store.history([job.id for job in jobs])
        parents = [await self._store.parents(job.id) for job in jobs]
        await self._store.close()
        return Evidence(
            record=self._record,
            jobs=jobs,
            histories=dict(zip([job.id for job in jobs], history, strict=True)),
            parents=dict(zip([job.id for job in jobs], parents, strict=True)),
            ended=ended,
            end=self._loop.time(),
        )

    # --- the safety phase ------------------------------------------------------------------

    async def _misfortune(self) -> None:
        end = SAFETY * self._draw.uniform(0.3, 1.0)
        pace = self._draw.choice([0.7, 2.0, 5.0, 10.0])
        while self._loop.time() < end:
            await asyncio.sleep(self._draw.expovariate(1 / pace))
            self._draw.choice(self._misfortunes)()
            await self._toggle_queue()
            await self._cancel_before_a_stop()

    def _kill(self) -> None:
        victims = [*self._world.workers]
        if victims:
            self._world.kill(self._draw.choice(victims))
        self._start_worker(self._draw.random() * 3)

    def _kill_client(self) -> None:
        victims = [client for client in self._clients if self._loop.is_alive(client)]
        if victims:
            self._world.kill(self._draw.choice(victims))
            self._record.happened("client killed")
            self._start_client()

    def _interval(self) -> None:
        victims = [*self._world.workers]
        if victims:
            victim, seconds = self._draw.choice(victims), self._draw.uniform(0.2, 4 * LEASE)
            self._loop.pause(victim, seconds)
            self._record.note(victim, f"is paused for {seconds:.1f} s")
            self._record.happened("pause longer than a lease" if seconds > LEASE else "pause")

    def _hang(self) -> None:
        victims = [*self._world.workers]
        if victims:
            victim, seconds = self._draw.choice(victims), self._draw.uniform(1, 30)
            self._loop.hang(victim, seconds)
            self._record.note(victim, f"hangs for {seconds:.1f} s")
            self._record.happened("hang")

    def _skip_beats(self) -> None:
        for victim in self._world.workers:
            seconds = self._draw.uniform(0.9, 1.8) * LEASE
            self._loop.skip_beats(victim, seconds)
            self._record.note(victim, f"skips beats for {seconds:.1f} s")
            self._record.happened("skipped beats")

    async def _cancel_before_a_stop(self) -> None:
        """Request a job to stop whose worker is about to return it."""
        running = [job for job in await self._jobs() if job.state is State.RUNNING]
        mine = [job for job in running if job.lease and job.lease.worker in self._world.workers]
        if not mine or self._draw.random() < 0.8:
            return
        job = self._draw.choice(mine)
        assert job.lease is not None
        changed = cancel_requested(job, reason="stop", force=False, now=self._store.now())
        (answer,) = await self._store.swap([Change(job, changed)])
        if answer.written and job.lease.worker in self._world.workers:
            self._record.cancels.append((self._loop.time(), job.id, "CANCEL_REQUESTED"))
            self._record.note("world", f"asks {job.id} to stop")
            self._stop(job.lease.worker)

    def _stop(self, victim: str = "") -> None:
        victims = [*self._world.workers]
        if victims:
            victim = victim or self._draw.choice(victims)
            worker = self._world.workers.pop(victim)
            self._record.note(victim, "is requested to stop")
            self._record.happened("graceful stop")
            self._loop.spawn(victim, _stop(worker, twice=self._draw.random() < 0.3))
            self._start_worker(self._draw.random() * 3)

    def _cut(self) -> None:
        victims = [*self._world.workers]
        if victims:
            victim, seconds = self._draw.choice(victims), self._draw.uniform(0.5, 3 * LEASE)
            self._network.cut.add(victim)
            self._record.note(victim, f"is cut off for {seconds:.1f} s")
            self._record.happened("cut off")
            self._loop.call_later(seconds, self._network.cut.discard, victim)

    def _outage(self) -> None:
        if not self._network.outage:
            self._network.outage = True
            self._record.note("world", "the store is away")
            self._record.happened("outage")
            self._loop.call_later(self._draw.uniform(0.2, 2 * LEASE), self._back)

    def _back(self) -> None:
        self._network.outage = False
        self._record.note("world", "the store is back")

    async def _toggle_queue(self) -> None:
        if self._draw.random() < 0.1:
            paused = self._draw.random() < 0.5
            queue = self._draw.choice(QUEUES)
            await self._store.configure(queue, {"paused": paused})
            self._record.note("world", f"queue {queue} paused: {paused}")

    def _start_worker(self, delay: float = 0.0) -> None:
        name = self._world.name("worker")
        self._loop.call_later(delay, self._spawn, name)

    def _spawn(self, name: str) -> None:
        if len(self._world.workers) < WORKERS:
            self._loop.spawn(name, self._world.worker(name))

    def _start_client(self) -> None:
        name = self._world.name("client")
        self._clients.append(name)
        client = Client(name, self._world.app(name), self._record, self._draw, self._known)
        self._loop.spawn(
            name, client.run(self._draw.randint(6, 20), self._draw.choice([0.2, 0.6, 1.5]))
        )

    # --- the heal phase --------------------------------------------------------------------

    async def _heal(self) -> bool:
        """End all faults; return whether every job ended."""
        self._record.note("world", "heals")
        self._network.weather = Weather()
        self._network.cut.clear()
        self._network.outage = False
        self._loop.wake_all()
        for queue in QUEUES:
            await self._store.configure(queue, {"paused": False})
        started = self._loop.time()
        while self._loop.time() < started + HEALING:
            if len(self._world.workers) < 2:
                self._start_worker()
            await asyncio.sleep(1.0)
            live = [job for job in await self._jobs() if job.state not in TERMINAL]
            await self._release(live)
            await self._cancel_hopeless(live)
            if not live and self._loop.time() > started + SETTLED:
                return True
        return False

    async def _release(self, live: list[Job]) -> None:
        for job in live:
            if job.held:
                change = Change(job, released(job, now=self._store.now()))
                await self._store.swap([change])

    async def _cancel_hopeless(self, live: list[Job]) -> None:
        """Cancel what was retried, but waits for a dependency that failed before and was not."""
        for job in live:
            if job.state is State.PENDING and job.generation > 1:
                parents = await self._store.get(await self._store.parents(job.id))
                ends = [p.finished_at for p in parents if p and p.state is not State.COMPLETED]
                if any(end is not None and end <= job.updated_at for end in ends):
                    now = self._store.now()
                    gone = cancel_requested(job, reason="hopeless", force=False, now=now)
                    await self._store.swap([Change(job, gone)])

    async def _jobs(self) -> list[Job]:
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = await self._store.find(
                Search(order=Order.CREATED_ASC, cursor=cursor, limit=1000)
            )
            found += page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return found


async def _stop(worker: object, *, twice: bool) -> None:
    worker.stop()  # type: ignore[attr-defined]
    if twice:
        await asyncio.sleep(0.5)
        worker.stop()  # type: ignore[attr-defined]
