"""From counters to statistics."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.model.measures import bucket_of
from holdfast.model.statistics import (
    Breakdown,
    Counts,
    LatencyStats,
    QueueStats,
    latency,
    summarise,
)
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim, Measure, MemoryStore, Reading, Stats, Tally
from tests.model.making import NOW, PERMANENT, TEMPORARY, in_state

pytestmark = pytest.mark.req("A-8")

MINUTE = timedelta(minutes=1)
NOTHING = Stats((), ())


def _tally(state: State, count: int, *, queue: str = "q", type_: str = "t", priority: int = 2):
    return Tally(queue, type_, priority, state, count)


def _reading(
    measure: Measure, count: int, *, queue: str = "q", type_: str = "t", priority: int = 2
) -> Reading:
    return Reading(queue, type_, priority, measure, 0, count, 0.0)


def _measured(seconds: list[float]) -> list[Reading]:
    """What a store keeps of some waiting times."""
    buckets: dict[int, list[float]] = {}
    for value in seconds:
        buckets.setdefault(bucket_of(value), []).append(value)
    return [
        Reading("q", "t", 2, Measure.WAIT, bucket, len(values), max(values))
        for bucket, values in buckets.items()
    ]


def _exact(seconds: list[float], share: float) -> float:
    """The percentile by nearest rank."""
    return sorted(seconds)[math.ceil(len(seconds) * share) - 1]


def test_statistics_of_no_counters_are_empty() -> None:
    assert QueueStats(time_range=MINUTE) == summarise(NOTHING, window=MINUTE)
    assert LatencyStats(count=0, p50=None, p90=None, p99=None, max=None) == latency([])


def test_live_jobs_are_counted_now_and_ended_ones_over_the_window() -> None:
    tallies = tuple(_tally(state, n) for n, state in enumerate(State, 1))
    readings = tuple(_reading(measure, 10 * n) for n, measure in enumerate(Measure, 1))

    summary = summarise(Stats(tallies, readings), window=MINUTE)

    assert {"pending": 1, "scheduled": 2, "delayed": 3, "running": 4, "retrying": 5} == {
        name: getattr(summary, name)
        for name in ("pending", "scheduled", "delayed", "running", "retrying")
    }
    assert (20, 30, 40, 50) == (
        summary.completed,
        summary.failed,
        summary.dead_letter,
        summary.cancelled,
    )
    assert (10, 60) == (summary.submitted, summary.retried)


def test_rates_are_jobs_per_second_and_dead_letters_are_failures() -> None:
    readings = (
        _reading(Measure.SUBMITTED, 600),
        _reading(Measure.COMPLETED, 300),
        _reading(Measure.FAILED, 20),
        _reading(Measure.DEAD_LETTER, 10),
        _reading(Measure.RETRIED, 99),
    )

    summary = summarise(Stats((), readings), window=MINUTE)

    assert (10.0, 5.0, 0.5) == (
        summary.submission_rate,
        summary.completion_rate,
        summary.failure_rate,
    )


def test_rates_are_taken_over_the_minutes_the_store_returned() -> None:
    stats = Stats((), (_reading(Measure.SUBMITTED, 900),))
    half_past = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)

    assert 10.0 == summarise(stats, window=MINUTE, now=half_past).submission_rate
    assert 15.0 == summarise(stats, window=MINUTE, now=half_past - MINUTE / 2).submission_rate
    assert 900.0 == summarise(stats, window=timedelta(0)).submission_rate
    assert 30.0 == summarise(stats, window=timedelta(0), now=half_past).submission_rate
    assert (
        900.0 == summarise(stats, window=timedelta(0), now=half_past - MINUTE / 2).submission_rate
    )


def test_waiting_and_running_are_measured_separately() -> None:
    readings = (
        Reading("q", "t", 2, Measure.WAIT, 80, 3, 1.0),
        Reading("q", "t", 2, Measure.RUN, 90, 1, 5.5),
        Reading("p", "t", 2, Measure.RUN, 90, 1, 5.75),
    )

    summary = summarise(Stats((), readings), window=MINUTE)

    second = timedelta(seconds=1)
    assert LatencyStats(count=3, p50=second, p90=second, p99=second, max=second) == (
        summary.queue_latency
    )
    assert (2, timedelta(seconds=5.75)) == (
        summary.execution_time.count,
        summary.execution_time.max,
    )


def test_requested_breakdowns_are_returned() -> None:
    stats = Stats(
        (
            _tally(State.RUNNING, 1, queue="a", type_="x", priority=0),
            _tally(State.SCHEDULED, 2, queue="b", type_="x", priority=4),
            _tally(State.COMPLETED, 9, queue="b", type_="y", priority=4),
        ),
        (
            _reading(Measure.COMPLETED, 3, queue="b", type_="y", priority=4),
            _reading(Measure.FAILED, 4, queue="c", type_="x", priority=17),
            _reading(Measure.SUBMITTED, 5, queue="a", type_="x", priority=0),
        ),
    )

    summary = summarise(stats, window=MINUTE, breakdown_by=set(Breakdown))

    assert {
        "a": Counts(running=1),
        "b": Counts(scheduled=2, completed=3),
        "c": Counts(failed=4),
    } == summary.by_queue
    assert {
        "x": Counts(running=1, scheduled=2, failed=4),
        "y": Counts(completed=3),
    } == summary.by_type
    assert {
        "BULK": Counts(scheduled=2, completed=3, failed=4),
        "CRITICAL": Counts(running=1),
    } == summary.by_priority
    assert set(State) == set(summary.by_state)
    assert (Counts(running=1), Counts(completed=3), Counts()) == (
        summary.by_state["RUNNING"],
        summary.by_state["COMPLETED"],
        summary.by_state["DELAYED"],
    )


@pytest.mark.parametrize("only", Breakdown)
def test_breakdowns_that_were_not_requested_are_left_out(only: Breakdown) -> None:
    summary = summarise(NOTHING, window=MINUTE, breakdown_by=[only])

    assert {f"by_{only.lower()}"} == {
        name
        for name in ("by_queue", "by_type", "by_priority", "by_state")
        if getattr(summary, name) is not None
    }


def test_statistics_can_be_written_as_json() -> None:
    summary = summarise(
        Stats((), tuple(_measured([1.5]))), window=MINUTE, breakdown_by=list(Breakdown)
    )

    assert summary == msgspec.json.decode(msgspec.json.encode(summary), type=QueueStats)


SECONDS = st.floats(0, 10**7, allow_subnormal=False) | st.floats(0, 0.001, allow_subnormal=False)
MICROSECOND = 1e-6


@given(st.lists(SECONDS, min_size=1, max_size=300))
@example([0.0])
@example([1e-6, 2e-6, 4e-6, 8e-6])
@example([1.0] * 99 + [100.0])
def test_a_percentile_is_a_measured_time_at_most_19_percent_above_the_exact_one(
    seconds: list[float],
) -> None:
    summary = latency(_measured(seconds))

    assert len(seconds) == summary.count
    assert timedelta(seconds=max(seconds)) == summary.max
    assert summary.p50 <= summary.p90 <= summary.p99 <= summary.max
    for share, value in ((0.5, summary.p50), (0.9, summary.p90), (0.99, summary.p99)):
        exact = _exact(seconds, share)
        assert value in {timedelta(seconds=one) for one in seconds}
        assert timedelta(seconds=exact) <= value
        assert value.total_seconds() <= exact * 2**0.25 * (1 + 1e-9) + 1.5 * MICROSECOND


@given(st.lists(SECONDS, min_size=1, max_size=50), st.lists(SECONDS, min_size=1, max_size=50))
def test_counters_of_two_queues_add_up_to_those_of_both(a: list[float], b: list[float]) -> None:
    assert latency(_measured(a + b)) == latency([*_measured(a), *_measured(b)])


async def test_counters_of_a_store_match_what_happened() -> None:
    clock = ManualClock(NOW)
    store = MemoryStore(clock)
    jobs = [
        msgspec.structs.replace(in_state(State.SCHEDULED, type="x"), id=f"j{n}") for n in range(4)
    ]
    await store.add(jobs)
    clock.advance(2)
    held = await store.claim(Claim(queues=("default",), limit=3, worker="w", token="t"))
    clock.advance(3)
    ends = [
        lifecycle.completed(held[0], None, now=clock.now()),
        lifecycle.after_failure(held[1], PERMANENT, now=clock.now()),
        lifecycle.after_failure(held[2], TEMPORARY, now=clock.now()),
    ]
    await store.swap([Change(job, end) for job, end in zip(held, ends, strict=True)])

    summary = summarise(
        await store.stats(MINUTE), window=MINUTE, now=clock.now(), breakdown_by=[Breakdown.TYPE]
    )

    assert (4, 1, 1, 1, 1) == (
        summary.submitted,
        summary.completed,
        summary.failed,
        summary.retrying,
        summary.scheduled,
    )
    assert (3, timedelta(seconds=2)) == (
        summary.queue_latency.count,
        summary.queue_latency.p50,
    )
    assert (3, timedelta(seconds=3)) == (
        summary.execution_time.count,
        summary.execution_time.max,
    )
    assert 4 / 65 == pytest.approx(summary.submission_rate)
    assert {"x": Counts(scheduled=1, retrying=1, completed=1, failed=1)} == summary.by_type
