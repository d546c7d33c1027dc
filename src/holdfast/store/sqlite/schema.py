"""Bringing the file to the schema this program knows, once, however many open it at once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator

from holdfast.errors import SchemaVersionError, StoreError, StoreUnavailableError
from holdfast.store.sqlite.connection import BUSY, primary_code, translated
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.sql import MIGRATIONS

APPLICATION_ID = 0x484F4C44
"""Marks the file as ours ("HOLD")."""

KNOWN = len(MIGRATIONS)
_TRIES = 100
_PAUSE = 0.05


def prepare(connection: sqlite3.Connection, location: Location) -> None:
    """Switch the file to WAL and apply the migrations it lacks."""
    with translated(location.path):
        _check_owner(connection, location)
        _use_wal(connection, location)
        if _version(connection) != KNOWN:
            _migrate(connection, location)


def _use_wal(connection: sqlite3.Connection, location: Location) -> None:
    (mode,) = _patiently(connection, "PRAGMA journal_mode = wal", location).fetchone()
    if mode != "wal":
        raise StoreError(f"{location.path} cannot be switched to WAL, it stays in {mode}")


def _migrate(connection: sqlite3.Connection, location: Location) -> None:
    _patiently(connection, "BEGIN EXCLUSIVE", location)
    try:
        for number, text in enumerate(MIGRATIONS.values(), 1):
            if number > _version(connection):
                for each in _statements(text):
                    connection.execute(each)
                connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _patiently(connection: sqlite3.Connection, sql: str, location: Location) -> sqlite3.Cursor:
    """Run what needs the file alone for a moment: SQLite does not always wait for that itself."""
    for _ in range(_TRIES):
        try:
            return connection.execute(sql)
        except sqlite3.OperationalError as error:
            if primary_code(error) not in BUSY:
                raise
            time.sleep(_PAUSE)
    raise StoreUnavailableError(f"{location.path} is kept locked by another process")


def _check_owner(connection: sqlite3.Connection, location: Location) -> None:
    connection.execute("BEGIN")  # one view of the file, should another process migrate it now
    version = _version(connection)
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("COMMIT")
    if tables and owner != APPLICATION_ID:
        raise StoreError(f"{location.path} is the database of another program")
    if version > KNOWN:
        raise SchemaVersionError(version, KNOWN)


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for part in text.split(";")[:-1]:
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
