"""Opening the file, and what SQLite's errors mean to a caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.store.sqlite.location import Durability, Location

OLDEST_SQLITE = (3, 40, 0)
BUSY_MILLISECONDS = 5_000
"""How long SQLite itself waits for a lock, as when another process opens or closes the file."""

CACHE_KIBIBYTES = 65_536
CHECKPOINT_PAGES = 4_000
"""Checkpoint every 16 MiB of WAL: hot pages are then copied into the file once, not four times."""

_SYNCHRONOUS = {Durability.FULL: 2, Durability.PROCESS: 1}
_PRIMARY = 0xFF
_GONE_WRONG = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_AWAY = BUSY | {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}


def connect(location: Location, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode with the settings the promises need."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite 3.40 or newer is needed, this is {sqlite3.sqlite_version}")
    with translated(location.path):
        connection = sqlite3.connect(
            location.path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[location.durability]}")
        connection.execute(f"PRAGMA cache_size = {-CACHE_KIBIBYTES}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if read_only:
            connection.execute("PRAGMA query_only = 1")
        else:  # what a savepoint may have to undo need not go through a file of its own
            connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's result code without its extension; 0 when the error came from Python."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translation(error, path) from error


def translation(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error a caller should see."""
    code = primary_code(error)
    if code in _GONE_WRONG:
        return StoreError(f"{path} is not a sound SQLite database: {error}")
    if code in BUSY:
        return StoreUnavailableError(f"{path} is locked by another process: {error}")
    if code in _AWAY:
        return StoreUnavailableError(f"{path} cannot be used right now: {error}")
    return StoreError(f"{path}: {error}")
