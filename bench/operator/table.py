"""Each read of the operator API, beside what it may take: 50 ms, on Valkey 100 ms."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from bench.effort import Effort
from bench.operator.week import CODES, Week
from holdfast import Holdfast
from holdfast.model.policy import HOUR
from holdfast.runtime.clock import ManualClock
from holdfast.store import open_store
from tests import servers

ALLOWED = {"sqlite": 50.0, "postgres": 50.0, "redis": 100.0}
"""Milliseconds."""
Read = Callable[[], Awaitable[object]]


async def main(*, effort: Effort, folder: str | None, store: str = "") -> None:
    """Fill each store and print what each read takes."""
    jobs, hours, times = effort.pick((1_000_000, 168, 15), (50_000, 168, 5), (200, 4, 1))
    for name in [store] if store else list(ALLOWED):
        with place(name, folder) as url:
            await measure(name, url, jobs=jobs, hours=hours, times=times)


@contextmanager
def place(name: str, folder: str | None) -> Iterator[str]:
    """Return the URL of an empty store."""
    with tempfile.TemporaryDirectory(dir=folder) as here:
        if name == "sqlite":
            yield f"sqlite:///{here}/jobs.db"
        elif name == "postgres":
            with servers.running_postgres() as server:
                yield f"{server.dsn}?schema=operator"
        else:
            with servers.Valkey() as valkey:
                yield valkey.url


async def measure(name: str, url: str, *, jobs: int, hours: int, times: int) -> None:
    """Print the table of one store."""
    clock = ManualClock()
    async with Holdfast(store=open_store(url, clock=clock), clock=clock) as app:
        week = Week(app.store, clock)
        started = time.perf_counter()
        await week.fill(jobs, hours=hours)
        workflow = await week.leave_work(app)
        await app.store.promote(1000)
        print(f"\n{name}: {jobs:,} finished jobs, filled in {time.perf_counter() - started:.0f} s")
        print(f"{'read':40} {'median ms':>10} {'own CPU ms':>10}  of {ALLOWED[name]:.0f} ms")
        for title, read in reads(app, week, workflow).items():
            took = [await timed(read) for _ in range(times + 1)][1:]
            middle, cpu = (statistics.median(each) for each in zip(*took, strict=True))
            mark = "" if middle <= ALLOWED[name] else "  TOO SLOW"
            print(f"{title:40} {middle:10.1f} {cpu:10.1f}{mark}", flush=True)


async def timed(read: Read) -> tuple[float, float]:
    """Return how many milliseconds a read takes, and how many of this process's processor."""
    before, cpu = time.perf_counter(), time.process_time()
    await read()
    return (time.perf_counter() - before) * 1000, (time.process_time() - cpu) * 1000


def reads(app: Holdfast, week: Week, workflow: str) -> dict[str, Read]:
    """Return every read by its title."""
    now = app.store.now()
    day = timedelta(days=1)
    return {
        "queues": app.queues,
        "stats": app.stats,
        "scale": lambda: app.scale("q0"),
        "limits": app.limit_states,
        "schedules": app.schedules.list,
        "workers": app.workers,
        "failure groups, hour": app.failure_groups,
        "failure groups, week": lambda: app.failure_groups(time_range=7 * day),
        "series, hour by queue": lambda: app.series(breakdown_by=["QUEUE"]),
        "series, day by queue and type": lambda: app.series(
            time_range=day, breakdown_by=["QUEUE", "TYPE"]
        ),
        "series, week by queue and type": lambda: app.series(
            time_range=7 * day, breakdown_by=["QUEUE", "TYPE"]
        ),
        "graph of 302 jobs": lambda: app.graph(workflow),
        "search, newest": lambda: app.search(limit=50),
        "search, state": lambda: app.search(states=["FAILED"], limit=50),
        "search, type pattern": lambda: app.search(types=["email.*"], limit=50),
        "search, queue and state": lambda: app.search(
            queues=["q1"], states=["COMPLETED"], limit=50
        ),
        "search, tag": lambda: app.search(tags={"tenant": "t3"}, limit=50),
        "search, code": lambda: app.search(code=CODES[3], limit=50),
        "search, code that nothing has": lambda: app.search(code="NONE", limit=50),
        "search, worker": lambda: app.search(worker="web-*", limit=50),
        "search, beginning of an id": lambda: app.search(id_prefix=week.job_ids[0][:8], limit=50),
        "search, id that nothing has": lambda: app.search(id_prefix="zzzz", limit=50),
        "search, created in an hour": lambda: app.search(
            created_after=now - 3 * day, created_before=now - 3 * day + HOUR, limit=50
        ),
        "search, priority": lambda: app.search(priorities=["HIGH"], limit=50),
        "counts, all": app.count,
        "counts, type pattern": lambda: app.count(types=["email.*"]),
        "counts, tag": lambda: app.count(tags={"tenant": "t3"}),
        "counts, created in a day": lambda: app.count(created_after=now - day),
        "counts, code": lambda: app.count(code=CODES[3]),
        "operations": app.bulk.list,
        "preview, retry all failed": lambda: app.bulk.preview("retry", filter={}),
        "preview, retry a code": lambda: app.bulk.preview("retry", filter={"code": CODES[3]}),
        "preview, delete a type": lambda: app.bulk.preview("delete", filter={"types": ["sync"]}),
    }
