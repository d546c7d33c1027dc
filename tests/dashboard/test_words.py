"""How values read, what the search box understands, and what is shown of a payload."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.dashboard import charts, formats
from holdfast.dashboard.payloads import MOST_BYTES, shown_value
from holdfast.dashboard.rendering import stable
from holdfast.dashboard.routing import Addresses, segments_of
from holdfast.dashboard.search import completions, parse, with_state
from holdfast.dashboard.sentences import spoken
from holdfast.observe.redaction import Redaction

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.34, "340 ms"),
        (0.9999, "1.0 s"),
        (9.96, "10 s"),
        (59.96, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (90_061, "1 d 1 h"),
        (-2, "-2.0 s"),
    ],
)
def test_durations_have_the_two_units_that_matter(seconds: float, text: str) -> None:
    assert text == formats.duration(seconds)
    assert text == formats.duration(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (5, "5 s ago"), (-90, "in 1 min"), (7200, "2 h ago"), (200_000, "2 d ago")],
)
def test_instants_are_relative(seconds: int, text: str) -> None:
    assert text == formats.relative(NOW - timedelta(seconds=seconds), NOW)


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999"), (9999, "9\u202f999"), (12_345, "12.3k"), (3_100_000, "3.1M")]
)
def test_large_numbers_are_short(number: int, text: str) -> None:
    assert text == formats.short(number)


@pytest.mark.parametrize(
    ("series", "text"),
    [
        ((0, 0), ""),
        ((0,) * 59 + (5,), "5/h"),
        ((0, 1, 0), "0.3/min"),
        ((1, 2), "1.5/min"),
        ((12,), "12/min"),
    ],
)
def test_rates_are_per_minute_or_per_hour(series: tuple[int, ...], text: str) -> None:
    assert text == formats.per_minute(series)


@pytest.mark.parametrize(
    ("size", "text"),
    [(512, "512 B"), (1536, "1.5 KiB"), (96 * 2**20, "96 MiB"), (2**40, "1024 GiB")],
)
def test_sizes_have_no_empty_decimals(size: int, text: str) -> None:
    assert text == formats.byte_size(size)


def test_control_and_bidi_characters_are_written_out() -> None:
    assert r"a\u202eb\u0007c\u200bd" == formats.visible("a\u202eb\x07c\u200bd")
    assert "grüße\nline\ttab 日本" == formats.visible("grüße\nline\ttab 日本")


def test_search_reads_every_qualifier() -> None:
    query = parse(
        'state:failed,ready type:email.send,*.render queue:mail tag.tenant:"acme inc"'
        " priority:high correlation:order-1 code:SMTP worker:web-* id:3f2a after:1h"
        " before:2026-11-16",
        now=NOW,
        types=["invoice.render", "email.send"],
    )

    assert () == query.faults
    assert {
        "states": ["FAILED", "SCHEDULED"],
        "types": ["email.send", "invoice.render"],
        "queues": ["mail"],
        "tags": {"tenant": "acme inc"},
        "priorities": ["HIGH"],
        "correlation_id": "order-1",
        "code": "SMTP",
        "worker": "web-*",
        "id_prefix": "3f2a",
        "created_after": NOW - timedelta(hours=1),
        "created_before": datetime(2026, 11, 16, tzinfo=UTC),
    } == query.filter


@pytest.mark.parametrize(
    "text",
    [
        *("state:", "state:purple", "colour:red", "priority:9", "after:soon", "before:99-99"),
        *("-type:email.send", "-email", "code:HTTP_*_5", "tag.tenant:ac*", "correlation:a*"),
    ],
)
def test_search_says_what_it_does_not_understand(text: str) -> None:
    assert 1 == len(parse(text, now=NOW).faults)


def test_pattern_without_a_match_finds_nothing_instead_of_everything() -> None:
    query = parse("nothing-like-it", now=NOW, types=["email.send"])

    assert ["email.send"] != query.filter["types"]
    assert query.filter["types"]


def test_patterns_are_taken_where_they_work() -> None:
    query = parse('code:HTTP_* worker:web-* id:3F2a1b2c* tag.a:"*"', now=NOW)

    assert () == query.faults
    assert "3f2a1b2c" == query.filter["id_prefix"]
    assert {"a": "*"} == query.filter["tags"]


def test_word_alone_can_mean_something_else() -> None:
    query = parse("state:failed SMTP", now=NOW)

    assert "state:failed code:SMTP*" in query.alternatives()
    assert () == parse("one two", now=NOW).alternatives()


def test_hostile_search_is_bounded() -> None:
    text = "state:failed " + '"' * 5000 + "tag.:x \x00 :: *:" * 500

    assert parse(text, now=NOW).filter["states"] == ["FAILED"]


def test_another_state_replaces_the_one_of_a_search() -> None:
    assert "state:failed type:a" == with_state("type:a state:ready", "failed")
    assert "type:a" == with_state("type:a state:ready", "")


def test_completion_keeps_what_stands_before() -> None:
    found = completions("state:failed type:em", {"type": ["email.send", "report"]})

    assert ["state:failed type:email.send"] == found


def test_payload_keeps_numbers_and_masks_secrets() -> None:
    data = b'{"big": 12345678901234567890123, "rate": 1.10, "password": "x", "n": null}'

    tree = shown_value(msgspec.Raw(data), Redaction()).tree

    assert tree is not None
    assert ["12345678901234567890123", "1.10", '"***"', "null"] == [
        child.text for child in tree.children
    ]


@pytest.mark.parametrize(
    "data",
    [b"[" * 5000 + b"]" * 5000, b'"' + b"x" * MOST_BYTES + b'"', b'{"a":' * 60 + b"1" + b"}" * 60],
)
def test_deep_and_large_payloads_are_bounded(data: bytes) -> None:
    shown = shown_value(msgspec.Raw(data), Redaction())

    assert len(shown.text) <= 20_000
    assert shown.tree is not None or shown.note


def test_bytes_are_shown_as_hexadecimal() -> None:
    assert "00 ff" == shown_value(b"\x00\xff", Redaction()).text


def test_addresses_encode_segments_and_stay_below_the_root() -> None:
    url = Addresses("/a b")

    assert "/a%20b/jobs/x%2Fy?q=a+b" == url("jobs", "x/y", q="a b", cursor=None)
    assert url.is_own("/a%20b/jobs")
    for other in ("//evil", "/other", "https://evil", "/a%20bc", "/\\evil"):
        assert not url.is_own(other)


def test_segments_below_a_mount_keep_encoded_slashes() -> None:
    scope = {"root_path": "/jobs", "raw_path": b"/jobs/jobs/a%2Fb", "path": "/jobs/jobs/a/b"}

    assert ("jobs", "a/b") == segments_of(scope)


def test_what_the_clock_changes_does_not_count_as_a_change() -> None:
    one = '<time datetime="x">5 s ago</time><b>1</b>'

    assert stable(one) == stable(one.replace("5 s", "9 s"))
    assert stable(one) != stable(one.replace("<b>1", "<b>2"))


def test_charts_escape_labels_and_survive_empty_and_flat_series() -> None:
    assert "&lt;b&gt;" in charts.sparkline([1, 2], "<b>")
    assert "" == charts.sparkline([], "nothing")
    assert "<rect" in charts.sparkline([0] * 500, "flat")
    assert "" == charts.stacked([("idle", 0, "nothing")], "empty")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("due at 2026-11-18T17:04:44.057487Z", "due at 17:04:44 UTC"),
        ("due at 2026-11-20T02:00:00Z, later", "due at 2026-11-20 02:00:00 UTC, later"),
        ("2026-99-99T99:99:99Z is no time", "2026-99-99T99:99:99Z is no time"),
        ("nothing", "nothing"),
    ],
)
def test_instants_in_a_text_are_those_of_people(text: str, said: str) -> None:
    assert said == spoken(text, NOW)
