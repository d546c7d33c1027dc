"""``AsyncResult`` and ``GroupResult``: what became of submitted tasks."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from holdfast.contrib.celery.current import current_app
from holdfast.contrib.celery.exceptions import (
    EXPIRED,
    TaskFailureError,
    TaskRevokedError,
    UnsupportedError,
)
from holdfast.errors import NotFoundError
from holdfast.model.job import TERMINAL, State
from holdfast.model.status import JobStatus

if TYPE_CHECKING:
    from holdfast.contrib.celery.interface import CeleryApp

STATES = {
    State.RUNNING: "STARTED",
    State.RETRYING: "RETRY",
    State.COMPLETED: "SUCCESS",
    State.FAILED: "FAILURE",
    State.DEAD_LETTER: "FAILURE",
    State.CANCELLED: "REVOKED",
}
"""Celery's words for states; the others are PENDING."""

DEPENDENCY_ENDED = "DEPENDENCY_ENDED"
"""The code of the failure of a job that ends because another one did."""
_UNHAPPY = TERMINAL - {State.COMPLETED}


class AsyncResult:
    """The result of a task, by the id of its job."""

    def __init__(
        self, job_id: str, *, app: CeleryApp | None = None, parent: AnyResult | None = None
    ) -> None:
        self.id = job_id
        self.parent = parent
        self._app = app

    @property
    def app(self) -> CeleryApp:
        """The app whose store has the job."""
        return self._app or current_app()

    @property
    def task_id(self) -> str:
        """The id."""
        return self.id

    @property
    def job(self) -> JobStatus | None:
        """The job in holdfast; None when there is none with this id."""
        try:
            return self.app.holdfast.sync.get(self.id)
        except NotFoundError:
            return None

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE, REVOKED, or what the task reports itself."""
        return _state(self.job)

    status = state

    @property
    def result(self) -> Any:
        """What the task returned, or the exception with which it failed."""
        job = self.job
        if job is None or job.state not in TERMINAL:
            return _reported(job).get("meta")
        return job.output if job.state is State.COMPLETED else self._error(job)

    info = result

    @property
    def traceback(self) -> str | None:
        """The traceback of a failed task."""
        job = self.job
        return job.failure.stack_trace if job is not None and job.failure is not None else None

    @property
    def date_done(self) -> datetime | None:
        """When the task ended."""
        job = self.job
        return job.completed_at if job is not None else None

    @property
    def name(self) -> str | None:
        """The name of the task."""
        job = self.job
        return job.type if job is not None else None

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> Any:
        """Wait for the result; raise what the task raised unless ``propagate`` is false.

        TimeoutError when it takes longer than ``timeout`` seconds.
        """
        job = self.app.holdfast.sync.wait(self.id, timeout=timeout)
        if job.state is State.COMPLETED:
            return job.output
        error = self._error(job)
        if propagate:
            raise error
        return error

    wait = get

    def ready(self) -> bool:
        """Whether the task has ended."""
        job = self.job
        return job is not None and job.state in TERMINAL

    def successful(self) -> bool:
        """Whether the task has returned."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether the task has failed."""
        return self.state == "FAILURE"

    def revoke(self, *, terminate: bool = False, **_: object) -> None:
        """Cancel the task; with ``terminate`` also interrupt it while it runs."""
        self.app.holdfast.sync.cancel(self.id, reason="revoked", force=terminate)

    def forget(self) -> None:
        """Delete the job, if it has ended."""
        self.app.holdfast.sync.delete(self.id)

    @property
    def children(self) -> NoReturn:
        """Refuse what this layer does not have."""
        raise UnsupportedError("AsyncResult.children", "read app.holdfast.graph(id)")

    def _error(self, job: JobStatus) -> Exception:
        job = self._origin(job)
        failure = job.failure
        if job.state is State.CANCELLED or (failure is not None and failure.code == EXPIRED):
            return TaskRevokedError(failure.message if failure else "revoked")
        if failure is None:
            return TaskFailureError(job.state, "a task that it waited for did not complete")
        return self.app.exception(job.type, failure.code, failure.message)

    def _origin(self, job: JobStatus) -> JobStatus:
        """Return the job with whose failure a job ended that waited for it, or the job itself."""
        while job.failure is not None and job.failure.code == DEPENDENCY_ENDED:
            parents = [AsyncResult(each, app=self._app).job for each in job.depends_on]
            failed = (each for each in parents if each is not None and each.state in _UNHAPPY)
            origin = next(failed, None)
            if origin is None:
                return job
            job = origin
        return job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"


class EagerResult:
    """The result of a task that ran at once."""

    parent: AnyResult | None = None

    def __init__(self, job_id: str, state: str, result: Any, trace: str | None = None) -> None:
        self.id = self.task_id = job_id
        self.state = self.status = state
        self.result = self.info = result
        self.traceback = trace

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> Any:
        """Return the result, or raise what the task raised."""
        if propagate and isinstance(self.result, Exception):
            raise self.result
        return self.result

    wait = get

    def ready(self) -> bool:
        """Whether the task has ended: it has."""
        return True

    def successful(self) -> bool:
        """Whether the task has returned."""
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        """Whether the task has failed."""
        return self.state == "FAILURE"

    def revoke(self, **_: object) -> None:
        """Do nothing: the task has ended."""

    def forget(self) -> None:
        """Do nothing: nothing is stored."""


class GroupResult:
    """The results of the tasks of a group, in order."""

    def __init__(
        self,
        group_id: str,
        results: Sequence[AnyResult],
        *,
        app: CeleryApp | None = None,
        parent: AnyResult | None = None,
    ) -> None:
        self.id = group_id
        self.results = list(results)
        self.parent = parent
        self._app = app

    @property
    def children(self) -> list[AnyResult]:
        """The results of the tasks."""
        return self.results

    def get(self, timeout: float | None = None, *, propagate: bool = True, **_: object) -> Any:
        """Wait for all tasks and return the list of their results."""
        return [one.get(timeout=timeout, propagate=propagate) for one in self.results]

    join = wait = get

    def ready(self) -> bool:
        """Whether all tasks have ended."""
        return all(one.ready() for one in self.results)

    def successful(self) -> bool:
        """Whether all tasks have returned."""
        return all(one.successful() for one in self.results)

    def failed(self) -> bool:
        """Whether a task has failed."""
        return any(one.failed() for one in self.results)

    def completed_count(self) -> int:
        """How many tasks have returned."""
        return sum(one.successful() for one in self.results)

    def revoke(self, *, terminate: bool = False, **_: object) -> None:
        """Cancel all tasks."""
        for one in self.results:
            one.revoke(terminate=terminate)

    def forget(self) -> None:
        """Delete the jobs of all tasks."""
        for one in self.results:
            one.forget()

    def __iter__(self) -> Iterator[AnyResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> AnyResult:
        return self.results[index]

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} {self.results!r}>"


AnyResult = AsyncResult | EagerResult | GroupResult


def known_exception(names: builtins.dict[str, Any], code: str, message: str) -> Exception:
    """Return an exception of a class that the task's module knows, or Python itself.

    Nothing is imported for it: the name comes from the store.
    """
    found = names.get(code) or getattr(builtins, code, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(message)
        except TypeError:  # its constructor takes something else
            pass
    return TaskFailureError(code, message)


def _state(job: JobStatus | None) -> str:
    if job is None:
        return "PENDING"
    if job.failure is not None and job.failure.code == EXPIRED:
        return "REVOKED"
    if job.state is State.RUNNING and (own := _reported(job).get("state")):
        return str(own)
    return STATES.get(job.state, "PENDING")


def _reported(job: JobStatus | None) -> dict[str, Any]:
    """What the task reported with ``update_state``."""
    if job is None or job.progress is None:
        return {}
    try:
        return msgspec.json.decode(job.progress.message, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
