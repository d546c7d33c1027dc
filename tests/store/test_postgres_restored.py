"""A schema that was restored on another server, which has begun fewer transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.model import lifecycle
from holdfast.store import Change, Claim, Level, Order, Search
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.migrate import _RESTORE_LOCK, Migrator
from tests.conformance.hand import make
from tests.conformance.snapshot import NO_WAIT
from tests.conformance.stores import empty_schema
from tests.servers import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.job import Job

pytestmark = pytest.mark.postgres
SCHEMA = "restored"
BEGIN_MANY = b"""
DO $$ BEGIN
    FOR n IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP;
END $$
"""
SLOWLY = f"""
CREATE FUNCTION {SCHEMA}.slowly() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
CREATE TRIGGER slowly BEFORE UPDATE ON {SCHEMA}.job
FOR EACH ROW WHEN (NEW.xid <> OLD.xid AND NEW.state = OLD.state)
EXECUTE FUNCTION {SCHEMA}.slowly()
""".encode()
REFUSING = f"""
CREATE FUNCTION {SCHEMA}.refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'it cannot be adopted'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON {SCHEMA}.job
FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.refuse()
""".encode()
WITHIN = 10.0
MANY = 100


@pytest.fixture(scope="module")
def old() -> Iterator[Postgres]:
    """A server that has begun many transactions."""
    with Postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(BEGIN_MANY)
        yield server


@pytest.fixture
def new() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


async def _fill(server: Postgres) -> tuple[list[Job], str]:
    """Write a ready job, a completed one and one that is due; return the cursor of the end."""
    empty_schema(server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=server.dsn, schema=SCHEMA)) as store:
        now = store.now()
        done, ready, due = (
            make("done", now=now),
            make("ready", now=now),
            make("due", now=now, delay=0.1),
        )
        await store.add([done])
        (running,) = await store.claim(Claim(queues=("default",), limit=1, worker="w", token="t"))
        await store.swap([Change(running, lifecycle.completed(running, None, now=store.now()))])
        await store.add([ready, due])
        return [done, ready, due], (await store.events(None, 0, NO_WAIT)).cursor


async def _restore(old: Postgres, new: Postgres) -> None:
    """Copy every row, as pg_dump and pg_restore do."""
    async with (
        await psycopg.AsyncConnection.connect(old.dsn, autocommit=True) as source,
        await psycopg.AsyncConnection.connect(new.dsn, autocommit=True) as target,
    ):
        await Migrator(target, SCHEMA).up()
        cursor = await source.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migration'",
            (SCHEMA,),
        )
        async with target.transaction():
            for (table,) in await cursor.fetchall():
                name = f"{SCHEMA}.{table}"
                async with (
                    source.cursor().copy(f"COPY {name} TO STDOUT (FORMAT BINARY)") as rows,
                    target.cursor().copy(f"COPY {name} FROM STDIN (FORMAT BINARY)") as written,
                ):
                    async for row in rows:
                        await written.write(row)
        cursor = await source.execute(
            "SELECT sequencename, last_value FROM pg_sequences"
            " WHERE schemaname = %s AND last_value IS NOT NULL",
            (SCHEMA,),
        )
        for sequence, value in await cursor.fetchall():
            await target.execute("SELECT setval(%s, %s)", (f"{SCHEMA}.{sequence}", value))


async def _claim_all(store: PostgresStore, wanted: int) -> set[str]:
    taken: set[str] = set()
    async with asyncio.timeout(WITHIN):
        while len(taken) < wanted:
            await store.promote(MANY)
            want = Claim(queues=("default",), limit=MANY, worker="w", token=f"t{len(taken)}")
            taken |= {job.id for job in await store.claim(want)}
    return taken


async def test_restored_jobs_run(old: Postgres, new: Postgres) -> None:
    (done, ready, due), cursor = await _fill(old)
    await _restore(old, new)

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as store:
        assert {ready.id, due.id} == await _claim_all(store, 2)
        page = await store.events(cursor, MANY, NO_WAIT)
        found = await store.find(Search(order=Order.UPDATED_DESC))
        histories = await store.history([done.id, ready.id])

    assert page.gap
    steps = [(event.job_id, event.transition) for event in page.events]
    for job, history in zip((done, ready), histories, strict=True):
        assert history == [step for id_, step in steps if id_ == job.id]
    assert {ready.id, due.id, done.id} == {job.id for job in found.jobs}
    assert done.id == found.jobs[-1].id


async def test_cursor_of_the_old_server_is_recognised_later_too(
    old: Postgres, new: Postgres
) -> None:
    _, cursor = await _fill(old)
    await _restore(old, new)
    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as store:
        async with await psycopg.AsyncConnection.connect(new.dsn, autocommit=True) as connection:
            await connection.execute(BEGIN_MANY)
            await connection.execute(BEGIN_MANY)
        await store.add([make("later", now=store.now())])

        page = await store.events(cursor, MANY, NO_WAIT)

    assert page.gap
    assert {"done", "ready", "due", "later"} == {event.type for event in page.events}


async def test_jobs_restored_under_an_open_store_run(
    old: Postgres, new: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.clock.REFRESH_AFTER", 0.0)
    (_, ready, due), _ = await _fill(old)

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as store:
        await _restore(old, new)

        assert {ready.id, due.id} == await _claim_all(store, 2)


async def test_timeouts_of_the_role_do_not_block_restored_jobs(
    old: Postgres, new: Postgres
) -> None:
    """Behind a pooler the role has the timeouts that the store cannot set for its sessions."""
    (_, ready, due), _ = await _fill(old)
    await _restore(old, new)
    async with await psycopg.AsyncConnection.connect(new.dsn, autocommit=True) as connection:
        await connection.execute(SLOWLY)
        await connection.execute("ALTER ROLE postgres SET statement_timeout = '400ms'")

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA, pgbouncer=True)) as store:
        assert {ready.id, due.id} == await _claim_all(store, 2)


async def test_doctor_reports_restored_jobs_that_are_not_adopted(
    old: Postgres, new: Postgres
) -> None:
    await _fill(old)
    await _restore(old, new)
    async with (
        await psycopg.AsyncConnection.connect(new.dsn) as other_session,
        PostgresStore(PostgresSettings(dsn=old.dsn, schema=SCHEMA)) as healthy,
    ):
        await other_session.execute(_RESTORE_LOCK, (SCHEMA,))
        async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as store:
            bad, good = [{f.name: f for f in await s.findings()} for s in (store, healthy)]

    assert Level.ERROR is bad["restored"].level
    assert Level.OK is good["restored"].level


async def test_failure_to_adopt_is_reported_once_and_in_the_findings(
    old: Postgres, new: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.clock.REFRESH_AFTER", 0.0)
    await _fill(old)
    await _restore(old, new)
    async with await psycopg.AsyncConnection.connect(new.dsn, autocommit=True) as connection:
        await connection.execute(REFUSING)
    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))

    async with PostgresStore(PostgresSettings(dsn=new.dsn, schema=SCHEMA)) as store:
        for _ in range(3):
            found = {finding.name: finding for finding in await store.findings()}

    assert Level.ERROR is found["restored"].level
    assert "it cannot be adopted" in found["restored"].text
    (report,) = seen
    assert "it cannot be adopted" in str(report["exception"])
