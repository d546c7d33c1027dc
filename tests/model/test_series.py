"""Time series from readings by the minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.measures import Measure, Reading, bucket_of
from holdfast.model.series import MOST_NAMES, series_of, slot_of, slots_of


def reading(
    minute: int, measure: Measure, count: int = 1, *, queue: str = "q", seconds: float = 0.0
) -> Reading:
    bucket = bucket_of(seconds) if seconds else 0
    return Reading(queue, f"t-{queue}", 2, measure, bucket, count, seconds, minute)


def test_steps_have_counts_and_percentiles_by_queue_and_type() -> None:
    slots = slots_of(
        [
            reading(20, Measure.SUBMITTED, 3),
            reading(29, Measure.SUBMITTED, 1, queue="r"),
            reading(29, Measure.FAILED),
            reading(29, Measure.DEAD_LETTER, 2),
            reading(31, Measure.COMPLETED),
            reading(31, Measure.CANCELLED),
            reading(31, Measure.RETRIED),
            reading(31, Measure.WAIT, 9, seconds=1.0),
            reading(31, Measure.WAIT, 1, seconds=8.0),
            reading(31, Measure.RUN, seconds=2.0),
        ],
        10,
    )

    made = series_of(slots, first=1, points=3, minutes=10, queues=(), types=("t-r", "x"))

    assert (datetime.fromtimestamp(600, UTC), timedelta(minutes=10), 3) == (
        made.since,
        made.step,
        made.points,
    )
    assert ((0, 4, 0), (0, 3, 0), (0, 0, 1)) == (
        made.total.submitted,
        made.total.failed,
        made.total.completed,
    )
    assert ((0, 0, 1), (0, 0, 1)) == (made.total.cancelled, made.total.retried)
    assert ((None, None, 1.0), (None, None, 8.0)) == (made.total.wait_p50, made.total.wait_p99)
    assert ((None, None, 2.0), (None, None, 2.0)) == (made.total.run_p50, made.total.run_p99)
    assert made.by_queue is not None
    assert {"q": (0, 3, 0), "r": (0, 1, 0)} == {
        name: line.submitted for name, line in made.by_queue.items()
    }
    assert made.by_type is not None
    assert {"t-r": (0, 1, 0), "x": (0, 0, 0)} == {
        name: line.submitted for name, line in made.by_type.items()
    }


def test_parts_that_nobody_asked_for_are_left_out() -> None:
    made = series_of({}, first=0, points=1, minutes=1, queues=None, types=None)

    assert (None, None, (0,)) == (made.by_queue, made.by_type, made.total.submitted)


def test_only_the_busiest_names_of_a_step_are_kept() -> None:
    many = [reading(1, Measure.SUBMITTED, n, queue=f"q{n}") for n in range(1, MOST_NAMES + 11)]

    slot = slot_of(many)

    assert {f"q{n}" for n in range(11, MOST_NAMES + 11)} == set(slot.queues)
    assert sum(n for n in range(1, MOST_NAMES + 11)) == slot.total.submitted
