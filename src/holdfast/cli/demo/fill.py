"""Makes the week of a company in virtual time: real submissions, claims and outcomes, no sleep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from holdfast.app import Holdfast
from holdfast.cli.demo.company import (
    LOG_LINES,
    QUEUES,
    REGIONS,
    TASKS,
    TENANTS,
    TRACE,
    WORKERS,
    CompanyTask,
    Mishap,
)
from holdfast.maintenance.summariser import EVERY, Summariser
from holdfast.model import lifecycle
from holdfast.model.job import Failure, Job, LogLine, State
from holdfast.model.submission import Submission
from holdfast.operations.dependents import release_dependents
from holdfast.operations.failure_groups import note_failures
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Claim, Fence, JobNote, Search, Store

WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)
LAST_HOURS = timedelta(hours=3)
COARSE, FINE = timedelta(minutes=10), timedelta(minutes=1)
PAGE = 500
MOST_AT_ONCE = 30
"""Jobs that the workers of the live company run."""
CATCHING_UP = 3.0
"""How many times faster than jobs come the live company starts those that wait."""
LIVELIEST, QUIETEST = 4.0, 0.1
"""Jobs that come in a second of the live company: at most, and at least."""

Report = Callable[[int], None]


class Week:
    """Fills an app's store with the jobs of a week that ends now.

    The app must read its time from ``clock``, and so must its store.
    """

    def __init__(self, app: Holdfast, clock: ManualClock, *, jobs: int, seed: int = 7) -> None:
        self._app = app
        self._clock = clock
        self._jobs = jobs
        self._chance = Randomness(seed)
        self._works = {work.type: work for work in TASKS}
        self._owed = self._startable = 0.0
        self.made = 0

    async def fill(self, end: datetime, report: Report = lambda _: None) -> None:
        """Live through the week; ``report`` is called with the number of jobs now and then."""
        instants = [(at, length * _rush(end - at)) for at, length in _instants(end)]
        total = sum(_busy(at) * length for at, length in instants)
        owed, summariser = 0.0, Summariser(self._app.store)
        for at, length in instants:
            self._clock.set(at)
            owed += self._jobs * _busy(at) * length / total
            batch, owed = int(owed), owed - int(owed)
            for start in range(0, batch, PAGE):
                await self._submit(min(PAGE, batch - start), at)
            await self._work(at, end)
            while await summariser.once() < EVERY:
                pass  # some of the time before the first job is left
            report(self.made)
        self._clock.set(end)

    async def rate(self) -> float:
        """Return how many jobs came in a second of the last hour."""
        hour = await self._app.series(time_range=HOUR)
        came = sum(hour.total.submitted) / HOUR.total_seconds()
        return min(LIVELIEST, max(QUIETEST, came))

    async def second(self, now: datetime, rate: float, workers: Sequence[str] = WORKERS) -> None:
        """Live through one second of real time: some jobs come, and those that ran long enough end.

        The clock is that of the machine then, not the one that the week moved. Only these workers
        claim.
        """
        store = self._app.store
        self._owed += rate * 2 * self._chance.fraction()
        coming, self._owed = int(self._owed), self._owed % 1
        if coming:
            await self._app.submit_batch([self._submission() for _ in range(coming)])
        await store.promote(PAGE)
        running = await store.find(Search(states=(State.RUNNING,), limit=200))
        ripe = [job for job in running.jobs if self._is_ripe(job, now)]
        if ripe:
            await self._write(
                store, [job for job in await store.get([j.id for j in ripe]) if job], now
            )
        self._startable += max(rate * CATCHING_UP, 4 * QUIETEST)
        starts, self._startable = int(self._startable), self._startable % 1
        room = MOST_AT_ONCE - len(running.jobs) + len(ripe)
        for _ in range(min(starts, room) if workers else 0):
            worker, token = self._any(workers), self._chance.token()
            first = int(self._chance.fraction() * len(QUEUES))
            queues = (*QUEUES[first:], *QUEUES[:first])  # the first one that has a job gives it
            claim = Claim(queues=queues, limit=1, worker=worker, token=token)
            await self._log(store, await store.claim(claim))
        await release_dependents(store)

    def _is_ripe(self, job: Job, now: datetime) -> bool:
        typical = self._works[job.type].typical if job.type in self._works else 1.0
        return job.started_at is not None and (now - job.started_at).total_seconds() > typical * 3

    async def _submit(self, count: int, at: datetime) -> None:
        jobs = [self._submission() for _ in range(count)]
        if jobs:
            await self._app.submit_batch(jobs)
            self.made += len(jobs)
        if at.hour % 6 == 2 and at.minute == 0:
            pages = [self.of("report.page") for _ in range(40)]
            await self._app.chain(self.of("search.index"), pages, self.of("email.send"))
            self.made += 42

    def _submission(self) -> Submission:
        return self.of(self._pick([(work.type, work.weight) for work in TASKS]))

    def of(self, type_: str) -> Submission:
        """Return a new job of the company, of a type."""
        work, tenant = self._works[type_], self._any(TENANTS)
        number = int(self._chance.fraction() * 90_000) + 10_000
        return Submission(
            type=type_,
            queue=work.queue,
            priority=work.priority,
            payload={
                "order": number,
                "customer": {"tenant": tenant, "email": f"buyer{number}@example.org"},
                "amount": f"{number / 100:.2f}",
                "api_token": "tok_example",
            },
            tags={"tenant": tenant, "region": self._any(REGIONS)},
            correlation_id=f"order-{number}",
            max_attempts=3,
        )

    async def _work(self, at: datetime, end: datetime) -> None:
        """Let the workers run what is ready, each job for its typical time."""
        store = self._app.store
        for step in range(4):
            self._clock.set(at + timedelta(seconds=0.4 + step * 9 + self._chance.fraction()))
            await store.promote(PAGE)
            claimed = await self._claimed(store)
            if not claimed:
                break
            await self._settle(store, claimed, end)
            await release_dependents(store)

    async def _claimed(self, store: Store) -> list[Job]:
        found: list[Job] = []
        for worker in WORKERS:
            token = self._chance.token()
            claim = Claim(queues=QUEUES, limit=200, worker=worker, token=token)
            found += await store.claim(claim)
        return found

    async def _settle(self, store: Store, jobs: Sequence[Job], end: datetime) -> None:
        """Settle jobs in the order in which they finish."""
        began = self._clock.now()
        await self._log(store, jobs)
        slow: list[tuple[float, Job]] = []
        for job in jobs:
            spread = math.exp((self._chance.fraction() + self._chance.fraction() - 1) * 1.6)
            slow.append((self._works[job.type].typical * spread, job))
        slow.sort(key=lambda pair: pair[0])
        for at in range(0, len(slow), max(1, len(slow) // 4)):
            group = slow[at : at + max(1, len(slow) // 4)]
            self._clock.set(began + timedelta(seconds=group[-1][0]))
            await self._write(store, [job for _, job in group], end)

    async def _write(self, store: Store, jobs: Sequence[Job], end: datetime) -> None:
        now = store.now()
        changes = [Change(job, self._outcome(job, now, end)) for job in jobs]
        await store.swap(changes)
        await note_failures(store, [change.after for change in changes])

    def _outcome(self, job: Job, now: datetime, end: datetime) -> Job:
        work = self._works[job.type]
        for mishap in work.mishaps:
            recent = mishap.lately is None or end - now <= mishap.lately
            if recent and self._chance.fraction() < mishap.share * (1 + 2 * (job.attempt > 1)):
                failure = self._failure(work, mishap)
                return lifecycle.after_failure(job, failure, now=now, jitter=0.1)
        number = int(self._chance.fraction() * 10**18)
        return lifecycle.completed(job, b'{"receipt": %d, "ok": true}' % number, now=now)

    def _failure(self, work: CompanyTask, mishap: Mishap) -> Failure:
        number, who = int(self._chance.fraction() * 9) + 1, self._any(TENANTS)
        message = mishap.message.format(n=number, who=who)
        module = work.type.partition(".")[0]
        trace = TRACE.format(
            module=module,
            line=40 + len(work.type),
            function=work.type.replace(".", "_"),
            call=work.call,
            argument=module,
            error=mishap.error,
            message=message,
        )
        return Failure(
            category=mishap.category,
            message=message,
            code=mishap.code,
            stack_trace=trace,
            context={"tenant": who, "release": "2026.11.3"},
            host=f"host-{number}.shop.example",
        )

    async def _log(self, store: Store, jobs: Sequence[Job]) -> None:
        """Some jobs write a few log lines."""
        notes: list[JobNote] = []
        for job in jobs:
            if self._chance.fraction() < 0.08 and job.lease is not None:
                for level, text in LOG_LINES:
                    message = text.format(n=len(notes) % 7 + 2, who=self._any(TENANTS))
                    line = LogLine(store.now(), level, message, job.attempt)
                    notes.append(JobNote(fence=Fence(job.id, job.lease.token), log=line))
        if notes:
            await store.note(notes)

    def _any(self, choices: Sequence[str]) -> str:
        return choices[int(self._chance.fraction() * len(choices))]

    def _pick(self, weighted: Sequence[tuple[str, float]]) -> str:
        at = self._chance.fraction() * sum(weight for _, weight in weighted)
        for name, weight in weighted:
            at -= weight
            if at <= 0:
                return name
        return weighted[-1][0]


def _instants(end: datetime) -> list[tuple[datetime, float]]:
    """Return the moments at which something happens, and the minutes that each stands for."""
    found, at = [], end - WEEK
    while at < end - FINE:
        step = FINE if end - at <= LAST_HOURS else COARSE
        found.append((at, step / FINE))
        at += step
    return found


def _rush(before: timedelta) -> float:
    """Return how much busier the last two hours are: a sale began."""
    return 6.0 if before <= timedelta(hours=2) else 1.0


def _busy(at: datetime) -> float:
    """Return how busy the company is: most at noon, least at night and at the weekend."""
    hour = at.hour + at.minute / 60
    daily = 0.35 + 0.65 * max(0.0, math.sin((hour - 6) / 24 * 2 * math.pi) + 0.2)
    return daily * (0.45 if at.weekday() >= 5 else 1.0)
