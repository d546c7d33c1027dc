"""Settings of the server, the role and the environment do not change the store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.model.policy import Retention
from holdfast.operations.doctor import examine
from holdfast.store import Level
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import borrowed_session, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.postgres.connection import PostgresSession
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "roles"
FOREIGN = "é€語"


@contextmanager
def _role(server: Postgres, **settings: str) -> Iterator[str]:
    """Yield the URL of a role with these settings."""
    name = f"role_{'_'.join(settings)}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
        try:
            for setting, value in settings.items():
                connection.execute(f"ALTER ROLE {name} SET {setting} = '{value}'")
            yield server.dsn.replace("postgres@", f"{name}@")
        finally:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_texts_are_utf_8_with_any_encoding_of_the_role(
    postgres_server: Postgres, pgbouncer: bool
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    with _role(postgres_server, client_encoding="LATIN1") as dsn:
        async with PostgresStore(
            PostgresSettings(dsn=dsn, schema=SCHEMA, pgbouncer=pgbouncer)
        ) as store:
            job = make("a", now=store.now(), tags={"k": FOREIGN}, correlation_id=FOREIGN)
            await store.add([job])
            (found,) = await store.get([job.id])

    assert found is not None
    assert (FOREIGN, FOREIGN) == (found.tags["k"], found.correlation_id)


async def test_texts_are_utf_8_with_any_encoding_of_the_environment(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=f"{postgres_server.dsn}?client_encoding=LATIN1", schema=SCHEMA)

    async with PostgresStore(settings) as store, borrowed_session(store) as session:
        assert await state_of(store).wake.is_notified()
        assert "utf-8" == session.connection.info.encoding


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_database_that_cannot_store_every_text_is_refused(
    postgres_server: Postgres, encoding: str
) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        base = postgres_server.dsn.rpartition("/")[0]
        try:
            with pytest.raises(StoreError, match=f"its encoding is {encoding}.* needs UTF8"):
                await PostgresStore(PostgresSettings(dsn=f"{base}/{name}")).start()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("pgbouncer", [False, True])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_transactions_are_read_committed_with_any_level_of_the_role(
    postgres_server: Postgres, level: str, pgbouncer: bool
) -> None:
    async def level_of(session: PostgresSession) -> str:
        cursor = await session.connection.execute(b"SHOW transaction_isolation")
        ((found,),) = await cursor.fetchall()
        return str(found)

    with _role(postgres_server, default_transaction_isolation=level) as dsn:
        async with PostgresStore(
            PostgresSettings(dsn=dsn, schema=SCHEMA, pgbouncer=pgbouncer)
        ) as store:
            assert "read committed" == await state_of(store).pool.atomically(level_of)


STRICT = f"""
CREATE OR REPLACE FUNCTION {SCHEMA}.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE SQLSTATE '40001' USING MESSAGE = 'could not serialize access';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER lose BEFORE INSERT ON {SCHEMA}.queue
    FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.lose()
"""
"""Makes each transaction above READ COMMITTED lose, as it may do to another one."""


async def test_statement_that_lost_at_a_stricter_level_is_repeated_at_read_committed(
    postgres_server: Postgres,
) -> None:
    """Behind PgBouncer a single statement begins at the level of the role."""
    with _role(postgres_server, default_transaction_isolation="repeatable read") as dsn:
        async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA, pgbouncer=True)) as store:
            async with borrowed_session(store) as session:
                await session.connection.execute(STRICT.encode())

            await store.configure("q", {"paused": True})

            assert ["q"] == [queue.name for queue in await store.queues() if queue.paused]


@contextmanager
def _weak_role(server: Postgres, grants: str) -> Iterator[str]:
    """Yield the URL of a role with USAGE on the schema and these grants."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE weak LOGIN")
        try:
            connection.execute(f"GRANT USAGE ON SCHEMA {SCHEMA} TO weak")
            for grant in filter(None, grants.split(";")):
                connection.execute(f"GRANT {grant} IN SCHEMA {SCHEMA} TO weak")
            yield server.dsn.replace("postgres@", "weak@")
        finally:
            connection.execute("DROP OWNED BY weak")
            connection.execute("DROP ROLE weak")


WRITER = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES;USAGE ON ALL SEQUENCES"
READER = "SELECT ON ALL TABLES"


@pytest.fixture
async def settings(postgres_server: Postgres) -> PostgresSettings:
    """The store as its owner sees it."""
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings):
        return settings


async def test_role_without_create_can_do_everything_else(
    postgres_server: Postgres, settings: PostgresSettings
) -> None:
    with _weak_role(postgres_server, WRITER) as dsn:
        async with PostgresStore(replace(settings, dsn=dsn, migrate=False)) as store:
            job = make("a", now=store.now())
            await store.add([job])
            await store.promote(10)
            await store.prune(Retention(), 10)

            assert [job.id] == [found.id for found in await store.get([job.id]) if found]


@pytest.mark.parametrize("grants", [READER, ""], ids=["reader", "no rights"])
async def test_missing_right_is_an_error_with_what_to_grant(
    postgres_server: Postgres, settings: PostgresSettings, grants: str
) -> None:
    with (
        _weak_role(postgres_server, grants) as dsn,
        pytest.raises(StoreError, match=r"permission denied .*: grant the role USAGE") as caught,
    ):
        async with PostgresStore(replace(settings, dsn=dsn, migrate=False)) as store:
            await store.add([make("a", now=store.now())])

    assert not isinstance(caught.value, StoreUnavailableError)


async def test_doctor_reports_rights_that_a_reader_lacks(
    postgres_server: Postgres, settings: PostgresSettings
) -> None:
    with _weak_role(postgres_server, READER) as dsn:
        async with PostgresStore(replace(settings, dsn=dsn)) as store:
            found = {finding.name: finding for finding in await examine(store)}

    assert Level.WARN is found["due"].level is found["rights"].level
    assert "could not be checked: PostgreSQL: permission denied" in found["due"].text
    assert Level.OK is found["schema"].level
    assert "jobs" in found


async def test_doctor_works_where_nothing_may_be_written(
    postgres_server: Postgres, settings: PostgresSettings
) -> None:
    with _role(postgres_server, default_transaction_read_only="on") as dsn:
        async with PostgresStore(settings), PostgresStore(replace(settings, dsn=dsn)) as store:
            found = {finding.name: finding for finding in await examine(store)}

    assert "read-only transaction" in found["due"].text
    assert "no worker could run with it" in found["rights"].text


async def test_doctor_finds_a_new_table_without_grants(
    postgres_server: Postgres, settings: PostgresSettings
) -> None:
    with _weak_role(postgres_server, WRITER) as dsn:
        async with PostgresStore(replace(settings, dsn=dsn, migrate=False)) as store:
            before = {finding.name: finding for finding in await store.findings()}["rights"]
            with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
                connection.execute(f"REVOKE ALL ON {SCHEMA}.tie FROM PUBLIC, weak".encode())
            found = {finding.name: finding for finding in await store.findings()}["rights"]

    assert Level.OK is before.level
    assert (Level.ERROR, True) == (found.level, "lacks rights on tie:" in found.text)


async def test_sequence_that_was_set_back_is_an_error_at_once(
    postgres_server: Postgres, settings: PostgresSettings
) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(settings) as store:
        await store.add([make("a", now=store.now())])
        async with borrowed_session(store) as session:
            cursor = await session.connection.execute(
                f"SELECT setval('{SCHEMA}.place', (SELECT min(number) FROM {SCHEMA}.body), false)"
            )
            await cursor.fetchall()

        with pytest.raises(StoreError, match="body_pkey") as caught:
            await store.add([make("b", now=store.now())])

    assert not isinstance(caught.value, StoreUnavailableError)
