"""Clients that are stopped in the middle of a transaction, like a suspended machine."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, JobContext, State
from holdfast.errors import StoreUnavailableError
from holdfast.store import Claim, LimitRule
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.processes import line_of, process
from tests.waiting import eventually
from tests.worker.rig import working

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "frozen"

CLAIMER = """
import asyncio, sys
from datetime import timedelta
from holdfast.store import Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.claim import claim_params

async def take(session):
    want = Claim(queues=("default",), limit=1, worker="frozen", token="f")
    if not await session.run("claim", claim_params(want, None)):
        return "nothing left"
    print("taken", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "committed"

async def main():
    settings = PostgresSettings(dsn=sys.argv[1], schema=sys.argv[2], timeout=timedelta(seconds=1))
    async with PostgresStore(settings) as store:
        print(await store._state.pool.atomically(take), flush=True)

asyncio.run(main())
"""

LIMITED_CLAIMER = """
import asyncio, os, signal, sys
from holdfast.store import Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.connection import PostgresSession

run = PostgresSession.run
stop_after = [sys.argv[3]]

async def run_and_stop(session, name, params):
    rows = await run(session, name, params)
    if name in stop_after:
        stop_after.remove(name)
        print("stopped", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return rows

async def main():
    async with PostgresStore(PostgresSettings(dsn=sys.argv[1], schema=sys.argv[2])) as store:
        PostgresSession.run = run_and_stop
        want = Claim(queues=("default",), limit=1, worker="frozen", token="f")
        print([job.id for job in await store.claim(want)], flush=True)

asyncio.run(main())
"""


COUNTER = """
import asyncio, sys
from holdfast import Holdfast, JobContext, Worker

app = Holdfast(sys.argv[1])

@app.task("count")
async def count(ctx: JobContext) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("UPDATE frozen_counter SET n = n + 1")
        print("counted", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

class LeaseWatcher:
    def emit(self, event: str, **fields: object) -> None:
        if event == "job.lease_lost":
            print("refused", flush=True)

asyncio.run(Worker(app, maintenance=False, observer=LeaseWatcher()).run())
"""


async def _claimed_within(store: PostgresStore, seconds: float) -> tuple[Job, float]:
    begun = time.monotonic()
    want = Claim(queues=("default",), limit=1, worker="w", token="t")
    (taken,) = await eventually(lambda: store.claim(want), within=seconds, every=0.05)
    return taken, time.monotonic() - begun


@pytest.mark.req("S-6", "S-12")
async def test_stopped_claimer_blocks_no_other_and_cannot_commit_later(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        first, second = (make(label, now=store.now()) for label in ("first", "second"))
        await store.add([first, second])
        with process(CLAIMER, postgres_server.dsn, SCHEMA) as frozen:
            assert "taken" == await asyncio.to_thread(line_of, frozen)
            frozen.send_signal(signal.SIGSTOP)

            other, at_once = await _claimed_within(store, 5)
            again, later = await _claimed_within(store, 20)
            frozen.send_signal(signal.SIGCONT)
            said, _ = await asyncio.to_thread(frozen.communicate, "go\n", 30)

        (stored,) = await store.get([first.id])
    assert (second.id, first.id) == (other.id, again.id)
    assert at_once < 2  # it looked past the locked row instead of waiting for it
    assert later < 15  # the server ended the transaction of who fell silent
    assert "nothing left" == said.strip()  # the repeated transaction; the first was rolled back
    assert stored is not None
    assert (again.lease, 1) == (stored.lease, stored.lease_version)


@pytest.mark.req("S-6", "S-12")
@pytest.mark.parametrize("statement", ["limits_lock", "ready", "claim"])
async def test_claimer_stopped_under_a_limit_holds_up_the_others_for_a_second(
    postgres_server: Postgres, statement: str
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        first, second = (make(label, now=store.now()) for label in ("first", "second"))
        await store.add([first, second])
        await store.limit("queue:default", LimitRule(concurrency=2))
        with process(LIMITED_CLAIMER, postgres_server.dsn, SCHEMA, statement) as frozen:
            assert "stopped" == await asyncio.to_thread(line_of, frozen)

            other, waited = await _claimed_within(store, 10)
            frozen.send_signal(signal.SIGCONT)
            said, errors = await asyncio.to_thread(frozen.communicate, "", 30)

    assert first.id == other.id
    assert waited < 4
    assert str([second.id]) == said.strip(), errors  # it claims anew


@pytest.mark.req("S-9")
async def test_call_on_a_table_locked_by_another_program_times_out(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(
        dsn=postgres_server.dsn, schema=SCHEMA, timeout=timedelta(seconds=1)
    )
    async with PostgresStore(settings) as store:
        job = make("first", now=store.now())
        await store.add([job])
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other_session:
            await other_session.execute(f"LOCK TABLE {SCHEMA}.job IN ACCESS EXCLUSIVE MODE")
            begun = time.monotonic()

            with pytest.raises(StoreUnavailableError):
                await store.claim(Claim(queues=("default",), limit=1, worker="w", token="t"))

            assert time.monotonic() - begun < 5
            await other_session.rollback()

        assert job.id == (await _claimed_within(store, 5))[0].id


@pytest.mark.req("S-5", "S-6")
async def test_rows_of_a_stopped_handler_are_free_once_its_lease_has_ended(
    postgres_server: Postgres,
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    app = Holdfast(f"{postgres_server.dsn}?schema={SCHEMA}")

    @app.task("count", lease=2, max_attempts=2)
    async def count(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("UPDATE frozen_counter SET n = n + 1")

    counter = await psycopg.AsyncConnection.connect(postgres_server.dsn, autocommit=True)
    await counter.execute("DROP TABLE IF EXISTS frozen_counter")
    await counter.execute("CREATE TABLE frozen_counter AS SELECT 0 AS n")
    async with app, counter:
        with process(COUNTER, app.url) as frozen:
            job = await count.submit()
            assert "counted" == await asyncio.to_thread(line_of, frozen)
            frozen.send_signal(signal.SIGSTOP)
            async with working(app):
                ended = await app.wait(job.job_id, timeout=2 + 8)
            frozen.send_signal(signal.SIGCONT)
            assert "refused" == await asyncio.to_thread(line_of, frozen)

        assert (State.COMPLETED, 2) == (ended.state, ended.attempt)
        assert [(1,)] == await (await counter.execute("SELECT n FROM frozen_counter")).fetchall()
