"""What the errors of PostgreSQL and psycopg mean to a caller, and what to do about them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import errors

from holdfast.errors import StoreError, StoreUnavailableError

UNAVAILABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,  # a bad page, say, or a transaction that was ended from outside
    errors.InvalidSqlStatementName,
    OSError,
)
"""Failures of the server or the network; any other error is a mistake in the statement."""

OWN_ERRORS = (
    *UNAVAILABLE,
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.InsufficientPrivilege,
    errors.DuplicatePreparedStatement,
    errors.UniqueViolation,
)
"""Every error that a statement of the store may raise."""


class LockedError(StoreUnavailableError):
    """Another transaction holds a lock for longer than a call may wait."""


_ROLLED_BACK = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.IdleInTransactionSessionTimeout,
)
_MIGRATE = "run holdfast migrate"
GRANT = (
    "grant the role USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables,"
    " USAGE on its sequences, and EXECUTE on pg_control_system() if PUBLIC does not have it"
)
_POOLER = "behind PgBouncer add pgbouncer=true to the URL"
_ADVICE: tuple[tuple[type[Exception], type[StoreError], str], ...] = (
    (errors.UndefinedTable, StoreError, _MIGRATE),
    (errors.InvalidSchemaName, StoreError, _MIGRATE),
    (errors.InsufficientPrivilege, StoreError, GRANT),
    (errors.DuplicatePreparedStatement, StoreError, _POOLER),
    (errors.InvalidSqlStatementName, StoreUnavailableError, _POOLER),
    (errors.LockNotAvailable, LockedError, "another transaction holds it"),
)
_NO_OPTIONS = "unsupported startup parameter"


@contextlib.contextmanager
def translated(failures: tuple[type[Exception], ...] = OWN_ERRORS) -> Iterator[None]:
    """Raise holdfast's errors in place of psycopg's."""
    try:
        yield
    except failures as error:
        raise translate(error) from error


def translate(error: Exception) -> BaseException:
    """Return the error a caller should see."""
    if isinstance(error, errors.QueryCanceled) and _is_cancelled():
        return asyncio.CancelledError()  # psycopg may report only that the query ended
    message = message_of(error)
    for kind, raised, advice in _ADVICE:
        if isinstance(error, kind):
            return raised(f"{message}: {advice}")
    if _NO_OPTIONS in message:
        return StoreError(f"{message}: {_POOLER}, and remove options= from it")
    if isinstance(error, errors.UniqueViolation) and not is_retryable(error):
        return StoreError(message)
    return StoreUnavailableError(message)


def is_retryable(error: Exception) -> bool:
    """Whether the transaction was rolled back in favour of others and may be repeated.

    The server ends a transaction that is idle for too long: its client was frozen, or busy.

    Of the constraints only the one on ids can fail, when the same job is submitted twice at the
    same time; all other rows are written where there is none, or numbered by a sequence.
    """
    if isinstance(error, errors.UniqueViolation):
        return error.diag.constraint_name == "body_id"
    return isinstance(error, _ROLLED_BACK)


def message_of(error: Exception) -> str:
    """Return the first line of the message of the server or of libpq."""
    first = str(error).strip().splitlines()
    return f"PostgreSQL: {first[0] if first else type(error).__name__}"


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
