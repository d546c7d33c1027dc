"""The backend of Django's tasks: ``TASKS = {"default": {"BACKEND": "...HoldfastBackend"}}``.

Inside ``atomic()`` on the database that holds the jobs, a job commits with the data. With any
other store it is added when the transaction has committed.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from django.apps import apps
from django.core import checks
from django.db import transaction
from django.utils import timezone

from holdfast.contrib.django.configuration import is_own_database, read_settings
from holdfast.contrib.django.configured import app
from holdfast.contrib.django.results import TaskCall, result_of
from holdfast.contrib.django.running import handler_of
from holdfast.contrib.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    signals,
)
from holdfast.errors import HoldfastError, NotFoundError, ValidationError
from holdfast.model.job import Job, Priority
from holdfast.model.results import RegistrationStatus, SubmissionResult, submission_result
from holdfast.model.submission import QUEUE_RULE, Submission
from holdfast.operations.interface import OperationsBackend
from holdfast.operations.operations import Operations
from holdfast.tasks.options import TaskOptions, handler_options

APPLICATION = "holdfast.contrib.django"
TASKS = "tasks"
"""The option that gives single tasks other options, by their module path."""
_REGISTERED: dict[str, Any] = {}
"""The tasks of this process, by module path."""


class HoldfastBackend(BaseTaskBackend):
    """Enqueues Django's tasks as jobs.

    OPTIONS are the options of a task: ``max_attempts``, ``timeout``, ``backoff`` and more; under
    ``tasks``, those of single tasks by module path.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for a task that cannot be a job; register any other."""
        super().validate_task(task)
        if not QUEUE_RULE.fullmatch(task.queue_name):
            raise InvalidTask(f"Queue {task.queue_name!r} must match {QUEUE_RULE.pattern}.")
        known = _REGISTERED.get(task.module_path)
        if known is None or known.func is not task.func:
            self._register(task)

    def _register(self, task: Any) -> None:
        path = task.module_path
        if path in app.registry and path not in _REGISTERED:
            raise InvalidTask(f"{path!r} is already a task of holdfast.")
        options = {name: value for name, value in self.options.items() if name != TASKS}
        options |= self.options.get(TASKS, {}).get(path, {})
        if fault := _fault(options):
            raise InvalidTask(f"{self._place}: {fault}")
        result = app.register(path, handler_of(task, self), **options)
        if result.status is RegistrationStatus.INVALID:
            raise InvalidTask(f"Task {path!r} cannot be a job: {result.message}")
        _REGISTERED[path] = task

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submit a job; inside a transaction it exists once that has committed.

        TypeError for arguments that the function cannot be called with.
        """
        self.validate_task(task)
        _must_fit(task, args, kwargs)
        call = TaskCall(
            args=normalize_json(list(args)),
            kwargs=normalize_json(dict(kwargs)),
            priority=int(task.priority),
            run_after=task.run_after and _aware(task.run_after),
        )
        submission = Submission(
            type=task.module_path,
            payload=call,
            queue=task.queue_name,
            priority=priority_of(task.priority),
            scheduled_at=call.run_after,
        )
        return self._enqueued(task, submission, call)

    def get_result(self, result_id: str) -> Any:
        """Return the result of a job; TaskResultDoesNotExist when there is none of a task here."""
        try:
            job = app.sync.get(str(result_id), include_history=True)
            payload = app.sync.payload(job.job_id)
        except NotFoundError:
            raise TaskResultDoesNotExist(result_id) from None
        task = _REGISTERED.get(job.type)
        if task is None:  # what a store says is never imported
            raise TaskResultDoesNotExist(f"{result_id}: no task here is {job.type!r}")
        call = msgspec.convert(payload.payload, TaskCall)
        return result_of(self.as_enqueued(task, job.queue, call), self.alias, job, call)

    def as_enqueued(self, task: Any, queue: str, call: TaskCall) -> Any:
        """Return a task with the options that it was enqueued with."""
        return task.using(
            backend=self.alias,
            queue_name=queue if not self.queues or queue in self.queues else None,
            priority=call.priority,
            run_after=call.run_after,
        )

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Check the queues and the options."""
        found = [*super().check(**kwargs)]
        for queue in sorted(self.queues):
            if not QUEUE_RULE.fullmatch(queue):
                message = f"TASKS[{self.alias!r}]: queue {queue!r} must match {QUEUE_RULE.pattern}"
                found.append(checks.Error(message, id="holdfast.E003"))
        given = {name: value for name, value in self.options.items() if name != TASKS}
        found += [
            checks.Error(f"{self._place}: {fault}", id="holdfast.E004")
            for options in (given, *self.options.get(TASKS, {}).values())
            if (fault := _fault(options))
        ]
        found += self._unknown_tasks()
        if not apps.is_installed(APPLICATION):
            message = f"TASKS[{self.alias!r}] needs {APPLICATION!r} in INSTALLED_APPS"
            hint = "It imports tasks.py of every application, and brings manage.py holdfast."
            found.append(checks.Error(message, hint=hint, id="holdfast.E005"))
        return found

    @property
    def _place(self) -> str:
        return f"TASKS[{self.alias!r}]['OPTIONS']"

    def _unknown_tasks(self) -> list[checks.CheckMessage]:
        """Options of tasks that are not registered: a typo, or a module that is not imported."""
        return [
            checks.Warning(
                f"{self._place}[{TASKS!r}]: no task is {path!r}{_meant(path, _REGISTERED)}",
                hint="Write module.function; the module must be imported when Django starts.",
                id="holdfast.W002",
            )
            for path in self.options.get(TASKS, {})
            if path not in _REGISTERED
        ]

    def _enqueued(self, task: Any, submission: Submission, call: TaskCall) -> Any:
        alias = read_settings().database
        connection = transaction.get_connection(alias)
        if connection.in_atomic_block and is_own_database(app.url):
            submitted = app.sync.run(
                lambda operations: operations.submit(submission, connection=connection)
            )
            return self._announced(self._result(task, submitted, call))
        if not _in_transaction(connection):
            submitted = app.sync.run(lambda operations: operations.submit(submission))
            return self._announced(self._result(task, submitted, call))
        job = app.sync.run(lambda operations: _of_store(operations).prepare(submission))
        result = self._result(task, submission_result(job), call)
        transaction.on_commit(partial(self._add, job, result), using=alias)
        return result

    def _add(self, job: Job, result: Any) -> None:
        app.sync.run(lambda operations: _of_store(operations).add(job))
        self._announced(result)

    def _announced(self, result: Any) -> Any:
        signals.task_enqueued.send_robust(sender=type(self), task_result=result)
        return result

    def _result(self, task: Any, submitted: SubmissionResult, call: TaskCall) -> Any:
        return TaskResult(
            task=task,
            id=submitted.job_id,
            status=TaskResultStatus.READY,
            enqueued_at=submitted.created_at,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=call.args,
            kwargs=call.kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


def priority_of(priority: int) -> Priority | None:
    """Return the level of a priority from -100 to 100; None for 0, the default."""
    if priority > 50:
        return Priority.CRITICAL
    if priority > 0:
        return Priority.HIGH
    if priority == 0:
        return None
    return Priority.LOW if priority >= -50 else Priority.BULK


def _aware(moment: Any) -> Any:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _in_transaction(connection: Any) -> bool:
    """Whether a transaction is open, other than the one that Django's TestCase never commits."""
    blocks: list[Any] = connection.atomic_blocks
    return any(not getattr(block, "_from_testcase", False) for block in blocks)


def _of_store(operations: OperationsBackend) -> Operations:
    if not isinstance(operations, Operations):
        raise HoldfastError(
            "the URL of a service cannot be used inside atomic(): enqueue after the transaction,"
            " or give the URL of the store"
        )
    return operations


__all__ = ["HoldfastBackend", "priority_of"]


def _fault(options: Mapping[str, Any]) -> str:
    """Return what is wrong with the options of a task; an empty text when nothing is."""
    for name in options:
        if name not in TaskOptions.__annotations__:
            return f"{name!r} is not an option{_meant(name, TaskOptions.__annotations__)}"
    try:
        handler_options(**options)
    except (ValidationError, TypeError) as error:
        return str(error)
    return ""


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else ""


def _must_fit(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    context = (None,) if task.takes_context else ()
    try:
        inspect.signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{task.module_path}: {error}") from None
