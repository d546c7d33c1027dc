"""Backoff, timeouts, limits and retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Fault
from holdfast.model.policy import (
    DAY,
    HOUR,
    MEBIBYTE,
    MINUTE,
    SECOND,
    Backoff,
    BackoffKind,
    Limits,
    Retention,
    declared_backoff,
    effective_timeout,
)
from holdfast.model.times import Span

pytestmark = pytest.mark.req("M-7")


def _delays(backoff: Backoff, attempts: int = 5, jitter: float = 0.0) -> list[float]:
    return [backoff.delay(n, jitter=jitter).total_seconds() for n in range(1, attempts + 1)]


@pytest.mark.parametrize(
    ("kind", "delays"),
    [
        (BackoffKind.CONSTANT, [2, 2, 2, 2, 2]),
        (BackoffKind.LINEAR, [2, 4, 6, 8, 10]),
        (BackoffKind.EXPONENTIAL, [2, 6, 18, 54, 100]),
        (BackoffKind.CUSTOM, [2, 6, 18, 54, 100]),
        (BackoffKind.FULL_JITTER, [3, 9, 27, 50, 50]),
    ],
)
def test_delays_grow_by_the_strategy_up_to_the_cap(kind: BackoffKind, delays: list[float]) -> None:
    backoff = Backoff(
        strategy=kind, initial_delay=2 * SECOND, max_delay=100 * SECOND, multiplier=3.0
    )

    assert delays == _delays(backoff)


def test_the_default_is_exponential_from_one_second_to_one_hour_without_jitter() -> None:
    assert [1, 2, 4, 8, 16] == _delays(Backoff(), jitter=1.0)
    assert HOUR == Backoff().delay(13)
    assert (
        Backoff(
            strategy=BackoffKind.EXPONENTIAL,
            initial_delay=SECOND,
            max_delay=HOUR,
            multiplier=2.0,
            jitter=False,
        )
        == Backoff()
    )


@pytest.mark.parametrize("kind", [k for k in BackoffKind if k is not BackoffKind.FULL_JITTER])
def test_jitter_is_a_tenth_either_way_and_never_above_the_cap(
    kind: BackoffKind,
) -> None:
    backoff = Backoff(
        strategy=kind, initial_delay=10 * SECOND, max_delay=10.5 * SECOND, jitter=True
    )

    assert 9 * SECOND == backoff.delay(1, jitter=-1.0)
    assert 10 * SECOND == backoff.delay(1)
    assert 10.5 * SECOND == backoff.delay(1, jitter=1.0)


def test_full_jitter_spreads_from_nothing_to_the_whole_delay() -> None:
    backoff = Backoff(
        strategy=BackoffKind.FULL_JITTER, initial_delay=SECOND / 2, max_delay=30 * SECOND
    )

    assert [0, 0, 0, 0, 0] == _delays(backoff, jitter=-1.0)
    assert [1, 2, 4, 8, 16] == _delays(backoff, jitter=1.0)
    assert 30 * SECOND == backoff.delay(7, jitter=1.0)


def test_a_custom_function_decides_within_the_cap() -> None:
    backoff = Backoff(strategy=BackoffKind.CUSTOM, initial_delay=SECOND, max_delay=MINUTE)

    def custom(attempt: int, initial: timedelta, most: timedelta) -> timedelta:
        assert (SECOND, MINUTE) == (initial, most)
        return attempt * attempt * 20 * SECOND - 40 * SECOND

    assert [timedelta(0), 40 * SECOND, MINUTE] == [
        backoff.delay(n, custom=custom) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("answer", "delay"), [(5, 5), (0.5, 0.5), ("PT5S", 5), (7 * SECOND, 7), (HOUR * 2, 3600)]
)
def test_a_custom_function_may_return_any_form_of_a_duration(answer: Span, delay: float) -> None:
    backoff = Backoff(strategy=BackoffKind.CUSTOM)

    assert delay * SECOND == backoff.delay(3, custom=lambda *_: answer)


@pytest.mark.parametrize("answer", [None, "soon", float("nan"), -1, True, [5]])
def test_a_custom_function_that_returns_no_delay_is_an_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="must"):
        Backoff(strategy=BackoffKind.CUSTOM).delay(3, custom=lambda *_: answer)


def test_a_custom_function_that_raises_is_an_error() -> None:
    def custom(*_: object) -> timedelta:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        Backoff(strategy=BackoffKind.CUSTOM).delay(3, custom=custom)


def test_a_custom_function_is_not_called_under_another_strategy() -> None:
    assert SECOND == Backoff().delay(1, custom=lambda *_: HOUR)


@given(
    kind=st.sampled_from(BackoffKind),
    initial=st.timedeltas(timedelta(0), timedelta.max),
    most=st.timedeltas(timedelta(0), timedelta.max),
    multiplier=st.floats(1.0, 1000.0) | st.integers(1, 1000),
    attempt=st.integers(1, 10**6) | st.just(10**400),
    jitter=st.floats(-1.0, 1.0),
    jittered=st.booleans(),
)
def test_no_attempt_and_no_multiplier_leaves_the_bounds(
    kind: BackoffKind,
    initial: timedelta,
    most: timedelta,
    multiplier: float,
    attempt: int,
    jitter: float,
    jittered: bool,
) -> None:
    initial, most = sorted((initial, most))
    backoff = Backoff(
        strategy=kind,
        initial_delay=initial,
        max_delay=most,
        multiplier=multiplier,
        jitter=jittered,
    )

    delay = backoff.delay(attempt, jitter=jitter)

    assert timedelta(0) <= delay <= most
    assert [] == backoff.faults()


def test_no_delay_stays_no_delay_however_often_it_is_multiplied() -> None:
    for kind in BackoffKind:
        assert timedelta(0) == Backoff(strategy=kind, initial_delay=timedelta(0)).delay(10**5)


def test_every_broken_rule_of_a_backoff_is_reported() -> None:
    broken = Backoff(initial_delay=-SECOND, max_delay=-2 * SECOND, multiplier=0.5)

    assert [
        Fault("backoff.initial_delay", "OUT_OF_RANGE", "must not be negative"),
        Fault("backoff.max_delay", "OUT_OF_RANGE", "must not be below initial_delay"),
        Fault("backoff.multiplier", "OUT_OF_RANGE", "must be between 1 and 1000, got 0.5"),
    ] == broken.faults()


@pytest.mark.parametrize(
    ("multiplier", "count"), [(0.999, 1), (1.0, 0), (1000.0, 0), (1000.1, 1), (float("nan"), 1)]
)
def test_the_multiplier_lies_between_1_and_1000(multiplier: float, count: int) -> None:
    assert count == len(Backoff(multiplier=multiplier).faults())


@pytest.mark.req("M-6")
def test_the_shortest_timeout_applies() -> None:
    assert SECOND == effective_timeout(MINUTE, None, SECOND, HOUR)


@pytest.mark.req("M-6", "M-9", "M-2", "A-2", "M-12")
def test_limits_are_those_of_the_contract() -> None:
    limits = Limits()

    assert (MEBIBYTE, 30 * MINUTE, 30 * SECOND, DAY, 1000, 1000, 100) == (
        limits.payload_bytes,
        limits.timeout,
        limits.submission_timeout,
        limits.idempotency_window,
        limits.batch,
        limits.dependencies,
        limits.depth,
    )


@pytest.mark.req("M-12")
@pytest.mark.parametrize("size", [1, 16 * MEBIBYTE])
def test_the_payload_limit_can_be_set_up_to_16_mib(size: int) -> None:
    assert size == Limits(payload_bytes=size).payload_bytes


@pytest.mark.req("M-12")
@pytest.mark.parametrize("size", [0, -1, 16 * MEBIBYTE + 1])
def test_the_payload_limit_cannot_be_set_beyond_16_mib(size: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and 16777216, got {size}"):
        Limits(payload_bytes=size)


def test_ended_jobs_are_kept_for_a_time_by_their_final_state() -> None:
    kept = Retention()

    assert (7 * DAY, 30 * DAY, 90 * DAY, 7 * DAY) == (
        kept.completed,
        kept.failed,
        kept.dead_letter,
        kept.cancelled,
    )


@pytest.mark.req("A-4")
@pytest.mark.parametrize("name", ["queue_depth", "submission_rate"])
def test_quotas_are_off_or_at_least_one(name: str) -> None:
    assert getattr(Limits(), name) is None
    assert 1 == getattr(Limits(**{name: 1}), name)
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Limits(**{name: 0})


def test_task_declares_its_backoff_without_a_custom_function() -> None:
    declared = Backoff(strategy=BackoffKind.LINEAR)

    assert declared_backoff(None) is None
    assert declared == declared_backoff(declared)
    assert Backoff(strategy=BackoffKind.CUSTOM) == declared_backoff(lambda _: 1.0)


def test_own_strategies_need_no_function() -> None:
    assert not any(Backoff(strategy=kind).needs_function for kind in BackoffKind)
