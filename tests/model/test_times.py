"""Reading and writing durations and timestamps."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.times import (
    CENTURY,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_span,
    parse_timestamp,
    shown,
)

pytestmark = pytest.mark.req("A-9")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (300, 300),
        (0, 0),
        (0.25, 0.25),
        (timedelta(minutes=5), 300),
        ("PT5M", 300),
        ("PT0S", 0),
        ("P1D", 86_400),
        ("P2W", 14 * 86_400),
        ("P1DT2H3M4.5S", 93_784.5),
        ("PT36H", 129_600),
        ("PT0.000001S", 0.000001),
        ("P0.5D", 43_200),
        (36_525 * 86_400, 36_525 * 86_400),
    ],
)
def test_durations_are_seconds_iso_8601_or_timedelta(given: object, seconds: float) -> None:
    assert timedelta(seconds=seconds) == parse_duration(given)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30", 30),
        ("0.25", 0.25),
        ("250ms", 0.25),
        ("30s", 30),
        ("30 s", 30),
        ("1.5m", 90),
        ("5 min", 300),
        ("1h", 3600),
        ("7d", 604_800),
        ("PT5M", 300),
        (300, 300),
        (timedelta(minutes=5), 300),
    ],
)
def test_spans_of_people_may_be_short(given: object, seconds: float) -> None:
    assert timedelta(seconds=seconds) == parse_span(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("banana", "must be a duration: seconds, 30s, 5m, 1h, or ISO 8601 such as PT5M, got 'ba"),
        ("", "must be a duration"),
        ("5M", "must be a duration"),
        ("-5", "must be a duration"),
        ("1h30m", "must be a duration"),
        ("P1M", "must not use years or months, got 'P1M'"),
        ("999999999999d", "must not be longer than a century, got '999999999999d'"),
        (None, "must be seconds, a timedelta or an ISO 8601 duration, got None"),
    ],
)
def test_other_spans_are_refused_with_the_forms(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_span(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (-1, "must not be negative, got -1"),
        (timedelta(seconds=-1), "must not be negative, got -1 s"),
        (float("nan"), "must be a number, got nan"),
        (float("inf"), "must not be longer than a century, got inf"),
        (float("-inf"), "must not be negative, got -inf"),
        (10**400, "must not be longer than a century, got a very long integer"),
        pytest.param(-(10**5000), "must not be negative, got a very long integer", id="long"),
        (36_525 * 86_400 + 1, "must not be longer than a century"),
        ("P999999999D", "must not be longer than a century, got 'P999999999D'"),
        ("P999999999W", "must not be longer than a century, got 'P999999999W'"),
        ("P1Y", "must not use years or months, got 'P1Y'"),
        ("P1M", "must not use years or months, got 'P1M'"),
        ("P1Y2M3DT4H", "must not use years or months"),
        ("P", "must be an ISO 8601 duration such as PT5M, got 'P'"),
        ("PT", "must be an ISO 8601 duration"),
        ("P1DT", "must be an ISO 8601 duration"),
        ("", "must be an ISO 8601 duration such as PT5M, got ''"),
        ("5 minutes", "must be an ISO 8601 duration"),
        ("pt5m", "must be an ISO 8601 duration"),
        ("-PT5M", "must be an ISO 8601 duration"),
        ("PT5M\n", "must be an ISO 8601 duration"),
        ("PT\u0665M", "must be an ISO 8601 duration"),
        ("PT" + "9" * 100 + "S", "must be an ISO 8601 duration"),
        (True, "must be seconds, a timedelta or an ISO 8601 duration, got True"),
        (None, "must be seconds, a timedelta or an ISO 8601 duration, got None"),
        ([1], "must be seconds, a timedelta or an ISO 8601 duration, got a list"),
    ],
)
def test_other_durations_are_refused_with_the_reason(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_duration(given)


@given(st.timedeltas(timedelta(0), CENTURY))
def test_a_duration_survives_being_written_and_read(span: timedelta) -> None:
    assert span == parse_duration(format_duration(span))


@given(st.timedeltas(timedelta(0), timedelta(days=365)))
def test_a_duration_survives_as_seconds(span: timedelta) -> None:
    assert span == parse_duration(span.total_seconds())


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(minutes=5), "PT300S"),
        (timedelta(milliseconds=1500), "PT1.5S"),
        (timedelta(microseconds=1), "PT0.000001S"),
        (timedelta(seconds=-1.5), "-PT1.5S"),
        (timedelta(days=1, microseconds=10), "PT86400.00001S"),
    ],
)
def test_durations_are_written_as_seconds(span: timedelta, text: str) -> None:
    assert text == format_duration(span)


@pytest.mark.parametrize(
    "given",
    [
        "2026-01-15T10:30:00Z",
        "2026-01-15T10:30:00+00:00",
        "2026-01-15T12:30:00+02:00",
        "2026-01-15 10:30Z",
        "20260115T103000Z",
        datetime(2026, 1, 15, 10, 30, tzinfo=UTC),
        datetime(2026, 1, 15, 5, 0, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
    ],
)
def test_timestamps_are_iso_8601_or_datetime_in_any_zone(given: object) -> None:
    moment = parse_timestamp(given)

    assert datetime(2026, 1, 15, 10, 30, tzinfo=UTC) == moment
    assert UTC is moment.tzinfo


class Nowhere(tzinfo):
    """A zone that does not know its offset, which makes a time naive."""

    def utcoffset(self, _: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2026-01-15T10:30:00", "must carry a time zone, got '2026-01-15T10:30:00'"),
        ("2026-01-15", "must carry a time zone"),
        (datetime(2026, 1, 15), "must carry a time zone, got 2026-01-15T00:00:00"),
        (datetime(2026, 1, 15, tzinfo=Nowhere()), "must carry a time zone"),
        ("tomorrow", "must be an ISO 8601 timestamp such as 2026-01-15T10:30:00Z, got 'tomorrow'"),
        ("2026-02-30T00:00:00Z", "must be an ISO 8601 timestamp"),
        ("0001-01-01T00:00:00+10:00", "must lie between the years 1 and 9999"),
        ("9999-12-31T23:00:00-10:00", "must lie between the years 1 and 9999"),
        (1768473000, "must be a datetime or an ISO 8601 timestamp, got 1768473000"),
        (None, "must be a datetime or an ISO 8601 timestamp, got None"),
    ],
)
def test_other_timestamps_are_refused_with_the_reason(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_timestamp(given)


@given(st.datetimes(timezones=st.timezones(), allow_imaginary=False))
def test_a_timestamp_survives_being_written_and_read(moment: datetime) -> None:
    try:
        expected = moment.astimezone(UTC)
    except OverflowError:
        return

    assert expected == parse_timestamp(format_timestamp(moment)) == parse_timestamp(moment)


@given(st.text() | st.binary() | st.integers() | st.floats() | st.none())
def test_junk_is_refused_with_a_value_error_and_nothing_else(junk: object) -> None:
    for parse in (parse_duration, parse_timestamp):
        with contextlib.suppress(ValueError):
            parse(junk)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("short", "'short'"),
        ("x" * 61, "'" + "x" * 59 + "…'"),
        ("\ud800\x00", r"'\ud800\x00'"),
        (10**59, "1" + "0" * 59),
        pytest.param(10**5000, "a very long integer", id="long"),
        (True, "True"),
        (None, "None"),
        (1.5, "1.5"),
        (timedelta(minutes=1), "60 s"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        ({"a": 1}, "a dict"),
        (object(), "a object"),
    ],
)
def test_any_value_can_be_shown_in_a_message(value: object, text: str) -> None:
    assert text == shown(value)
