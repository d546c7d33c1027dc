"""Every page of the dashboard over a million jobs, on three stores.

``python -m bench dashboard [--quick]``; the time from the request to the last byte of the page, in
the process that serves it, without a network. The jobs are submitted, claimed and settled through
the store, so that its counters and failure groups are those of a real system.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.shapes.places import STORES, opened
from holdfast import Holdfast, Submission
from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory
from holdfast.operations.failure_groups import note_failures
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Claim
from tests.dashboard.visitor import Guest, dashboard_site

if TYPE_CHECKING:
    from bench.effort import Effort
    from holdfast.model.job import Job

QUEUES = ("mail", "hooks", "media", "reports", "default")
TYPES = ("email.send", "webhook.deliver", "image.thumbnail", "report.page", "search.index")
LIMITS = {"sqlite": 150.0, "postgres": 150.0, "redis": 250.0}
"""Milliseconds: what the 95th percentile must stay below."""


async def main(effort: Effort, folder: str | None) -> None:
    """Fill each store and time its pages."""
    count = effort.pick(1_000_000, 100_000, 1_000)
    only = os.environ.get("BENCH_STORES", ",".join(STORES)).split(",")
    with tempfile.TemporaryDirectory(dir=folder) as made, opened(Path(made)) as places:
        for store in only:
            url = places.fresh(store)
            await _measure(store, url, count, effort.pick(40, 20, 2), places.settle)


async def _measure(store: str, url: str, count: int, times: int, settle: object) -> None:
    begun = time.perf_counter()
    async with Holdfast(url) as app:
        await fill(app, count)
    settle(url)  # type: ignore[operator]  # of the places
    print(f"{store}: {count:,} jobs in {time.perf_counter() - begun:.0f} s", flush=True)
    print(f"  {'page':44} {'p50 ms':>8} {'p95 ms':>8}   limit", flush=True)
    async with dashboard_site(Holdfast(url)) as site:
        for path in await pages(site.app):
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
                f"  {path[:44]:44} {statistics.median(took):8.1f} {worst:8.1f}   "
                f"< {LIMITS[store]:.0f}{mark}",
                flush=True,
            )


async def pages(app: Holdfast) -> list[str]:
    """Return the address of every page, with a job and a group that exist."""
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
        "/jobs?q=type:email.*+queue:mail",
        "/jobs?q=tag.tenant:t7",
        "/jobs?q=after:1h",
        f"/jobs/{failed}",
        f"/jobs/{done}",
        "/bulk?action=retry&q=state:failed",
        "/operations",
    ]


async def fill(app: Holdfast, count: int) -> None:
    """Submit, claim and settle jobs; one in a hundred fails, one in twenty waits."""
    store, randomness = app.store, Randomness(1)
    for first in range(0, count, 1000):
        batch = [_submission(number) for number in range(first, min(count, first + 1000))]
        await app.submit_batch(batch)
        claim = Claim(queues=QUEUES, limit=1000, worker="bench", token=randomness.token())
        jobs = await store.claim(claim)
        now = store.now()
        changes = [Change(job, _ended(job, now)) for job in jobs]
        await store.swap(changes)
        await note_failures(store, [change.after for change in changes])
        await store.promote(1000)  # as maintenance does all the time: stores add up counters
        if first % 10_000 == 0:
            await store.prune(app.retention, 100)
    for _ in range(20):
        await store.prune(app.retention, 100)


def _submission(number: int) -> Submission:
    kind = number % 5
    return Submission(
        type=TYPES[kind],
        queue=QUEUES[kind],
        payload={"n": number, "to": "someone@example.org"},
        tags={"tenant": f"t{number % 500}"},
        delay=86_400 if number % 20 == 7 else None,
        max_attempts=1,
    )


def _ended(job: Job, now: object) -> Job:
    digit = hash(job.id) % 100
    if digit:
        return lifecycle.completed(job, b'{"ok":true}', now=now)  # type: ignore[arg-type]
    failure = Failure(
        category=FailureCategory.PERMANENT,
        message=f"mailbox {hash(job.id) % 1000} is full",
        code=f"CODE_{hash(job.id) // 100 % 8}",
        stack_trace="Traceback (most recent call last):\n" * 20,
    )
    return lifecycle.after_failure(job, failure, now=now)  # type: ignore[arg-type]
