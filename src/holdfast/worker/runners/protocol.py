"""Messages between a worker and its child processes: typed values, each after its length.

Nothing is unpickled or imported because a message names it; the setup comes from the worker
itself, not from a store.
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
from holdfast.model.children import ChildJob
from holdfast.model.job import CancelRequest, Encoding, Job, LogLine, Progress
from holdfast.worker.outcomes import Outcome

HEADER = 4
"""Bytes of the length before each message."""


class Setup(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Where the child finds the handlers."""

    app: str
    """``module:attribute`` of the app; empty when no module holds it."""
    main: str
    """The file that the worker was started with, when the app or a handler lives there."""
    modules: list[str]
    """Modules that register handlers."""
    log: list[str] = []
    """Level and style of log lines, if the worker writes any."""


class Work(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job to run; ``now`` is the store's time."""

    job: Job
    now: datetime
    deadline: datetime
    memory_limit: int | None


class Signal(msgspec.Struct, frozen=True, tag=True):
    """The signals of the running job changed."""

    cancel: CancelRequest | None
    lease_lost: bool
    interruption: str | None = None


class ChildError(msgspec.Struct, frozen=True):
    """An error that a question caused."""

    kind: str
    arguments: list[str]
    faults: list[Fault]


Answer = bool | str | dict[str, bytes | None] | list[ChildJob] | None
"""What a question may return."""


class Reply(msgspec.Struct, frozen=True, tag=True):
    """The answer to a question."""

    value: Answer
    error: ChildError | None = None


WorkerMessage = Setup | Work | Signal | Reply


class Up(msgspec.Struct, frozen=True, tag=True):
    """The child has loaded the handlers."""


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The child cannot run jobs; ``message`` gives the reason."""

    message: str


class ReportProgress(msgspec.Struct, frozen=True, tag=True):
    """The handler reported progress."""

    progress: Progress


class WriteLog(msgspec.Struct, frozen=True, tag=True):
    """The handler logged a line."""

    line: LogLine


class KeepCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """The handler writes a checkpoint."""

    data: bytes


class UpdatePayload(msgspec.Struct, frozen=True, tag=True):
    """The handler replaces the payload of its job."""

    data: bytes


class SpawnJob(msgspec.Struct, frozen=True, tag=True):
    """The handler submits a child job."""

    payload: bytes
    encoding: Encoding
    key: str | None
    fields: dict[str, object]
    """The other fields of its submission."""


class ReadResults(msgspec.Struct, frozen=True, tag=True):
    """The handler reads the results of the jobs it depends on."""


class ReadChildren(msgspec.Struct, frozen=True, tag=True):
    """The handler reads the jobs it spawned."""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The outcome of the job; a child that is ``leaving`` takes no other."""

    outcome: Outcome
    leaving: bool


Notice = ReportProgress | WriteLog | KeepCheckpoint | UpdatePayload
"""What is written about the job."""
Question = Notice | SpawnJob | ReadResults | ReadChildren
ChildMessage = Up | Broken | Done | Question

_encoder = msgspec.msgpack.Encoder()
worker_messages: msgspec.msgpack.Decoder[WorkerMessage] = msgspec.msgpack.Decoder(WorkerMessage)
child_messages: msgspec.msgpack.Decoder[ChildMessage] = msgspec.msgpack.Decoder(ChildMessage)


def frame(message: WorkerMessage | ChildMessage) -> bytes:
    """Return the bytes to send."""
    data = _encoder.encode(message)
    return len(data).to_bytes(HEADER, "big") + data


class Unframer:
    """Splits received bytes into messages."""

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


def wire_error(error: Exception) -> ChildError:
    """Return an error in the form that is sent."""
    match error:
        case ValidationError():
            return ChildError("validation", [], list(error.faults))
        case StaleLeaseError():
            return ChildError("stale", [error.job_id], [])
        case DuplicateError():
            deleted = ["deleted"] if error.existing_job_deleted else []
            return ChildError("duplicate", [error.key, error.existing_job_id, *deleted], [])
        case StoreUnavailableError():
            return ChildError("unavailable", [str(error)], [])
        case _:
            return ChildError("other", [f"{type(error).__name__}: {error}"], [])


def raised_error(error: ChildError) -> HoldfastError:
    """Return the error that was sent."""
    match error.kind:
        case "validation":
            return ValidationError(error.faults)
        case "stale":
            return StaleLeaseError(*error.arguments)
        case "duplicate":
            key, job_id, *deleted = error.arguments
            return DuplicateError(key, job_id, deleted=bool(deleted))
        case "unavailable":
            return StoreUnavailableError(*error.arguments)
        case _:
            return HoldfastError(*error.arguments)
