"""What a worker and a process-runner child say to each other: typed values, length first.

Nothing here is ever unpickled or imported because a message says so; the setup comes from the
worker itself, not from a store.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from holdfast.errors import (
    DuplicateError,
    Fault,
    HoldfastError,
    StaleLeaseError,
    StoreUnavailableError,
    ValidationError,
)
from holdfast.model.job import CancelRequest, Encoding, Job, LogLine, Progress
from holdfast.worker.executor import Failed, Interrupted, Succeeded

HEADER = 4
"""Bytes of the length before each message."""


class Setup(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Where the child finds the handlers."""

    app: str
    """``module:attribute`` of the app, or nothing when no module holds it."""
    main: str
    """The file that the worker was started with, when the app or a handler lives there."""
    modules: list[str]
    """Modules that register handlers."""


class Work(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job to run; ``now`` is the store's time."""

    job: Job
    now: datetime
    deadline: datetime
    memory_limit: int | None


class Signal(msgspec.Struct, frozen=True, tag=True):
    """The outside world has news for the running job."""

    cancel: CancelRequest | None
    lease_lost: bool


class ChildError(msgspec.Struct, frozen=True):
    """An error that a question led to."""

    kind: str
    arguments: list[str]
    faults: list[Fault]


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a question."""

    value: bool | str | dict[str, bytes | None] | None
    problem: ChildError | None = None


Order = Setup | Work | Signal | Reply


class Up(msgspec.Struct, frozen=True, tag=True):
    """The child has found the handlers."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The child cannot work; ``message`` says why."""

    message: str


class TellProgress(msgspec.Struct, frozen=True, tag=True):
    """The handler reported progress."""

    progress: Progress


class TellLog(msgspec.Struct, frozen=True, tag=True):
    """The handler logged a line."""

    line: LogLine


class KeepCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """The handler wants a checkpoint kept."""

    data: bytes


class SpawnJob(msgspec.Struct, frozen=True, tag=True):
    """The handler submits a child job."""

    job_type: str
    payload: bytes
    encoding: Encoding
    key: str | None
    options: dict[str, object]


class ReadResults(msgspec.Struct, frozen=True, tag=True):
    """The handler asks what the jobs it waited for returned."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """How the job went; a child that is ``leaving`` takes no further one."""

    outcome: Succeeded | Failed | Interrupted
    leaving: bool


Question = TellProgress | TellLog | KeepCheckpoint | SpawnJob | ReadResults
Word = Up | Broken | Done | Question

_encoder = msgspec.msgpack.Encoder()
orders: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
words: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)


def frame(message: Order | Word) -> bytes:
    """Return the bytes to send."""
    data = _encoder.encode(message)
    return len(data).to_bytes(HEADER, "big") + data


class Unframer:
    """Cuts received bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each message that is now complete."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER:
            end = HEADER + int.from_bytes(buffer[:HEADER], "big")
            if len(buffer) < end:
                return
            message = bytes(buffer[HEADER:end])
            del buffer[:end]
            yield message


def problem_of(error: Exception) -> ChildError:
    """Return an error as something that can be sent."""
    match error:
        case ValidationError():
            return ChildError("validation", [], list(error.faults))
        case StaleLeaseError():
            return ChildError("stale", [error.job_id], [])
        case DuplicateError():
            return ChildError("duplicate", [error.key, error.existing_job_id], [])
        case StoreUnavailableError():
            return ChildError("unavailable", [str(error)], [])
        case _:
            return ChildError("other", [f"{type(error).__name__}: {error}"], [])


def error_of(problem: ChildError) -> HoldfastError:
    """Return the error that was sent."""
    match problem.kind:
        case "validation":
            return ValidationError(problem.faults)
        case "stale":
            return StaleLeaseError(*problem.arguments)
        case "duplicate":
            return DuplicateError(*problem.arguments)
        case "unavailable":
            return StoreUnavailableError(*problem.arguments)
        case _:
            return HoldfastError(*problem.arguments)
