"""Filling a file with many finished and delayed jobs, as fast as SQLite can."""

from __future__ import annotations

import sqlite3
from pathlib import Path

YEAR = 365 * 86_400 * 1_000_000
CHUNK = 50_000
NOW = 1_767_225_600_000_000


def fill(path: Path, *, finished: int, delayed: int) -> None:
    """Add completed jobs with their history, and jobs delayed by a year."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = 0")
    db.execute("PRAGMA cache_size = -200000")
    for state, count in {"COMPLETED": finished, "DELAYED": delayed}.items():
        for start in range(0, count, CHUNK):
            _add(db, state, min(CHUNK, count - start))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def _add(db: sqlite3.Connection, state: str, count: int) -> None:
    (first,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM journal").fetchone()
    ended = state == "COMPLETED"
    db.execute("BEGIN")
    db.execute(
        """
        WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)
        INSERT INTO job (
            seq, id, state, queue, type, priority, rank, moved, revision, attempt, max_attempts,
            generation, held, ripe, created_at, updated_at, expires_at, due_at, scheduled_at,
            started_at, finished_at, lease_ttl, lease_version, token, worker, result
        )
        SELECT :first + 4 * i, randomblob(16), :state, 'default', 'bench.task', 2, 2,
            :first + 4 * i + iif(:ended, 3, 1), 3, 1, 3, 1, 0, 0, :now + i, :now + i,
            :now + 2 * :year + i,
            iif(:ended, NULL, :now + :year + i), :now + i, iif(:ended, :now + i, NULL),
            iif(:ended, :now + i, NULL), 30000000, 1, 'token', 'worker', x'74727565'
        FROM n
        """,
        {"count": count, "first": first, "state": state, "now": NOW, "year": YEAR, "ended": ended},
    )
    db.execute(
        """
        INSERT INTO body (seq, kind, options, payload)
        SELECT seq, 'AFTER', :options, :payload FROM job WHERE seq >= :first
        """,
        {
            "first": first,
            "options": b'["json","standard","PT1800S","PT30S","P7D",{},true,""]',
            "payload": b'{"to":"someone@example.com","subject":"hello","n":12345}',
        },
    )
    events = ("submit", "enqueue", "claim", "complete") if ended else ("submit", "delay")
    for place, event in enumerate(events):
        db.execute(
            """
            INSERT INTO journal (
                number, seq, previous, event, from_state, to_state, at, reason,
                attempt, lease_version, worker
            )
            SELECT seq + :place, seq, iif(:place, seq + :place - 1, -1), :event,
                'PENDING', state, created_at, :event, 1, 1, 'worker'
            FROM job WHERE seq >= :first
            """,
            {"first": first, "place": place, "event": event},
        )
    db.execute(
        """
        INSERT INTO tally (queue, type, priority, state, count)
        VALUES ('default', 'bench.task', 2, ?1, ?2)
        ON CONFLICT DO UPDATE SET count = count + ?2
        """,
        (state, count),
    )
    db.execute("COMMIT")
