"""Patterns of BullMQ's schedulers match when BullMQ's own parser says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from holdfast.store.redis.bullmq_cron import local_zone, next_match


def millis(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "zone", "after", "expected"),
    [
        ("@daily", "Asia/Kolkata", "2026-06-15T12:00Z", "2026-06-16T00:00+05:30"),
        ("@weekends", "UTC", "2026-06-15T12:00Z", "2026-06-20T00:00Z"),
        ("@secondly", "UTC", "2026-06-15T12:00:00.5Z", "2026-06-15T12:00:01Z"),
        ("0 0 ? * 1", "UTC", "2026-06-15T12:00Z", "2026-06-22T00:00Z"),
        ("* 5", "UTC", "2026-06-15T12:00Z", "2026-06-19T00:00Z"),
        ("", "UTC", "2026-06-15T12:00Z", "2026-06-15T12:01Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"),
        ("*/20 * * * *", "Europe/Berlin", "2026-03-29T01:45+01:00", "2026-03-29T03:00+02:00"),
        ("*/20 * * * *", "Europe/Berlin", "2026-10-25T02:45+02:00", "2026-10-25T02:00+01:00"),
    ],
)
def test_next_match(pattern: str, zone: str, after: str, expected: str) -> None:
    assert millis(expected) == next_match(pattern, zone, millis(after))


@pytest.mark.parametrize("pattern", ["60 * * * *", "not a pattern", "0 0 30 2 *"])
def test_pattern_that_never_matches_has_no_next_match(pattern: str) -> None:
    assert None is next_match(pattern, "UTC", 0)


@pytest.fixture
def no_known_zone() -> Iterator[None]:
    local_zone.cache_clear()
    yield
    local_zone.cache_clear()


@pytest.mark.usefixtures("no_known_zone")
@pytest.mark.parametrize("name", ["America/New_York", ":America/New_York"])
def test_pattern_without_zone_means_local_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", name)

    found = next_match("0 4 * * *", "", millis("2026-06-15T12:00Z"))

    assert millis("2026-06-16T04:00-04:00") == found


@pytest.mark.usefixtures("no_known_zone")
def test_local_zone_that_is_unknown_counts_as_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Nowhere/None")

    assert millis("2026-06-16T04:00Z") == next_match("0 4 * * *", "", millis("2026-06-15T12:00Z"))
