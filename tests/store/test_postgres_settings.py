"""The parameters of a URL reach the server unchanged, and invalid ones are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import StoreError
from holdfast.store import open_store
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import make
from tests.servers import Postgres
from tests.store.sessions import borrowed_session

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.postgres
SCHEMA = "configured"


@pytest.fixture(scope="module")
def on_a_socket() -> Iterator[Postgres]:
    """A server that can be reached through a socket file, too."""
    server = Postgres()
    server.options.append(f"unix_socket_directories={server.root}")
    with server:
        yield server


async def _shown(url: str, name: str) -> str:
    async with PostgresStore.from_url(url) as store, borrowed_session(store) as session:
        cursor = await session.connection.execute(f"SHOW {name}".encode())
        ((value,),) = await cursor.fetchall()
        return str(value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql:///app", {"dbname": "app"}),
        ("postgres:///app", {"dbname": "app"}),
        ("postgresql://", {}),
        ("postgresql:///app?host=/tmp/x", {"dbname": "app", "host": "/tmp/x"}),
        ("postgresql://%2Ftmp%2Fx/app", {"dbname": "app", "host": "/tmp/x"}),
        ("postgresql://h1:1,h2:2/app", {"dbname": "app", "host": "h1,h2", "port": "1,2"}),
        ("postgresql://h/app?options=-c%20work_mem%3D8MB", {"options": "-c work_mem=8MB"}),
        ("postgresql://h/app?password=a+b", {"password": "a+b"}),
        ("postgresql://u:a?b@h/app?schema=jobs", {"user": "u", "password": "a?b"}),
        ("postgresql://h/app?ssl=true", {"sslmode": "require"}),
        ("postgresql://h/app?schema=jobs&sslmode=disable&pool=2", {"sslmode": "disable"}),
    ],
)
def test_libpq_receives_the_url_as_written(url: str, expected: dict[str, str]) -> None:
    read = conninfo_to_dict(PostgresSettings.from_url(url).dsn)

    assert expected == {name: read.get(name) for name in expected}
    assert bool(expected) == bool(read)


async def test_server_is_reached_through_a_socket(on_a_socket: Postgres) -> None:
    where = f"host={on_a_socket.root}&port={on_a_socket.port}&user=postgres"

    async with PostgresStore.from_url(f"postgresql:///postgres?{where}&schema={SCHEMA}") as store:
        await store.add([make("a", now=store.now())])
        async with borrowed_session(store) as session:
            assert str(on_a_socket.root) == session.connection.info.host


async def test_options_reach_the_session(postgres_server: Postgres) -> None:
    url = f"{postgres_server.dsn}?schema={SCHEMA}&options=-c%20work_mem%3D9MB"

    assert "9MB" == await _shown(url, "work_mem")


@pytest.mark.parametrize(
    ("name", "ours"),
    [("application_name", None), ("connect_timeout", "10"), ("keepalives_idle", "10")],
)
async def test_parameters_of_the_url_override_the_defaults(
    postgres_server: Postgres, name: str, ours: str | None
) -> None:
    async def said(more: str = "") -> str | None:
        url = f"{postgres_server.dsn}?schema={SCHEMA}{more}"
        async with PostgresStore.from_url(url) as store, borrowed_session(store) as session:
            return session.connection.info.get_parameters().get(name)

    assert ours == await said()
    assert "77" == await said(f"&{name}=77")


async def test_session_is_named_holdfast_unless_the_url_names_it(
    postgres_server: Postgres,
) -> None:
    url = f"{postgres_server.dsn}?schema={SCHEMA}"

    assert "holdfast" == await _shown(url, "application_name")
    assert "billing" == await _shown(f"{url}&application_name=billing", "application_name")


def test_last_parameter_of_a_name_counts() -> None:
    settings = PostgresSettings.from_url("postgresql:///app?schema=mine&schema=theirs")

    assert ("theirs", "postgresql:///app") == (settings.schema, settings.dsn)


def test_plus_in_the_password_of_the_listener_stays() -> None:
    settings = PostgresSettings.from_url(
        "postgresql://p/app?listen_url=postgresql://u:p+w@server/app"
    )

    assert "postgresql://u:p+w@server/app" == settings.listen_url


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("shema=x", "'shema' in the URL of the store is not known: did you mean schema"),
        ("ssl_mode=require", "did you mean sslmode"),
        ("quite_else=1", "'quite_else' in the URL"),
        ("schema", "schema must be"),
        ("pool=2&pool=3&pool=x", "pool must be"),
        ("sslmode=a=b", "malformed"),
        ("application_name=%zz", "malformed"),
    ],
)
def test_url_with_an_unknown_parameter_is_refused_in_one_sentence(query: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        open_store(f"postgresql://u:secret@h/db?{query}")

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("port", ["abc", "65536", "5432,x"])
def test_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(StoreError, match="port in the URL of the store must be a number"):
        open_store(f"postgresql:///app?port={port}")


async def test_value_that_libpq_rejects_is_refused_in_one_sentence() -> None:
    store = open_store("postgresql://127.0.0.1:1/app?connect_timeout=soon")

    with pytest.raises(StoreError, match="connect_timeout"):
        await store.start()


@pytest.mark.parametrize("name", ["Jobs", "", "a b", 'a"b', "x.y", "9a", "a" * 49, "pg_jobs"])
def test_invalid_schema_name_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="schema must be"):
        PostgresSettings(dsn="postgresql:///app", schema=name)


@pytest.mark.parametrize("name", ["user", "table", "select"])
async def test_schema_named_like_a_keyword_works(postgres_server: Postgres, name: str) -> None:
    url = f"{postgres_server.dsn}?schema={name}"
    try:
        async with PostgresStore.from_url(url) as store:
            job = make("a", now=store.now())
            await store.add([job])
            (found,) = await store.get([job.id])
            assert await store.findings()
    finally:
        with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')

    assert found is not None


@pytest.mark.parametrize("name", ["timeout", "wait"])
@pytest.mark.parametrize("seconds", [0, -1, 0.0005, 90_000])
def test_span_that_would_disable_a_timeout_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(StoreError, match=f"{name} must be"):
        PostgresSettings(dsn="postgresql:///app", **{name: timedelta(seconds=seconds)})
    with pytest.raises(StoreError, match=f"{name} must be"):
        PostgresSettings.from_url(f"postgresql:///app?{name}={seconds}")


@pytest.mark.parametrize(
    "given", ["nonsense", "http://server/app", "postgresql://h/db?listn=1", "host=h dbname=x"]
)
def test_invalid_listen_url_is_refused(given: str) -> None:
    with pytest.raises(StoreError, match="listen_url"):
        PostgresSettings(dsn="postgresql:///app", listen_url=given)
