"""Group commit: pending calls share a transaction, and a failure harms no other."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.errors import StaleLeaseError, StoreError, StoreUnavailableError
from holdfast.model.job import State
from holdfast.runtime.clock import ManualClock
from holdfast.store import AddStatus, Fence, Search
from holdfast.store.sqlite import SQLiteStore, writer
from holdfast.store.sqlite.encode import id_of, key_of, micros, moment
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor, ThreadExecutor
from tests.conformance.hand import Hand, job_id
from tests.store.sqlite_inside import session_of, writer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.store.sqlite.transaction import Transaction


@asynccontextmanager
async def opened(path: Path, *, inline: bool = False) -> AsyncIterator[tuple[SQLiteStore, Hand]]:
    clock = ManualClock()
    executor = LoopExecutor if inline else ThreadExecutor
    location = Location(path=path / "jobs.db")
    async with SQLiteStore(location, clock=clock, executor=executor, sockets=not inline) as store:
        yield store, Hand(store, clock)


def statements(store: SQLiteStore) -> list[str]:
    """Everything the writer runs from now on."""
    caught: list[str] = []
    writer_of(store).set_trace_callback(caught.append)
    return caught


async def test_callers_who_wait_together_share_one_commit(tmp_path: Path) -> None:
    async with opened(tmp_path, inline=True) as (store, hand):
        caught = statements(store)

        await asyncio.gather(*(store.add([hand.job(f"n{n}")]) for n in range(50)))

        assert 1 == caught.count("COMMIT")
        assert 50 == (await store.find(Search())).total


@pytest.mark.parametrize("count", [1, 2, 31, 64, 73, 191])
async def test_jobs_come_back_as_they_were_however_many_are_added_at_once(
    tmp_path: Path, count: int
) -> None:
    async with opened(tmp_path) as (store, hand):
        jobs = [
            replace(hand.job(f"n{n}"), payload=b"%d" % n, tags={"n": str(n)}) for n in range(count)
        ]

        await store.add(jobs)

        found = await store.get([job.id for job in jobs])
        assert [replace(job, trail=()) for job in jobs] == found
        histories = await store.history([job.id for job in jobs])
        assert [list(job.trail) for job in jobs] == histories


async def test_failing_operation_harms_no_other_in_its_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path, inline=True) as (store, hand):
        stale = Fence(job_id("nobody"), "token")

        def broken(tx: Transaction) -> None:
            tx.execute("INSERT INTO hold VALUES ('half', 'written', 9000000000000000, x'')")
            tx.execute("SELECT nothing FROM nowhere")

        caught = statements(store)
        session = session_of(store)
        answers = await asyncio.gather(
            store.add([hand.job("before")]),
            store.add([hand.job("fenced")], fence=stale),
            session.write(broken),
            store.add([hand.job("after")]),
            return_exceptions=True,
        )

        assert 1 == caught.count("COMMIT")
        assert isinstance(answers[1], StaleLeaseError)
        assert isinstance(answers[2], StoreError)
        assert ["after", "before"] == [job.type for job in (await store.find(Search())).jobs]
        assert [] == await store.locks("")
        stats = await store.stats(timedelta(minutes=5))
        assert 2 == sum(tally.count for tally in stats.tallies)


async def test_bug_in_an_operation_reaches_its_caller_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, hand):
        session = session_of(store)

        def buggy(tx: Transaction) -> None:
            tx.execute("INSERT INTO hold VALUES ('half', 'written', 9000000000000000, x'')")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await session.write(buggy)

        assert [] == await store.locks("")
        await hand.add("afterwards")


async def test_numbers_of_a_failed_operation_are_given_again(tmp_path: Path) -> None:
    async with opened(tmp_path, inline=True) as (store, hand):
        session = session_of(store)

        def skip(tx: Transaction) -> None:
            tx.number += 100
            raise StaleLeaseError("x")

        await asyncio.gather(
            session.write(skip), store.add([hand.job("a")]), return_exceptions=True
        )
        page = await store.events(None, 10, timedelta(0))

        assert ["1", "2"] == [event.cursor for event in page.events]


async def test_cancelled_caller_is_not_served(tmp_path: Path) -> None:
    async with opened(tmp_path, inline=True) as (store, hand):
        impatient = asyncio.create_task(store.add([hand.job("given up")]))
        patient = asyncio.create_task(store.add([hand.job("wanted")]))
        await asyncio.sleep(0)
        impatient.cancel()

        await patient

        assert ["wanted"] == [job.type for job in (await store.find(Search())).jobs]


@pytest.mark.req("S-1", stores=["sqlite"])
async def test_close_finishes_what_was_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, hand):
        calls = [asyncio.create_task(store.add([hand.job(f"n{n}")])) for n in range(20)]
        await asyncio.sleep(0)

        await store.close()

        answers = await asyncio.gather(*calls)
        assert {AddStatus.ACCEPTED} == {answer.status for (answer,) in answers}
    async with opened(tmp_path) as (store, _):
        assert 20 == (await store.find(Search())).total


async def test_store_can_be_closed_twice_and_before_its_start(tmp_path: Path) -> None:
    store = SQLiteStore(Location(path=tmp_path / "jobs.db"))
    await store.close()
    await store.start()
    await store.start()
    await store.close()
    await store.close()

    with pytest.raises(StoreError, match="not open"):
        await store.promote(1)


async def test_verbs_wait_for_a_start_under_way(tmp_path: Path) -> None:
    store = SQLiteStore(Location(path=tmp_path / "jobs.db"))
    starting = asyncio.create_task(store.start())
    await asyncio.sleep(0)

    assert [None] == await store.get([job_id("a")])

    await starting
    await store.close()


async def test_close_wakes_all_waiters(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        seen = await store.arrivals(["default"], -1, timedelta(0))
        work = asyncio.create_task(store.arrivals(["default"], seen, timedelta(hours=1)))
        news = asyncio.create_task(store.events(None, 10, timedelta(hours=1)))
        await asyncio.sleep(0.05)  # until both wait

        async with asyncio.timeout(5):
            await store.close()
            await asyncio.gather(work, news, return_exceptions=True)


async def test_repeat_of_a_batch_is_accepted_and_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, hand):
        jobs = [hand.job(f"n{n}") for n in range(3)]
        await store.add(jobs[:2])

        answers = await store.add(jobs)

        assert [AddStatus.ACCEPTED] * 3 == [answer.status for answer in answers]
        assert 3 == (await store.find(Search())).total
        assert 3 == sum(t.count for t in (await store.stats(timedelta(0))).tallies)


async def test_disk_error_in_a_transaction_fails_all_of_it_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, inline=True) as (store, hand):
        session = session_of(store)

        def full(tx: Transaction) -> None:
            tx.execute("ROLLBACK")  # what SQLite itself does when the disk is full
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        answers = await asyncio.gather(
            store.add([hand.job("a")]),
            session.write(full),
            store.add([hand.job("b")]),
            return_exceptions=True,
        )

        assert [StoreUnavailableError] * 3 == [type(answer) for answer in answers]
        assert 0 == (await store.find(Search())).total
        await hand.add("afterwards")


async def test_busy_file_is_waited_for_while_others_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocked again and again, but by processes that commit: no error."""
    monkeypatch.setattr(writer, "FROZEN_AFTER", 2)
    monkeypatch.setattr(writer, "GIVE_UP_AFTER", 5)
    async with opened(tmp_path) as (store, _):
        session = session_of(store)
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection = _Contended(other)

        session._file.writer._begin(connection)  # type: ignore[arg-type]  # counts its calls

        assert 4 == connection.tries
        other.close()


class _Contended:
    """A connection that finds the file locked three times, with a commit by others in between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.tries = 0

    def execute(self, sql: str) -> sqlite3.Cursor | _Contended:
        if "data_version" in sql:
            return self
        self.tries += 1
        if self.tries < 4:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return self.connection.execute("SELECT 1")

    def fetchone(self) -> tuple[int]:
        return (self.tries,)


@pytest.mark.req("M-1", stores=["sqlite"])
@pytest.mark.parametrize(
    ("job_id", "size"),
    [
        ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", 16),
        ("3F2504E0-4F89-41D3-9A0C-0305E82C3301", 36),
        ("3f2504e04f8941d39a0c0305e82c3301", 32),
        ("3f2504e0-4f89-41d3-9a0c-0305e82c330 ", 36),
        ("3f2504e0-4f89-41d3-9a0c-0305e82c33 1", 36),
        ("3f2504e0-4f89-41d3-9a0c-0305e82c330g", 36),
        ("3f2504e0-4f89-41d3-9a0c-0305e82c3-01", 36),
        ("3f2504e04-f89-41d3-9a0c-0305e82c3301", 36),
        ("12", 2),
        ("repeat:daily:1767225600000", 26),
        ("", 0),
    ],
)
def test_id_is_kept_compactly_and_comes_back_as_it_was(job_id: str, size: int) -> None:
    key = key_of(job_id)

    assert size == len(key)
    assert job_id == id_of(key)


async def test_job_with_a_foreign_id_works_like_any_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, hand):
        foreign = replace(hand.job("a"), id="repeat:daily:1")
        await store.add([foreign])
        (running,) = await hand.claim()
        await hand.complete(running)

        (done,) = await store.get(["repeat:daily:1"])
        assert done is not None
        assert State.COMPLETED is done.state
        assert ["submit", "enqueue", "claim", "complete"] == [
            edge.event for edge in (await store.history(["repeat:daily:1"]))[0]
        ]


def test_times_are_kept_to_the_microsecond() -> None:
    for year in (1970, 2026, 2400):
        at = ManualClock().now().replace(year=year, microsecond=123457)

        assert at == moment(micros(at))
