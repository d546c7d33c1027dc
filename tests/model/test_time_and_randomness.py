"""The only sources of time and randomness, and their replacements in tests."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from uuid import UUID

from holdfast.runtime.clock import Clock, ManualClock, SystemClock
from holdfast.runtime.randomness import Randomness


def test_the_system_clock_returns_aware_utc_and_never_runs_backwards() -> None:
    clock: Clock = SystemClock()
    before = datetime.now(UTC)

    now = clock.now()

    assert UTC is now.tzinfo
    assert before <= now <= datetime.now(UTC)
    beats = [clock.monotonic() for _ in range(100)]
    assert all(a <= b for a, b in itertools.pairwise(beats))


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock: Clock = ManualClock()
    start = clock.now()

    assert (start, 0.0) == (clock.now(), clock.monotonic())
    clock.advance(1.5)
    clock.advance(timedelta(seconds=1))
    assert (start + timedelta(seconds=2.5), 2.5) == (clock.now(), clock.monotonic())
    clock.set(start + timedelta(hours=1))
    assert (start + timedelta(hours=1), 3600.0) == (clock.now(), clock.monotonic())


def test_randomness_repeats_with_a_seed_and_not_without() -> None:
    def drawn(randomness: Randomness) -> tuple[object, ...]:
        return randomness.uuid(), randomness.token(), randomness.jitter(), randomness.fraction()

    assert drawn(Randomness(7)) == drawn(Randomness(7))
    assert drawn(Randomness(7)) != drawn(Randomness(8))
    assert drawn(Randomness()) != drawn(Randomness())
    assert drawn(Randomness(0)) == drawn(Randomness(0))


def test_randomness_stays_within_its_bounds() -> None:
    for randomness in (Randomness(1), Randomness()):
        assert all(-1 <= randomness.jitter() <= 1 for _ in range(500))
        assert all(0 <= randomness.fraction() < 1 for _ in range(500))
        assert 4 == UUID(randomness.uuid()).version
        assert 32 == len(randomness.token())
        assert 500 == len({randomness.token() for _ in range(500)})
