"""A store with a week behind it: finished jobs, measures of every ten minutes, work that waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from msgspec.structs import replace

from holdfast import Holdfast, Submission
from holdfast.maintenance.summariser import EVERY, Summariser
from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory
from holdfast.model.workers import WorkerInfo
from holdfast.operations.failure_groups import note_failures
from holdfast.operations.workers import announce
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Claim, JobExport, MemoryStore, PortableStore, Store

QUEUES = tuple(f"q{n}" for n in range(5))
TYPES = ("email.send", "email.check", "report.build", "sync")
CODES = tuple(f"CODE_{n}" for n in range(20))
ROUND = timedelta(minutes=10)
CHUNK = 500
KINDS = len(QUEUES) * len(TYPES)


class Week:
    """Fills a store; its clock is a week ahead afterwards."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        self._randomness = Randomness()
        self._summariser = Summariser(store)
        self.job_ids: list[str] = []
        """Some of the jobs."""

    async def fill(self, jobs: int, *, hour: int, hours: int) -> None:
        """Add one hour's share of so many finished jobs, and let jobs run all the time."""
        await self._finish(jobs * (hour + 1) // hours - jobs * hour // hours)
        is_recent = hour >= hours - 3
        for _ in range(timedelta(hours=1) // ROUND):
            for _ in range(ROUND // timedelta(minutes=1) if is_recent else 1):
                await self._run_some()
                self._clock.advance(timedelta(minutes=1) if is_recent else ROUND)
            while await self._summariser.once() < EVERY:
                pass  # some of the time before the first job is left
        for _ in range(20):  # as a leader does all the time: PostgreSQL sums up its counters
            await self._store.promote(1000)

    async def _finish(self, count: int) -> None:
        """Add jobs that finished in this hour, with their history."""
        made = await templates(self._clock.now())
        portable = cast("PortableStore", self._store)
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            ids = [self._randomness.uuid() for _ in range(size)]
            exports = [
                JobExport(replace(made[n % len(made)].job, id=job_id), made[n % len(made)].history)
                for n, job_id in enumerate(ids)
            ]
            await portable.adopt(exports)
            await note_failures(self._store, [each.job for each in exports])
            self.job_ids = ids

    async def _run_some(self) -> None:
        """Run one job of each kind; one in twenty fails."""
        app = Holdfast(store=self._store, clock=self._clock)
        operations = app.over(self._store)
        await operations.submit_batch(
            [
                Submission(type=type_, queue=queue, tags={"tenant": f"t{n}"})
                for n, queue in enumerate(QUEUES)
                for type_ in TYPES
            ]
        )
        self._clock.advance(timedelta(milliseconds=50))
        want = Claim(queues=QUEUES, limit=KINDS, worker="w0", token=self._randomness.token())
        running = await self._store.claim(want)
        self._clock.advance(timedelta(milliseconds=200))
        now = self._clock.now()
        after = [
            lifecycle.after_failure(job, failure(n), now=now)
            if n == 0
            else lifecycle.completed(job, b"1", now=now)
            for n, job in enumerate(running)
        ]
        changes = [Change(one, other) for one, other in zip(running, after, strict=True)]
        await self._store.swap(changes)
        await note_failures(self._store, after)

    async def leave_work(self, app: Holdfast) -> str:
        """Leave what an operator looks at; return a job of a workflow."""
        first, *_ = await app.chain(
            Submission(type="fetch", queue="q0"),
            [Submission(type="page", queue="q0") for _ in range(300)],
            Submission(type="merge", queue="q0"),
        )
        for queue in QUEUES:
            await app.submit_batch([{"type": "sync", "queue": queue} for _ in range(200)])
            await app.set_limit(f"queue:{queue}", concurrency=10, rate=100, per=60)
        for type_ in TYPES:
            await app.set_limit(f"task:{type_}", concurrency=20)
        want = Claim(queues=QUEUES, limit=50, worker="web-3", token=self._randomness.token())
        await self._store.claim(want)
        for n in range(10):
            await announce(self._store, worker(n, self._clock))
        for n in range(20):
            await app.schedules.create(f"s{n}", "sync", f"{n} * * * *", options={"queue": "q0"})
            await app.schedules.run(f"s{n}")
        for n in range(5):
            await app.bulk.start("retry", filter={"code": CODES[n]})
        return first.job_id


def failure(n: int) -> Failure:
    """Return one of the failures."""
    code = CODES[n % len(CODES)]
    message = f"user {n} is unknown to {code}"
    return Failure(
        category=FailureCategory.PERMANENT,
        code=code,
        message=message,
        stack_trace="Traceback (most recent call last):\n" * 20,
    )


def worker(n: int, clock: ManualClock) -> WorkerInfo:
    """Return a worker that is alive."""
    return WorkerInfo(
        id=f"web-{n}",
        host="host",
        pid=n,
        queues=QUEUES,
        types=TYPES,
        slots=20,
        running=0,
        started_at=clock.now(),
    )


async def templates(now: datetime) -> Sequence[JobExport]:
    """Return finished jobs of every kind, with their history: one in twenty failed."""
    clock = ManualClock(now)
    store = await MemoryStore(clock).start()
    operations = Holdfast(store=store, clock=clock).over(store)
    ids: list[str] = []
    for n in range(KINDS):
        submission = Submission(
            type=TYPES[n % len(TYPES)],
            queue=QUEUES[n % len(QUEUES)],
            payload={"to": "someone@example.com", "n": n},
            tags={"tenant": f"t{n}"},
        )
        ids.append((await operations.submit(submission)).job_id)
        (job,) = await store.claim(Claim(queues=QUEUES, limit=1, worker="w", token="t"))
        after = lifecycle.completed(job, b"1", now=clock.now())
        if n == 0:
            cause = failure(int(now.timestamp() // 3600))
            after = lifecycle.after_failure(job, cause, now=clock.now())
        await store.swap([Change(job, after)])
    found = [job for job in await store.get(ids) if job is not None]
    histories = await store.history(ids)
    return [JobExport(job, tuple(edges)) for job, edges in zip(found, histories, strict=True)]
