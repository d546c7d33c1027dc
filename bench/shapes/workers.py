"""Many small workers, the default slots, failing jobs, large payloads, start and schedules."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from bench.effort import Effort
from bench.pg.drain import end
from bench.shapes.measure import Run, crew, drain, in_turns, measured, middle, numbered, until
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_least, at_most
from bench.shapes.site import NAP
from holdfast import Holdfast


async def small(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Measure many processes with few slots: throughput, cost per job, connections."""
    processes, slots = effort.pick(16, 16, 2), 4
    ideal = processes * slots / NAP
    full = await drain(
        places,
        store,
        "plain",
        numbered("nap", effort.pick(20_000, 10_000, 100)),
        processes=processes,
        slots=slots,
    )
    one, many = map(
        middle,
        await in_turns(
            effort.pick(3, 2, 1),
            lambda: _trickle(places, store, effort, processes=1, slots=64),
            lambda: _trickle(places, store, effort, processes=processes, slots=slots),
        ),
    )
    costs = f"{one.cost:,.0f} and {many.cost:,.0f} us per job"
    found = [
        at_least("of the ideal rate", full.rate / ideal, 0.6, f"{full.rate:,.0f} jobs/s"),
        at_most("cost of a job / with one worker", many.cost / one.cost, 1.5, costs),
    ]
    if store == "postgres":
        found.append(await _connections(places, processes, effort))
    return found


async def _trickle(
    places: Places, store: str, effort: Effort, *, processes: int, slots: int
) -> Run:
    """Submit a hundred jobs a second to idle workers; the cost of idling is not counted."""
    count = effort.pick(1_000, 500, 20)
    url = places.fresh(store)
    async with (
        Holdfast(url) as app,
        crew(places, app, url, "plain", processes=processes, slots=slots) as members,
    ):
        await asyncio.sleep(effort.pick(2.0, 2.0, 0.1))
        before, begun = members.spent(), time.perf_counter()
        await asyncio.sleep(effort.pick(5.0, 3.0, 0.2))
        spent = time.perf_counter() - begun
        idle = [(b - a) / spent for a, b in zip(before, members.spent(), strict=True)]

        async def submit() -> None:
            for n in range(count):
                due = asyncio.create_task(asyncio.sleep(0.01))
                await app.submit("noop", {"n": n})
                await due

        run = await measured(app, members, count, submit)
    worker, server = (each / run.rate * 1e6 for each in idle)
    return Run(run.rate, max(1.0, run.worker - worker), max(1.0, run.server - server))


async def _connections(places: Places, processes: int, effort: Effort) -> Figure:
    url = places.fresh("postgres")
    async with Holdfast(url) as app:
        alone = places.connections(url)
        async with crew(places, app, url, "plain", processes=processes, slots=4):
            # What the start needed is closed again after a while.
            await asyncio.sleep(effort.pick(15.0, 15.0, 0.5))
            held = (places.connections(url) - alone) / processes
    return at_most("connections of an idle process", held, 3.0)


async def slots(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare a worker with its default slots with one of 500."""
    jobs = numbered("noop", effort.pick(10_000, 4_000, 100))
    tuned, default = map(
        middle,
        await in_turns(
            effort.pick(3, 2, 1),
            lambda: drain(places, store, "plain", jobs, slots=500),
            lambda: drain(places, store, "plain", jobs, slots=0),
        ),
    )
    costs = f"{tuned} and {default}"
    return [at_most("processor time / 500 slots", default.cost / tuned.cost, 1.3, costs)]


async def failing(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare jobs that fail at their only attempt with jobs that succeed."""
    count = effort.pick(5_000, 2_000, 50)
    once = [{**job, "max_attempts": 1} for job in numbered("fail", count)]
    good, bad = map(
        middle,
        await in_turns(
            effort.pick(3, 2, 1),
            lambda: drain(places, store, "plain", numbered("noop", count)),
            lambda: drain(places, store, "plain", once),
        ),
    )
    costs = f"{good.cost:,.0f} and {bad.cost:,.0f} us per job"
    return [at_most("processor time / a success", bad.cost / good.cost, 2.5, costs)]


async def start(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Measure from the start of a worker process to the first line of a handler."""
    bound = {"sqlite": 0.5}.get(store, 1.0)
    took = []
    for _ in range(effort.pick(5, 3, 1)):
        url = places.fresh(store)
        async with Holdfast(url) as app:
            job = await app.submit("when")
            begun = time.time_ns()
            worker = subprocess.Popen(  # noqa: ASYNC220  # starting it is what is measured
                [sys.executable, "-m", "bench.shapes.site", "plain", "0"],
                env={**os.environ, "HOLDFAST_URL": url},
            )
            try:
                status = await app.wait(job.job_id, timeout=30)
            finally:
                end(worker)
            assert isinstance(status.output, int)
            took.append((status.output - begun) / 1e9)
    return [at_most("s to the first handler", sorted(took)[len(took) // 2], bound)]


async def cron(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Measure a hundred schedules that are due every second."""
    seconds = effort.pick(10.0, 5.0, 1.0)
    url = places.fresh(store)
    async with (
        Holdfast(url) as app,
        crew(places, app, url, "ticking", processes=1, slots=100) as members,
    ):
        await until(lambda: _has_ended(app, 100))
        before, first, begun = members.spent(), await _ended(app), time.perf_counter()
        await asyncio.sleep(seconds)
        count = await _ended(app) - first
        spent = sum(members.spent()) - sum(before)
        rate = count / (time.perf_counter() - begun)
    return [
        at_least("of 100 ticks a second", rate / 100, 0.95, f"{rate:.0f} jobs/s"),
        at_most("ms of processor time per job", spent / max(1, count) * 1e3, 1.0),
    ]


async def _ended(app: Holdfast) -> int:
    return sum(sum(each.counts.values()) for each in await app.queues())


async def _has_ended(app: Holdfast, count: int) -> bool:
    return await _ended(app) >= count
