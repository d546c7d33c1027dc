"""Three table designs under the same work, to find the one that keeps its speed.

One table; a narrow table for what changes beside one for what does not (ours); and the same with
ready jobs in a table of their own, deleted on claim. Each holds finished and delayed jobs, then
completes new ones in batches, alone and while another transaction keeps dead rows from being
vacuumed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.effort import Effort
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 100

FIXED = "id text NOT NULL, payload bytea NOT NULL, policy json NOT NULL, created timestamptz"
MOVING = """
    place bigint, state text NOT NULL, queue text NOT NULL, type text NOT NULL, level smallint,
    revision int, attempt int, due timestamptz, started timestamptz, finished timestamptz,
    expires timestamptz, until timestamptz, token text, worker text, result bytea
"""
INDEXES = """
    CREATE INDEX ON {t} (state, number) WHERE state NOT IN ('SCHEDULED', 'COMPLETED');
    CREATE INDEX ON {t} (due, number) WHERE state = 'DELAYED';
    CREATE INDEX ON {t} ((CASE WHEN state = 'RUNNING' THEN least(until, expires) ELSE expires END))
        WHERE state IN ('SCHEDULED', 'DELAYED', 'RUNNING');
    CREATE INDEX ON {t} (state, finished) WHERE finished IS NOT NULL;
"""
READY = "CREATE INDEX ON {t} (queue, level, place) WHERE state = 'SCHEDULED';"
OPTIONS = "WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02)"
FIXED_VALUES = """gen_random_uuid()::text, convert_to(repeat('x', 300), 'UTF8'),
    '{"profile": "standard", "timeout": "PT30M", "backoff": {"initial_delay": "PT1S"}}', now()"""
MOVING_VALUES = """n, %(state)s, 'default', 'bench', 2, 1, 0, now() + interval '1 day', NULL,
    CASE WHEN %(state)s = 'COMPLETED' THEN now() END, now() + interval '7 days', NULL, NULL,
    NULL, NULL"""
TAKEN = """state = 'RUNNING', revision = revision + 1, attempt = attempt + 1, place = NULL,
    started = clock_timestamp(), until = clock_timestamp() + interval '30 s', token = 'token',
    worker = 'host-1-abcdef'"""
DONE = """UPDATE {t} SET state = 'COMPLETED', revision = revision + 1, until = NULL,
    finished = clock_timestamp(), result = 'null' WHERE number = ANY (%(numbers)s)"""


@dataclass
class Design:
    """The statements of one design; ``{{t}}`` is the table that changes."""

    name: str
    create: str
    fill: str
    claim: str
    done: str


ONE = Design(
    "one table",
    f"CREATE TABLE j (number bigint PRIMARY KEY, {FIXED}, {MOVING}) {OPTIONS};"
    "CREATE UNIQUE INDEX ON j (id);" + INDEXES.format(t="j") + READY.format(t="j"),
    f"INSERT INTO j SELECT n, {FIXED_VALUES}, {MOVING_VALUES}"
    " FROM generate_series(%(first)s::bigint, %(last)s) AS n",
    f"""WITH picked AS MATERIALIZED (
        SELECT number FROM j WHERE state = 'SCHEDULED' AND queue = 'default' AND level = 2
        AND place >= %(start)s ORDER BY place LIMIT {BATCH} FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE j SET {TAKEN} FROM picked WHERE j.number = picked.number
    RETURNING j.number, j.payload""",
    DONE.format(t="j"),
)
BODY = f"CREATE TABLE body (number bigint PRIMARY KEY, {FIXED}); CREATE UNIQUE INDEX ON body (id);"
TWO_FILL = f"""WITH fixed AS (INSERT INTO body SELECT n, {FIXED_VALUES}
        FROM generate_series(%(first)s::bigint, %(last)s) AS n)
    INSERT INTO j SELECT n, {MOVING_VALUES}
    FROM generate_series(%(first)s::bigint, %(last)s) AS n"""
TWO = Design(
    "narrow beside fixed (ours)",
    BODY
    + f"CREATE TABLE j (number bigint PRIMARY KEY, {MOVING}) {OPTIONS};"
    + INDEXES.format(t="j")
    + READY.format(t="j"),
    TWO_FILL,
    f"""WITH picked AS MATERIALIZED (
        SELECT number FROM j WHERE state = 'SCHEDULED' AND queue = 'default' AND level = 2
        AND place >= %(start)s ORDER BY place LIMIT {BATCH} FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE j SET {TAKEN} FROM picked JOIN body b USING (number) WHERE j.number = picked.number
    RETURNING j.number, b.payload""",
    DONE.format(t="j"),
)
THREE = Design(
    "ready rows deleted on claim",
    BODY
    + f"CREATE TABLE j (number bigint PRIMARY KEY, {MOVING}) {OPTIONS};"
    + INDEXES.format(t="j")
    + "CREATE TABLE ready (queue text, level smallint, place bigint, number bigint,"
    " PRIMARY KEY (queue, level, place));",
    f"""WITH fixed AS (INSERT INTO body SELECT n, {FIXED_VALUES}
        FROM generate_series(%(first)s::bigint, %(last)s) AS n),
    queued AS (INSERT INTO ready SELECT 'default', 2, n, n
        FROM generate_series(%(first)s::bigint, %(last)s) AS n WHERE %(state)s = 'SCHEDULED')
    INSERT INTO j SELECT n, {MOVING_VALUES}
    FROM generate_series(%(first)s::bigint, %(last)s) AS n""",
    f"""WITH picked AS MATERIALIZED (
        SELECT queue, level, place FROM ready WHERE queue = 'default' AND level = 2
        AND place >= %(start)s ORDER BY place LIMIT {BATCH} FOR UPDATE SKIP LOCKED),
    taken AS (DELETE FROM ready r USING picked p
        WHERE r.queue = p.queue AND r.level = p.level AND r.place = p.place RETURNING r.number)
    UPDATE j SET {TAKEN} FROM taken JOIN body b USING (number) WHERE j.number = taken.number
    RETURNING j.number, b.payload""",
    DONE.format(t="j"),
)


class Run:
    """One design on one server."""

    def __init__(self, design: Design, server: servers.Postgres) -> None:
        self.design = design
        self._server = server
        self.connection = psycopg.connect(server.dsn, autocommit=True, prepare_threshold=0)
        self.connection.execute("SET enable_bitmapscan = off")
        self.connection.execute("SET plan_cache_mode = force_generic_plan")
        self._next = 1

    def fill(self, state: str, count: int) -> None:
        params = {"state": state, "first": self._next, "last": self._next + count - 1}
        with psycopg.ClientCursor(self.connection) as cursor:
            cursor.execute(self.design.fill, params)
        self._next += count

    def work(self, count: int, *, from_front: bool) -> None:
        start = 0
        for _ in range(0, count, BATCH):
            rows = self.connection.execute(self.design.claim, {"start": start}).fetchall()
            numbers = [number for number, _ in rows]
            start = 0 if from_front else min(numbers)
            self.connection.execute(self.design.done, {"numbers": numbers})

    def wal(self) -> int:
        ((where,),) = self.connection.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchall()
        return int(where)

    def cpu(self) -> float:
        pid = self.connection.info.backend_pid
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def measured(run: Run, count: int, work: Callable[[], None]) -> str:
    begun, cpu, wal = time.perf_counter(), run.cpu(), run.wal()
    work()
    seconds = time.perf_counter() - begun
    each = f"{(run.cpu() - cpu) / count * 1e6:6.0f} us  {(run.wal() - wal) / count:6.0f} B WAL"
    return f"{count / seconds:8,.0f} jobs/s  {each}"


def compare(design: Design, finished: int, delayed: int, jobs: int, chunk: int) -> None:
    """Measure one design, alone and under an old snapshot."""
    print(f"\n{design.name}")
    with servers.Postgres(["full_page_writes=on", "shared_buffers=256MB"]) as server:
        run = Run(design, server)
        for statement in design.create.split(";"):
            run.connection.execute(statement)
        run.fill("COMPLETED", finished)
        run.fill("DELAYED", delayed)
        run.connection.execute("VACUUM ANALYZE")
        print("  submit               ", measured(run, jobs, lambda: run.fill("SCHEDULED", jobs)))
        print(
            "  claim + complete     ", measured(run, jobs, lambda: run.work(jobs, from_front=True))
        )
        for from_front in (True, False):
            run.connection.execute("VACUUM")
            with psycopg.connect(server.dsn) as old:
                old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                old.execute("SELECT count(*) FROM j WHERE number = 0")
                run.fill("SCHEDULED", jobs)
                how = "from the front" if from_front else "from position "
                run.work(jobs - 2 * chunk, from_front=from_front)
                last = measured(run, chunk, lambda: run.work(chunk, from_front=from_front))  # noqa: B023
                print(f"  pinned, {how}", last, f" (after {jobs - 2 * chunk:,})")
                run.work(chunk, from_front=False)
        run.connection.close()


async def main(*, effort: Effort, folder: str | None) -> None:
    """Compare all three; the server chooses its own folder."""
    del folder
    finished, delayed, jobs, chunk = effort.pick(
        (1_000_000, 200_000, 40_000, 2_000), (300_000, 60_000, 20_000, 2_000), (500, 500, 500, 200)
    )
    print(f"{finished:,} finished, {delayed:,} delayed, {jobs:,} jobs in batches of {BATCH}")
    for design in (ONE, TWO, THREE):
        compare(design, finished, delayed, jobs, chunk)
