"""One writer per process: all pending operations are written in one transaction.

A commit costs a sync of the disk; fifty waiting callers share one. Each operation runs under
its own savepoint, so that a failure undoes no other, and no transaction outlives a call.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TypeVar

from holdfast.errors import StoreUnavailableError
from holdfast.runtime.clock import Clock
from holdfast.store.counters import Counters
from holdfast.store.sqlite import connection
from holdfast.store.sqlite.connection import (
    BUSY,
    OpenFile,
    connect,
    parameters,
    primary_code,
    repeated,
    statement,
    translation,
)
from holdfast.store.sqlite.encode import Row, micros
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import SerialExecutor, call_on

T = TypeVar("T")

_AT = 6  # the column of the time in a journal row
MINUTE = 60_000_000

_TRY_MILLISECONDS = 500

FROZEN_AFTER = 10
"""Waits of half a second without any commit before the lock counts as stuck."""

CHUNKS = (64, 32, 16, 8, 4, 2, 1)
"""How many rows one statement inserts: the largest chunks first."""

CLAIMED_KEPT = 10_000

ClaimedSeqs = dict[str, int]
"""``job.seq`` of the jobs that this process claimed, by id."""

GIVE_UP_AFTER = 120
"""Waits in all, while others do commit, before giving up."""


class Transaction:
    """One transaction, shared by the operations of a batch."""

    def __init__(
        self, connection: sqlite3.Connection, now: datetime, kept: int, places: ClaimedSeqs
    ) -> None:
        self.connection = connection
        self.claimed_seqs = places
        self.execute = connection.execute
        self.now = now
        self.instant = micros(now)
        self.events_kept = kept
        self.earlier = Counters()
        """Of the operations before this one, as far as they are not written."""
        self.counters = Counters()
        self.woken: set[str | None] = set()
        """Queues that may have work now; None for all."""
        self.has_events = False
        """Whether rows were added to the journal."""
        (self.number,) = connection.execute(statement("newest_number")).fetchone()
        self._marks: dict[int, list[int]] = {}
        self._ageing: dict[str, int] | None = None
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
        self.mark(instant, first)
        self.mark(instant, last)

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
        """Whether any limit is set."""
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
        self.many("mark", [(minute, *bounds) for minute, bounds in self._marks.items()])

    def count(self) -> None:
        """Write the counters; at the end, or before an operation reads them."""
        counters = Counters()
        counters.add(self.earlier)
        counters.add(self.counters)
        self.earlier, self.counters = Counters(), Counters()
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
Outcome = tuple["asyncio.Future[object]", object, BaseException | None]


class Writer:
    """Accepts operations from any event loop and answers once they are committed."""

    def __init__(
        self,
        location: Location,
        clock: Clock,
        executor: SerialExecutor,
        committed: Callable[[Transaction], None],
    ) -> None:
        self._location = location
        self._clock = clock
        self._executor = executor
        self._committed = committed
        self._waiting: deque[tuple[Operation[object], asyncio.Future[object]]] = deque()
        self._claimed_seqs: ClaimedSeqs = {}
        self.connection: sqlite3.Connection | None = None
        self._file: OpenFile
        """Set when the connection is."""

    def open(self) -> None:
        """Open the file, unless it is open, and update its schema; runs in the executor."""
        if self.connection is not None:
            return
        opened = connect(self._location)
        try:
            connection.prepare(opened, self._location)
            self._file = OpenFile(self._location.path)
            opened.execute(f"PRAGMA busy_timeout = {_TRY_MILLISECONDS}")
        except BaseException:
            opened.close()
            raise
        self.connection = opened

    def close(self) -> None:
        """Write pending operations and close the file; runs in the executor."""
        if self.connection is not None:
            self.drain()
            self.connection.close()
            self.connection = None

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation in the next transaction; return its answer once that is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._waiting.append((operation, future))
        # After the other callbacks of this turn: what they write joins the same transaction.
        loop.call_soon(self._executor.post, self.drain)
        return await future  # type: ignore[return-value]  # the answer of this operation

    def drain(self) -> None:
        """Write pending operations; runs in the executor."""
        batch = []
        while self._waiting:
            operation, future = self._waiting.popleft()
            if not future.cancelled():
                batch.append((operation, future))
        if batch:
            _answer(self._run(batch))

    def _run(self, batch: list[tuple[Operation[object], asyncio.Future[object]]]) -> list[Outcome]:
        assert self.connection is not None
        connection = self.connection
        try:
            self._file.check()
            self._begin(connection)
            transaction = self._transaction(connection)
            shared = len(batch) > 1
            outcomes = [
                (future, *self._attempt(transaction, operation, shared=shared))
                for operation, future in batch
            ]
            if connection.in_transaction:
                transaction.finish()
                connection.execute("COMMIT")
            self._file.check()  # again: a file deleted meanwhile took this commit with it
        except Exception as error:  # noqa: BLE001  # raised in the callers
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            failure = self._translated(error)
            return [(future, None, failure) for _, future in batch]
        self._committed(transaction)
        return outcomes

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        if len(self._claimed_seqs) > CLAIMED_KEPT:
            self._claimed_seqs.clear()  # they only save a lookup
        kept = self._location.events_kept
        return Transaction(connection, self._clock.now(), kept, self._claimed_seqs)

    def _attempt(
        self, transaction: Transaction, operation: Operation[object], *, shared: bool
    ) -> tuple[object, BaseException | None]:
        """Run one operation; undo it if it fails."""
        connection = transaction.connection
        earlier, number = transaction.earlier, transaction.number
        if shared:
            connection.execute("SAVEPOINT operation")
        try:
            answer = operation(transaction)
        except Exception as error:
            if not connection.in_transaction:
                raise  # the disk is full or broken: SQLite rolled the whole transaction back
            connection.execute("ROLLBACK TO operation" if shared else "ROLLBACK")
            transaction.earlier, transaction.number = earlier, number
            transaction.counters = Counters()
            return None, self._translated(error)
        finally:
            if shared and connection.in_transaction:
                connection.execute("RELEASE operation")
        transaction.earlier.add(transaction.counters)
        transaction.counters = Counters()
        return answer, None

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            return translation(error, self._location.path)
        return error

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Wait for the lock while other processes commit, but not for a frozen one."""
        stuck, seen = 0, None
        for _ in range(GIVE_UP_AFTER):
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if primary_code(error) not in BUSY:
                    raise
            else:
                return
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            stuck = stuck + 1 if version == seen or seen is None else 0
            seen = version
            if stuck >= FROZEN_AFTER:
                raise StoreUnavailableError(
                    f"{self._location.path} has been locked for 5 s without a commit: a process"
                    " that writes to it may be frozen (stopped, suspended or in a debugger);"
                    " resume or kill it"
                )
        raise StoreUnavailableError(
            f"{self._location.path} has been too busy for a minute: too many processes write to it"
        )


def _answer(outcomes: list[Outcome]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        loops.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, own in loops.items():
        call_on(loop, _settle, own)


def _settle(outcomes: list[Outcome]) -> None:
    for future, answer, error in outcomes:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)
