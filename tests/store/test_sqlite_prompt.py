"""A lone submission is written in the thread of its caller, and never blocks it for long."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, State
from holdfast.errors import StoreError
from holdfast.runtime.clock import ManualClock, SystemClock
from holdfast.store import Search
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.connection import CHECKPOINT_PAGES
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor
from holdfast.store.sqlite.writer import PROMPT_SECONDS
from tests.conformance.hand import Hand
from tests.store.sqlite_inside import session_of, writer_of

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.runtime.clock import Clock
    from holdfast.store.sqlite.threads import SerialExecutor
    from holdfast.store.sqlite.transaction import Transaction

PAGE = 4096


def store_at(path: Path, clock: Clock | None = None) -> SQLiteStore:
    return SQLiteStore(Location(path=path / "jobs.db"), clock=clock or ManualClock())


def thread_of(store: SQLiteStore, *, patient: bool = False) -> int | None:
    """Return the thread that writes now, or None when a caller must wait for another."""
    return session_of(store).write_now(lambda _: threading.get_ident(), patient=patient)


class SlowDisk(ManualClock):
    """A clock by which every commit takes longer than an event loop may wait."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = count()

    def monotonic(self) -> float:
        return next(self._calls) * PROMPT_SECONDS * 2


async def test_lone_write_needs_no_other_thread(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        hand = Hand(store, ManualClock())
        await hand.add("first")  # how long a commit takes is not known before

        assert threading.get_ident() == thread_of(store)


async def test_loop_never_waits_for_a_slow_disk_but_a_blocking_caller_does(tmp_path: Path) -> None:
    async with store_at(tmp_path, SlowDisk()) as store:
        await Hand(store, ManualClock()).add("first")

        assert thread_of(store) is None
        assert threading.get_ident() == thread_of(store, patient=True)


async def test_nothing_is_written_beside_the_loop_of_a_simulation(tmp_path: Path) -> None:
    executor: type[SerialExecutor] = LoopExecutor
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location, clock=ManualClock(), executor=executor) as store:
        await Hand(store, ManualClock()).add("first")

        assert thread_of(store, patient=True) is None


async def test_locked_file_is_waited_for_in_the_other_thread(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Holdfast(url) as app:
        await app.submit("first")
        await app.submit("second")
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        submitting = asyncio.create_task(app.submit("third"))
        turns = 0
        while turns < 100:  # the loop turns while the submission waits
            await asyncio.sleep(0.001)
            turns += 1
        assert not submitting.done()
        other.execute("ROLLBACK")
        other.close()

        assert State.SCHEDULED is (await app.get((await submitting).job_id)).state


async def test_callers_of_one_turn_are_written_together(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        for _ in range(3):
            await app.submit("warm")
        assert isinstance(app.store, SQLiteStore)
        caught: list[str] = []
        writer_of(app.store).set_trace_callback(caught.append)

        await asyncio.gather(*(app.submit("n", {"n": n}) for n in range(100)))

        assert caught.count("COMMIT") <= 3


async def test_long_log_is_checkpointed_although_callers_write(tmp_path: Path) -> None:
    async with store_at(tmp_path, SystemClock()) as store:
        hand = Hand(store, ManualClock())
        for n in range(3 * CHECKPOINT_PAGES // 10):
            job = hand.job(f"n{n}")
            if store.add_now(job, patient=True) is None:
                await store.add([job])
        size = (tmp_path / "jobs.db-wal").stat().st_size  # one look, at the end

    assert size < 2 * CHECKPOINT_PAGES * PAGE


async def test_interrupted_write_leaves_nothing_behind(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        hand = Hand(store, ManualClock())
        await hand.add("first")

        def interrupted(tx: Transaction) -> int:
            tx.execute("DELETE FROM job")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            session_of(store).write_now(interrupted, patient=True)

        await hand.add("second")
        assert 2 == (await store.find(Search())).total


async def test_moved_file_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        hand = Hand(store, ManualClock())
        await hand.add("first")
        (tmp_path / "jobs.db").unlink()  # what is tested

        with pytest.raises(StoreError, match="deleted, moved or replaced"):
            store.add_now(hand.job("second"), patient=True)


def test_blocking_caller_submits_in_its_own_thread_and_after_a_fork(tmp_path: Path) -> None:
    with closing(Holdfast(f"sqlite:///{tmp_path}/jobs.db").sync) as client:
        mine = [client.submit("a", {"n": n}).job_id for n in range(3)]
        child = os.fork()
        if child == 0:
            client.submit("child")
            os._exit(0)
        assert 0 == os.waitpid(child, 0)[1]
        mine.append(client.submit("a").job_id)

        assert 5 == len(client.search().jobs)
        assert len(mine) == len(set(mine))


async def test_few_commits_move_the_mark_of_their_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store_at(tmp_path, clock) as store:
        hand = Hand(store, clock)
        marks = set()
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as other:
            for number in range(100):
                await hand.add(f"job-{number}")
                marks.add(other.execute("SELECT first, last FROM mark").fetchone())
        midway = clock.now()
        clock.advance(60)
        last = await hand.add("late")
        early = await store.find(Search(created_before=clock.now(), limit=200))
        late = await store.find(Search(created_after=clock.now(), limit=200))

        assert 1 == len(marks)
        assert 100 == len(early.jobs)
        assert [last.id] == [job.id for job in late.jobs]
        assert all(job.created_at <= midway for job in early.jobs)
