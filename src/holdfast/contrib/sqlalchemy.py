"""Jobs that exist if and only if a session of SQLAlchemy commits.

On PostgreSQL a job is a row of the session's own transaction. With any other store it is checked
at once, gets its id, and is added when the session has committed.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError, MissingExtraError
from holdfast.model.job import Job
from holdfast.model.results import SubmissionResult, submission_result
from holdfast.operations.interface import OperationsBackend
from holdfast.operations.operations import Operations
from holdfast.store.connections import unwrapped
from holdfast.store.urls import is_postgres
from holdfast.tasks.task import Task

try:
    from sqlalchemy import event
    from sqlalchemy.exc import UnboundExecutionError
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session
except ImportError:
    raise MissingExtraError("sqlalchemy", "sqlalchemy") from None

if typing.TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

    AnySession = Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]

P = ParamSpec("P")
R = TypeVar("R")

_PENDING = "holdfast"
"""The key of ``session.info`` under which jobs wait for the commit."""


def in_session(session: AnySession, task: Task[P, R]) -> SessionTask[P, R]:
    """Return a task whose jobs exist once the session commits.

    ``await in_session(session, confirm).submit(order=1)`` with an ``AsyncSession``,
    ``in_session(session, confirm).submit_sync(order=1)`` with a ``Session``.
    """
    return SessionTask(session, task)


class SessionJobs:
    """Submits jobs in one session."""

    def __init__(self, session: AnySession) -> None:
        self.session = session

    def __call__(self, task: Task[P, R]) -> SessionTask[P, R]:
        """Return a task whose jobs exist once the session commits."""
        return SessionTask(self.session, task)


class SessionTask(Generic[P, R]):
    """A task whose jobs are submitted in a session's transaction."""

    def __init__(self, session: AnySession, task: Task[P, R]) -> None:
        self._session: Any = unwrapped(session)
        self._task = task
        self._app = cast("Holdfast", task.app)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> SubmissionResult:
        """Submit a job in the transaction of an ``AsyncSession``."""
        if not _is_async(self._session):
            raise TypeError(f"submit needs an AsyncSession, got {type(self._session).__name__}")
        if self._shares_database():
            return await self._task.using(connection=self._session).submit(*args, **kwargs)
        from sqlalchemy.util import await_only

        operations = _of_store(self._app.operations)
        job = await operations.prepare(self._task.submission(*args, **kwargs))
        session = self._session.sync_session
        # The event is sent inside the greenlet of SQLAlchemy's own await.
        _pending(session).add(lambda: await_only(operations.add(job)))
        return submission_result(job)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> SubmissionResult:
        """Submit a job in the transaction of a ``Session``."""
        if not isinstance(self._session, Session):
            raise TypeError(f"submit_sync needs a Session, got {type(self._session).__name__}")
        if self._shares_database():
            return self._task.using(connection=self._session).submit_sync(*args, **kwargs)
        submission, run = self._task.submission(*args, **kwargs), self._app.sync.run
        job: Job = run(lambda operations: _of_store(operations).prepare(submission))
        add = lambda: run(lambda operations: _of_store(operations).add(job))  # noqa: E731
        _pending(self._session).add(add)
        return submission_result(job)

    def _shares_database(self) -> bool:
        """Whether both are PostgreSQL; the store itself refuses another database."""
        if not is_postgres(self._app.url):
            return False
        try:
            return str(self._session.get_bind().dialect.name) == "postgresql"
        except UnboundExecutionError:  # the session chooses by table
            return True


class PendingJobs:
    """The jobs of a session that wait for its commit; a rollback discards them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[tuple[list[SessionTransaction], Callable[[], object]]] = []
        event.listen(session, "after_commit", self._committed)
        event.listen(session, "after_soft_rollback", self._rolled_back)

    def add(self, add: Callable[[], object]) -> None:
        """Note a job that ``add`` stores."""
        if not self._session.in_transaction():
            self._session.begin()
        current = self._session.get_nested_transaction() or self._session.get_transaction()
        around = []
        while current is not None:
            around.append(current)
            current = current.parent
        self._waiting.append((around, add))

    def _committed(self, session: Session) -> None:
        if session.in_nested_transaction():  # only a savepoint was released
            return
        waiting, self._waiting = self._waiting, []
        for _, add in waiting:
            add()

    def _rolled_back(self, _: Session, ended: SessionTransaction) -> None:
        self._waiting = [one for one in self._waiting if ended not in one[0]]


def _is_async(session: object) -> bool:
    """Whether it is an ``AsyncSession``, whose module cannot be imported without greenlet."""
    module = sys.modules.get("sqlalchemy.ext.asyncio")
    return module is not None and isinstance(session, module.AsyncSession)


def _pending(session: Session) -> PendingJobs:
    found = session.info.get(_PENDING)
    if not isinstance(found, PendingJobs):
        found = session.info[_PENDING] = PendingJobs(session)
    return found


def _of_store(operations: OperationsBackend) -> Operations:
    if not isinstance(operations, Operations):
        raise HoldfastError("a session cannot hold jobs of a service: give the store's own URL")
    return operations


__all__ = ["SessionJobs", "SessionTask", "in_session"]
