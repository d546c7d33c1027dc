"""The same work as the SQLite store's, written by hand with the sqlite3 module: the ceiling.

Same schema, same settings of the file, the same rows in every table, the plainest code that
can write them: no values, no checks, no event loop. The statements name the columns they fill, so
that a change of the store's own statements does not change what is measured here.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from holdfast.store.sqlite import connection
from holdfast.store.sqlite.connection import connect, statement
from holdfast.store.sqlite.location import Location

HOUR = 3_600_000_000
OPTIONS = bytearray(
    b'["json","standard","PT1800S","PT30S","P7D",{"strategy":"EXPONENTIAL"},true,""]'
)
KIND = ("default", "bench.task", 2)
ADD_JOB = """
INSERT INTO job (
    seq, id, state, queue, type, priority, rank, moved, revision, attempt, max_attempts,
    generation, held, ripe, created_at, updated_at, expires_at, scheduled_at, lease_ttl
) VALUES (?1, ?2, 'SCHEDULED', ?3, ?4, ?5, ?5, ?6, 1, 0, 3, 1, 0, 0, ?7, ?7, ?8, ?7, 30000000)
"""
ADD_BODY = "INSERT INTO body (seq, kind, options, payload) VALUES (?, 'AFTER', ?, ?)"
JOURNAL = """
INSERT INTO journal (
    number, seq, previous, event, from_state, to_state, at, reason, attempt, lease_version, worker
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
CLAIM = """
UPDATE job SET
    state = 'RUNNING',
    moved = ?2,
    lift_at = NULL,
    revision = revision + 1,
    attempt = attempt + 1,
    updated_at = ?5,
    started_at = ?5,
    lease_version = coalesce(lease_version, 0) + 1,
    lease_until = ?5 + lease_ttl,
    token = ?3,
    worker = ?4
WHERE seq = ?1 AND state = 'SCHEDULED'
"""
WORKER = "host-4711-0123456789abcdef"
ENQUEUED = ("nothing to wait for", 0, 0, "")
CLAIMED = ("claimed", 1, 1, WORKER)
COMPLETED = ("handler returned", 1, 1, WORKER)


class Hand:
    """Someone who writes jobs into the file without a store."""

    def __init__(self, folder: Path, name: str = "hand.db") -> None:
        location = Location(path=folder / name)
        location.create()
        self.connection = connect(location)
        connection.prepare(self.connection, location)
        self.now = 1_767_225_600_000_000
        self.number, _ = self.connection.execute(statement("newest_number")).fetchone()

    def submit(self, payloads: list[bytes]) -> None:
        """Write new jobs in one transaction."""
        now = self.now = self.now + 1000
        jobs, bodies, journal = [], [], []
        number = self.number
        for payload in payloads:
            seq, number = number + 1, number + 2
            key = bytearray(os.urandom(16))
            jobs.append((seq, key, *KIND, number, now, now + HOUR))
            bodies.append((seq, OPTIONS, bytearray(payload)))
            journal += [
                (seq, seq, -1, "submit", "", "PENDING", now, "submitted", 0, 0, ""),
                (number, seq, seq, "enqueue", "PENDING", "SCHEDULED", now, *ENQUEUED),
            ]
        self.number = number
        db = self.connection
        db.execute("BEGIN IMMEDIATE")
        db.executemany(ADD_JOB, jobs)
        db.executemany(ADD_BODY, bodies)
        db.executemany(JOURNAL, journal)
        self._count("SCHEDULED", len(jobs), "submitted")
        db.execute("COMMIT")

    def claim(self, limit: int, token: str) -> list[tuple[int, bytes, bytes, int]]:
        """Take ready jobs: number, id and payload of each."""
        now = self.now = self.now + 1000
        db = self.connection
        db.execute("BEGIN IMMEDIATE")
        ready = db.execute(statement("ready"), ("default", None, limit)).fetchall()
        first = self.number + 1
        self.number += len(ready)
        rows = [(seq, first + i, token, WORKER, now) for i, (seq, _) in enumerate(ready)]
        db.executemany(CLAIM, rows)
        db.executemany(
            JOURNAL,
            [
                (first + i, seq, moved, "claim", "SCHEDULED", "RUNNING", now, *CLAIMED)
                for i, (seq, moved) in enumerate(ready)
            ],
        )
        taken = [
            db.execute(
                "SELECT job.seq, job.id, body.payload, job.moved"
                " FROM job JOIN body USING (seq) WHERE seq = ?",
                (seq,),
            ).fetchone()
            for seq, _ in ready
        ]
        self._count("SCHEDULED", -len(rows))
        self._count("RUNNING", len(rows), "wait")
        db.execute("COMMIT")
        return taken

    def settle(self, taken: list[tuple[int, bytes, bytes, int]], token: str) -> None:
        """Complete jobs under their token."""
        now = self.now = self.now + 1000
        db = self.connection
        db.execute("BEGIN IMMEDIATE")
        first = self.number + 1
        self.number += len(taken)
        cursor = db.executemany(
            "UPDATE job SET state = 'COMPLETED', moved = ?, revision = revision + 1,"
            " updated_at = ?, finished_at = ?, lease_until = NULL, result = ?"
            " WHERE id = ? AND state = 'RUNNING' AND token = ?",
            [
                (first + i, now, now, bytearray(b"true"), bytearray(key), token)
                for i, (_, key, _, _) in enumerate(taken)
            ],
        )
        assert cursor.rowcount == len(taken)
        db.executemany(
            JOURNAL,
            [
                (first + i, seq, moved, "complete", "RUNNING", "COMPLETED", now, *COMPLETED)
                for i, (seq, _, _, moved) in enumerate(taken)
            ],
        )
        self._count("RUNNING", -len(taken), "run")
        self._count("COMPLETED", len(taken), "completed")
        db.execute("COMMIT")

    def _count(self, state: str, change: int, *measures: str) -> None:
        self.connection.execute(statement("tally"), (*KIND, state, change))
        for measure in measures:
            row = (self.now // 60_000_000, *KIND, measure, 1, abs(change), 0.001)
            self.connection.execute(statement("measure"), row)


class Bare:
    """One table, one index, no history, no counters: what a weekend's queue would do."""

    def __init__(self, folder: Path) -> None:
        location = Location(path=folder / "bare.db")
        location.create()
        self.connection: sqlite3.Connection = connect(location)
        self.connection.execute("PRAGMA journal_mode = wal")
        self.connection.execute(
            "CREATE TABLE job (id BLOB PRIMARY KEY, state TEXT, payload BLOB, result BLOB)"
        )
        self.connection.execute("CREATE INDEX ready ON job (state) WHERE state = 'ready'")

    def submit(self, payloads: list[bytes]) -> None:
        """Write new jobs in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "INSERT INTO job VALUES (?, 'ready', ?, NULL)",
            [(os.urandom(16), payload) for payload in payloads],
        )
        self.connection.execute("COMMIT")

    def claim(self, limit: int, token: str) -> list[tuple[int, bytes, bytes, int]]:
        """Take ready jobs."""
        return self.connection.execute(
            "UPDATE job SET state = ? WHERE rowid IN"
            " (SELECT rowid FROM job INDEXED BY ready WHERE state = 'ready' LIMIT ?)"
            " RETURNING rowid, id, payload, 0",
            (token, limit),
        ).fetchall()

    def settle(self, taken: list[tuple[int, bytes, bytes, int]], token: str) -> None:
        """Complete jobs."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(
            "UPDATE job SET state = 'done', result = ? WHERE id = ? AND state = ?",
            [(b"true", key, token) for _, key, _, _ in taken],
        )
        self.connection.execute("COMMIT")
