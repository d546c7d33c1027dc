"""Jobs under limits: what a limit costs those it does not apply to, and those it does."""

from __future__ import annotations

import asyncio
import time

from bench.effort import Effort
from bench.shapes.measure import count_of, crew, drain, fill, in_turns, middle, numbered, until
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_least, at_most
from holdfast import Holdfast, State

NAP = 0.05


async def unused(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare an app that declares a limited task, which nobody submits, with one without."""
    jobs = numbered("nap", effort.pick(4_000, 2_000, 100))
    processes = effort.pick(8, 8, 2)
    without, beside = map(
        middle,
        await in_turns(
            effort.pick(3, 2, 1),
            lambda: drain(places, store, "plain", jobs, processes=processes, slots=4),
            lambda: drain(places, store, "unused", jobs, processes=processes, slots=4),
        ),
    )
    behind = f"{without.rate:,.0f} and {beside.rate:,.0f} jobs/s"
    costs = f"{without.cost:,.0f} and {beside.cost:,.0f} us per job"
    return [
        at_least("rate / without it", beside.rate / without.rate, 0.9, behind),
        at_most("processor time / without it", beside.cost / without.cost, 1.3, costs),
    ]


async def waiting(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Measure the idle cost of jobs behind a limit, and the rate that a limit of one reaches."""
    url = places.fresh(store)
    seconds = effort.pick(10.0, 5.0, 0.5)
    found = []
    async with Holdfast(url) as app:
        blocker = await app.submit("single", {"seconds": 60.0}, priority="CRITICAL")
        await fill(app, _naps(effort.pick(50_000, 20_000, 200)))
        places.settle(url)
        async with crew(places, app, url, "single", processes=1, slots=20) as members:
            await until(lambda: _is_running(app))
            await asyncio.sleep(effort.pick(3.0, 3.0, 0.2))
            before = sum(members.spent())
            await asyncio.sleep(seconds)
            share = (sum(members.spent()) - before) / seconds
            found.append(at_most("idle, % of a core", share * 100, 3.0))
            await app.cancel(blocker.job_id, force=True)
            found.append(await _one_at_a_time(app, seconds, workers=1))
        async with crew(places, app, url, "single", processes=4, slots=20):
            found.append(await _one_at_a_time(app, seconds, workers=4))
    return found


async def in_front(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Measure how long jobs wait behind others that may not run."""
    many, some = effort.pick((20_000, 3_000), (20_000, 3_000), (200, 100))
    found = []
    for what, variant, type_, count, key in (
        ("of a limited task", "single", "single", many, None),
        ("of a limited key", "keys", "keyed", some, "one"),
        ("of an unknown type", "plain", "unknown", many, None),
    ):
        url = places.fresh(store)
        payload = {"seconds": 30.0}
        blocked: dict[str, object] = {"type": type_, "payload": payload}
        if key is not None:
            blocked["limit_key"] = key
        async with Holdfast(url) as app:
            await fill(app, [blocked] * count)
            places.settle(url)
            async with crew(places, app, url, variant, processes=1, slots=20):
                await asyncio.sleep(effort.pick(2.0, 2.0, 0.2))
                begun = time.perf_counter()
                await fill(app, _others(key))
                await until(lambda: _completed(app, 100), within=60.0)  # awaited here
                waited = time.perf_counter() - begun
        found.append(at_most(f"s behind {count:,} {what}", waited, 1.0))
    return found


async def binding(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare jobs of two keys, five of each at once, with plain jobs."""
    count = effort.pick(2_000, 1_000, 50)
    keyed: list[dict[str, object]] = [
        {"type": "keyed", "payload": {"seconds": 0.0}, "limit_key": str(n % 2)}
        for n in range(count)
    ]
    plain, bound = map(
        middle,
        await in_turns(
            effort.pick(3, 2, 1),
            lambda: drain(places, store, "plain", numbered("noop", count), slots=10),
            lambda: drain(places, store, "keys", keyed, slots=10),
        ),
    )
    costs = f"{plain} and {bound}"
    return [at_most("processor time / plain", bound.cost / plain.cost, 3.0, costs)]


def _naps(count: int) -> list[dict[str, object]]:
    return [{"type": "single", "payload": {"seconds": NAP}}] * count


def _others(key: str | None) -> list[dict[str, object]]:
    if key is None:
        return numbered("noop", 100)
    return [
        {"type": "keyed", "payload": {"seconds": 0.0}, "limit_key": f"k{n}"} for n in range(100)
    ]


async def _is_running(app: Holdfast) -> bool:
    return await count_of(app, State.RUNNING) > 0


async def _completed(app: Holdfast, count: int) -> bool:
    return await count_of(app, State.COMPLETED) >= count


async def _one_at_a_time(app: Holdfast, seconds: float, *, workers: int) -> Figure:
    await asyncio.sleep(min(1.0, seconds))
    before, begun = await count_of(app, State.COMPLETED), time.perf_counter()
    await asyncio.sleep(seconds)
    done = await count_of(app, State.COMPLETED) - before
    rate = done / (time.perf_counter() - begun)
    what = f"of the allowed rate, {workers} worker{'s' * (workers > 1)}"
    return at_least(what, rate * NAP, 0.9, f"{rate:.1f} jobs/s")
