"""One writer per process: all pending operations are written in one transaction.

A commit costs a sync of the disk; fifty waiting callers share one. Each operation runs under
its own savepoint, so that a failure undoes no other, and no transaction outlives a call.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.errors import StoreUnavailableError
from holdfast.runtime.clock import Clock
from holdfast.store.counters import Counters
from holdfast.store.sqlite import connection
from holdfast.store.sqlite.connection import (
    BUSY,
    CHECKPOINT_PAGES,
    OpenFile,
    connect,
    primary_code,
    translation,
)
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import SerialExecutor, ThreadExecutor, call_on
from holdfast.store.sqlite.transaction import ClaimedSeqs, Marks, Operation, Transaction

T = TypeVar("T")

_TRY_MILLISECONDS = 500

FROZEN_AFTER = 10
"""Waits of half a second without any commit before the lock counts as stuck."""

CLAIMED_KEPT = 10_000

_BEGIN = "BEGIN IMMEDIATE"

GIVE_UP_AFTER = 120
"""Waits in all, while others do commit, before giving up."""

PROMPT_SECONDS = 0.001
"""How long a commit may take to be made in the thread of an event loop."""

PROMPT_WRITES = 64
"""How many writes in a row the threads of callers make: only that of the writer checkpoints."""

LOOK_AGAIN = 0.1
"""Seconds after which a write looks for the file before it begins, and not only at its end."""

COMMITS_MEASURED = 8
"""The weight of the newest commit in the average is one of so many."""


Answer = tuple[object, BaseException | None]
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
        self._marked: Marks = {}
        """The newest marks that were committed."""
        self._lock = threading.Lock()
        """Held while a thread uses the connection."""
        self._prompt_writes = 0
        """Writes in the threads of callers since the newest in the executor."""
        self._pace = PROMPT_SECONDS
        """How many seconds a commit takes, on average of the newest ones."""
        self._checked = float("-inf")
        """When the file was still in its place."""
        self._is_simulated = not isinstance(executor, ThreadExecutor)
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
        self.drain()
        with self._lock:
            if self.connection is not None:
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

    def write_now(self, operation: Operation[T], *, patient: bool) -> T | None:
        """Run an operation in this thread and return its answer; None when ``write`` must do it.

        That is while others write, and unless ``patient`` while the disk is slow. A process that
        holds the lock is waited for in the executor, and the log is checkpointed there.
        """
        is_quick = patient or self._pace < PROMPT_SECONDS
        if self._waiting or not is_quick or self._is_simulated:
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self.connection is None or self._prompt_writes >= PROMPT_WRITES:
                return None
            ((answer, error),) = self._run(self.connection, [operation], prompt=True)
        finally:
            self._lock.release()
        if error is None:
            return answer  # type: ignore[return-value]  # the answer of this operation
        if isinstance(error, StoreUnavailableError):
            return None
        raise error

    def drain(self) -> None:
        """Write pending operations; runs in the executor."""
        operations, futures = [], []
        while self._waiting:
            operation, future = self._waiting.popleft()
            if not future.cancelled():
                operations.append(operation)
                futures.append(future)
        if operations:
            with self._lock:
                assert self.connection is not None
                answers = self._run(self.connection, operations)
            _answer([(future, *answer) for future, answer in zip(futures, answers, strict=True)])

    def _run(
        self,
        connection: sqlite3.Connection,
        operations: Sequence[Operation[object]],
        *,
        prompt: bool = False,
    ) -> list[Answer]:
        try:
            if self._clock.monotonic() - self._checked > LOOK_AGAIN:
                self._file.check()
            if prompt:
                self._begin_now(connection)
            else:
                self._begin_patiently(connection)
            transaction = self._transaction(connection)
            shared = len(operations) > 1
            answers = [self._attempt(transaction, each, shared=shared) for each in operations]
            if connection.in_transaction:
                transaction.finish()
                self._commit(connection)
                self._marked = transaction.new_marks or self._marked
            self._file.check()  # a file deleted meanwhile took this commit with it
            self._checked = self._clock.monotonic()
        except BaseException as error:  # raised in the callers
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not isinstance(error, Exception):
                raise  # an interrupt of the program, in the thread of a caller
            return [(None, self._translated(error))] * len(operations)
        self._committed(transaction)
        return answers

    def _commit(self, connection: sqlite3.Connection) -> None:
        begun = self._clock.monotonic()
        connection.execute("COMMIT")
        # One commit that waits for a checkpoint, or for the processor, does not decide.
        spent = min(self._clock.monotonic() - begun, 4 * PROMPT_SECONDS)
        self._pace += (spent - self._pace) / COMMITS_MEASURED

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        if len(self._claimed_seqs) > CLAIMED_KEPT:
            self._claimed_seqs.clear()  # they only save a lookup
        kept = self._location.events_kept
        seqs, marked = self._claimed_seqs, self._marked
        return Transaction(connection, self._clock.now(), kept, seqs, marked=marked)

    def _attempt(
        self, transaction: Transaction, operation: Operation[object], *, shared: bool
    ) -> Answer:
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
        if shared:
            transaction.keep_counters()
        return answer, None

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error):
            return translation(error, self._location.path)
        return error

    def _begin_now(self, connection: sqlite3.Connection) -> None:
        """Take the lock if it is free."""
        if not self._prompt_writes:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._prompt_writes += 1
        connection.execute(_BEGIN)

    def _begin_patiently(self, connection: sqlite3.Connection) -> None:
        if self._prompt_writes:
            connection.execute(f"PRAGMA busy_timeout = {_TRY_MILLISECONDS}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self._prompt_writes = 0
        self._begin(connection)

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Wait for the lock while other processes commit, but not for a frozen one."""
        stuck, seen = 0, None
        for _ in range(GIVE_UP_AFTER):
            try:
                connection.execute(_BEGIN)
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
