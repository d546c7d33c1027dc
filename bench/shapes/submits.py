"""Getting jobs in, one by one: single submits on SQLite, and jobs that spawn jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.effort import Effort
from bench.hand import Hand
from bench.shapes.measure import crew
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_least
from bench.sqlite import BYTES, PAYLOAD
from holdfast import Holdfast

TURN = 100


async def spawn(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare spawns of one attempt with submits of one client, both gathered."""
    count = effort.pick(2_000, 1_000, 50)
    shares = []
    for _ in range(effort.pick(3, 2, 1)):
        url = places.fresh(store)
        async with (
            Holdfast(url) as app,
            crew(places, app, url, "plain", processes=1, slots=1),
        ):
            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for n in range(count):
                    group.create_task(app.submit("idle", {"n": n}))
            submitted = time.perf_counter() - begun
            job = await app.submit("spawn", {"count": count})
            status = await app.wait(job.job_id, timeout=120)
            assert isinstance(status.output, float)
            shares.append((count / status.output, count / submitted))
    rates = [median(each) for each in zip(*shares, strict=True)]
    behind = f"{rates[0]:,.0f} and {rates[1]:,.0f} jobs/s"
    share = median(spawned / submitted for spawned, submitted in shares)
    return [at_least("rate / submit", share, 0.7, behind)]


async def single(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare single awaited submits with the same rows written by hand, at each durability."""
    found = []
    for durability in ("full", "process"):
        url = places.fresh(store)
        path = Path(url.removeprefix("sqlite:///"))
        hand = Hand(path.parent, f"hand-{durability}-{path.name}")
        hand.connection.execute(f"PRAGMA synchronous = {2 if durability == 'full' else 1}")
        query = "" if durability == "full" else "?durability=process"
        shares: dict[str, list[float]] = {"submit": [], "submit_sync": []}
        async with Holdfast(url + query) as app:
            app.task("bench.task")(_accept)
            for _ in range(effort.pick(9, 5, 1)):
                by_hand = _timed(lambda: [hand.submit([BYTES]) for _ in range(TURN)])  # noqa: B023
                begun = time.perf_counter()
                for _ in range(TURN):
                    await app.submit("bench.task", PAYLOAD)
                shares["submit"].append(by_hand / (time.perf_counter() - begun))
        with closing(Holdfast(url + query).sync) as blocking:
            for _ in range(effort.pick(9, 5, 1)):
                by_hand = _timed(lambda: [hand.submit([BYTES]) for _ in range(TURN)])  # noqa: B023
                ours = _timed(lambda: [blocking.submit("bench.task", PAYLOAD) for _ in range(TURN)])
                shares["submit_sync"].append(by_hand / ours)
        found += [
            at_least(f"{name} / by hand, {durability}", median(each), 0.6)
            for name, each in shares.items()
        ]
    return found


async def _accept(to: str, subject: str, template: str, n: int) -> None:
    """Never run."""


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
