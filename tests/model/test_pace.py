"""Rates: never more than the rate and its burst, and nothing lost to workers that come late."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.pace import MINUTE, StartPace, default_burst, limit_faults

SECOND = 1_000_000
DAY = 86_400 * SECOND

paces = st.builds(
    StartPace,
    rate=st.one_of(st.integers(1, 40), st.integers(1, 1_000_000)),
    per=st.one_of(st.integers(1_000, 10 * SECOND), st.just(SECOND), st.just(31 * DAY)),
    burst=st.one_of(st.integers(1, 40), st.integers(1, 1_000_000)),
)


class Store:
    """One record, as a store keeps it, and the starts that it admitted."""

    def __init__(self, pace: StartPace) -> None:
        self.pace = pace
        self.record = (0, 0)
        self.starts: list[int] = []

    def debt(self, now: int) -> int:
        started, instant = self.record
        return self.pace.debt(started, instant - now)

    def claim(self, now: int, wanted: int) -> int:
        debt = self.debt(now)
        taken = min(wanted, self.pace.room(debt))
        if taken:
            started, ahead = self.pace.recorded(debt + taken * self.pace.per)
            self.record = (started, now + ahead)
            self.starts += [now] * taken
        return taken

    def most_in_a_period(self) -> int:
        ends = [bisect_left(self.starts, at + self.pace.per) for at in self.starts]
        return max((end - n for n, end in enumerate(ends)), default=0)


@given(pace=paces, looks=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60))
def test_no_period_has_more_starts_than_the_rate_and_the_burst_less_one(
    pace: StartPace, looks: list[tuple[float, int]]
) -> None:
    store, now = Store(pace), 10 * DAY

    for turns, wanted in looks:
        now += int(turns * pace.per / pace.rate)
        store.claim(now, wanted)

    assert store.most_in_a_period() <= pace.rate + pace.burst - 1


@given(
    rate=st.integers(20, 1000),
    delays=st.lists(st.floats(0, 0.9), min_size=1, max_size=20),
    slots=st.integers(100, 200),
)
def test_workers_that_come_late_reach_the_rate(rate: int, delays: list[float], slots: int) -> None:
    pace = StartPace(rate, SECOND, default_burst(rate))
    store, now, looks = Store(pace), 0, 0

    while now < 10 * SECOND:
        store.claim(now, slots)
        wait = pace.wait(store.debt(now))
        late = delays[looks % len(delays)] * (pace.burst - 1) * pace.per / rate
        now, looks = now + (wait or 0) + int(late), looks + 1

    assert 0.98 * 10 * rate <= len(store.starts) <= 10 * rate + pace.burst
    assert store.most_in_a_period() <= 1.1 * rate


@given(pace=paces, count=st.integers(0, 200))
def test_so_many_may_start_as_there_is_room_for(pace: StartPace, count: int) -> None:
    debt = min(count, pace.burst) * pace.per

    room = pace.room(debt)

    assert pace.burst == room + pace.used(debt)
    assert (room > 0) == (pace.wait(debt) == 0)


@given(pace=paces, debt=st.integers(1, 10**15))
def test_record_is_exact(pace: StartPace, debt: int) -> None:
    debt = min(debt, pace.burst * pace.per)

    assert debt == pace.debt(*pace.recorded(debt))


@given(pace=paces, debt=st.integers(0, 10**18))
def test_wait_is_as_long_as_needed_and_no_longer(pace: StartPace, debt: int) -> None:
    debt = min(debt, pace.burst * pace.per)
    wait = pace.wait(debt)
    assert wait is not None

    assert pace.room(max(0, debt - wait * pace.rate)) > 0
    assert wait == 0 or pace.room(debt - (wait - 1) * pace.rate) == 0


def test_arrival_far_ahead_is_no_debt() -> None:
    pace = StartPace(20, SECOND, 2)

    assert 2 == pace.room(pace.debt(20, 3 * 3600 * SECOND))
    assert 0 == pace.room(pace.debt(20, SECOND))
    daily = StartPace(1, DAY, 1)
    assert 0 == daily.room(daily.debt(1, DAY + MINUTE))
    assert 1 == daily.room(daily.debt(1, DAY + MINUTE + 1))


def test_rate_of_none_never_has_room() -> None:
    pace = StartPace(0, SECOND, 1)

    assert (0, 1, None) == (pace.room(0), pace.used(0), pace.wait(0))
    assert 0 == pace.debt(5, SECOND)


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (9, 1), (10, 2), (20, 3), (1000, 101)])
def test_default_burst_is_one_and_a_tenth(rate: int, burst: int) -> None:
    assert burst == default_burst(rate)


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({}, "concurrency"),
        ({"concurrency": 0}, "concurrency"),
        ({"rate": True}, "rate"),
        ({"rate": 1.5}, "rate"),
        ({"rate": 5, "burst": 0}, "burst"),
        ({"rate": 5, "burst": 1_000_001}, "burst"),
        ({"rate": 5, "burst": "2"}, "burst"),
        ({"concurrency": 5, "burst": 2}, "burst"),
        ({"rate": 1, "burst": 12, "per": 31 * DAY}, "burst"),
        ({"rate": 5, "per": 0}, "per"),
        ({"rate": 5, "per": 32 * DAY}, "per"),
    ],
)
def test_terms_out_of_range_are_named(given_: dict[str, object], field: str) -> None:
    terms = {"concurrency": None, "rate": None, "burst": None, "per": SECOND, **given_}

    assert [field] == [fault.field for fault in limit_faults(**terms)]  # type: ignore[arg-type]  # some are wrong on purpose


def test_terms_within_their_range_have_no_fault() -> None:
    assert [] == limit_faults(concurrency=1, rate=1_000_000, burst=1_000_000, per=1_000)
    assert [] == limit_faults(concurrency=None, rate=1, burst=11, per=31 * DAY)
    assert [] == limit_faults(concurrency=None, rate=1_000_000, burst=1_000_000, per=31 * DAY)
