"""One job per tick, seen from outside: leaders race, and others edit the schedule meanwhile."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.maintenance.cron import CronService
from holdfast.model.times import parse_timestamp
from holdfast.store import Search

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast import Holdfast
    from holdfast.runtime.clock import ManualClock

pytestmark = pytest.mark.req("O-2")

HALF = timedelta(seconds=0.5)


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_tick_has_one_job_while_leaders_and_editors_race(
    app: Holdfast, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    await app.schedules.create("tick", "t", "* * * * * *", missed="all")
    leaders = [CronService(app, app.store) for _ in range(3)]
    paused, expected = False, set[datetime]()
    for second in range(40):
        if second % 9 == 8:  # a new leader takes over, which knows nothing
            leaders[chance.randrange(3)] = CronService(app, app.store)
        clock.advance(HALF)
        edits: list[Awaitable[object]] = [
            app.schedules.change("tick", payload=second),
            app.schedules.change("tick", options={"priority": second % 5}),
        ]
        if chance.random() < 0.3:
            paused = not paused
            edits.append(app.schedules.pause("tick") if paused else app.schedules.resume("tick"))
        looks = [leader.once() for leader in chance.sample(leaders, chance.randrange(4))]
        await asyncio.gather(*edits, *looks)
        clock.advance(HALF)
        if not paused:
            expected.add(clock.now())
        await asyncio.gather(*(leader.once() for leader in leaders[: chance.randrange(4)]))

    await leaders[0].once()

    found = (await app.store.find(Search(tags={"cron": "tick"}, limit=1000))).jobs
    instants = [parse_timestamp(job.idempotency_key.split(":", 2)[2]) for job in found]
    assert sorted(expected) == sorted(instants)
