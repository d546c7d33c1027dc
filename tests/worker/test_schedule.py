"""Cron schedules through changes of clocks and of leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast
from holdfast.maintenance.cron import CronService
from holdfast.model.job import Job
from holdfast.runtime.clock import ManualClock
from holdfast.store import Added, Fence, MemoryStore
from holdfast.tasks.schedule import CronEntry, MissedRuns, cron_entry, due_instants, instants

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)
"""The day without the hour after 02:00: clocks go from 01:59:59 to 03:00:00."""
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)
"""The day with two hours after 02:00: after 02:59:59 it is 02:00:00 again."""


def schedule(expression: str, missed: MissedRuns = MissedRuns.ONE) -> CronEntry:
    return cron_entry("tick", "tick", expression, "Europe/Berlin", missed, None, {})


def ticks(expression: str, day: datetime, *, until: str = "05:00") -> list[str]:
    """The local times of a schedule in the first hours of a day; ``+`` is summer time."""
    found = []
    for instant in instants(schedule(expression), after=day - timedelta(seconds=1)):
        local = instant.astimezone(BERLIN)
        if local.strftime("%H:%M") >= until or local.date() > day.date():
            return found
        found.append(f"{local:%H:%M}{'+' if local.dst() else ''}")
    raise AssertionError


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # fixed times: a skipped one fires right after the change
        ("30 2 * * *", ["03:00+"]),
        ("0 30 2 * * *", ["03:00+"]),
        ("*/20 30 2 * * *", ["03:00+"]),
        ("0,30 2 * * *", ["03:00+"]),
        ("0 2,4 * * *", ["03:00+", "04:00+"]),
        ("0 3 * * *", ["03:00+"]),
        # ranges
        ("0 1-4 * * *", ["01:00", "03:00+", "04:00+"]),
        ("30 1-3 * * *", ["01:30", "03:00+", "03:30+"]),
        # steps: no pause is longer than the step
        ("*/30 2 * * *", ["03:00+"]),
        ("*/30 1-2 * * *", ["01:00", "01:30", "03:00+"]),
        ("0 */2 * * *", ["00:00", "03:00+", "04:00+"]),
        ("0 0/2 * * *", ["00:00", "03:00+", "04:00+"]),
        ("0 0-4/2 * * *", ["00:00", "03:00+", "04:00+"]),
        ("*/30 2 29 3 *", ["03:00+"]),
        ("0 */3 * * *", ["00:00", "03:00+"]),
        # every hour: nothing is missing
        ("30 * * * *", ["00:30", "01:30", "03:30+", "04:30+"]),
        ("30 0-23 * * *", ["00:30", "01:30", "03:30+", "04:30+"]),
        ("30 */1 * * *", ["00:30", "01:30", "03:30+", "04:30+"]),
        ("*/30 * * * *", ["00:00", "00:30", "01:00", "01:30", "03:00+", "03:30+"]),
    ],
)
def test_times_that_spring_skips_fire_once_right_after_the_change(
    expression: str, expected: list[str]
) -> None:
    until = "04:00" if expression.startswith("*/30 *") else "05:00"

    assert expected == ticks(expression, SPRING, until=until)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # fixed times and ranges: once
        ("30 2 * * *", ["02:30+"]),
        ("0 30 2 * * *", ["02:30+"]),
        ("0,30 2 * * *", ["02:00+", "02:30+"]),
        ("0 1-4 * * *", ["01:00+", "02:00+", "03:00", "04:00"]),
        # steps: they go on in the repeated hour
        ("*/30 2 * * *", ["02:00+", "02:30+", "02:00", "02:30"]),
        ("0 */2 * * *", ["00:00+", "02:00+", "02:00", "04:00"]),
        ("0 0/2 * * *", ["00:00+", "02:00+", "02:00", "04:00"]),
        # every hour: also in the repeated one
        ("30 * * * *", ["00:30+", "01:30+", "02:30+", "02:30", "03:30", "04:30"]),
        ("30 0-23 * * *", ["00:30+", "01:30+", "02:30+", "02:30", "03:30", "04:30"]),
    ],
)
def test_times_that_autumn_repeats_fire_twice_only_in_intervals(
    expression: str, expected: list[str]
) -> None:
    assert expected == ticks(expression, AUTUMN)


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/30 2 * * *", "0 */2 * * *", "5 * * * *"])
def test_ticks_are_the_same_whenever_one_starts_to_count(expression: str, day: datetime) -> None:
    entry, first, end = schedule(expression), day.astimezone(UTC), timedelta(hours=8)
    whole = instants_until(entry, first, first + end)

    for minutes in range(0, 8 * 60, 5):
        moment = first + timedelta(minutes=minutes, microseconds=1)
        later = instants_until(entry, moment, first + end)
        assert [each for each in whole if each > moment] == later


def instants_until(entry: CronEntry, after: datetime, end: datetime) -> list[datetime]:
    found = []
    for instant in instants(entry, after=after):
        if instant > end:
            break
        found.append(instant)
    return found


START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("missed", list(MissedRuns))
async def test_a_change_of_the_leader_drops_no_tick(missed: MissedRuns) -> None:
    clock = ManualClock(START)
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    app.cron("* * * * * *", missed=missed.value)(app.task("tick")(lambda: None))
    await app.start()

    await CronService(app, app.store).once()
    for leaderless in (1, 2, 3, 1, 5):
        clock.advance(leaderless)
        await CronService(app, app.store).once()

    assert 12 == (await app.search(limit=100)).total_count


@pytest.mark.parametrize(("missed", "expected"), [(MissedRuns.SKIP, 1), (MissedRuns.ONE, 1)])
def test_a_long_pause_of_a_quick_schedule_leads_to_its_newest_tick(
    missed: MissedRuns, expected: int
) -> None:
    now = START + timedelta(days=40)

    due = due_instants(schedule("* * * * * *", missed), last=START, now=now)

    assert [now] * expected == due


async def test_all_missed_ticks_are_submitted_however_many() -> None:
    clock = ManualClock(START)
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    app.cron("* * * * * *", missed="all")(app.task("tick")(lambda: None))
    await app.start()
    service = CronService(app, app.store)

    await service.once()
    clock.advance(2500)
    while not await service.once():
        pass

    assert 2500 == (await app.search(limit=1)).total_count


class CountingStore(MemoryStore):
    """Counts the calls that add jobs."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.adds = 0

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        self.adds += 1
        await asyncio.sleep(0.001)  # so that others wait meanwhile
        return await super().add(jobs, atomic=atomic, fence=fence)


async def test_schedules_that_are_due_together_are_submitted_together() -> None:
    clock = ManualClock(START)
    store = CountingStore(clock)
    app = Holdfast(store=store, clock=clock)
    for number in range(100):
        app.cron("* * * * * *")(app.task(f"tick.{number}")(lambda: None))
    await app.start()
    service = CronService(app, app.store)
    await service.once()
    store.adds = 0

    clock.advance(1)
    await service.once()

    assert 100 == (await app.search(limit=1)).total_count
    assert 3 >= store.adds
