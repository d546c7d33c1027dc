"""Time series on every store: the same whether a step was summed up or is measured anew."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Submission, ValidationError
from holdfast.maintenance.summariser import EVERY, Summariser
from holdfast.model.reserved import SERIES, SERIES_ALL
from holdfast.store import RecordWrite
from holdfast.store.tenants import TenantStore

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock
    from tests.app.conftest import Drain

pytestmark = pytest.mark.req("O-3")

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def tasks(app: Holdfast, clock: ManualClock) -> None:
    def work(seconds: float, wrong: bool = False) -> None:
        clock.advance(timedelta(seconds=seconds))
        if wrong:
            raise ValueError("no")

    app.task("work", max_attempts=1)(work)
    app.task("other")(work)


async def test_series_has_every_minute_with_counts_and_percentiles(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    await app.submit("work", {"seconds": 2})
    clock.advance(5)
    await drain()
    clock.advance(2 * MINUTE)
    await app.submit("other", {"seconds": 1}, queue="side")
    await app.submit("work", {"seconds": 1, "wrong": True})
    await drain(["side", "default"])

    found = await app.series(time_range=5 * MINUTE, breakdown_by=["QUEUE"], types=["work"])

    assert (MINUTE, 6) == (found.step, found.points)
    assert (0, 0, 0, 1, 0, 2) == found.total.submitted
    assert (0, 0, 0, 1, 0, 1) == found.total.completed
    assert (0, 0, 0, 0, 0, 1) == found.total.failed
    assert found.by_queue is not None
    assert (0, 0, 0, 0, 0, 1) == found.by_queue["side"].completed
    assert pytest.approx(5.0, abs=0.1) == found.by_queue["default"].wait_p50[3]
    assert found.by_type is not None
    assert ["work"] == list(found.by_type)
    assert pytest.approx(2.0, abs=0.1) == found.by_type["work"].run_p99[3]


@pytest.mark.parametrize(
    ("time_range", "step"), [(3 * HOUR, MINUTE), (3 * HOUR, 10 * MINUTE), (6 * HOUR, HOUR)]
)
async def test_series_is_the_same_after_the_leader_has_summed_it_up(
    app: Holdfast, drain: Drain, clock: ManualClock, time_range: timedelta, step: timedelta
) -> None:
    tenant = app.over(TenantStore(app.store, "acme"))
    for turn in range(12):
        await app.submit("work", {"seconds": turn % 3, "wrong": turn % 4 == 0})
        await tenant.submit(Submission(type="work", payload={"seconds": 1}, queue="q"))
        await drain(["default", "acme/q"])
        clock.advance(7 * MINUTE)
    views = [app, tenant, app.over(TenantStore(app.store, ""))]
    measured = [
        await view.series(time_range=time_range, step=step, breakdown_by=["QUEUE", "TYPE"])
        for view in views
    ]

    await _sum_up(Summariser(app.store))
    await _sum_up(Summariser(app.store))

    assert {SERIES, f"{SERIES}@acme", SERIES_ALL} <= set(await app.store.kinds())
    assert measured == [
        await view.series(time_range=time_range, step=step, breakdown_by=["QUEUE", "TYPE"])
        for view in views
    ]
    assert [24, 12, 12] == [sum(each.total.submitted) for each in measured]
    assert [{"acme/q", "default"}, {"q"}, {"default"}] == [
        set(each.by_queue or ()) for each in measured
    ]


async def test_steps_that_no_range_reaches_are_deleted(app: Holdfast, clock: ManualClock) -> None:
    summariser = Summariser(app.store)
    await app.submit("work", {"seconds": 0})
    clock.advance(2 * HOUR)
    await _sum_up(summariser)
    first = await app.store.browse(SERIES)
    clock.advance(timedelta(days=8))
    await app.submit("work", {"seconds": 0})
    clock.advance(2 * HOUR)

    await _sum_up(summariser)

    assert 3 == len(first)
    kept = await app.store.browse(SERIES)
    assert 3 == len(kept)
    assert not {record.key for record in first} & {record.key for record in kept}


async def test_leader_that_takes_over_continues_where_the_other_stopped(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.submit("work", {"seconds": 0})
    clock.advance(2 * HOUR)
    await _sum_up(Summariser(app.store))
    before = await app.store.browse(SERIES)

    await _sum_up(Summariser(app.store))

    assert before == await app.store.browse(SERIES)


async def test_step_of_the_future_stops_no_other(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    await app.store.keep([RecordWrite(kind=SERIES, key="m/9999999999", data=b"{}")])
    await app.submit("work", {"seconds": 0})
    await drain()
    clock.advance(2 * HOUR)

    await _sum_up(Summariser(app.store))

    kept = [record.key for record in await app.store.browse(SERIES, prefix="m/")]
    assert len(kept) > 1


async def test_gap_of_a_week_without_a_leader_is_summed_up_in_rounds(
    app: Holdfast, drain: Drain, clock: ManualClock
) -> None:
    summariser = Summariser(app.store)
    await app.submit("work", {"seconds": 1})
    await _sum_up(summariser)
    for _ in range(13):
        clock.advance(12 * HOUR)
        await app.submit("work", {"seconds": 1})
        await drain()
    clock.advance(2 * HOUR)
    ranges = [(timedelta(days=7), HOUR), (timedelta(days=2), 10 * MINUTE), (3 * HOUR, MINUTE)]
    measured = [await app.series(time_range=length, step=step) for length, step in ranges]

    rounds = await _sum_up(Summariser(app.store))

    assert 14 == sum(measured[0].total.submitted)
    assert 168 // 3 - 5 < rounds < 168 // 3 + 5
    assert measured == [await app.series(time_range=length, step=step) for length, step in ranges]
    hours = [record.key for record in await app.store.browse(SERIES, prefix="h/")]
    assert 14 == len(hours)


async def _sum_up(summariser: Summariser) -> int:
    """Run rounds until nothing is left to sum up; return how many there were."""
    for rounds in range(1, 100):
        if await summariser.once() == EVERY:
            return rounds
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("time_range", {"time_range": 0}),
        ("time_range", {"time_range": "P8D"}),
        ("time_range", {"time_range": "soon"}),
        ("step", {"step": 30}),
        ("step", {"step": "x"}),
        ("step", {"step": 60, "time_range": "P1D"}),
        ("step", {"step": 600, "time_range": "P3D"}),
        ("breakdown_by", {"breakdown_by": ["STATE"]}),
        ("breakdown_by", {"breakdown_by": "QUEUE"}),
        ("queues", {"queues": "default"}),
        ("queues", {"queues": [1]}),
        ("types", {"types": ["t"] * 101}),
    ],
)
async def test_wrong_range_is_refused(field: str, given: dict[str, object]) -> None:
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as error:
            await app.series(**given)  # type: ignore[arg-type]  # wrong on purpose

        assert [field] == [fault.field for fault in error.value.faults]
