"""Opens the file, applies migrations and translates SQLite's errors."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

from holdfast.errors import SchemaVersionError, StoreError, StoreUnavailableError
from holdfast.store.sqlite.location import Durability, Location

_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_PARAMETER = re.compile(r"\?(\d+)")


def _folder(name: str) -> dict[str, str]:
    found = files("holdfast.store.sqlite").joinpath(name).iterdir()
    return {
        entry.name.removesuffix(".sql"): entry.read_text("utf-8")
        for entry in found
        if entry.name.endswith(".sql")
    }


SOURCES = _folder("queries")
"""Every statement with its header, by name."""

MIGRATIONS = dict(sorted(_folder("migrations").items()))
"""Every migration by its numbered name, oldest first."""

_STATEMENTS = {name: _COMMENT.sub("", text).strip() for name, text in SOURCES.items()}


def statement(name: str) -> str:
    """Return one statement without its comments."""
    return _STATEMENTS[name]


@cache
def parameters(name: str) -> int:
    """Return how many parameters a statement has."""
    return max(int(number) for number in _PARAMETER.findall(statement(name)))


@cache
def repeated(name: str, rows: int, *, shared: int = 0) -> str:
    """Return a statement that inserts one row, changed to insert many.

    Parameters are numbered row after row; only the first ``shared`` ones are the same for all.
    """
    head, word, row = statement(name).partition("VALUES ")
    width = parameters(name) - shared

    def shifted(by: int) -> str:
        return _PARAMETER.sub(lambda found: f"?{_shift(int(found[1]), by, shared)}", row)

    return head + word + ", ".join(shifted(width * number) for number in range(rows))


def _shift(number: int, by: int, shared: int) -> int:
    return number if number <= shared else number + by


APPLICATION_ID = 0x484F4C44
"""Marks the file as a holdfast store ("HOLD")."""

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
    (mode,) = _retry_while_busy(connection, "PRAGMA journal_mode = wal", location).fetchone()
    if mode != "wal":
        raise StoreError(f"{location.path} cannot be switched to WAL: its journal stays {mode}")


def _migrate(connection: sqlite3.Connection, location: Location) -> None:
    _retry_while_busy(connection, "BEGIN EXCLUSIVE", location)
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


def _retry_while_busy(
    connection: sqlite3.Connection, sql: str, location: Location
) -> sqlite3.Cursor:
    """Run a statement that needs an exclusive lock: SQLite does not always wait for one."""
    for _ in range(_TRIES):
        try:
            return connection.execute(sql)
        except sqlite3.OperationalError as error:
            if primary_code(error) not in BUSY:
                raise
            time.sleep(_PAUSE)
    raise StoreUnavailableError(f"{location.path} stays locked by another process")


def _check_owner(connection: sqlite3.Connection, location: Location) -> None:
    connection.execute("BEGIN")  # one snapshot, in case another process migrates the file now
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


OLDEST_SQLITE = (3, 40, 0)
BUSY_MILLISECONDS = 5_000
"""How long SQLite itself waits for a lock, as when another process opens or closes the file."""

CACHE_KIBIBYTES = 65_536
CHECKPOINT_PAGES = 4_000
"""Checkpoint every 16 MiB of WAL: hot pages are then copied into the file once, not four times."""

_SYNCHRONOUS = {Durability.FULL: 2, Durability.PROCESS: 1}
_PRIMARY = 0xFF
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE = BUSY | {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}


def connect(
    location: Location, *, read_only: bool = False, cache: int = CACHE_KIBIBYTES
) -> sqlite3.Connection:
    """Open a connection in autocommit mode with the settings that durability needs.

    The file must exist: SQLite would create an empty one in the place of a file that was moved
    away, and delete its log.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(f"SQLite 3.40 or newer is needed, this is {sqlite3.sqlite_version}")
    with translated(location.path):
        connection = sqlite3.connect(
            f"{location.path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[location.durability]}")
        connection.execute(f"PRAGMA cache_size = {-cache}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        if read_only:
            connection.execute("PRAGMA query_only = 1")
        else:  # savepoints then need no temporary file
            connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's result code without its extension; 0 when the error came from Python."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into those of the library."""
    try:
        yield
    except sqlite3.Error as error:
        raise translation(error, path) from error


def translation(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error to raise for one of SQLite's."""
    code = primary_code(error)
    if code in _CORRUPT:
        return StoreError(f"{path} is not an intact SQLite database: {error}")
    if code in BUSY:
        return StoreUnavailableError(f"{path} is locked by another process: {error}")
    if code in _UNAVAILABLE:
        return StoreUnavailableError(f"{path} cannot be used now: {error}")
    return StoreError(f"{path}: {error}")


class OpenFile:
    """The file and its log as a process opened them.

    A program that deletes, moves or replaces an open file takes its name away, not the file:
    SQLite would continue to write, and nobody could ever read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        database = path.absolute()  # the program may change its directory later
        self._names = (os.fspath(database), os.path.realpath(database) + "-wal")
        self._found = tuple(self._identity(name) for name in self._names)

    def check(self) -> None:
        """Raise StoreError when the names no longer lead to the files that were opened."""
        try:  # at every commit, so without calls, and os.stat takes half the time of Path.stat
            database, log = map(os.stat, self._names)
        except OSError:
            self._check_each()
            return
        found = (database.st_dev, database.st_ino), (log.st_dev, log.st_ino)
        if found != self._found:
            self._check_each()

    def _check_each(self) -> None:
        for name, found in zip(self._names, self._found, strict=True):
            if self._identity(name) != found:
                raise StoreError(
                    f"{name} was deleted, moved or replaced while this process had it open: what"
                    " is written now would be lost, so nothing is accepted; put the file back or"
                    " restart this process"
                )

    def _identity(self, name: str) -> tuple[int, int] | None:
        try:
            status = os.stat(name)  # noqa: PTH116  # a name, not a path
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreUnavailableError(f"{self._path} cannot be used now: {error}") from error
        return status.st_dev, status.st_ino
