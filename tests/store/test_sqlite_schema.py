"""Migrations: applied once, in order, and never by a program that is too old."""

from __future__ import annotations

import re
import sqlite3
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import SchemaVersionError, StoreError
from holdfast.model import lifecycle
from holdfast.model.policy import Retention
from holdfast.runtime.clock import ManualClock
from holdfast.store import Added, AddStatus, Change
from holdfast.store.sqlite import SQLiteStore, connection
from holdfast.store.sqlite.connection import MIGRATIONS, SOURCES
from holdfast.store.sqlite.location import Location
from tests.conformance.hand import make
from tests.store.processes import emit, line_of, process

if TYPE_CHECKING:
    from pathlib import Path

OPEN = """
import asyncio, sys
from holdfast.store import open_store

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    async with open_store(sys.argv[1]):
        print("open", flush=True)

asyncio.run(main())
"""
EDGE = re.compile(r"([A-Z_]+) -> ([A-Z_]+)")
MOVES = re.compile(r"(?<!\.)\bstate = '")  # not `parent.state = '...'`, which only reads


def test_migrations_are_numbered_without_gaps() -> None:
    assert [f"{n:04}" for n in range(1, len(MIGRATIONS) + 1)] == [m[:4] for m in MIGRATIONS]


def test_eight_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with ExitStack() as stack:
        openers = [stack.enter_context(process(OPEN, url)) for _ in range(8)]
        assert ["ready"] * 8 == [line_of(opener) for opener in openers]
        for opener in openers:
            emit(opener)
        assert ["open"] * 8 == [line_of(opener) for opener in openers]

    file = sqlite3.connect(tmp_path / "jobs.db")
    assert (len(MIGRATIONS),) == file.execute("PRAGMA user_version").fetchone()
    assert (1,) == file.execute("SELECT count(*) FROM settings").fetchone()
    file.close()


async def test_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location):
        pass
    with sqlite3.connect(location.path) as newer:
        newer.execute(f"PRAGMA user_version = {connection.KNOWN + 1}")
    newer.close()

    with pytest.raises(SchemaVersionError, match="upgrade holdfast") as refused:
        await SQLiteStore(location).start()

    assert (connection.KNOWN + 1, connection.KNOWN) == (refused.value.found, refused.value.known)


async def test_failed_migration_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location):
        pass
    broken = {
        **MIGRATIONS,
        "9999_broken": "CREATE TABLE extra (x); INSERT INTO missing VALUES (1);",
    }
    monkeypatch.setattr(connection, "MIGRATIONS", broken)
    monkeypatch.setattr(connection, "KNOWN", len(MIGRATIONS) + 1)

    with pytest.raises(StoreError, match="no such table: missing"):
        await SQLiteStore(location).start()

    file = sqlite3.connect(location.path)
    assert (len(MIGRATIONS),) == file.execute("PRAGMA user_version").fetchone()
    assert [] == file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'extra'").fetchall()
    file.close()


async def test_second_migration_is_applied_to_a_file_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location):
        pass
    monkeypatch.setattr(
        connection, "MIGRATIONS", {**MIGRATIONS, "9999_more": "CREATE TABLE extra (x);"}
    )
    monkeypatch.setattr(connection, "KNOWN", len(MIGRATIONS) + 1)

    async with SQLiteStore(location):
        pass

    file = sqlite3.connect(location.path)
    assert (len(MIGRATIONS) + 1,) == file.execute("PRAGMA user_version").fetchone()
    assert [(1,)] == file.execute("SELECT 1 FROM sqlite_schema WHERE name = 'extra'").fetchall()
    file.close()


@pytest.mark.req("M-2", stores=["sqlite"])
async def test_keys_of_a_file_of_version_two_outlive_their_jobs_after_the_migration(
    tmp_path: Path,
) -> None:
    location, clock = Location(path=tmp_path / "jobs.db"), ManualClock()
    fields: dict[str, Any] = {
        "payload": 1,
        "type": "a",
        "idempotency_key": "k",
        "idempotency_window": 60,
    }
    held = make("held", now=clock.now(), max_attempts=1, hold=True, **fields)
    async with SQLiteStore(location, clock=clock) as store:
        await store.add([held])
    with sqlite3.connect(location.path) as file:
        file.execute("ALTER TABLE key DROP COLUMN gone")
        file.execute("ALTER TABLE rule DROP COLUMN burst")
        for index in ("job_queue", "job_namespace", "job_namespace_failed"):
            file.execute(f"DROP INDEX {index}")
        file.execute("PRAGMA user_version = 2")
    file.close()

    async with SQLiteStore(location, clock=clock) as store:
        (stored,) = await store.get([held.id])
        assert stored is not None
        ended = lifecycle.cancel_requested(stored, reason="", force=False, now=clock.now())
        await store.swap([Change(stored, ended)])
        assert [True] == await store.delete([held.id])
        (answer,) = await store.add([make("twin", now=clock.now(), **fields)])
        clock.advance(60)
        await store.prune(Retention(), 10)

    assert Added(AddStatus.DUPLICATE, held.id, deleted=True) == answer
    file = sqlite3.connect(location.path)
    assert (0,) == file.execute("SELECT count(*) FROM key").fetchone()
    file.close()


@pytest.mark.req("M-3", stores=["sqlite"])
def test_statements_that_move_states_declare_edges_of_the_table() -> None:
    declared = {name: set(EDGE.findall(text)) for name, text in SOURCES.items()}
    moving = {
        name
        for name, text in SOURCES.items()
        if MOVES.search(text.partition("SET")[2].partition("WHERE")[0])
    }

    assert {"claim", "promote"} == moving == {name for name, edges in declared.items() if edges}
    assert {("SCHEDULED", "RUNNING")} == declared["claim"]
    assert {("DELAYED", "SCHEDULED"), ("RETRYING", "SCHEDULED")} == declared["promote"]
    for edges in declared.values():
        assert edges <= {(str(before), str(after)) for before, after in lifecycle.EDGES if before}


def test_every_statement_begins_with_its_purpose() -> None:
    for name, text in SOURCES.items():
        assert text.startswith(f"-- {name}: "), name
