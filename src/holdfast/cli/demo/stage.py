"""The company at work now: what it decided, what waits and runs, and workers that go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.cli.demo.company import QUEUES, SCHEDULES, TASKS, WORKERS
from holdfast.cli.demo.fill import Week
from holdfast.model.job import Progress
from holdfast.model.workers import RunningJob, WorkerInfo
from holdfast.operations.draining import is_drained
from holdfast.operations.schedules import TAG
from holdfast.operations.workers import announce
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.version import __version__
from holdfast.store import Claim, Fence, JobNote

SLOTS = 8
BEAT = 1.0


async def set_the_scene(app: Holdfast, week: Week) -> None:
    """Decide what operators decide, and leave jobs waiting, delayed, held and running."""
    now = app.store.now()
    await app.set_limit("queue:payments", concurrency=8)
    await app.set_limit("task:webhook.deliver", rate=600, per=timedelta(minutes=1))
    for name, type_, expression, zone, queue in SCHEDULES:
        await app.schedules.create(name, type_, expression, tz=zone, options={"queue": queue})
        await _run_before(app, name, type_)
    await app.schedules.pause("monthly-invoices")
    await app.pause(
        "reports",
        reason="the warehouse is being migrated",
        until=now + timedelta(hours=2),
        by="ada",
    )
    for type_, count in (("report.page", 26), ("image.thumbnail", 140), ("email.send", 18)):
        await app.submit_batch([week.of(type_) for _ in range(count)])
    later = [replace(week.of("email.send"), delay=600 + at * 97) for at in range(30)]
    held = [replace(week.of("payment.capture"), hold=True) for _ in range(2)]
    await app.submit_batch([*later, *held])
    await app.chain(
        week.of("search.index"),
        [week.of("image.thumbnail") for _ in range(25)],
        [week.of("invoice.render"), week.of("search.index")],
        week.of("email.send"),
    )
    await _run_some(app)


async def _run_before(app: Holdfast, schedule: str, type_: str) -> None:
    """Let some jobs of a type be the last runs of a schedule."""
    for job in (await app.search(types=[type_], order="CREATED_DESC", limit=80)).jobs[::8]:
        await app.update(job.job_id, tags={**job.tags, TAG: schedule})


async def _run_some(app: Holdfast) -> None:
    """Leave some jobs running, with progress."""
    store, randomness = app.store, Randomness(3)
    for place, worker in enumerate(WORKERS):
        claim = Claim(queues=QUEUES, limit=3, worker=worker, token=randomness.token())
        for job in await store.claim(claim):
            assert job.lease is not None
            percent = (place * 31 + job.priority * 17) % 90 + 5
            text = f"{percent * 4} of 400 rows"
            progress = Progress(percent, text, store.now(), job.attempt)
            await store.note([JobNote(fence=Fence(job.id, job.lease.token), progress=progress)])


class LiveCompany:
    """The company, at work in real time beside a service."""

    def __init__(self, app: Holdfast, week: Week) -> None:
        self._app = app
        self._week = week
        self._started = app.store.now()

    async def announce(self) -> tuple[str, ...]:
        """Announce the workers, each with the jobs that it runs; return those not drained."""
        store = self._app.store
        drained = {name for name in WORKERS if await is_drained(store, name)}
        running = await self._app.search(states=["RUNNING"], limit=200)
        for place, name in enumerate(WORKERS):
            own = [job for job in running.jobs if job.worker_id == name]
            jobs = [
                RunningJob(job_id=j.job_id, type=j.type, queue=j.queue, since=j.started_at)
                for j in own
            ]
            info = WorkerInfo(
                id=name,
                host=f"{name}.shop.example",
                pid=4000 + place * 7,
                queues=QUEUES,
                types=tuple(work.type for work in TASKS),
                slots=SLOTS,
                running=len(own),
                started_at=self._started - timedelta(hours=3 + place * 9),
                version=__version__,
                app_version="2026.11.3",
                memory=(96 + place * 23) * 1024 * 1024,
                running_jobs=tuple(jobs),
                announced_at=store.now(),
                draining=name in drained,
            )
            await announce(store, info)
        return tuple(name for name in WORKERS if name not in drained)

    async def run(self) -> None:
        """Work until cancelled: submit, run and fail like the week before."""
        rate = await self._week.rate()
        while True:
            working = await self.announce()
            await self._week.second(self._app.store.now(), rate, working)
            await asyncio.sleep(BEAT)
