"""What a handler is given: its job, and the things it may do while it holds the lease.

``JobContext`` is for coroutine handlers. ``SyncJobContext`` has the same surface for plain
functions in threads and processes; its methods block. Everything written goes through the
lease: once that is lost, ``StaleLeaseError`` tells the handler to stop.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar, Unpack, cast

import msgspec

from holdfast.encryption.envelope import must_be_open
from holdfast.errors import (
    Fault,
    JobCancelledError,
    PermanentError,
    StaleLeaseError,
    ValidationError,
)
from holdfast.model.job import CancelRequest, Job, LogLine, Progress
from holdfast.model.payload import clean, encode, encode_result
from holdfast.model.submission import SubmitOptions

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.rows import TupleRow

T = TypeVar("T")

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_LOG_MESSAGE = 8192


class Named(Protocol):
    """Anything that stands for a job type: a task."""

    @property
    def type(self) -> str: ...


class Signals:
    """What the outside world tells a running job; set by the worker, read by the context."""

    cancel: CancelRequest | None = None
    lease_lost = False


class Channel(Protocol):
    """How a context reaches the store; given by whoever runs the job."""

    def now(self) -> datetime:
        """Return the store's time."""
        ...

    async def progress(self, progress: Progress) -> None:
        """Keep the newest progress; may be written a moment later."""
        ...

    async def checkpoint(self, data: bytes) -> bool:
        """Write a checkpoint; False when the lease is lost."""
        ...

    async def log(self, line: LogLine) -> None:
        """Keep a log line; may be written a moment later."""
        ...

    async def spawn(
        self, type_: str, payload: object, key: str | None, options: SubmitOptions
    ) -> str:
        """Submit a child under the lease and return its id."""
        ...

    async def results(self) -> dict[str, bytes | None]:
        """Return the results of the jobs this one waited for, by id."""
        ...

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        """Open a transaction that completes the job when it commits, with what ``result`` says.

        ``blocking``: one whose connection is used in another thread.
        """
        ...


class _JobView:
    """The data of the running job."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals) -> None:
        self._job = job
        self._deadline = deadline
        self._signals = signals
        self.given_result: bytes | None = None
        """What ``set_result`` was given, as JSON."""

    @property
    def job_id(self) -> str:
        """The job's id; the same in every attempt."""
        return self._job.id

    @property
    def type(self) -> str:
        """The job's type."""
        return self._job.type

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._job.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._job.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts there may be."""
        return self._job.max_attempts

    @property
    def attempt_id(self) -> str:
        """The identity of this attempt."""
        return self._job.attempt_id

    @property
    def previous_attempt_id(self) -> str | None:
        """The identity of the attempt before, if there was one."""
        return self._job.previous_attempt_id

    @property
    def created_at(self) -> datetime:
        """When the job was submitted."""
        return self._job.created_at

    @property
    def correlation_id(self) -> str:
        """The caller's tracing id, or nothing."""
        return self._job.correlation_id

    @property
    def tags(self) -> Mapping[str, str]:
        """The job's labels."""
        return self._job.tags

    @property
    def idempotency_key(self) -> str:
        """The key the job was submitted with, or nothing."""
        return self._job.idempotency_key

    @property
    def deadline(self) -> datetime:
        """When this attempt is stopped, by the store's clock."""
        return self._deadline

    @property
    def lease_lost(self) -> bool:
        """Whether someone else may have the job by now: stop, nothing you write will count."""
        return self._signals.lease_lost

    def is_cancelled(self) -> bool:
        """Whether someone asked this job to stop."""
        return self._signals.cancel is not None

    def last_checkpoint(self) -> bytes | None:
        """The newest checkpoint an earlier attempt left, as it was written."""
        return self._job.checkpoint

    def restore(self, as_: builtins.type[T]) -> T | None:
        """The newest checkpoint, decoded from JSON into a type; None when there is none."""
        if self._job.checkpoint is None:
            return None
        return msgspec.json.decode(self._job.checkpoint, type=as_)

    def set_result(self, value: object) -> None:
        """Give the job its result now, to be kept when it completes.

        That is how a job has one that its ``transaction`` completes; set it before the end of
        the block. Checked at once, as a returned value is: one that cannot be kept is a
        ``PermanentError``. A handler that returns a value without a transaction means that one.
        """
        self.given_result = encode_result(value)


class JobContext(_JobView):
    """The context of a coroutine handler."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals, channel: Channel) -> None:
        super().__init__(job, deadline, signals)
        self._channel = channel

    async def report_progress(self, percent: int, message: str = "") -> None:
        """Tell how far the job is, 0 to 100."""
        if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= 100:
            raise ValidationError(
                [Fault("percent", "OUT_OF_RANGE", f"must be 0 to 100, got {percent!r:.60}")]
            )
        progress = Progress(percent, clean(message, MAX_LOG_MESSAGE), self._channel.now())
        await self._channel.progress(progress)

    async def checkpoint(self, state: object) -> None:
        """Keep state for the next attempt: bytes as they are, anything else as JSON.

        Raises ``JobCancelledError`` when the job was asked to stop (the state is kept), and
        ``StaleLeaseError`` when the lease is lost.
        """
        data, _ = encode(state)
        if self._signals.lease_lost or not await self._channel.checkpoint(data):
            raise StaleLeaseError(self.job_id)
        self._job = msgspec.structs.replace(self._job, checkpoint=data)
        if self._signals.cancel is not None:
            raise JobCancelledError(self.job_id, self._signals.cancel.reason)

    async def spawn(
        self,
        task: str | Named,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit a child job and return its id.

        With a ``key`` a later attempt that spawns the same key gets the same child back
        instead of a second one. A job that waits FAN_IN for this one waits for the child.
        """
        type_ = task if isinstance(task, str) else task.type
        return await self._channel.spawn(type_, payload, key, options)

    async def log(self, level: str, message: str, **fields: object) -> None:
        """Keep a line with the job; the newest thousand are kept."""
        if level.upper() not in LEVELS:
            raise ValidationError(
                [Fault("level", "INVALID", f"must be one of {', '.join(LEVELS)}, got {level!r}")]
            )
        line = LogLine(
            self._channel.now(),
            level.upper(),
            clean(message, MAX_LOG_MESSAGE),
            self.attempt,
            {clean(name, 128): clean(str(value), 1024) for name, value in fields.items()},
        )
        await self._channel.log(line)

    async def dependency_results(self) -> dict[str, object]:
        """What the jobs this one waited for returned, by id; None for one that returned nothing.

        For FAN_IN that is the named job and everything it spawned.
        """
        results = await self._channel.results()
        for job_id, data in results.items():
            must_be_open(data, f"result of job {job_id}")
        return {
            job_id: None if data is None else msgspec.json.decode(data)
            for job_id, data in results.items()
        }

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[TupleRow]]:
        """Open a database transaction that completes this job when it commits; PostgreSQL only.

        ``async with ctx.transaction() as conn`` lends a psycopg connection. What the block writes
        and the end of the job are committed together, with what ``set_result`` was given; a lease
        that was lost rolls everything back. What the block raises passes as it is and undoes it,
        and ``raise psycopg.Rollback()`` undoes it and leaves the job to the handler. Afterwards
        nothing more can be written in the job's name, and what the handler returns is not kept.
        """
        lent = self._lend(lambda: self.given_result)
        return cast("AbstractAsyncContextManager[AsyncConnection[TupleRow]]", _Awaited(lent))

    def _lend(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        return self._channel.transaction(result, blocking=blocking)


class _Awaited(AbstractAsyncContextManager[object]):
    """A transaction that tells whoever forgot ``async``."""

    def __init__(self, lent: AbstractAsyncContextManager[object]) -> None:
        self._lent = lent

    async def __aenter__(self) -> object:
        return await self._lent.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._lent.__aexit__(kind, error, trace)

    def __enter__(self) -> NoReturn:
        raise no_transaction("needs 'async with' in a coroutine")

    def __exit__(self, *_: object) -> None:
        """Is never come to."""


def no_transaction(why: str) -> PermanentError:
    """Say why there can be none: trying again would not change that."""
    return PermanentError(f"ctx.transaction() {why}", code="TRANSACTION_REFUSED")


Call = Callable[..., object]
"""Runs a ``JobContext`` method by name elsewhere and blocks for its answer."""


class SyncJobContext(_JobView):
    """The context of a plain function: the same surface, blocking."""

    def __init__(self, job: Job, deadline: datetime, signals: Signals, call: Call) -> None:
        super().__init__(job, deadline, signals)
        self._call = call

    def report_progress(self, percent: int, message: str = "") -> None:
        """Tell how far the job is, 0 to 100."""
        self._call("report_progress", percent, message)

    def checkpoint(self, state: object) -> None:
        """Keep state for the next attempt; see ``JobContext.checkpoint``."""
        data, _ = encode(state)
        self._call("checkpoint", data)
        self._job = msgspec.structs.replace(self._job, checkpoint=data)

    def spawn(
        self,
        task: str | Named,
        payload: object = None,
        *,
        key: str | None = None,
        **options: Unpack[SubmitOptions],
    ) -> str:
        """Submit a child job and return its id; see ``JobContext.spawn``."""
        type_ = task if isinstance(task, str) else task.type
        return str(self._call("spawn", type_, payload, key=key, **options))

    def log(self, level: str, message: str, **fields: object) -> None:
        """Keep a line with the job."""
        self._call("log", level, message, **{name: str(value) for name, value in fields.items()})

    def dependency_results(self) -> dict[str, object]:
        """What the jobs this one waited for returned, by id."""
        results = self._call("dependency_results")
        assert isinstance(results, dict)
        return results

    def transaction(self) -> AbstractContextManager[Connection[TupleRow]]:
        """Open a database transaction that completes this job; see ``JobContext.transaction``.

        ``with ctx.transaction() as conn`` lends a blocking psycopg connection. In threads only: a
        handler with ``runner="process"`` cannot have one.
        """
        lent = self._call("_lend", lambda: self.given_result, blocking=True)
        return cast("AbstractContextManager[Connection[TupleRow]]", lent)
