"""Every decoder of outside data, each as a function of bytes that must not raise.

A target accepts only the errors that its decoder documents, and checks accepted values.
"""

from __future__ import annotations

import base64
import contextlib
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import config
from holdfast.errors import StoreError, ValidationError
from holdfast.model import payload
from holdfast.model.acceptance import accept, read
from holdfast.model.job import Encoding, Job
from holdfast.model.policy import HOUR
from holdfast.model.times import (
    CENTURY,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from holdfast.operations.filters import failure_search, job_search
from holdfast.store import open_store
from holdfast.store.cursors import read_cursor, write_cursor
from holdfast.store.memory import queries as memory_queries
from holdfast.store.postgres.read import read_event_cursor
from holdfast.store.redis import bullmq, decode
from holdfast.store.redis import read as redis_reading
from holdfast.store.redis.fields import Row
from holdfast.store.redis.settings import ForeignTerms
from holdfast.store.sqlite import read as sqlite_reading
from holdfast.store.sqlite.encode import id_of, key_of
from holdfast.tasks.schedule import MissedRuns, cron_entry
from holdfast.worker.runners.protocol import Unframer, child_messages, worker_messages

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
ID = "0190d7c2-5b1e-7000-8000-000000000001"
SIGNED = 2**63


def _text(data: bytes) -> str:
    """Return any text, unpaired surrogates included."""
    return data.decode("utf-8", "surrogateescape")


def json_payloads(data: bytes) -> None:
    """Accepted JSON is valid for every reader and within the limits."""
    try:
        payload.check_json(data)
    except payload.PayloadError:
        return
    assert payload.encode(msgspec.Raw(data)) == (data, Encoding.JSON)
    value = json.loads(data)
    assert b"\x00" not in data
    msgspec.json.decode(data, type=msgspec.Raw)
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def values(data: bytes) -> None:
    """A value that is accepted as a payload encodes to bytes that are accepted again."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = {_text(data): [_text(data)]}
    try:
        encoded, _ = payload.encode(value)
    except payload.PayloadError:
        return
    payload.check_json(encoded)


def error_texts(data: bytes) -> None:
    """Any text becomes storable, and cleaning it again changes nothing."""
    cleaned = payload.clean(_text(data), 100)
    assert cleaned == payload.clean(cleaned, 100)
    assert b"\x00" not in cleaned.encode()


def cursors(data: bytes) -> None:
    """A cursor is refused, or is a position that every engine can store."""
    with contextlib.suppress(ValidationError):
        position = read_cursor(_text(data), "CREATED_ASC", 1 + len(data) % 2)
        assert all(-SIGNED <= part < SIGNED for part in position)
        again = read_cursor(write_cursor("CREATED_ASC", *position), "CREATED_ASC", len(position))
        assert position == again


def cursor_bodies(data: bytes) -> None:
    """The same holds for a body that looks like that of a cursor."""
    cursors(write_cursor("CREATED_ASC").encode() if not data else _cursor_like(data))


def _cursor_like(data: bytes) -> bytes:
    body = b"CREATED_ASC." + data
    return base64.urlsafe_b64encode(body).rstrip(b"=")


def event_cursors(data: bytes) -> None:
    """A position in the event stream is refused, or is one that every engine can store."""
    text = _text(data)
    for engine in (memory_queries, sqlite_reading, redis_reading):
        with contextlib.suppress(ValidationError):
            assert 0 <= engine._event_number(text) < SIGNED  # a decoder, without a store around it
    with contextlib.suppress(ValidationError):
        assert all(0 <= part < SIGNED for part in read_event_cursor(text))


def durations(data: bytes) -> None:
    """A duration is refused, or is within a century and formats back to the same value."""
    with contextlib.suppress(ValueError):
        span = parse_duration(_text(data))
        assert timedelta(0) <= span <= CENTURY
        assert span == parse_duration(format_duration(span))


def numbers_as_durations(data: bytes) -> None:
    """The same holds for a number of seconds, however large or small."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(ValueError):
        assert timedelta(0) <= parse_duration(value) <= CENTURY


def timestamps(data: bytes) -> None:
    """A time is refused, or is in UTC and formats back to the same value."""
    with contextlib.suppress(ValueError):
        moment = parse_timestamp(_text(data))
        assert moment == parse_timestamp(format_timestamp(moment))


def cron(data: bytes) -> None:
    """A schedule is refused, or has a next instant."""
    expression, _, zone = _text(data).partition("|")
    with contextlib.suppress(ValidationError):
        cron_entry("n", "t", expression, zone or "UTC", MissedRuns.ONE, None, {})


def ids(data: bytes) -> None:
    """An id survives its stored form, except for characters that no store can hold."""
    text = _text(data)
    assert payload.clean(text) == id_of(key_of(text))
    assert payload.clean(text) != text or text == id_of(key_of(text))


def submissions(data: bytes) -> None:
    """A submission is refused, or becomes a job with fields of the right types."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(ValidationError):
        job = accept(read(fields), job_id=ID, now=NOW)
        assert job == msgspec.convert(msgspec.structs.asdict(job), Job, strict=True)


def searches(data: bytes) -> None:
    """A filter is refused, or becomes a search."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict):
        with contextlib.suppress(ValidationError):
            job_search(fields)  # type: ignore[arg-type]  # any JSON
        with contextlib.suppress(ValidationError):
            failure_search(fields, now=NOW)  # type: ignore[arg-type]  # any JSON


_INSTANT = b"1768473000000000"
_FIXED = b"|".join([b"RUNNING", b"1", *[_INSTANT] * 7, b"1", b"1", b"1", b"", b"0", b"", _INSTANT])
_OWN_FIELDS = ("fixed", "rest", "depends_on", "own_progress", "own_result", "checkpoint")


def bullmq_hashes(data: bytes) -> None:
    """A job's hash is read as a job, whatever a Redis client wrote into it."""
    parts = iter([part or None for part in data.split(b"\xff")])
    own: dict[str, Any] = dict.fromkeys(_OWN_FIELDS) | {"now": _FIXED}
    row = {name: own[name] if name in own else next(parts, None) for name in Row.__struct_fields__}
    values = [row[name] for name in Row.__struct_fields__]
    job = decode.read_job(
        (b"q:1", b"q", [values[0] or b"", *values[1:]]), ForeignTerms("exponential")
    )
    assert 1 <= job.max_attempts <= 100
    job.backoff.delay(3)
    msgspec.json.encode(job.failure)


def bullmq_options(data: bytes) -> None:
    """The options of such a job are read, whatever JSON they are."""
    bullmq_hashes(b"\xff".join([b"n", *[b""] * 12, data.replace(b"\xff", b"")]))
    found = bullmq.backoff(_json_or_none(data))
    assert timedelta(0) <= found.delay(1) <= max(found.max_delay, HOUR)


def _json_or_none(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


_FILE = Path(tempfile.mkdtemp(prefix="holdfast-fuzz-"), "holdfast.toml")


def config_files(data: bytes) -> None:
    """A configuration file is read, or all its errors are listed."""
    _FILE.write_bytes(data)
    with contextlib.suppress(ValidationError):
        config.load(environment={}, path=str(_FILE))


def config_values(data: bytes) -> None:
    """The same holds for each value, from any source."""
    text = _text(data)
    for setting in config.SETTINGS.values():
        with contextlib.suppress(ValueError):
            setting.read(text)


_SCHEMES = ("", "sqlite:///", "postgresql://", "redis://", "valkeys://h/0?")


def store_urls(data: bytes) -> None:
    """A URL opens a store, or raises a StoreError."""
    with contextlib.suppress(StoreError):
        open_store(_SCHEMES[len(data) % len(_SCHEMES)] + _text(data))


def child_frames(data: bytes) -> None:
    """The output of a runner's child is split into messages and decoded, or refused."""
    unframer = Unframer()
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        for message in unframer.feed(half):
            for decoder in (child_messages, worker_messages):
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                    decoder.decode(message)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        json_payloads,
        values,
        error_texts,
        cursors,
        cursor_bodies,
        event_cursors,
        durations,
        numbers_as_durations,
        timestamps,
        cron,
        ids,
        submissions,
        searches,
        bullmq_hashes,
        bullmq_options,
        config_files,
        config_values,
        store_urls,
        child_frames,
    )
}

SEEDS: dict[str, tuple[bytes, ...]] = {
    "json_payloads": (b'{"a": [1, 2.5, "\\u00e9", null, true]}', b'"\\ud800"', b"[[[[[]]]]]"),
    "values": (b'{"a": [1, 2.5, "x", null, true]}', b"[NaN]", b"1e400"),
    "cursors": (b"Q1JFQVRFRF9BU0MuNQ", b"Q1JFQVRFRF9BU0MuNS4x"),
    "cursor_bodies": (b"12.-3", b"9223372036854775808", b"-9223372036854775808"),
    "event_cursors": (b"12", b"12-13", b"999999999999999999"),
    "durations": (b"PT5M", b"P1DT2H3M4.5S", b"P2W", b"P1Y"),
    "numbers_as_durations": (b"1.5", b"1e308", b"-1", b"1" * 400),
    "timestamps": (b"2026-01-15T10:30:00Z", b"0001-01-01T00:00:00+14:00"),
    "cron": (b"*/5 0 1 1 *|Europe/Berlin", b"0 0 30 2 *", b"@daily", b"0 0 L * 5#3", b"|\x00"),
    "ids": (ID.encode(), b"0190d7c2-5b1e-7000-8000-00000000000 "),
    "submissions": (
        b'{"type": "t", "payload": {"a": 1}, "delay": "PT1S", "priority": "HIGH"}',
        b'{"type": "t", "tags": {"a": "b"}, "backoff": {"initial_delay": 1, "multiplier": 2}}',
        b'{"type": "t", "idempotency_key": "k", "idempotency_window": 5, "depends_on": ["x"]}',
        b'{"type": "t", "scheduled_at": "2026-01-16T00:00:00Z", "callback_url": "http://a/"}',
    ),
    "searches": (
        b'{"types": ["a"], "states": ["FAILED"], "priorities": ["HIGH", 1], "limit": 5}',
        b'{"tags": {"a": "b"}, "order": "UPDATED_DESC", "created_after": "2026-01-16T00:00:00Z"}',
    ),
    "bullmq_hashes": (
        b"\xff".join([b"n", b"5", b"1", b"1", *[b""] * 8, b"w", b"{}", b"{}", b"1", b"no", b"[]"]),
    ),
    "bullmq_options": (
        b'{"attempts": 3, "backoff": {"type": "exponential", "delay": 1000, "jitter": 0.5}}',
        b'{"type": "fixed", "delay": 1e308}',
        b'{"attempts": 1e9, "backoff": 5}',
    ),
    "config_files": (
        b'url = "sqlite:///a.db"\n[worker]\nslots = 5\nqueues = ["a=1", "b=2"]\ngrace = "PT5S"\n',
        b'[log]\nlevel = "info"\nformat = "json"\n',
    ),
    "config_values": (b"a=1,b=2", b"PT5S", b"1.5", b"json"),
    "store_urls": (b"u:p@host:5432/db?pool=5&schema=a", b"a.db?durability=full", b"memory://"),
    "child_frames": (b"\x00\x00\x00\x09\x81\xa4type\xa2Up",),
}
"""The first inputs of the fuzzer."""
