"""What a place holds that no verb shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from redis import Redis

from tests.conformance.stores import JOBS, SCHEMA

if TYPE_CHECKING:
    from tests.conformance.stores import Place


class Window(NamedTuple):
    """What is recorded of a rate; in earlier versions the starts of a window, and its end."""

    started: int
    until: datetime


def windows_in(place: Place) -> int:
    """Return of how many rates a place has a record."""
    if place.file is not None:
        with closing(sqlite3.connect(place.file)) as file:
            return int(file.execute("SELECT count(*) FROM rate_window").fetchone()[0])
    if place.dsn:
        with psycopg.connect(place.dsn) as connection:
            row = connection.execute(f"SELECT count(*) FROM {SCHEMA}.rate_window").fetchone()
            assert row is not None
            return int(row[0])
    if place.port:
        with Redis(port=place.port, db=JOBS) as server:
            return sum(int(server.hlen(name)) for name in server.keys("*:hf:windows"))
    return len(place.kept["memory"]._tables.windows)  # the memory store offers verbs only


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
WINDOWS = "t:hf:windows"


def record_window(place: Place, scope: str, window: Window) -> None:
    """Record a window as earlier versions do."""
    micros = (window.until - EPOCH) // MICROSECOND
    if place.file is not None:
        with closing(sqlite3.connect(place.file, isolation_level=None)) as file:
            file.execute(
                "INSERT INTO rate_window (scope, started, until) VALUES (?, ?, ?)",
                (scope, window.started, micros),
            )
    elif place.dsn:
        with psycopg.connect(place.dsn) as connection:
            connection.execute(
                f"INSERT INTO {SCHEMA}.rate_window (scope, started, until) VALUES (%s, %s, %s)",
                (scope, *window),
            )
    elif place.port:
        with Redis(port=place.port, db=JOBS) as server:
            server.hset(WINDOWS, scope, f"{window.started}:{micros}")
    else:
        place.kept["memory"]._tables.windows[scope] = tuple(window)  # no verb writes it


def recorded_window(place: Place, scope: str) -> Window:
    """Return what earlier versions read of a rate."""
    if place.file is not None:
        with closing(sqlite3.connect(place.file)) as file:
            query = "SELECT started, until FROM rate_window WHERE scope = ?"
            started, micros = file.execute(query, (scope,)).fetchone()
            return Window(started, EPOCH + micros * MICROSECOND)
    if place.dsn:
        with psycopg.connect(place.dsn) as connection:
            query = f"SELECT started, until FROM {SCHEMA}.rate_window WHERE scope = %s"
            row = connection.execute(query, (scope,)).fetchone()
            assert row is not None
            return Window(*row)
    if place.port:
        with Redis(port=place.port, db=JOBS) as server:
            started, micros = str(server.hget(WINDOWS, scope), "ascii").split(":")
            return Window(int(started), EPOCH + int(micros) * MICROSECOND)
    return Window(*place.kept["memory"]._tables.windows[scope])  # no verb reads it
