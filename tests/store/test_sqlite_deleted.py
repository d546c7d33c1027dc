"""A file that is deleted, moved or replaced while processes have it open."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.store import Claim, open_store
from tests.conformance.hand import make
from tests.store.processes import emit, line_of, process
from tests.store.test_sqlite_processes import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.model.job import Job

SUBMIT_ON_REQUEST = (
    START
    + """
async def main():
    async with open_store(url) as store:
        await store.add([new(store)])
        print("open", flush=True)
        for _ in sys.stdin:
            try:
                await store.add([new(store)])
            except Exception as error:
                print(type(error).__name__, error, flush=True)
            else:
                print("accepted", flush=True)

asyncio.run(main())
"""
)


def delete(file: Path) -> None:
    for name in (file, *file.parent.glob(f"{file.name}-*")):
        name.unlink()


def delete_only_the_database(file: Path) -> None:
    file.unlink()


def delete_only_the_log(file: Path) -> None:
    file.with_name(f"{file.name}-wal").unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def replace(file: Path) -> None:
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    copy.replace(file)


CHANGES = [delete, delete_only_the_database, delete_only_the_log, move, replace]


@pytest.mark.req("S-2", stores=["sqlite"])
@pytest.mark.parametrize("change", CHANGES)
async def test_nothing_is_accepted_into_a_file_without_its_name(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{file}") as store:
        before, after = (make(label, now=store.now()) for label in ("before", "after"))
        await store.add([before])
        change(file)

        with pytest.raises(StoreError, match=r"jobs\.db.* was deleted, moved or replaced"):
            await store.add([after])
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await store.claim(Claim(worker="w", token="t", queues=("default",), limit=1))
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await store.get([before.id])
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await store.arrivals(["default"], -1, timedelta(seconds=5))


@pytest.mark.req("S-2", stores=["sqlite"])
async def test_refused_job_is_not_in_the_file_when_it_returns(tmp_path: Path) -> None:
    file, away = tmp_path / "jobs.db", tmp_path / "away.db"
    async with open_store(f"sqlite:///{file}") as store:
        refused, accepted = (make(label, now=store.now()) for label in ("no", "yes"))
        file.rename(away)
        with pytest.raises(StoreError, match="put the file back"):
            await store.add([refused])
        away.rename(file)

        await store.add([accepted])

        assert [None, accepted.id] == [
            job and job.id for job in await store.get([refused.id, accepted.id])
        ]


@pytest.mark.req("S-2", stores=["sqlite"])
async def test_no_store_takes_the_place_of_a_file_that_was_moved_away(tmp_path: Path) -> None:
    file, away = tmp_path / "jobs.db", tmp_path / "away.db"
    async with open_store(f"sqlite:///{file}") as store:
        job = make("job", now=store.now())
        await store.add([job])
        file.rename(away)
        with pytest.raises(StoreUnavailableError, match=r"jobs\.db is missing, but its log"):
            await open_store(f"sqlite:///{file}").start()
        assert not file.exists()
        away.rename(file)

        (found,) = await store.get([job.id])
        assert found is not None
        await store.add([make("later", now=store.now())])


@pytest.mark.req("S-2", stores=["sqlite"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_readers_that_open_while_a_file_is_away_read_it_when_it_returns(
    tmp_path: Path, replaced: bool
) -> None:
    file, away, other = (tmp_path / name for name in ("jobs.db", "away.db", "other.db"))
    sqlite3.connect(other).execute("CREATE TABLE another (n)").connection.close()
    async with open_store(f"sqlite:///{file}") as store:
        job = make("job", now=store.now())
        await store.add([job])
        file.rename(away)
        if replaced:
            other.rename(file)
        answers = await asyncio.gather(
            *(store.get([job.id]) for _ in range(8)), return_exceptions=True
        )
        assert all(isinstance(answer, StoreError) for answer in answers)
        assert replaced == file.exists()
        away.rename(file)

        for jobs in await asyncio.gather(*(store.get([job.id]) for _ in range(8))):
            assert [job.id] == [found and found.id for found in jobs]


class DeletingSequence(list["Job"]):
    """Jobs that delete the file when the open transaction reads them."""

    def __init__(self, jobs: list[Job], file: Path) -> None:
        super().__init__(jobs)
        self._file = file

    def __iter__(self) -> Iterator[Job]:
        self._file.unlink(missing_ok=True)
        return super().__iter__()


@pytest.mark.req("S-2", stores=["sqlite"])
async def test_file_deleted_during_the_commit_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    async with open_store(f"sqlite:///{file}") as store:
        writing = store.add(DeletingSequence([make("job", now=store.now())], file))

        with pytest.raises(StoreError, match="was deleted"):
            await writing


@pytest.mark.req("S-2", stores=["sqlite"])
async def test_program_may_change_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    async with open_store("sqlite:///jobs.db") as store:
        monkeypatch.chdir(tmp_path / "other")
        job = make("job", now=store.now())

        await store.add([job])

        (found,) = await store.get([job.id])
        assert found is not None


@pytest.mark.req("S-2", stores=["sqlite"])
async def test_linked_file_is_used_until_the_link_leads_elsewhere(tmp_path: Path) -> None:
    link, file = tmp_path / "link.db", tmp_path / "jobs.db"
    link.symlink_to(file)
    file.touch()
    async with open_store(f"sqlite:///{link}") as store:
        job = make("job", now=store.now())
        await store.add([job])
        (found,) = await store.get([job.id])
        assert found is not None

        other = tmp_path / "other.db"
        other.touch()
        link.unlink()
        link.symlink_to(other)

        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            await store.add([make("later", now=store.now())])


@pytest.mark.req("S-2", stores=["sqlite"])
def test_producer_of_another_process_refuses_a_deleted_file(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with process(SUBMIT_ON_REQUEST, f"sqlite:///{file}") as producer:
        assert "open" == line_of(producer)
        delete(file)

        emit(producer)

        assert line_of(producer).startswith(f"StoreError {file} was deleted")
