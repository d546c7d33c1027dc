"""The servers that other tests use start, crash and restart with their data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

from tests import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def own_postgres() -> Iterator[servers.Postgres]:
    with servers.Postgres() as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[servers.Valkey]:
    with servers.Valkey() as server:
        yield server


@pytest.mark.postgres
async def test_shared_postgres_answers(postgres_server: servers.Postgres) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        cursor = await connection.execute("SELECT 40 + 2")

        assert (42,) == await cursor.fetchone()


@pytest.mark.redis
def test_shared_valkey_answers(valkey_server: servers.Valkey) -> None:
    with redis.Redis.from_url(valkey_server.url) as client:
        assert client.ping()


@pytest.mark.postgres
def test_postgres_keeps_committed_rows_over_kill_and_stop(own_postgres: servers.Postgres) -> None:
    dsn = own_postgres.dsn
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")

    own_postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    own_postgres.start()
    own_postgres.stop()
    own_postgres.start()

    with psycopg.connect(dsn) as connection:
        assert [(7,)] == connection.execute("SELECT n FROM kept").fetchall()


@pytest.mark.postgres
def test_postgres_restarts_after_a_kill_under_open_connections(
    own_postgres: servers.Postgres,
) -> None:
    clients = [psycopg.connect(own_postgres.dsn, autocommit=True) for _ in range(10)]

    own_postgres.kill()
    own_postgres.start()

    for client in clients:
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        client.close()


@pytest.mark.redis
def test_valkey_keeps_acknowledged_writes_over_kill_and_stop(own_valkey: servers.Valkey) -> None:
    with redis.Redis.from_url(own_valkey.url) as client:
        client.set("kept", 7)

    own_valkey.kill()
    with (
        pytest.raises(redis.ConnectionError),
        redis.Redis(port=own_valkey.port, retry=None) as client,
    ):
        client.ping()
    own_valkey.start()
    own_valkey.stop()
    own_valkey.start()

    with redis.Redis.from_url(own_valkey.url) as client:
        assert b"7" == client.get("kept")


@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.parametrize("kind", [servers.Postgres, servers.Valkey])
def test_a_port_in_use_is_replaced_by_another(
    kind: type[servers.Server], valkey_server: servers.Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([valkey_server.port, servers.free_port()])
    monkeypatch.setattr(servers, "free_port", lambda: next(ports))

    with kind() as server:
        assert server.running
        assert valkey_server.port != server.port


def test_closing_removes_every_file(own_valkey: servers.Valkey) -> None:
    own_valkey.close()

    assert not own_valkey.root.exists()
    assert not own_valkey.running


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up its identity")
@pytest.mark.postgres
def test_root_runs_postgres_as_nobody_from_a_closed_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = servers.find_postgres()
    package = original.parent.parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / package.name).symlink_to(package)
    (closed / f"{package.name}.libs").symlink_to(package.with_name(f"{package.name}.libs"))
    monkeypatch.setenv(
        "HOLDFAST_TEST_PGBIN", str(closed / package.name / original.parent.name / "bin")
    )

    with servers.Postgres() as server:
        assert not server.bin.is_relative_to(closed)
        assert 0 != server.data.stat().st_uid
    assert 0o700 == closed.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("find", "hint"),
    [
        (servers.find_postgres, "HOLDFAST_TEST_PGBIN"),
        (servers.find_valkey, "HOLDFAST_TEST_VALKEY"),
    ],
)
def test_a_missing_server_is_reported_with_how_to_get_one(
    find: Callable[[], Path], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOLDFAST_TEST_PGBIN", "HOLDFAST_TEST_VALKEY", "HOLDFAST_TEST_REDIS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(servers, "_package_folder", lambda _: Path("missing"))
    monkeypatch.setattr(servers, "_folder_on_path", lambda _: [])
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))

    with pytest.raises(servers.ServerUnavailable, match=hint):
        find()
