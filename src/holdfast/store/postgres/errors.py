"""Saying in holdfast's words what went wrong between us and a server, and what to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import errors

from holdfast.errors import StoreError, StoreUnavailableError

AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,  # a bad page, say, or a transaction that was ended from outside
    errors.InvalidSqlStatementName,
    OSError,
)
"""What may go wrong between a server and anybody; anything else is a mistake of whoever asked."""

OURS = (
    *AWAY,
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.InsufficientPrivilege,
    errors.DuplicatePreparedStatement,
    errors.UniqueViolation,
)
"""What may also become of our own statements."""


class LockedError(StoreUnavailableError):
    """Somebody's transaction keeps a call waiting for longer than it may wait."""


_MIGRATE = "run holdfast migrate"
GRANT = (
    "grant the role USAGE on the schema, SELECT, INSERT, UPDATE and DELETE on its tables,"
    " USAGE on its sequences, and EXECUTE on pg_control_system() where not everybody has that"
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
def translated(failures: tuple[type[Exception], ...] = OURS) -> Iterator[None]:
    """Say in holdfast's words what went wrong."""
    try:
        yield
    except failures as error:
        raise in_our_words(error) from error


def in_our_words(error: Exception) -> BaseException:
    """Return what to raise in its place."""
    if isinstance(error, errors.QueryCanceled) and _is_cancelled():
        return asyncio.CancelledError()  # psycopg may report only the query's end
    told = words(error)
    for kind, ours, advice in _ADVICE:
        if isinstance(error, kind):
            return ours(f"{told}: {advice}")
    if _NO_OPTIONS in told:
        return StoreError(f"{told}: {_POOLER}, and take options= out of it")
    if isinstance(error, errors.UniqueViolation) and not is_lost(error):
        return StoreError(told)
    return StoreUnavailableError(told)


def is_lost(error: Exception) -> bool:
    """Whether the transaction was rolled back so that another could go on: it may be repeated.

    Of the constraints only that on ids can be broken, by two who submit the same job at once;
    everything else is written where it is not, or counted from a sequence.
    """
    if isinstance(error, errors.UniqueViolation):
        return error.diag.constraint_name == "body_id"
    return isinstance(error, errors.DeadlockDetected | errors.SerializationFailure)


def words(error: Exception) -> str:
    """Return the first line of what a server or libpq said."""
    first = str(error).strip().splitlines()
    return f"PostgreSQL: {first[0] if first else type(error).__name__}"


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
