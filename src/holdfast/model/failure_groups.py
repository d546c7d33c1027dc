"""Groups of failures: those of one type with one code whose messages differ in values only.

Each minute and each hour has a small book of its groups. A book is bounded, whatever messages
handlers raise: what does not fit is counted in one group, ``other``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from holdfast.model.job import Failure, Job, State
from holdfast.model.times import Instant

ENDS = frozenset({State.FAILED, State.DEAD_LETTER})
"""The states that count: a job that is retried by itself has not failed yet."""

MOST_GROUPS = 50
"""Groups of one book; further ones count as ``OTHER``."""
OTHER = "other"
"""The id of the group of all that exceed ``MOST_GROUPS``."""
MOST_READ = 2000
"""Characters of a message that are read: handlers raise messages of megabytes."""
MOST_KEPT = 200
"""Characters of a normalised message."""

_VALUES = re.compile(
    r"(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)"
    r"|(?P<text>'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|`[^`\n]{0,500}`)"
    r"|(?P<url>\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s'\"<>]+)"
    r"|(?P<path>(?:(?<=\s)|(?<=[(=:,])|^)(?:[A-Za-z]:)?(?:[/\\][\w.@+-]+){2,}[/\\]?)"
    r"|(?P<hex>\b0[xX][0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b)"
    r"|(?P<number>[-+]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?)"
)


def normalised(message: str) -> str:
    """Return a message with placeholders for its values.

    Those are numbers, hexadecimal numbers, UUIDs, quoted texts, addresses and paths. White space
    is one blank, and the text is bounded.
    """
    return _normalised(message[:MOST_READ])


@lru_cache(1024)
def _normalised(message: str) -> str:
    text = _VALUES.sub(lambda match: f"<{match.lastgroup}>", message)
    return " ".join(text.split())[:MOST_KEPT]


def group_of(type_: str, failure: Failure) -> str:
    """Return the id of the group that a failure of a job of a type belongs to."""
    return _group_id(type_, failure.code, normalised(failure.message))


@lru_cache(1024)
def _group_id(type_: str, code: str, message: str) -> str:
    parts = f"{type_}\0{code}\0{message}"
    return hashlib.blake2b(parts.encode("utf-8", "replace"), digest_size=6).hexdigest()


class BookEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a book holds about one group."""

    type: str
    code: str
    message: str
    count: int
    first: Instant
    last: Instant
    job_id: str


Book = Mapping[str, BookEntry]
"""Groups by id."""


def entries_of(jobs: Iterable[Job]) -> dict[str, BookEntry]:
    """Return the groups of jobs that failed just now."""
    found: dict[str, BookEntry] = {}
    for job in jobs:
        failure = job.failure
        if failure is None:
            continue
        at = failure.at or job.updated_at
        message = normalised(failure.message)
        entry = BookEntry(job.type, failure.code, message, 1, at, at, job.id)
        group = _group_id(job.type, failure.code, message)
        found[group] = joined(found[group], entry) if group in found else entry
    return found


def joined(one: BookEntry, other: BookEntry) -> BookEntry:
    """Return one group from two books; the newest failure is its example."""
    newest = other if other.last >= one.last else one
    return BookEntry(
        newest.type,
        newest.code,
        newest.message,
        one.count + other.count,
        min(one.first, other.first),
        newest.last,
        newest.job_id,
    )


def added(book: Book, more: Book) -> dict[str, BookEntry]:
    """Return a book with further entries, bounded."""
    result = dict(book)
    for group, entry in more.items():
        if group in result or len(result) < MOST_GROUPS:
            result[group] = joined(result[group], entry) if group in result else entry
        else:
            rest = replace(entry, type="", code="", message=OTHER)
            result[OTHER] = joined(result[OTHER], rest) if OTHER in result else rest
    return result


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of one type with one code and alike messages."""

    group: str
    """The id, the same in every window: ``search(group=...)`` lists the jobs that failed so."""
    type: str
    code: str
    message: str
    """The message with placeholders for its values."""
    count: int
    """Jobs that became FAILED or DEAD_LETTER in the window, also if they were retried since."""
    first_seen: datetime
    """The first such failure in the window."""
    last_seen: datetime
    sample_job_id: str
    """The job that failed last; it may have been deleted since."""
    series: tuple[int, ...] = ()
    """The count of each step of the window, the oldest first."""


class FailureGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of the failures of a window, the largest first."""

    since: datetime
    """When the first step begins."""
    step: timedelta
    """How long each step of a series is."""
    groups: tuple[FailureGroup, ...]
    total: int
    """All jobs that became FAILED or DEAD_LETTER in the window."""
    ungrouped: int = 0
    """Those of them that are in no group, such as jobs that another BullMQ client ran."""
    failed_now: Mapping[str, int] = {}
    """How many jobs of each type are FAILED or DEAD_LETTER now, whenever they failed."""


def summed(books: Iterable[tuple[int, Book]], *, first: int, steps: int) -> list[FailureGroup]:
    """Return the groups of numbered books, the largest first; a book's number is its step."""
    entries: dict[str, BookEntry] = {}
    series: dict[str, list[int]] = {}
    for number, book in books:
        if not 0 <= number - first < steps:
            continue
        for group, entry in book.items():
            entries[group] = joined(entries[group], entry) if group in entries else entry
            series.setdefault(group, [0] * steps)[number - first] += entry.count
    found = [
        FailureGroup(
            group=group,
            type=entry.type,
            code=entry.code,
            message=entry.message,
            count=entry.count,
            first_seen=entry.first,
            last_seen=entry.last,
            sample_job_id=entry.job_id,
            series=tuple(series[group]),
        )
        for group, entry in entries.items()
    ]
    found.sort(key=lambda one: (-one.count, one.type, one.code, one.group))
    return found
