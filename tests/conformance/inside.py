"""What a place holds that no verb shows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
from redis import Redis

from tests.conformance.stores import JOBS, SCHEMA

if TYPE_CHECKING:
    from tests.conformance.stores import Place


def windows_in(place: Place) -> int:
    """Return the number of rate windows that a place keeps, open or not."""
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
