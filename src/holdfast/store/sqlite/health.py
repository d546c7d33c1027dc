"""Checks of the open file and its filesystem."""

from __future__ import annotations

import sqlite3

from holdfast.store.sqlite.connection import KNOWN
from holdfast.store.sqlite.location import NETWORK_FILESYSTEMS, Location
from holdfast.store.values import Finding, Level

UNUSED = 256 * 2**20
"""Free space in the file that is worth a VACUUM."""
FULL = 2
"""``PRAGMA synchronous``: every commit waits for the disk."""


def findings(connection: sqlite3.Connection, location: Location, filesystem: str) -> list[Finding]:
    """Return the findings about one file."""
    return [
        _durability(connection),
        _journal(connection),
        _filesystem(location, filesystem),
        _schema(connection),
        _size(connection),
        Finding("version", Level.OK, f"SQLite {sqlite3.sqlite_version}."),
    ]


def _durability(connection: sqlite3.Connection) -> Finding:
    if _pragma(connection, "synchronous") == FULL:
        return Finding(
            "durability", Level.OK, "An accepted job survives power loss (synchronous full)."
        )
    return Finding(
        "durability",
        Level.WARN,
        "An accepted job survives the end of processes, but not power loss.",
        "Remove durability=process from the URL.",
    )


def _journal(connection: sqlite3.Connection) -> Finding:
    mode = _pragma(connection, "journal_mode")
    if mode == "wal":
        return Finding("journal", Level.OK, "The file has a write-ahead log: readers never wait.")
    return Finding(
        "journal",
        Level.ERROR,
        f"The file was switched from a write-ahead log to {mode}.",
        "Stop the program that changes journal_mode; opening the store switches it back.",
    )


def _filesystem(location: Location, filesystem: str) -> Finding:
    if filesystem not in NETWORK_FILESYSTEMS:
        return Finding(
            "filesystem", Level.OK, f"{location.path} is on {filesystem or 'a local disk'}."
        )
    return Finding(
        "filesystem",
        Level.ERROR,
        f"{location.path} is on a network filesystem ({filesystem}), where locks may not work.",
        "Move the file to a local disk.",
    )


def _schema(connection: sqlite3.Connection) -> Finding:
    version = _pragma(connection, "user_version")
    if version == KNOWN:
        return Finding("schema", Level.OK, f"The schema is version {version}, the newest known.")
    return Finding(
        "schema",
        Level.ERROR,
        f"The schema is version {version}, this program knows {KNOWN}.",
        "Upgrade holdfast in every program that uses the file.",
    )


def _size(connection: sqlite3.Connection) -> Finding:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(str(_pragma(connection, name))) for name in names)
    text = f"The file has {pages * size / 2**20:.1f} MiB, {free * size / 2**20:.1f} of them unused."
    if free * size < UNUSED or free * 2 < pages:
        return Finding("size", Level.OK, text)
    return Finding("size", Level.WARN, text, "Stop the workers and run VACUUM on it.")


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value
