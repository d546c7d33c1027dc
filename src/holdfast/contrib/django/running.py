"""Runs Django's tasks as handlers of jobs: the call, its context, and the signals around it."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Self

from holdfast.contrib.django.configured import app
from holdfast.contrib.django.results import TaskCall, error_of, errors_of
from holdfast.contrib.django.tasks_api import (
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    signals,
)
from holdfast.errors import (
    HoldfastError,
    JobCancelledError,
    PermanentError,
    StaleLeaseError,
    TaskError,
    TemporaryError,
    WaitForChildren,
)
from holdfast.model.job import FailureCategory, State
from holdfast.model.status import FailureInfo, StateTransition
from holdfast.tasks.context import JobContext, SyncJobContext


def handler_of(task: Any, backend: Any) -> Callable[..., Any]:
    """Return the function that a worker calls for the jobs of a task."""
    call: Callable[..., Any] = task.func

    async def run_async(ctx: JobContext, payload: TaskCall) -> Any:
        earlier = await asyncio.to_thread(_earlier, ctx)
        with TaskAttempt(task, backend, ctx, payload, earlier) as attempt:
            return attempt.returned(await call(*attempt.arguments, **payload.kwargs))

    def run(ctx: SyncJobContext, payload: TaskCall) -> Any:
        with TaskAttempt(task, backend, ctx, payload, _earlier(ctx)) as attempt:
            return attempt.returned(call(*attempt.arguments, **payload.kwargs))

    handler = run_async if inspect.iscoroutinefunction(call) else run
    handler.__module__, handler.__qualname__ = call.__module__, call.__qualname__
    return handler


class TaskAttempt:
    """One attempt of a task: sends the signals of its start and of its end."""

    def __init__(
        self,
        task: Any,
        backend: Any,
        ctx: JobContext | SyncJobContext,
        call: TaskCall,
        earlier: Sequence[StateTransition],
    ) -> None:
        self._ctx = ctx
        self._backend = backend
        lease = ctx._job.lease  # the context of a handler offers no identity of its worker
        starts = [edge for edge in earlier if edge.to_state is State.RUNNING][: ctx.attempt - 1]
        now = app.clock.now()
        self.result = TaskResult(
            task=backend.as_enqueued(task, ctx.queue, call),
            id=ctx.job_id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=ctx.created_at,
            started_at=starts[0].timestamp if starts else now,
            finished_at=None,
            last_attempted_at=now,
            args=call.args,
            kwargs=call.kwargs,
            backend=backend.alias,
            errors=errors_of(earlier),
            worker_ids=[*(edge.worker_id for edge in starts), lease.worker if lease else ""],
        )
        context = (TaskContext(task_result=self.result),) if task.takes_context else ()
        self.arguments = (*context, *self.result.args)

    def __enter__(self) -> Self:
        self._send(signals.task_started)
        return self

    def returned(self, value: object) -> object:
        """Note the value that the function returned, as JSON."""
        try:
            kept = normalize_json(value)
        except (TypeError, ValueError) as error:
            message = f"cannot store what the task returned: {error}"
            raise PermanentError(message, code=f"builtins.{type(error).__name__}") from error
        self._set(_return_value=kept)
        return kept

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._finish(TaskResultStatus.SUCCESSFUL)
        elif self._is_final(error):
            self.result.errors.append(error_of(_failure(error)))
            self._finish(TaskResultStatus.FAILED)

    def _is_final(self, error: BaseException) -> bool:
        """Whether the job ends with this exception instead of being retried."""
        match error:
            case StaleLeaseError() | WaitForChildren() | asyncio.CancelledError():
                return False
            case JobCancelledError() | PermanentError():
                return True
            case TemporaryError() if not error.uses_attempt:
                return False
        handler = app.registry.get(self._ctx.type)
        is_permanent = handler and handler.category(error) is FailureCategory.PERMANENT
        return bool(is_permanent) or self._ctx.attempt >= self._ctx.max_attempts

    def _finish(self, status: Any) -> None:
        self._set(status=status, finished_at=app.clock.now())
        self._send(signals.task_finished)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self.result, name, value)  # as Django's own backends do

    def _send(self, signal: Any) -> None:
        """Send a signal; a receiver that fails does not fail the task."""
        signal.send_robust(sender=type(self._backend), task_result=self.result)


def _earlier(ctx: JobContext | SyncJobContext) -> Sequence[StateTransition]:
    """Return the history of a job that runs again."""
    if ctx.attempt == 1:
        return ()
    try:
        return app.sync.get(ctx.job_id, include_history=True).history or ()
    except HoldfastError:  # it is for information only
        return ()


def _failure(error: BaseException) -> FailureInfo:
    code = error.code if isinstance(error, TaskError) else ""
    return FailureInfo(
        category=FailureCategory.TEMPORARY,
        message=str(error),
        code=code if "." in code else f"{type(error).__module__}.{type(error).__qualname__}",
        stack_trace="".join(traceback.format_exception(error)),
    )
