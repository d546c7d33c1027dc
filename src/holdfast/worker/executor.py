"""Calls one handler and returns its outcome as a value.

Exceptions are classified here and nowhere else; none of a handler's exceptions escapes.
"""

from __future__ import annotations

import asyncio
import traceback
from enum import StrEnum

import msgspec

from holdfast.encryption.envelope import PREFIX, require_decrypted
from holdfast.errors import (
    JobCancelledError,
    PermanentError,
    RateLimitedError,
    StaleLeaseError,
    TaskError,
    TemporaryError,
    WaitForChildren,
)
from holdfast.model.job import DamagedJob, DependencyKind, Failure, FailureCategory, Job
from holdfast.model.lifecycle import MAX_CODE
from holdfast.model.payload import clean, encode_result
from holdfast.observe.current import CURRENT_JOB
from holdfast.operations.quarantine import damage_failure, set_aside
from holdfast.runtime.host import HOST
from holdfast.store import Store
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.registry import Handler

MAX_MESSAGE = 4096
MAX_TRACE = 16_384


class Succeeded(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The handler returned; ``result`` is JSON."""

    result: bytes | None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or could not be called, or its result could not be stored."""

    failure: Failure


class Interruption(StrEnum):
    """Why a handler was stopped from outside."""

    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    LEASE_LOST = "LEASE_LOST"
    STOPPING = "STOPPING"
    QUARANTINED = "CROWDED"
    """It was never started: it must not run beside another suspect."""


class Interrupted(msgspec.Struct, frozen=True, tag=True):
    """The handler was stopped before it returned."""

    why: Interruption


class Waiting(msgspec.Struct, frozen=True, tag=True):
    """The handler ended because its job waits for the jobs it spawned."""

    kind: DependencyKind


Outcome = Succeeded | Failed | Interrupted | Waiting


async def perform(handler: Handler, job: Job, context: JobContext | None) -> Outcome:
    """Call a coroutine handler and await it. CancelledError goes through."""
    before = CURRENT_JOB.set((job.id, job.type, job.attempt))
    try:
        awaitable = handler.function(**_arguments(handler, job, context))
        return _answer(await awaitable, context)  # type: ignore[misc]  # a coroutine function
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is an outcome
        return failed(handler, error)
    finally:
        CURRENT_JOB.reset(before)


def perform_sync(handler: Handler, job: Job, context: SyncJobContext | None) -> Outcome:
    """Call a plain handler in this thread."""
    before = CURRENT_JOB.set((job.id, job.type, job.attempt))
    try:
        return _answer(handler.function(**_arguments(handler, job, context)), context)
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is an outcome
        return failed(handler, error)
    finally:
        CURRENT_JOB.reset(before)


def failed(handler: Handler, error: BaseException) -> Outcome:
    """Return the outcome for an exception of a handler."""
    match error:
        case JobCancelledError():
            return Interrupted(Interruption.CANCELLED)
        case StaleLeaseError():
            return Interrupted(Interruption.LEASE_LOST)
        case WaitForChildren():
            return Waiting(DependencyKind(error.kind))
        case PermanentError():
            category = FailureCategory.PERMANENT
        case TemporaryError():
            category = FailureCategory.TEMPORARY
        case _:
            category = handler.category(error)
    code = error.code if isinstance(error, TaskError) and error.code else type(error).__name__
    message = clean(str(error) or type(error).__name__, MAX_MESSAGE)
    return Failed(
        Failure(
            category=category,
            message=message,
            code=clean(code, MAX_CODE),
            stack_trace=clean(_trace(error), MAX_TRACE),
            retry_after=error.retry_after if isinstance(error, TemporaryError) else None,
            uses_attempt=not isinstance(error, TemporaryError) or error.uses_attempt,
            closes_queue=isinstance(error, RateLimitedError),
            host=HOST,
        )
    )


async def perform_damaged(job: DamagedJob, store: Store) -> Outcome:
    """Fail a job that cannot be read, without calling its handler."""
    await set_aside(store, job.id, job.damage)
    return Failed(damage_failure(job))


def system_failure(message: str, code: str) -> Failed:
    """Return a failure of the worker, not of the handler."""
    failure = Failure(
        category=FailureCategory.SYSTEM, message=clean(message, MAX_MESSAGE), code=code, host=HOST
    )
    return Failed(failure)


def _arguments(
    handler: Handler, job: Job, context: JobContext | SyncJobContext | None
) -> dict[str, object]:
    if job.payload.startswith(PREFIX):
        require_decrypted(job.payload, "payload")
    if job.checkpoint is not None:
        require_decrypted(job.checkpoint, "checkpoint")
    arguments = handler.signature.unpack(job)
    if handler.signature.context is not None:
        arguments[handler.signature.context] = context
    return arguments


def _answer(value: object, context: JobContext | SyncJobContext | None) -> Succeeded:
    """Return what a handler returned or, when that is None, the result it set before."""
    result = encode_result(value)
    return Succeeded(context.given_result if result is None and context is not None else result)


def _trace(error: BaseException) -> str:
    """The handler's own frames, without those of this module."""
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, frames))[-MAX_TRACE:]
