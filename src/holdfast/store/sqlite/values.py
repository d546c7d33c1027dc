"""How single values look in the file: times, ids, and what stands for nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from holdfast.model.payload import clean

Key = bytes | str
Row = tuple[Any, ...]  # sqlite3 knows no column types
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NOTHING = ""
"""Bound where there is no text or blob: the sqlite3 module takes ten times longer over None."""
NEVER = -1
"""Bound where there is no time or number; statements turn both into NULL."""


@lru_cache(4096)
def micros(moment: datetime) -> int:
    """Return a time as the file keeps it."""
    return (moment - EPOCH) // _MICROSECOND


@lru_cache(4096)
def moment(instant: int) -> datetime:
    """Return a time as it was before it was kept."""
    return EPOCH + timedelta(microseconds=instant)


def micros_of_span(span: timedelta) -> int:
    """Return a span as the file keeps it."""
    return span // _MICROSECOND


def key_of(job_id: str) -> Key:
    """Return an id as the file keeps it: a UUID in 16 bytes, anything else as text.

    Text that no file can hold becomes text that no job has.
    """
    digits = job_id.replace("-", "")
    if len(digits) != 32 or len(job_id) != 36 or job_id[8::5][:4] != "----":
        return clean(job_id)
    try:
        key = bytes.fromhex(digits)
    except ValueError:
        return clean(job_id)
    return key if key.hex() == digits else clean(job_id)  # fromhex takes capitals and blanks


def id_of(key: Key) -> str:
    """Return the id that was kept as this key."""
    if isinstance(key, str):
        return key
    return f"{key[:4].hex()}-{key[4:10].hex('-', 2)}-{key[10:].hex()}"
