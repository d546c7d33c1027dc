"""The inside of an SQLite store, for tests that watch its statements.

The only place that knows how the store names its parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from holdfast.store.sqlite import SQLiteStore
    from holdfast.store.sqlite.session import SQLiteSession


def session_of(store: SQLiteStore) -> SQLiteSession:
    """Return its hold on the file."""
    session = store._session  # the store offers verbs only
    assert session is not None
    return session


def writer_of(store: SQLiteStore) -> sqlite3.Connection:
    """Return the connection that writes."""
    connection = session_of(store)._file.writer.connection  # a trace is set on it
    assert connection is not None
    return connection


def reader_of(store: SQLiteStore) -> sqlite3.Connection | None:
    """Return the connection that reads, once there is one."""
    return next(iter(session_of(store)._file.readers)).connection  # as above


def sockets_of(store: SQLiteStore) -> Path:
    """Return the folder in which processes on the file have their sockets."""
    wake = session_of(store)._file._socket_wake  # nothing public shows the folder
    assert wake is not None
    return wake._folder  # as above
