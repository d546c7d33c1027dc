"""Keeps the books of failure groups beside the jobs, and reads them.

Each process that ends a job as failed adds it to the books of its minute and hour. A process that
dies in between leaves its last failures out of the groups; the totals come from the counters of the
store.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zlib import crc32

import msgspec

from holdfast.errors import Fault, StoreError, ValidationError
from holdfast.model.failure_groups import (
    ENDS,
    Book,
    BookEntry,
    FailureGroups,
    added,
    entries_of,
    summed,
)
from holdfast.model.job import Job
from holdfast.model.measures import Stats, minute_of
from holdfast.model.reserved import FAILURE_BOOKS
from holdfast.operations.series import LEVELS, slots
from holdfast.store import Record, RecordWrite, Store
from holdfast.store.damage import readable
from holdfast.store.namespaces import namespace_of

SHARDS = 4
"""Books of one minute: processes that fail jobs at once mostly write different ones."""
TRIES = 5
"""How often a book that another process changed is read again."""
BY_MINUTE = timedelta(hours=2)
"""Longer windows are counted by hours."""
LONGEST = timedelta(days=7)
MINUTES_KEPT = timedelta(hours=3)
PAGE = 500

_book = msgspec.json.Decoder(dict[str, BookEntry])


async def note_failures(store: Store, jobs: Iterable[Job]) -> None:
    """Add jobs that were just written as FAILED or DEAD_LETTER to the books.

    The jobs are written already: a store that is unavailable now only loses their group.
    """
    books: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
    shard = -1
    for job in jobs:
        failure = job.failure
        if failure is None or job.state not in ENDS or not job.trail:
            continue
        if shard < 0:
            shard = crc32(job.id.encode("utf-8", "replace")) % SHARDS
        minute = minute_of(failure.at or job.updated_at)
        namespace = namespace_of(job.queue)
        kind = f"{FAILURE_BOOKS}@{namespace}" if namespace else FAILURE_BOOKS
        books[kind, f"m/{minute:010d}/{shard}"].append(job)
        books[kind, f"h/{minute // 60:010d}/{shard}"].append(job)
    if books:
        with contextlib.suppress(StoreError):
            await _add(store, {place: entries_of(failed) for place, failed in books.items()})


async def _add(store: Store, books: dict[tuple[str, str], dict[str, BookEntry]]) -> None:
    left = books
    for _ in range(TRIES):
        writes = [await _write(store, kind, key, more) for (kind, key), more in left.items()]
        answers = await store.keep(writes)
        left = {
            place: more
            for (place, more), version in zip(left.items(), answers, strict=True)
            if version is None
        }
        if not left:
            return


async def _write(store: Store, kind: str, key: str, more: Book) -> RecordWrite:
    (record,) = await store.records(kind, [key])
    book = added(_entries(record), more)
    version = record.version if record else 0
    return RecordWrite(kind=kind, key=key, data=msgspec.json.encode(book), version=version)


def _entries(record: Record | None) -> dict[str, BookEntry]:
    """Return the entries of a book; one that cannot be read counts as empty."""
    return next(iter(readable([record.data] if record else [], _book.decode)), {})


async def failure_groups(store: Store, window: timedelta) -> FailureGroups:
    """Return the groups of the failures of a window up to now."""
    if not timedelta(0) < window <= LONGEST:
        message = "must be more than nothing and at most 7 days"
        raise ValidationError([Fault("time_range", "OUT_OF_RANGE", message)])
    minutes = 1 if window <= BY_MINUTE else 60
    now = store.now()
    newest, first = minute_of(now) // minutes, minute_of(now - window) // minutes
    prefix = "m/" if minutes == 1 else "h/"
    books = [
        (number, _entries(record))
        for kind in await _kinds(store)
        for record in await _browse(store, kind, prefix, f"{prefix}{first:010d}")
        for number in readable([record.key], lambda key: int(key.split("/")[1]))
    ]
    groups = summed(books, first=first, steps=newest - first + 1)
    since = datetime.fromtimestamp(first * minutes * 60, UTC)
    steps = await slots(store, LEVELS[0] if minutes == 1 else LEVELS[-1], first, newest)
    total = sum(step.total.failed for step in steps.values())
    return FailureGroups(
        since=since,
        step=timedelta(minutes=minutes),
        groups=tuple(groups),
        total=max(total, sum(one.count for one in groups)),
        ungrouped=max(0, total - sum(one.count for one in groups)),
        failed_now=_failed_now(await store.stats(timedelta(0))),
    )


async def _kinds(store: Store) -> list[str]:
    """Return the kinds of books that a store shows: its own, and those of its namespaces."""
    kinds = await store.kinds()
    return [kind for kind in kinds if kind.partition("@")[0] == FAILURE_BOOKS]


async def _browse(store: Store, kind: str, prefix: str, after: str) -> list[Record]:
    found: list[Record] = []
    while True:
        page = await store.browse(kind, prefix=prefix, after=after, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
        after = page[-1].key


def _failed_now(stats: Stats) -> dict[str, int]:
    counts = Counter[str]()
    for tally in stats.tallies:
        if tally.state in ENDS:
            counts[tally.type] += tally.count
    return dict(sorted(counts.items()))


async def prune_books(store: Store) -> None:
    """Delete the books of minutes and hours that no window reaches any more, some at a time."""
    minute = minute_of(store.now())
    for kind in await _kinds(store):
        for prefix, oldest in (
            ("m/", minute - MINUTES_KEPT // timedelta(minutes=1)),
            ("h/", minute // 60 - LONGEST // timedelta(hours=1)),
        ):
            page = await store.browse(kind, prefix=prefix, limit=PAGE)
            old = [record.key for record in page if record.key < f"{prefix}{oldest:010d}"]
            await store.keep([RecordWrite(kind=kind, key=key, data=None) for key in old])


__all__ = ["failure_groups", "note_failures", "prune_books"]
