"""What an operator runs: ``holdfast copy`` and ``holdfast verify``."""

from __future__ import annotations

import time

from bench.effort import Effort
from bench.shapes.measure import crew, fill, numbered, until
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_least
from holdfast import Holdfast, State
from holdfast.copying import Copier
from holdfast.store import open_store
from holdfast.verify import verify


async def copy_and_verify(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Copy completed jobs to another store of the kind, and verify them."""
    count = effort.pick(20_000, 5_000, 100)
    url = places.fresh(store)
    async with Holdfast(url) as app:
        await fill(app, numbered("noop", count))
        async with crew(places, app, url, "plain", processes=1, slots=500):
            await until(lambda: _all_completed(app, count))
    source, target = open_store(url), open_store(places.fresh(store))
    await source.start()
    await target.start()
    try:
        begun = time.perf_counter()
        report = await verify(source)
        verified = count / (time.perf_counter() - begun)
        assert report.sound
        begun = time.perf_counter()
        copied = await Copier(source, target).run()
        assert copied.ok
        rate = count / (time.perf_counter() - begun)
    finally:
        await target.close()
        await source.close()
    return [at_least("jobs/s copied", rate, 10_000), at_least("jobs/s verified", verified, 30_000)]


async def _all_completed(app: Holdfast, count: int) -> bool:
    return sum(q.counts.get(State.COMPLETED, 0) for q in await app.queues()) >= count
