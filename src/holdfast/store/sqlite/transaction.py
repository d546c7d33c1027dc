"""One transaction of the writer, shared by the operations of a batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TypeVar

from holdfast.store.counters import Counters
from holdfast.store.sqlite.connection import parameters, repeated, statement
from holdfast.store.sqlite.encode import Row, micros

T = TypeVar("T")

_AT = 6  # the column of the time in a journal row
MINUTE = 60_000_000

CHUNKS = (64, 32, 16, 8, 4, 2, 1)
"""How many rows one statement inserts: the largest chunks first."""

ClaimedSeqs = dict[str, int]
"""``job.seq`` of the jobs that this process claimed, by id."""

Marks = dict[int, tuple[int, int]]
"""The bounds of the journal numbers of each minute."""

MARKED_AHEAD = 256
"""Journal numbers by which a mark is ahead: so most commits have one page less to write."""


class Transaction:
    """One transaction, shared by the operations of a batch."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: datetime,
        kept: int,
        places: ClaimedSeqs,
        *,
        marked: Marks,
    ) -> None:
        self.connection = connection
        self.claimed_seqs = places
        self.execute = connection.execute
        self.now = now
        self.instant = micros(now)
        self.events_kept = kept
        self.earlier: Counters | None = None
        """Of the operations before this one, as far as they are not written."""
        self.counters = Counters()
        self.woken: set[str | None] = set()
        """Queues that may have work now; None for all."""
        self.has_events = False
        """Whether rows were added to the journal."""
        self.number, ages = connection.execute(statement("newest_number")).fetchone()
        self._marks: dict[int, list[int]] = {}
        self._marked = marked
        self.new_marks: Marks = {}
        """What ``finish`` wrote, for the transactions after this one."""
        self._ageing: dict[str, int] | None = None if ages else {}
        self._limited: bool | None = None

    def many(self, name: str, rows: Sequence[Row]) -> None:
        """Run one statement for many rows."""
        if rows:
            self.connection.executemany(statement(name), rows)

    def insert(self, name: str, rows: Sequence[Row]) -> None:
        """Insert rows, many with one statement: the sqlite3 module is slow between two rows."""
        first = 0
        for some in CHUNKS:
            while len(rows) - first >= some:
                values = tuple(chain.from_iterable(rows[first : first + some]))
                self.execute(repeated(name, some), values)
                first += some

    def insert_alike(self, name: str, shared: Row, values: Sequence[object]) -> int:
        """Insert rows that share the first parameters of a statement; return how many.

        ``values`` are the other parameters, row after row.
        """
        width = parameters(name) - len(shared)
        first, rows, written = 0, len(values) // width, 0
        for some in CHUNKS:
            while rows >= some:
                last = first + some * width
                text = repeated(name, some, shared=len(shared))
                written += self.execute(text, (*shared, *values[first:last])).rowcount
                first, rows = last, rows - some
        return written

    def journal(self, rows: Sequence[Row]) -> None:
        """Append to the journal, and mark where its minutes begin and end."""
        if not rows:
            return
        self.insert("journal", rows)
        before = rows[0]
        for row in rows:
            if row[_AT] // MINUTE != before[_AT] // MINUTE:
                self.mark(before[_AT], before[0])
                self.mark(row[_AT], row[0])
            before = row
        self.journalled(rows[0][_AT], rows[0][0], rows[0][0])
        self.mark(before[_AT], before[0])

    def journalled(self, instant: int, first: int, last: int) -> None:
        """Mark a range of journal numbers that was written for one instant."""
        self.has_events = True
        minute = instant // MINUTE
        if minute in self._marks:
            self.mark(instant, first)
            self.mark(instant, last)
        else:
            self._marks[minute] = [first, last]

    def mark(self, instant: int, number: int) -> None:
        """Record that the minute of an instant includes this journal number."""
        bounds = self._marks.setdefault(instant // MINUTE, [number, number])
        bounds[0] = min(bounds[0], number)
        bounds[1] = max(bounds[1], number)

    @property
    def ageing(self) -> dict[str, int]:
        """The interval of every queue with ageing, in microseconds."""
        if self._ageing is None:
            self._ageing = dict(self.execute(statement("ageing")).fetchall())
        return self._ageing

    @property
    def limited(self) -> bool:
        """Whether a job that stops running may make room for others; no rate has room for it."""
        if self._limited is None:
            self._limited = bool(self.execute(statement("limited")).fetchone()[0])
        return self._limited

    def settings_changed(self) -> None:
        """Make every process read the settings again."""
        self._ageing = self._limited = None
        self.woken.add(None)
        self.execute(statement("touch_settings"))

    def finish(self) -> None:
        """Write counters and marks, once for all operations."""
        self.count()
        for minute, (first, last) in self._marks.items():
            marked = self._marked.get(minute)
            if marked is None or first < marked[0] or last > marked[1]:
                self.new_marks[minute] = first, last + MARKED_AHEAD
                self.execute(statement("mark"), (minute, first, last + MARKED_AHEAD))

    def keep_counters(self) -> None:
        """Keep the counters of an operation: the next one may fail and undo only its own."""
        if self.earlier is not None:
            self.counters.add(self.earlier)
        self.earlier, self.counters = self.counters, Counters()

    def count(self) -> None:
        """Write the counters; at the end, or before an operation reads them."""
        counters, self.counters = self.counters, Counters()
        if self.earlier is not None:
            counters.add(self.earlier)
            self.earlier = None
        self.many(
            "tally",
            [
                (queue, type_, priority, state._value_, change)
                for (queue, type_, priority, state), change in counters.tallies.items()
                if change
            ],
        )
        self.many(
            "measure",
            [
                (minute, queue, type_, priority, measure._value_, bucket, count, top)
                for (minute, queue, type_, priority, measure, bucket), (
                    count,
                    top,
                ) in counters.readings.items()
            ],
        )


Operation = Callable[[Transaction], T]
