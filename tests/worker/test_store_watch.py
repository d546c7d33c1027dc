"""Settings that are changed while a store runs, so that it can lose jobs, on real servers."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from redis import Redis

from holdfast.maintenance.store_watch import StoreWatch
from holdfast.operations.store_safety import unsafe
from holdfast.store import MemoryStore, open_store
from tests.servers import Postgres, Valkey
from tests.waiting import PATIENCE
from tests.worker.rig import EventLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.store import Store


@contextmanager
def valkey() -> Iterator[Valkey]:
    """A server with safe settings; killed at the end, because a new append-only file delays it."""
    with Valkey(["--appendonly", "yes", "--appendfsync", "everysec"]) as server:
        yield server
        server.kill()


async def checks(store: Store) -> list[str]:
    return [report.name for report in await unsafe(store)]


async def notices(
    store: Store, check: str, change: Callable[[], object], restore: Callable[[], object]
) -> str:
    """Change a setting and restore it; return what is logged, once, until it is restored."""
    log = EventLog()
    watch = StoreWatch(store, log)
    await watch.once()
    assert [] == await checks(store)

    change()
    for _ in range(3):
        assert 20.0 == await watch.once()

    (event,) = log.all("store.unsafe")
    assert [check] == await checks(store)
    restore()
    await watch.once()
    await watch.once()
    assert [{"check": check}] == log.all("store.safe")
    assert [] == await checks(store)
    return str(event["error"])


@pytest.mark.redis
@pytest.mark.parametrize(
    ("check", "setting", "bad", "good"),
    [
        ("eviction", "maxmemory-policy", "allkeys-lru", "noeviction"),
        ("durability", "appendonly", "no", "yes"),
        ("durability", "appendfsync", "no", "everysec"),
    ],
)
async def test_redis_that_becomes_unsafe_is_noticed(
    check: str, setting: str, bad: str, good: str
) -> None:
    with valkey() as server, Redis(port=server.port) as admin:
        async with open_store(f"redis://127.0.0.1:{server.port}/0") as store:
            error = await notices(
                store,
                check,
                lambda: admin.config_set(setting, bad),
                lambda: admin.config_set(setting, good),
            )

            assert setting in error


@pytest.mark.redis
async def test_redis_that_blocks_config_is_watched_quietly() -> None:
    with valkey() as server, Redis(port=server.port) as admin:
        admin.acl_setuser(
            "managed",
            enabled=True,
            nopass=True,
            keys=["*"],
            channels=["*"],
            categories=["+@all"],
            commands=["-config"],
        )
        async with open_store(f"redis://managed:x@127.0.0.1:{server.port}/0") as store:
            log = EventLog()
            watch = StoreWatch(store, log)
            await watch.once()
            await watch.once()
            assert [] == log.entries

            admin.config_set("appendonly", "no")
            await watch.once()

            assert "appendonly is off" in str(log.all("store.unsafe")[0]["error"])


@pytest.mark.postgres
@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit"])
async def test_postgres_that_becomes_unsafe_is_noticed(setting: str) -> None:
    def set_to(admin: psycopg.Connection[tuple[object, ...]], value: str) -> None:
        admin.execute(f"ALTER SYSTEM SET {setting} = {value}".encode())
        admin.execute("SELECT pg_reload_conf()")

    with Postgres() as server, psycopg.connect(server.dsn, autocommit=True) as admin:
        async with open_store(server.dsn) as store:
            log = EventLog()
            watch = StoreWatch(store, log)
            await watch.once()

            set_to(admin, "off")
            async with asyncio.timeout(PATIENCE):  # sessions read their settings a moment later
                while not log.all("store.unsafe"):
                    await watch.once()
            assert setting in str(log.all("store.unsafe")[0]["error"])
            assert ["durability"] == await checks(store)
            set_to(admin, "on")
            async with asyncio.timeout(PATIENCE):
                while not log.all("store.safe"):
                    await watch.once()

            assert 1 == len(log.all("store.unsafe"))
            assert [] == await checks(store)


async def test_sqlite_file_in_use_cannot_be_switched_to_another_journal(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{path}") as store:
        log = EventLog()
        watch = StoreWatch(store, log)
        await watch.once()
        foreign = sqlite3.connect(path, timeout=0)

        with pytest.raises(sqlite3.OperationalError, match="locked"):
            foreign.execute("PRAGMA journal_mode = DELETE")

        foreign.close()
        await watch.once()
        assert [] == log.entries


async def test_settings_that_the_store_was_opened_with_are_accepted() -> None:
    log = EventLog()
    store = MemoryStore()  # it warns that jobs are lost with the process
    watch = StoreWatch(store, log)

    await watch.once()
    await watch.once()

    assert [] == log.entries
    assert [] == await checks(store)


@pytest.mark.redis
async def test_new_leader_goes_on_with_what_the_old_one_reported() -> None:
    with valkey() as server, Redis(port=server.port) as admin:
        async with open_store(f"redis://127.0.0.1:{server.port}/0") as store:
            old, log = StoreWatch(store, EventLog()), EventLog()
            await old.once()
            admin.config_set("appendonly", "no")
            await old.once()

            new = StoreWatch(store, log)
            await new.once()
            admin.config_set("appendonly", "yes")
            await new.once()

            assert ["store.unsafe", "store.safe"] == [name for name, _ in log.entries]
            assert [] == await checks(store)
