"""``limit`` with a rate: how many jobs may start in a span of time, and how evenly."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model.policy import Retention
from holdfast.store import LimitRule
from tests.conformance.hand import MANY, TICK
from tests.conformance.inside import Window, record_window, recorded_window, windows_in

if TYPE_CHECKING:
    from datetime import datetime

    from tests.conformance.hand import Hand
    from tests.conformance.stores import Place

SECOND = timedelta(seconds=1)
PERIOD = 10 * SECOND
QUEUE = "queue:default"


async def _started(hand: Hand, limit: int = MANY) -> int:
    return len(await hand.claim(limit))


async def _used(hand: Hand) -> tuple[int, datetime | None]:
    state = (await hand.store.limits())[-1]
    return state.started, state.until


async def _fill(hand: Hand, count: int) -> None:
    await hand.add_all(*(hand.job(f"n{n}", type="a", limit_key="k") for n in range(count)))


async def test_rate_spaces_starts_evenly(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=2, per=PERIOD))
    await _fill(hand, 4)
    hand.clock.advance(3)

    assert 1 == await _started(hand)
    hand.clock.advance(5 * SECOND - TICK)
    assert 0 == await _started(hand)
    hand.clock.advance(TICK)
    assert 1 == await _started(hand)


async def test_one_and_a_tenth_of_a_rate_may_start_at_once(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=20, per=PERIOD))
    await _fill(hand, 30)

    assert 3 == (await hand.store.limits())[0].rule.burst
    assert 3 == await _started(hand)
    assert (3, hand.now + SECOND / 2) == await _used(hand)


@pytest.mark.parametrize("limit", [1, MANY])
async def test_burst_starts_at_once_after_a_pause(hand: Hand, limit: int) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=4, per=PERIOD, burst=3))
    await _fill(hand, 12)

    for pause, expected in [(0, 3), (2.5, 1), (5, 2), (2.4, 0), (60, 3)]:
        hand.clock.advance(pause)
        taken = 0
        while some := await _started(hand, limit):
            taken += some
        assert expected == taken, pause


async def test_burst_may_be_more_than_the_rate(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1, per=SECOND, burst=5))
    await _fill(hand, 9)

    assert 5 == await _started(hand)
    hand.clock.advance(2)
    assert 2 == await _started(hand)


@pytest.mark.parametrize("burst", [1, 2, 3])
async def test_no_period_has_more_starts_than_the_rate_and_the_burst_less_one(
    hand: Hand, burst: int
) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=3, per=PERIOD, burst=burst))
    await _fill(hand, 60)
    starts: list[datetime] = []

    begun = hand.now
    while hand.now < begun + 4 * PERIOD:
        starts += [hand.now] * await _started(hand, 2)
        hand.clock.advance(0.7)

    most = max(sum(at <= each < at + PERIOD for each in starts) for at in starts)
    assert most <= 3 + burst - 1
    assert len(starts) >= 0.7 * 12


async def test_rate_that_does_not_divide_its_period_loses_nothing(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=7, per=SECOND, burst=7))
    await _fill(hand, 40)
    assert 7 == await _started(hand)
    begun = hand.now

    for n in range(1, 22):
        _, until = await _used(hand)
        assert until is not None
        hand.clock.set(until - timedelta(microseconds=1))
        assert 0 == await _started(hand)
        hand.clock.set(until)
        assert 1 == await _started(hand), n

    assert begun + 3 * SECOND == hand.now


async def test_million_per_second_are_a_microsecond_apart(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1_000_000, per=SECOND, burst=1))
    await _fill(hand, 4)

    assert 1 == await _started(hand)
    assert (1, hand.now + timedelta(microseconds=1)) == await _used(hand)
    hand.clock.advance(timedelta(microseconds=1))
    assert 1 == await _started(hand)


@pytest.mark.parametrize("used", [0, 1, 77_777, 999_990])
async def test_largest_rate_and_burst_lose_no_start(hand: Hand, place: Place, used: int) -> None:
    rate, per = 1_000_000, timedelta(days=31)  # parts that a number of Lua only holds rounded
    await hand.store.limit(QUEUE, LimitRule(rate=rate, per=per, burst=rate))
    await _fill(hand, 8)
    if used:
        record_window(place, QUEUE, Window(rate + 3, hand.now + used * (per / rate) - TICK))

    counts = []
    for _ in range(8):
        await hand.claim(1)
        counts.append((await _used(hand))[0])

    assert [used + n for n in range(1, 9)] == counts


async def test_rate_of_one_a_day_lets_one_start_a_day(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1, per=timedelta(days=1)))
    await hand.add_all(*(hand.job(f"n{n}", lifetime=timedelta(days=5)) for n in range(3)))

    assert 1 == await _started(hand)
    hand.clock.advance(timedelta(days=1) - TICK)
    assert 0 == await _started(hand)
    hand.clock.advance(TICK)
    assert 1 == await _started(hand)


@pytest.mark.req("S-12")
@pytest.mark.parametrize("scope", [QUEUE, "task:a", "key:a"])
async def test_rate_goes_on_when_the_clock_is_set_back_by_hours(hand: Hand, scope: str) -> None:
    await hand.store.limit(scope, LimitRule(rate=1, per=PERIOD))
    await _fill(hand, 3)
    await hand.claim()

    hand.clock.advance(-timedelta(hours=3))

    assert {(0, None)} == {(s.started, s.until) for s in await hand.store.limits()}
    assert 1 == await _started(hand)
    assert 0 == await _started(hand)
    assert (1, hand.now + PERIOD) == await _used(hand)
    hand.clock.advance(PERIOD)
    assert 1 == await _started(hand)


async def test_clock_that_is_set_back_a_little_lets_no_more_start(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=20, per=PERIOD))
    await _fill(hand, 9)
    hand.clock.advance(5)
    assert 3 == await _started(hand)

    hand.clock.advance(-0.004)

    assert 0 == await _started(hand)
    hand.clock.advance(0.504)
    assert 1 == await _started(hand)


async def test_clock_that_is_set_forward_lets_a_burst_start(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=20, per=PERIOD))
    await _fill(hand, 9)
    await hand.claim(MANY)

    hand.clock.advance(timedelta(minutes=5))

    assert 3 == await _started(hand)


async def test_rate_that_is_raised_applies_at_once(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1, per=timedelta(days=1)))
    await _fill(hand, 5)
    assert 1 == await _started(hand)

    await hand.store.limit(QUEUE, LimitRule(rate=20, per=SECOND))

    assert 3 == await _started(hand)
    assert (3, hand.now + SECOND / 20) == await _used(hand)


async def test_rate_that_is_lowered_applies_from_the_next_start_on(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=20, per=SECOND, burst=1))
    await _fill(hand, 5)
    assert 1 == await _started(hand)

    await hand.store.limit(QUEUE, LimitRule(rate=1, per=PERIOD))

    hand.clock.advance(SECOND / 20)
    assert 1 == await _started(hand)
    hand.clock.advance(PERIOD - TICK)
    assert 0 == await _started(hand)
    hand.clock.advance(TICK)
    assert 1 == await _started(hand)


async def test_starts_of_a_larger_burst_count_when_it_is_made_smaller(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=10, per=PERIOD, burst=10))
    await _fill(hand, 20)
    assert 10 == await _started(hand)

    await hand.store.limit(QUEUE, LimitRule(rate=10, per=PERIOD, burst=1))

    assert (1, hand.now + PERIOD) == await _used(hand)
    hand.clock.advance(PERIOD)
    assert 1 == await _started(hand)


async def test_window_of_an_earlier_version_counts(hand: Hand, place: Place) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=10, per=PERIOD, burst=2))
    await _fill(hand, 20)
    record_window(place, QUEUE, Window(10, hand.now + 4 * SECOND))

    assert (2, hand.now + 3 * SECOND) == await _used(hand)
    assert 0 == await _started(hand)
    hand.clock.advance(3)
    assert 1 == await _started(hand)


async def test_window_of_an_earlier_version_that_has_room_lets_jobs_start(
    hand: Hand, place: Place
) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=10, per=PERIOD, burst=2))
    await _fill(hand, 20)
    record_window(place, QUEUE, Window(3, hand.now + 8 * SECOND))

    assert 1 == await _started(hand)
    assert (2, hand.now + SECOND) == await _used(hand)


async def test_used_up_rate_is_a_full_window_to_an_earlier_version(
    hand: Hand, place: Place
) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=7, per=PERIOD, burst=3))
    await _fill(hand, 20)
    await hand.claim(MANY)

    window = recorded_window(place, QUEUE)

    assert window.started >= 7
    assert hand.now + 4 * SECOND < window.until < hand.now + 5 * SECOND
    hand.clock.advance(60)
    await hand.claim(1)
    assert hand.now + SECOND < recorded_window(place, QUEUE).until < hand.now + 2 * SECOND


async def test_records_of_rates_that_are_not_used_any_more_are_deleted(
    hand: Hand, place: Place
) -> None:
    await hand.store.limit("key:a", LimitRule(rate=1, per=PERIOD))
    await hand.add_all(*(hand.job(f"c{n}", type="a", limit_key=f"k{n}") for n in range(700)))
    assert 700 == await _started(hand)
    hand.clock.advance(9)
    await hand.add("late", type="a", limit_key="late")
    await hand.claim()

    hand.clock.advance(1)
    before = windows_in(place)
    await hand.store.prune(Retention(), 1)

    assert (701, 1) == (before, windows_in(place))
    hand.clock.advance(9)
    await hand.store.prune(Retention(), 1)
    assert 0 == windows_in(place)


async def test_claim_counts_whatever_becomes_of_the_job(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1, per=PERIOD))
    await hand.give_back(await hand.run("a"))

    assert 0 == await _started(hand)


async def test_burst_of_centuries_is_cut_to_a_year(hand: Hand) -> None:
    await hand.store.limit(QUEUE, LimitRule(rate=1, per=timedelta(days=31), burst=1_000_000))
    await _fill(hand, 20)

    assert 11 == await _started(hand)
    started, until = await _used(hand)
    assert (11, hand.now + timedelta(days=31)) == (started, until)


async def test_rate_of_none_lets_no_job_start(hand: Hand) -> None:
    await hand.store.limit("task:a", LimitRule(rate=0, per=SECOND))
    await _fill(hand, 2)
    await hand.add("free")

    assert ["free"] == [job.type for job in await hand.claim(MANY)]
    (state,) = await hand.store.limits()
    assert state.is_rate_used_up
    assert state.until is None
