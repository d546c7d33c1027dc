"""Calls one handler and returns its outcome as a value.

Exceptions are classified here and nowhere else; none of a handler's exceptions escapes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, cast

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
from holdfast.model.versions import MISMATCH
from holdfast.observe.current import CURRENT_JOB, CurrentJob
from holdfast.operations.quarantine import damage_failure, set_aside
from holdfast.runtime.host import HOST
from holdfast.store import Store
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.registry import Handler
from holdfast.tasks.scope import OwnLoopScope, Scope, run_now
from holdfast.tasks.upgrades import MismatchError, OnMismatch
from holdfast.worker.around import Around, Provide
from holdfast.worker.outcomes import (
    Failed,
    Interrupted,
    Interruption,
    Mismatched,
    Outcome,
    Succeeded,
    Waiting,
)
from holdfast.worker.traces import MAX_TRACE, trace_of

MAX_MESSAGE = 4096
UNDESCRIBED = "UNDESCRIBED"
"""The failure code of an exception whose own code raises while it is described."""


async def perform(handler: Handler, job: Job, context: JobContext | None) -> Outcome:
    """Call a coroutine handler and await it. CancelledError goes through."""
    before = CURRENT_JOB.set(_current(job))
    try:
        if (handler.seams.attempts and context) or handler.signature.dependencies:
            return await _around(handler, job, context, Scope())
        awaitable = handler.function(**_arguments(handler, job, context))
        return _answer(await awaitable, context)  # type: ignore[misc]  # a coroutine function
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is an outcome
        return failed(handler, error)
    finally:
        CURRENT_JOB.reset(before)


def perform_sync(
    handler: Handler,
    job: Job,
    context: SyncJobContext | None,
    scope: Callable[[], Scope] = OwnLoopScope,
) -> Outcome:
    """Call a plain handler in this thread; ``scope`` runs async middleware elsewhere."""
    before = CURRENT_JOB.set(_current(job))
    try:
        if handler.seams.attempts or handler.signature.dependencies:
            with scope() as within:
                return run_now(_around(handler, job, context, within))
        return _answer(handler.function(**_arguments(handler, job, context)), context)
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is an outcome
        return failed(handler, error)
    finally:
        CURRENT_JOB.reset(before)


def needs_context(handler: Handler, job: Job) -> bool:
    """Whether a handler takes a context, or middleware or dependencies need one."""
    seams = handler.seams
    return handler.wants_context or bool(seams.attempts and not seams.middleware.skip(job))


def _around(
    handler: Handler, job: Job, context: JobContext | SyncJobContext | None, scope: Scope
) -> Coroutine[Any, Any, Outcome]:
    """Call a handler inside its middleware, with its dependencies."""
    assert context is not None  # made for every handler with seams

    async def call(provide: Provide) -> Outcome:
        arguments = _arguments(handler, job, context)
        value = handler.function(**arguments, **await provide(handler.signature.dependencies))
        if isinstance(value, Awaitable):
            value = await cast("Awaitable[object]", value)
        return _answer(value, context)

    return Around(handler, job, context, scope, partial(failed, handler)).run(call)


def _current(job: Job) -> CurrentJob:
    """Return the job as ``current_job`` shows it."""
    lease = job.lease
    return CurrentJob(
        job.id,
        job.type,
        job.queue,
        job.attempt,
        job.correlation_id,
        job.created_at,
        job.started_at,
        lease.version if lease is not None else 0,
        job.extra,
    )


def failed(
    handler: Handler, error: BaseException, blamed: Mapping[str, str] | None = None
) -> Outcome:
    """Return the outcome for an exception of a handler; ``blamed`` names what else raised it.

    To describe an exception runs its own code, which may raise anything, too.
    """
    try:
        return _described(handler, error, blamed)
    except BaseException as fault:  # noqa: BLE001  # no exception of a handler ends the worker
        name, why = type.__repr__(type(error)), type.__repr__(type(fault))
        message = f"the handler raised {name}, which cannot be described: its own code raised {why}"
        return system_failure(message, UNDESCRIBED)


def _described(handler: Handler, error: BaseException, blamed: Mapping[str, str] | None) -> Outcome:
    match error:
        case asyncio.CancelledError():
            return system_failure("the handler cancelled itself", "CANCELLED_ITSELF")
        case JobCancelledError():
            return Interrupted(Interruption.CANCELLED)
        case StaleLeaseError():
            return Interrupted(Interruption.LEASE_LOST)
        case WaitForChildren():
            return Waiting(DependencyKind(error.kind))
        case MismatchError() if handler.options.on_mismatch is OnMismatch.WAIT:
            return Mismatched(_mismatch(error))
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
            stack_trace=clean(trace_of(error), MAX_TRACE),
            retry_after=error.retry_after if isinstance(error, TemporaryError) else None,
            uses_attempt=not isinstance(error, TemporaryError) or error.uses_attempt,
            closes_queue=isinstance(error, RateLimitedError),
            context=blamed or {},
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
    arguments = handler.unpack(job)
    if handler.signature.context is not None:
        arguments[handler.signature.context] = context
    return arguments


def _mismatch(error: MismatchError) -> Failure:
    message = clean(error.message, MAX_MESSAGE)
    return Failure(category=FailureCategory.TEMPORARY, message=message, code=MISMATCH, host=HOST)


def _answer(value: object, context: JobContext | SyncJobContext | None) -> Succeeded:
    """Return what a handler returned or, when that is None, the result it set before."""
    result = encode_result(value)
    return Succeeded(context.given_result if result is None and context is not None else result)
