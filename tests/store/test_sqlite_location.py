"""Paths, options and filesystems of the SQLite store."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreError, StoreUnavailableError, UnsafeStoreError
from holdfast.store import open_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.connection import connect, translation
from holdfast.store.sqlite.location import Durability, Location, filesystem_of
from tests.store.sqlite_inside import session_of


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert Path("jobs.db") == Location.from_url("sqlite:///jobs.db").path
    assert Path("/var/lib/my jobs.db") == Location.from_url("sqlite:////var/lib/my%20jobs.db").path


@pytest.mark.req("S-13", stores=["sqlite"])
@pytest.mark.parametrize(
    ("durability", "synchronous"), [("", 2), ("?durability=full", 2), ("?durability=process", 1)]
)
async def test_file_is_synced_as_the_promise_needs(
    tmp_path: Path, durability: str, synchronous: int
) -> None:
    location = Location.from_url(f"sqlite:///{tmp_path}/jobs.db{durability}")
    async with SQLiteStore(location) as store:
        session = session_of(store)
        (mode,) = await session.read(lambda db: db.execute("PRAGMA journal_mode").fetchone())
        (level,) = await session.write(lambda tx: tx.execute("PRAGMA synchronous").fetchone())

    assert "wal" == mode
    assert synchronous == level


@pytest.mark.req("S-13", stores=["sqlite"])
@pytest.mark.parametrize("weaker", ["none", "off", "normal", ""])
def test_weaker_durability_is_refused(weaker: str) -> None:
    with pytest.raises(UnsafeStoreError, match="durability must be full"):
        Location.from_url(f"sqlite:///jobs.db?durability={weaker}")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("sqlite:///jobs.db?timeout=3", "unknown option 'timeout', known are durability"),
        ("sqlite:///jobs.db?filesystem=nfs", "filesystem must be local or any"),
        ("sqlite:///jobs.db?events_kept=0", "events_kept must be a number"),
        ("sqlite://jobs.db", "names a host"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "do not survive the process"),
    ],
)
def test_url_that_cannot_be_kept_is_refused_by_name(url: str, complaint: str) -> None:
    with pytest.raises(StoreError, match=complaint):
        open_store(url)


def test_options_are_read() -> None:
    location = Location.from_url(
        "sqlite:///jobs.db?durability=process&filesystem=any&events_kept=50"
    )

    assert Durability.PROCESS is location.durability
    assert location.any_filesystem
    assert 50 == location.events_kept


@pytest.mark.req("S-13", stores=["sqlite"])
async def test_network_filesystem_is_refused_unless_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    with pytest.raises(UnsafeStoreError, match=r"network filesystem \(nfs4\)"):
        await SQLiteStore(Location.from_url(url), filesystem_of=lambda _: "nfs4").start()

    accepted = Location.from_url(f"{url}?filesystem=any")
    async with SQLiteStore(accepted, filesystem_of=lambda _: "nfs4"):
        assert (tmp_path / "jobs.db").exists()


def test_innermost_mount_decides_the_filesystem(tmp_path: Path) -> None:
    deep = tmp_path / "with space" / "deep"
    deep.mkdir(parents=True)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"23 22 0:22 / {tmp_path}/with\\040space rw - cifs //server/share rw\n"
        f"24 22 0:22 / {tmp_path}/with\\040spaces rw - xfs /dev/sdb rw\n"
    )

    assert "cifs" == filesystem_of(deep, mounts)
    assert "ext4" == filesystem_of(tmp_path, mounts)
    assert "" == filesystem_of(tmp_path, tmp_path / "nothing here")


async def test_file_belongs_to_its_user_alone(tmp_path: Path) -> None:
    async with SQLiteStore(Location(path=tmp_path / "jobs.db")):
        modes = _modes(tmp_path)

    assert {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600} == modes


def _modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere does not exist"):
        await SQLiteStore(Location(path=tmp_path / "nowhere" / "jobs.db")).start()


async def test_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a directory"):
        await SQLiteStore(Location(path=tmp_path)).start()


@pytest.mark.parametrize("closed", [".", "jobs.db"])
async def test_place_without_permission_is_refused(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.db").touch()
    forbidden = tmp_path / closed  # root may do anything, so the refusal is simulated
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != forbidden)

    with pytest.raises(StoreError, match=r"not (readable and )?writable"):
        await SQLiteStore(Location(path=tmp_path / "jobs.db")).start()


async def test_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, " * 100)

    with pytest.raises(StoreError, match="not an intact SQLite database"):
        await SQLiteStore(Location(path=path)).start()

    assert path.read_text().startswith("not a database")


async def test_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()

    with pytest.raises(StoreError, match="another program"):
        await SQLiteStore(Location(path=path)).start()

    other = sqlite3.connect(path)
    assert [("mine",)] == other.execute("SELECT name FROM sqlite_schema").fetchall()
    assert ("delete",) == other.execute("PRAGMA journal_mode").fetchone()
    other.close()


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (sqlite3.SQLITE_BUSY, StoreUnavailableError, "locked by another process"),
        (sqlite3.SQLITE_LOCKED, StoreUnavailableError, "locked by another process"),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreUnavailableError, "cannot be used now"),
        (sqlite3.SQLITE_FULL, StoreUnavailableError, "cannot be used now"),
        (sqlite3.SQLITE_CANTOPEN, StoreUnavailableError, "cannot be used now"),
        (sqlite3.SQLITE_CORRUPT, StoreError, "not an intact SQLite database"),
        (sqlite3.SQLITE_NOTADB, StoreError, "not an intact SQLite database"),
        (sqlite3.SQLITE_ERROR, StoreError, "jobs.db: it broke"),
    ],
)
def test_errors_of_sqlite_show_whether_to_retry(
    code: int, kind: type[StoreError], text: str
) -> None:
    error = sqlite3.OperationalError("it broke")
    error.sqlite_errorcode = code

    translated = translation(error, Path("jobs.db"))

    assert kind is type(translated)
    assert text in str(translated)


def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 39, 4))

    with pytest.raises(StoreError, match=r"SQLite 3\.40 or newer"):
        connect(Location(path=tmp_path / "jobs.db"))


@pytest.mark.req("S-1", "S-2", stores=["sqlite"])
async def test_second_store_in_a_process_leaves_the_locks_of_the_first_alone(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    visit = (
        "import asyncio, sys\nfrom holdfast import Holdfast\n"
        "async def visit():\n    async with Holdfast(sys.argv[1]) as app:\n"
        "        await app.submit('x')\nasyncio.run(visit())\n"
    )
    async with Holdfast(url) as app, Holdfast(url):
        await app.submit("x")
        search = os.pathsep.join(place for place in sys.path if place)
        visitor = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", visit, url), env={**os.environ, "PYTHONPATH": search}
        )
        try:
            assert 0 == await asyncio.wait_for(visitor.wait(), 30)
        finally:
            if visitor.returncode is None:
                visitor.kill()
                await visitor.wait()

        assert (tmp_path / "jobs.db-wal").exists()
        assert 2 == (await app.search()).total_count
