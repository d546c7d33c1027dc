"""Every page of the dashboard over a million jobs, on three stores.

``python -m bench dashboard [--store STORE] [--keep FOLDER]``: the time from the request to the last
byte of the page, in the process that serves it, without a network. The jobs are those of
``python -m bench operator``, and a kept folder serves both.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from bench.operator.place import Filled, Wish, filled_stores
from tests.dashboard.visitor import Guest, dashboard_site

if TYPE_CHECKING:
    from bench.effort import Effort

LIMITS = {"sqlite": 150.0, "postgres": 150.0, "redis": 250.0}
"""Milliseconds: what the 95th percentile must stay below."""


async def main(
    *, effort: Effort, folder: str | None, store: str = "", keep: str | None = None, seconds: float
) -> None:
    """Fill each store and time its pages."""
    wish = Wish(effort, folder, keep, seconds)
    async for name, week in filled_stores(store, wish):
        await _measure(name, week, wish.size[0], effort.pick(40, 20, 2))


async def _measure(store: str, week: Filled, count: int, times: int) -> None:
    print(f"\n{store}: {count:,} finished jobs")
    print(f"{'page':44} {'p50 ms':>8} {'p95 ms':>8}   limit", flush=True)
    async with dashboard_site(week.app) as site:
        for path in await pages(week):
            guest, took = Guest(site), []
            for _ in range(times + 1):
                started = time.perf_counter()
                reply = await guest.get(path)
                took.append((time.perf_counter() - started) * 1000)
                assert reply.status == 200, (path, reply.status, reply.body[-300:])
            del took[0]  # templates are compiled, connections opened
            worst = sorted(took)[max(0, round(len(took) * 0.95) - 1)]
            mark = "" if worst < LIMITS[store] else "  TOO SLOW"
            print(
                f"{path[:44]:44} {statistics.median(took):8.1f} {worst:8.1f}   "
                f"< {LIMITS[store]:.0f}{mark}",
                flush=True,
            )


async def pages(week: Filled) -> list[str]:
    """Return the address of every page, with a job and a group that exist."""
    app = week.app
    groups = (await app.failure_groups(time_range=86_400)).groups
    failed = (await app.search(states=["FAILED"], limit=1)).jobs[0].job_id
    done = (await app.search(states=["COMPLETED"], limit=1)).jobs[0].job_id
    return [
        "/overview",
        "/failures",
        "/failures?window=7d",
        f"/failures/{groups[0].group}?window=24h",
        "/jobs",
        "/jobs?q=state:failed",
        "/jobs?q=type:email.*+queue:q1",
        "/jobs?q=tag.tenant:t7",
        "/jobs?q=after:1h",
        "/jobs?q=code:CODE_3",
        f"/jobs/{failed}",
        f"/jobs/{done}",
        f"/jobs/{week.workflow}/workflow",
        "/bulk?action=retry&q=state:failed",
        "/bulk?action=delete&q=type:sync",
        "/operations",
        "/queues",
        "/queues/q1",
        "/workers",
        "/schedules",
        "/limits",
        "/doctor",
    ]
