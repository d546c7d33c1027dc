"""Jobs as results of Django's tasks: states, attempts and errors in Django's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.contrib.django.tasks_api import TaskError, TaskResult, TaskResultStatus
from holdfast.model.job import FailureCategory, State
from holdfast.model.status import FailureInfo, JobStatus, StateTransition

_NAMED = re.compile(r"^([A-Za-z_][\w.<>]*)(?::|$)", re.MULTILINE)
"""The line of a traceback that names its exception."""


class TaskCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a task's job: the call, and what Django's task has and a job has not."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    priority: int = 0
    run_after: datetime | None = None


def status_of(state: State) -> Any:
    """Return the status of a result whose job is in a state."""
    match state:
        case State.RUNNING:
            return TaskResultStatus.RUNNING
        case State.COMPLETED:
            return TaskResultStatus.SUCCESSFUL
        case State.FAILED | State.DEAD_LETTER | State.CANCELLED:
            return TaskResultStatus.FAILED
        case State.PENDING | State.SCHEDULED | State.DELAYED | State.RETRYING:
            return TaskResultStatus.READY


def result_of(task: Any, alias: str, job: JobStatus, call: TaskCall) -> Any:
    """Return the result of a task whose job, with its history, is given."""
    history = job.history or ()
    starts = [edge for edge in history if edge.to_state is State.RUNNING]
    result = TaskResult(
        task=task,
        id=job.job_id,
        status=status_of(job.state),
        enqueued_at=job.created_at,
        started_at=starts[0].timestamp if starts else None,
        finished_at=job.completed_at if _has_ended(job.state) else None,
        last_attempted_at=starts[-1].timestamp if starts else None,
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=errors_of(history),
        worker_ids=[edge.worker_id for edge in starts],
    )
    if job.state is State.COMPLETED:
        object.__setattr__(result, "_return_value", job.output)
    return result


def errors_of(history: Sequence[StateTransition]) -> list[Any]:
    """Return the error of each attempt that failed, in order."""
    return [error_of(edge.failure) for edge in history if edge.failure is not None]


def error_of(failure: FailureInfo) -> Any:
    """Return how an attempt failed, with the exception's class and its traceback."""
    path = _OWN.get(failure.category, "holdfast.errors.HoldfastError")
    if "." in failure.code:
        path = failure.code
    elif failure.stack_trace:
        path = _exception_path(failure.stack_trace, failure.code) or path
    return TaskError(
        exception_class_path=path,
        traceback=failure.stack_trace or f"{failure.code}: {failure.message}\n",
    )


_OWN: Mapping[FailureCategory, str] = {FailureCategory.TIMEOUT: "builtins.TimeoutError"}
"""The exceptions of attempts that ended without one."""


def _exception_path(trace: str, code: str) -> str:
    """Return the module and name of the exception that a traceback ends with."""
    found: list[str] = _NAMED.findall(trace)
    named = [path for path in found if path.rpartition(".")[2] == code] or found
    if not named or named[-1] == "Traceback":
        return ""
    return named[-1] if "." in named[-1] else f"builtins.{named[-1]}"


def _has_ended(state: State) -> bool:
    return status_of(state) in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)
