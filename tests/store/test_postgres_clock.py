"""The estimate of the server's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.store.postgres.clock import ServerClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_estimate_goes_on_from_an_instant_that_another_process_estimated() -> None:
    clock = ServerClock(None)
    clock.observe(NOON, clock.ticks())

    clock.advance_to(NOON + SECOND)

    assert SECOND <= clock.now() - NOON < 2 * SECOND


def test_instant_from_before_the_clock_was_set_back_does_not_change_the_estimate() -> None:
    clock = ServerClock(None)
    clock.observe(NOON, clock.ticks())

    clock.advance_to(NOON + timedelta(hours=3))

    assert timedelta(0) <= clock.now() - NOON < SECOND
