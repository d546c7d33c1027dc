"""The context of a handler: its job, and what it may do while it holds the lease.

``JobContext`` is for coroutine handlers. ``SyncJobContext`` has the same methods for plain
functions in threads and processes; they block. Every write is made under the lease: once it
is lost, ``StaleLeaseError`` stops the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from holdfast.encryption.envelope import require_decrypted
from holdfast.errors import (
    Fault,
    JobCancelledError,
    StaleLeaseError,
    ValidationError,
    WaitForChildren,
)
from holdfast.model.children import ChildJob, checked_kind, must_wait
from holdfast.model.job import (
    DependencyKind,
    Encoding,
    Job,
    LogLine,
    Progress,
)
from holdfast.model.payload import clean, decode_result, encode, updated_payload
from holdfast.model.submission import Submission, SubmitOptions
from holdfast.tasks.job_view import ContextView, Signals
from holdfast.tasks.spawning import BoundTask, check_key, child_of, received
from holdfast.tasks.transactions import AsyncOnly

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import TupleRow

T = TypeVar("T")

Fields = Mapping[str, object] | None
"""The fields of a log line."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_LOG_MESSAGE = 8192


class Channel(Protocol):
    """How a context reaches the store; provided by what runs the job."""

    def now(self) -> datetime:
        """Return the store's time."""

    async def progress(self, progress: Progress) -> None:
        """Record the newest progress; may be written a moment later."""

    async def checkpoint(self, data: bytes) -> bool:
        """Write a checkpoint; False when the lease is lost."""

    async def update_payload(self, data: bytes) -> bool:
        """Replace the payload, in the job's encoding; False when the lease is lost.

        Raises ``ValidationError`` when it is larger than a new job's may be.
        """

    async def log(self, line: LogLine) -> None:
        """Record a log line; may be written a moment later."""

    async def spawn(self, submission: Submission, key: str | None) -> str:
        """Submit a child under the lease and return its id."""

    async def spawn_prepared(self, submission: Submission, key: str | None) -> str:
        """Submit a child that the middleware has seen already."""

    async def results(self) -> dict[str, bytes | None]:
        """Return the results of the jobs this one waited for, by id."""

    async def children(self) -> list[ChildJob]:
        """Return the jobs that this one has spawned, with their results as stored."""

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Open a transaction that completes the job when it commits, with what ``result`` returns.

        ``blocking``: its connection is used in another thread.
        """


class JobContext(ContextView):
    """The context of a coroutine handler."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals, channel: Channel) -> None:
        super().__init__(job, deadline, signals)
        self._channel = channel

    async def report_progress(self, percent: int, message: str = "") -> None:
        """Report the progress of the job, 0 to 100."""
        if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
            raise ValidationError(
                [Fault("percent", "OUT_OF_RANGE", f"must be 0 to 100, got {percent!r:.60}")]
            )
        text = clean(message, MAX_LOG_MESSAGE)
        progress = Progress(percent, text, self._channel.now(), self.attempt)
        await self._channel.progress(progress)

    async def checkpoint(self, state: object) -> None:
        """Store state for the next attempt: bytes as they are, anything else as JSON.

        Raises ``JobCancelledError`` when the job was cancelled (the state is stored), and
        ``StaleLeaseError`` when the lease is lost.
        """
        data, _ = encode(state)
        if self._signals.lease_lost or not await self._channel.checkpoint(data):
            raise StaleLeaseError(self.job_id)
        self._job = msgspec.structs.replace(self._job, checkpoint=data)
        if self._signals.cancel is not None:
            raise JobCancelledError(self.job_id, self._signals.cancel.reason)

    async def update_payload(self, payload: object) -> None:
        """Replace the payload of the job: the next attempt, and every reader, receives this one.

        The arguments of this attempt stay. A payload of bytes stays one of bytes, and JSON stays
        JSON. On Redis it is BullMQ's ``updateData``. Raises ``ValidationError`` for a payload
        that cannot be submitted, and ``StaleLeaseError`` when the lease is lost.
        """
        data = updated_payload(self._job, payload)
        if self._signals.lease_lost or not await self._channel.update_payload(data):
            raise StaleLeaseError(self.job_id)
        self._job = msgspec.structs.replace(self._job, payload=data)

    @overload
    async def spawn(
        self, task: Submission, *, key: str | None = None, **options: Unpack[SubmitOptions]
    ) -> str: ...
    @overload
    async def spawn(
        self,
        task: str | BoundTask,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str: ...
    async def spawn(
        self,
        task: str | BoundTask | Submission,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit a child job and return its id.

        ``task`` is a task or ``task.using(...)`` or the name of a type, with a payload, or a
        ``Submission`` such as ``task.submission(...)``. ``options`` win over those of a task or
        submission. With a ``key``, a later attempt that spawns the same key gets the same child
        instead of a second one. An ``idempotency_key`` that another job holds returns that job.
        A job that waits FAN_IN for this one waits for the child, too.
        """
        check_key(key)
        return await self._channel.spawn(child_of(task, payload, options), key)

    async def log(self, level: str, message: str, fields: Fields = None, /, **more: object) -> None:
        """Log a line with the job, which keeps the newest thousand.

        Fields are given as a mapping, as keywords, or both.
        """
        named = {**(fields or {}), **more}
        if level.upper() not in LEVELS:
            raise ValidationError(
                [Fault("level", "INVALID", f"must be one of {', '.join(LEVELS)}, got {level!r}")]
            )
        line = LogLine(
            self._channel.now(),
            level.upper(),
            clean(message, MAX_LOG_MESSAGE),
            self.attempt,
            {clean(name, 128): clean(str(value), 1024) for name, value in named.items()},
        )
        await self._channel.log(line)

    async def dependency_results(self) -> dict[str, object]:
        """Return the results of the jobs this one waited for, by id; None for an empty one.

        For FAN_IN these are the named job and everything it spawned.
        """
        results = await self._channel.results()
        for job_id, data in results.items():
            require_decrypted(data, f"result of job {job_id}")
        return {job_id: decode_result(data) for job_id, data in results.items()}

    async def wait_for_children(self, kind: DependencyKind | str = "AFTER_ALL") -> list[ChildJob]:
        """Return the jobs that this one has spawned, once all of them have ended.

        While one has not, the job waits in PENDING: this call ends the handler with
        ``WaitForChildren``, and the handler runs again from its start when they have ended. No
        attempt is used up. Spawn with a ``key``, or write a checkpoint, so that the next run does
        not spawn again. With ``AFTER`` the job ends like the first child that does not complete.
        Raises ``StaleLeaseError`` when the lease is lost.
        """
        kind = checked_kind(kind)
        if self._signals.lease_lost:
            raise StaleLeaseError(self.job_id)
        children = await self._channel.children()
        if must_wait(kind, children):
            raise WaitForChildren(kind)
        return [received(child) for child in children]

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[TupleRow]]:
        """Open a database transaction that completes this job when it commits; PostgreSQL only.

        ``async with ctx.transaction() as conn`` provides a psycopg connection. The writes of the
        block, the completion of the job and the value of ``set_result`` commit together; a lost
        lease rolls everything back. An exception in the block rolls back and propagates, and
        ``raise psycopg.Rollback()`` rolls back and leaves the job to the handler. After the
        commit the job accepts no more writes, and the handler's return value is not stored.
        """
        opened = self._transaction(lambda: self.given_result)
        return cast("AbstractAsyncContextManager[AsyncConnection[TupleRow]]", AsyncOnly(opened))

    def _transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        return self._channel.transaction(result, blocking=blocking)


Call = Callable[..., object]
"""Runs a ``JobContext`` method by name on the loop and blocks for its result."""


class SyncJobContext(ContextView):
    """The context of a plain function: the same methods, blocking."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals, call: Call) -> None:
        super().__init__(job, deadline, signals)
        self._call = call

    def report_progress(self, percent: int, message: str = "") -> None:
        """Report the progress of the job, 0 to 100."""
        self._call("report_progress", percent, message)

    def checkpoint(self, state: object) -> None:
        """Store state for the next attempt; see ``JobContext.checkpoint``."""
        data, _ = encode(state)
        self._call("checkpoint", data)
        self._job = msgspec.structs.replace(self._job, checkpoint=data)

    def update_payload(self, payload: object) -> None:
        """Replace the payload of the job; see ``JobContext.update_payload``."""
        data = updated_payload(self._job, payload)
        self._call(
            "update_payload", data if self._job.encoding is Encoding.BYTES else msgspec.Raw(data)
        )

    @overload
    def spawn(
        self, task: Submission, *, key: str | None = None, **options: Unpack[SubmitOptions]
    ) -> str: ...
    @overload
    def spawn(
        self,
        task: str | BoundTask,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str: ...
    def spawn(
        self,
        task: str | BoundTask | Submission,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit a child job and return its id; see ``JobContext.spawn``."""
        return str(self._call("spawn", task, payload, key=key, **options))

    def log(self, level: str, message: str, fields: Fields = None, /, **more: object) -> None:
        """Log a line with the job; see ``JobContext.log``."""
        named = {name: str(value) for name, value in {**(fields or {}), **more}.items()}
        self._call("log", level, message, named)

    def dependency_results(self) -> dict[str, object]:
        """Return the results of the jobs this one waited for, by id."""
        results = self._call("dependency_results")
        assert isinstance(results, dict)
        return results

    def wait_for_children(self, kind: DependencyKind | str = "AFTER_ALL") -> list[ChildJob]:
        """Return the spawned jobs once all have ended; see ``JobContext.wait_for_children``."""
        return cast("list[ChildJob]", self._call("wait_for_children", kind))

    def transaction(self) -> AbstractContextManager[Connection[TupleRow]]:
        """Open a database transaction that completes this job; see ``JobContext.transaction``.

        ``with ctx.transaction() as conn`` provides a blocking psycopg connection, in threads
        only: not to a handler with ``runner="process"``.
        """
        opened = self._call("_transaction", lambda: self.given_result, blocking=True)
        return cast("AbstractContextManager[Connection[TupleRow]]", opened)
