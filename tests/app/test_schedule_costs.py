"""What schedules may cost: a thousand slow ones, large ones, and damaged records."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast import Holdfast, NotFoundError, QuotaError, ValidationError
from holdfast.maintenance.cron import CronService
from holdfast.model.reserved import EDITS, SCHEDULES
from holdfast.operations import schedule_records
from holdfast.operations.quarantine import quarantined
from holdfast.operations.schedule_records import ALL
from holdfast.store import RecordWrite, Search, Store
from holdfast.tasks.schedule import MissedRuns, cron_entry, instants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.runtime.clock import ManualClock

SLOW = "* 2 29 2 6#5"
"""Its next instant is years away, behind many changes of the clock."""


async def forge(store: Store, records: Mapping[str, bytes]) -> None:
    """Write records of schedules as another program would."""
    writes = [RecordWrite(kind=SCHEDULES, key=name, data=data) for name, data in records.items()]
    await store.keep([*writes, RecordWrite(kind=EDITS, key=ALL, data=b"{}")])


async def longest_hold(work: asyncio.Future[float]) -> float:
    """Return the most processor time between two turns of another task."""
    longest, began = 0.0, time.thread_time()
    while not work.done():
        await asyncio.sleep(0)
        longest, began = max(longest, time.thread_time() - began), time.thread_time()
    await work
    return longest


async def test_a_thousand_slow_schedules_keep_the_loop_free_and_cost_a_look_nothing(
    app: Holdfast,
) -> None:
    await app.schedules.create("s", "t", SLOW, tz="Europe/Berlin", payload="x" * 4000)
    (record,) = await app.store.records(SCHEDULES, ["s"])
    assert record is not None
    await forge(app.store, {f"s{n}": record.data for n in range(999)})
    service = CronService(app, app.store)

    first = await longest_hold(asyncio.ensure_future(service.once()))
    began = time.thread_time()
    await service.once()
    second = time.thread_time() - began

    assert first < 0.1  # a second and more, when all were worked out at once
    assert second < 0.05


def test_an_instant_years_away_is_found_soon() -> None:
    entry = cron_entry("n", "t", SLOW, "Europe/Berlin", MissedRuns.ONE, None, {})
    after = datetime(2026, 1, 1, tzinfo=UTC)
    next(instants(entry, after=after))  # reads the changes of the clock of these years

    began = time.thread_time()
    for _ in range(100):
        next(instants(entry, after=after))

    assert time.thread_time() - began < 0.3  # 0.5 s, when each looked at each day


async def test_damaged_schedules_hurt_no_other(app: Holdfast, clock: ManualClock) -> None:
    await app.schedules.create("good", "t", "* * * * * *")
    (record,) = await app.store.records(SCHEDULES, ["good"])
    assert record is not None
    value = msgspec.json.decode(record.data)
    (plan,) = value["plans"]
    damaged = {
        "nothing": {},
        "expression": value | {"plans": [plan | {"expression": ""}]},
        "zone": value | {"plans": [plan | {"tz": "No/Where"}]},
        "naive": value | {"plans": [plan | {"since": "2020-01-01T00:00:00"}]},
        "plans": value | {"plans": [plan] * 10_000},
        "tags": value | {"options": {"tags": 5}},
        "endless": value | {"plans": [plan | {"since": "0001-01-01T00:00:00Z"}], "missed": "all"},
    }
    await forge(app.store, {name: msgspec.json.encode(each) for name, each in damaged.items()})
    service = CronService(app, app.store)

    for _ in range(3):
        clock.advance(1)
        await service.once()
    listed = [each.name for each in await app.schedules.list()]
    made = await app.schedules.create("another", "t", "* * * * *")

    assert {"good"} == set(listed) - damaged.keys()
    assert "another" == made.name
    assert 3 == (await app.store.find(Search(tags={"cron": "good"}))).total
    reported = " ".join(report.name for report in await quarantined(app.store))
    for name in damaged.keys() - {"endless"}:
        assert f"@/{name}" in reported
    with pytest.raises(NotFoundError):
        await app.schedules.get("nothing")
    await app.schedules.delete("nothing")
    assert [None] == await app.store.records(SCHEDULES, ["nothing"])


async def test_schedules_of_a_namespace_are_bounded_in_bytes(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_records, "MOST_BYTES", 10_000)
    await app.schedules.create("a", "t", "* * * * *", payload="x" * 8000)

    with pytest.raises(QuotaError, match="bytes of schedules"):
        await app.schedules.create("b", "t", "* * * * *", payload="x" * 8000)
    with pytest.raises(QuotaError, match="bytes of schedules"):
        await app.schedules.change("a", payload="x" * 10_000)
    await app.schedules.change("a", payload="x" * 9000)

    assert ["a"] == [each.name for each in await app.schedules.list()]


@pytest.mark.parametrize("tags", [5, ["a"], "a"])
async def test_tags_of_a_schedule_must_be_an_object(app: Holdfast, tags: object) -> None:
    with pytest.raises(ValidationError, match="tags must be an object"):
        await app.schedules.create("a", "t", "* * * * *", options={"tags": tags})
