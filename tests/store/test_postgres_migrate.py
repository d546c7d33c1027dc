"""Migrations forwards and backwards, several at once, and old and new programs side by side."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.errors import SchemaVersionError, StoreError, StoreUnavailableError, UnsafeStoreError
from holdfast.store import open_store
from holdfast.store.postgres import PostgresSettings, PostgresStore, migrate
from holdfast.store.postgres.migrate import Migration, Migrator, known
from tests.conformance.hand import make
from tests.servers import Postgres
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.postgres
SCHEMA = "migrated"
EXPAND = Migration(
    9001,
    "expand",
    "ALTER TABLE {schema}.job ADD COLUMN colour text; CREATE INDEX ON {schema}.job (colour);",
    "ALTER TABLE {schema}.job DROP COLUMN colour;",
    works_with=1,
)


@pytest.fixture
async def connection(postgres_server: Postgres) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, autocommit=True
    ) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        yield connection
        await connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


async def _objects(connection: psycopg.AsyncConnection) -> set[tuple[str, str]]:
    cursor = await connection.execute(
        "SELECT relkind::text, relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " UNION ALL SELECT 'type', typname FROM pg_type"
        " WHERE typnamespace = to_regnamespace(%s) AND typtype = 'e'",
        (SCHEMA, SCHEMA),
    )
    return set(await cursor.fetchall())


async def test_every_migration_can_be_reverted(connection: psycopg.AsyncConnection) -> None:
    migrator = Migrator(connection, SCHEMA)
    before: dict[int, set[tuple[str, str]]] = {}
    for migration in known():
        await migrator.up(migration.version - 1)
        before[migration.version] = await _objects(connection)
        assert [migration.version] == await migrator.up(migration.version)
    await migrator.check()

    for migration in reversed(known()):
        assert [migration.version] == await migrator.down(migration.version - 1)
        left = await _objects(connection) - before[migration.version]
        assert {name for _, name in left} <= {"migration", "migration_pkey"}

    with pytest.raises(StoreError, match=f"there is no store in schema '{SCHEMA}'"):
        await migrator.check()


async def test_nothing_is_applied_twice(connection: psycopg.AsyncConnection) -> None:
    migrator = Migrator(connection, SCHEMA)

    assert [m.version for m in known()] == await migrator.up()
    assert [] == await migrator.up()


async def test_one_of_many_starters_migrates(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    stores = [
        PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) for _ in range(8)
    ]

    await asyncio.gather(*(store.start() for store in stores))
    await asyncio.gather(*(store.close() for store in stores))

    cursor = await connection.execute(f"SELECT count(*) FROM {SCHEMA}.migration")
    assert (len(known()),) == await cursor.fetchone()


async def test_failed_migration_leaves_no_trace(connection: psycopg.AsyncConnection) -> None:
    broken = Migration(2, "broken", "CREATE TABLE {schema}.half (); SELECT 1 / 0;", "", 1)
    migrator = Migrator(connection, SCHEMA, [known()[0], broken])

    with pytest.raises(psycopg.errors.DivisionByZero):
        await migrator.up()

    assert {} == await migrator.applied()
    assert set() == await _objects(connection)


INDEX = Migration(
    9002,
    "index",
    "DROP INDEX CONCURRENTLY IF EXISTS {schema}.body_depth;\n"
    "CREATE INDEX CONCURRENTLY body_depth ON {schema}.body (depth);\n",
    "DROP INDEX CONCURRENTLY {schema}.body_depth;\n",
    works_with=1,
    outside=True,
)


async def test_migration_outside_a_transaction_builds_an_index_while_starters_wait(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    steps = [*known(), EXPAND, INDEX]

    async def start() -> list[int]:
        async with await psycopg.AsyncConnection.connect(
            postgres_server.dsn, autocommit=True
        ) as own:
            return await Migrator(own, SCHEMA, steps).up()

    done = await asyncio.gather(*(start() for _ in range(4)))

    assert sorted(m.version for m in steps) == sorted(v for each in done for v in each)
    assert ("i", "body_depth") in await _objects(connection)
    assert [9002, 9001] == await Migrator(connection, SCHEMA, steps).down(known()[-1].version)
    assert ("i", "body_depth") not in await _objects(connection)


async def test_migration_outside_a_transaction_can_start_over(
    connection: psycopg.AsyncConnection,
) -> None:
    broken = replace(INDEX, up=f"{INDEX.up}SELECT 1 / 0;\n")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await Migrator(connection, SCHEMA, [*known(), broken]).up()

    assert [9002] == await Migrator(connection, SCHEMA, [*known(), INDEX]).up()


async def test_old_and_new_program_share_a_schema_that_only_grew(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings) as old:
        await Migrator(connection, SCHEMA, [*known(), EXPAND]).up()

        async with PostgresStore(settings) as also_old:
            job = make("a", now=old.now())
            await old.add([job])
            (found,) = await also_old.get([job.id])

    assert found is not None


async def test_submissions_in_one_row_and_in_two_read_the_same(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)

    async def read(store: PostgresStore) -> tuple[object, object]:
        page = await store.events("0-0", 100, timedelta(seconds=5))
        return await store.history([job.id for job in jobs]), page.events

    async def rows() -> list[tuple[object, ...]]:
        cursor = await connection.execute(
            f"SELECT from_state, to_state, event FROM {SCHEMA}.journal ORDER BY seq"
        )
        return await cursor.fetchall()

    async with PostgresStore(settings) as store:
        now = store.now()
        jobs = [make("at once", now=now), make("later", now=now, delay=60)]
        jobs += [make("waits", now=now, after=jobs)]
        await store.add(jobs)
        before = await read(store)
    submissions = [(None, "SCHEDULED", "enqueue"), (None, "DELAYED", "delay")]
    waits = (None, "PENDING", "submit")
    assert [*submissions, waits] == await rows()

    migrator = Migrator(connection, SCHEMA)
    await migrator.down(2)
    later = [("PENDING", *step) for _, *step in submissions]
    assert [waits, later[0], waits, later[1], waits] == await rows()

    await migrator.up()
    async with PostgresStore(settings) as store:
        assert before == await read(store)


async def test_submissions_of_open_transactions_are_split_too(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings) as store:
        job = make("a", now=store.now())
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:
            await store.add([job], connection=other)
            going = asyncio.create_task(Migrator(connection, SCHEMA).down(2))
            await _until_a_session_waits(postgres_server.dsn)
            await other.commit()
        await going

    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as reader:
        cursor = await reader.execute(f"SELECT to_state FROM {SCHEMA}.journal ORDER BY seq")
        assert [("PENDING",), ("SCHEDULED",)] == await cursor.fetchall()


async def _until_a_session_waits(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:

        async def a_session_waits() -> bool:
            cursor = await connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted")
            return await cursor.fetchone() is not None

        await eventually(a_session_waits)


async def test_calls_do_not_queue_long_behind_a_waiting_migration(
    connection: psycopg.AsyncConnection,
    postgres_server: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrate, "LOCK_WITHIN", 0.2)
    monkeypatch.setattr(migrate, "LOCK_PAUSE", 0.3)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        await Migrator(connection, SCHEMA).down(4)
        async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:
            await other.execute(f"LOCK TABLE {SCHEMA}.body IN ROW EXCLUSIVE MODE")
            going = asyncio.create_task(Migrator(connection, SCHEMA).up())
            await _until_a_session_waits(postgres_server.dsn)
            begun = time.monotonic()
            await store.history(["x"])
            took = time.monotonic() - begun
            assert not going.done()
        assert [m.version for m in known()[4:]] == await going

    assert took < 5  # a fifth of a second, on a busy machine


async def test_migration_that_gets_no_lock_reports_it(
    connection: psycopg.AsyncConnection,
    postgres_server: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrate, "LOCK_WITHIN", 0.05)
    monkeypatch.setattr(migrate, "LOCK_PAUSE", 0.01)
    monkeypatch.setattr(migrate, "LOCK_ATTEMPTS", 2)
    await Migrator(connection, SCHEMA).up(2)
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as other:
        await other.execute(f"LOCK TABLE {SCHEMA}.journal IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(StoreUnavailableError, match="other transactions keep its tables"):
            await Migrator(connection, SCHEMA).up()


async def test_timeouts_of_the_role_do_not_end_a_migration(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    slow = Migration(9003, "slow", "SELECT pg_sleep(0.5);\n", "SELECT pg_sleep(0.5);\n", 1)
    limited = "-c statement_timeout=200 -c lock_timeout=200"
    async with await psycopg.AsyncConnection.connect(
        postgres_server.dsn, autocommit=True, options=limited
    ) as hasty:
        for step in (slow, replace(slow, outside=True)):
            migrator = Migrator(hasty, SCHEMA, [*known(), step])

            assert 9003 == (await migrator.up())[-1]
            assert [9003] == await migrator.down(9002)


@pytest.fixture
async def owner(connection: psycopg.AsyncConnection) -> AsyncIterator[str]:
    """The name of a role that owns the schema and has no other rights."""
    await connection.execute("CREATE ROLE owner LOGIN")
    await connection.execute(f"CREATE SCHEMA {SCHEMA} AUTHORIZATION owner")
    yield "owner"
    await connection.execute("DROP OWNED BY owner CASCADE")
    await connection.execute("DROP ROLE owner")


async def test_owner_of_the_schema_needs_no_right_on_the_database(
    postgres_server: Postgres, owner: str
) -> None:
    dsn = postgres_server.dsn.replace("postgres@", f"{owner}@")

    async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA)) as store:
        await store.add([make("a", now=store.now())])


async def test_role_without_create_gets_an_error_with_the_rights_it_needs(
    postgres_server: Postgres, owner: str
) -> None:
    dsn = postgres_server.dsn.replace("postgres@", f"{owner}@")

    with pytest.raises(StoreError, match=r"permission denied.*needs CREATE.*migrate=false"):
        await PostgresStore(PostgresSettings(dsn=dsn, schema="elsewhere")).start()


@pytest.mark.parametrize("table", ["job (id integer)", "migration (id integer)"])
async def test_schema_of_another_program_is_refused(
    connection: psycopg.AsyncConnection, postgres_server: Postgres, table: str
) -> None:
    await connection.execute(f"CREATE SCHEMA {SCHEMA}")
    await connection.execute(f"CREATE TABLE {SCHEMA}.{table}")

    with pytest.raises(StoreError, match=f"{SCHEMA}' contains objects of another program"):
        await PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)).start()


async def test_pending_links_block_the_migration_that_drops_them(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        parent = make("parent", now=store.now())
        await store.add([parent])
        async with connection.transaction():
            child = make("child", now=store.now(), after=[parent])
            await store.add([child], connection=connection)
        migrator = Migrator(connection, SCHEMA)
        with pytest.raises(StoreError, match="not linked to their dependencies yet: run a worker"):
            await migrator.down(3)

        await store.promote(1)
    assert [5, 4] == await migrator.down(3)


async def test_schema_that_needs_a_newer_program_is_refused(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    contract = replace(EXPAND, works_with=9001)
    await Migrator(connection, SCHEMA, [*known(), contract]).up()

    with pytest.raises(SchemaVersionError, match="schema version 9001 is newer"):
        await PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)).start()


async def test_outdated_schema_is_refused_with_migrate_false(
    connection: psycopg.AsyncConnection, postgres_server: Postgres
) -> None:
    behind = PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, migrate=False))
    with pytest.raises(StoreError, match=r"there is no store.*run holdfast migrate"):
        await behind.start()
    await Migrator(connection, SCHEMA).up(2)
    with pytest.raises(StoreError, match="lacks migration 0003_births: run holdfast migrate"):
        await behind.start()


@pytest.mark.req("S-13")
@pytest.mark.parametrize("setting", ["fsync=off", "synchronous_commit=off"])
async def test_server_that_can_lose_jobs_is_refused_unless_accepted(setting: str) -> None:
    with Postgres([setting]) as server:
        with pytest.raises(UnsafeStoreError, match=f"{setting.partition('=')[0]} is off"):
            await PostgresStore(PostgresSettings(dsn=server.dsn)).start()

        accepted = await open_store(f"{server.dsn}?durability=server").start()
        await accepted.close()


async def test_unreachable_server_is_unavailable() -> None:
    store = open_store("postgresql://postgres@127.0.0.1:1/postgres?timeout=1")

    with pytest.raises(StoreUnavailableError):
        await store.start()
    await store.close()


@pytest.mark.parametrize(
    "query",
    [
        "schema=Bad-Name",
        "pool=0",
        "timeout=-1",
        "wait=no",
        "pgbouncer=maybe",
        "durability=some",
        "migrate=1",
    ],
)
def test_url_with_a_bad_parameter_is_refused_by_name(query: str) -> None:
    with pytest.raises(StoreError, match=query.partition("=")[0]):
        open_store(f"postgresql://localhost/db?{query}")


def test_url_parameters_are_read_and_the_rest_is_passed_to_libpq() -> None:
    settings = PostgresSettings.from_url(
        "postgres://u@h/db?schema=jobs&pool=3&pgbouncer=true&listen_url=postgresql://d/db"
        "&sslmode=require&migrate=false"
    )

    assert "postgresql://u@h/db?sslmode=require" == settings.dsn
    assert ("jobs", 3, True, False) == (
        settings.schema,
        settings.pool,
        settings.pgbouncer,
        settings.migrate,
    )
    assert "postgresql://d/db" == settings.listen_url
