"""Each read of the operator API, beside what it may take: 50 ms, on Valkey 100 ms."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bench.effort import Effort
from bench.operator.place import Filled, Wish, filled_stores
from bench.operator.week import CODES
from holdfast.model.policy import HOUR

ALLOWED = {"sqlite": 50.0, "postgres": 50.0, "redis": 100.0}
"""Milliseconds."""
Read = Callable[[], Awaitable[object]]


async def main(
    *, effort: Effort, folder: str | None, store: str = "", keep: str | None = None, seconds: float
) -> None:
    """Fill each store and print what each read takes."""
    wish = Wish(effort, folder, keep, seconds)
    async for name, week in filled_stores(store, wish):
        await measure(name, week, jobs=wish.size[0], times=effort.pick(15, 5, 1))


async def measure(name: str, week: Filled, *, jobs: int, times: int) -> None:
    """Print the table of one store."""
    print(f"\n{name}: {jobs:,} finished jobs")
    print(f"{'read':40} {'median ms':>10} {'own CPU ms':>10}  of {ALLOWED[name]:.0f} ms")
    for title, read in reads(week).items():
        took = [await timed(read) for _ in range(times + 1)][1:]
        middle, cpu = (statistics.median(each) for each in zip(*took, strict=True))
        mark = "" if middle <= ALLOWED[name] else "  TOO SLOW"
        print(f"{title:40} {middle:10.1f} {cpu:10.1f}{mark}", flush=True)


async def timed(read: Read) -> tuple[float, float]:
    """Return how many milliseconds a read takes, and how many of this process's processor."""
    before, cpu = time.perf_counter(), time.process_time()
    await read()
    return (time.perf_counter() - before) * 1000, (time.process_time() - cpu) * 1000


def reads(week: Filled) -> dict[str, Read]:
    """Return every read by its title."""
    app = week.app
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
        "graph of 302 jobs": lambda: app.graph(week.workflow),
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
        "search, beginning of an id": lambda: app.search(id_prefix=week.job_id[:8], limit=50),
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
