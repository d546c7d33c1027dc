"""Jobs enqueued at once are written with few statements, with the same result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import Priority
from holdfast.model.policy import DAY, HOUR
from holdfast.runtime.clock import ManualClock
from holdfast.store import AddStatus
from holdfast.store.sqlite import SQLiteStore, add
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor
from tests.conformance.hand import Hand
from tests.store.sqlite_inside import writer_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.model.job import Job

TABLES = ("job", "body", "journal", "mark", "tally", "minute", "tag", "key")


class File:
    """A file of its own, with its own clock."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        location = Location(path=path)
        self.store = SQLiteStore(location, clock=self.clock, executor=LoopExecutor, sockets=False)
        self.hand = Hand(self.store, self.clock)
        self.ran: list[str] = []

    async def add(self, jobs: Sequence[Job]) -> None:
        writer_of(self.store).set_trace_callback(self.ran.append)
        answers = await self.store.add(jobs)
        assert {AddStatus.ACCEPTED} == {answer.status for answer in answers}

    def rows(self) -> dict[str, list[tuple[object, ...]]]:
        """Everything in it."""
        execute = writer_of(self.store).execute
        return {table: execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}

    @property
    def took_the_short_way(self) -> bool:
        return any("OR IGNORE INTO job" in sql for sql in self.ran)


async def both_ways(
    tmp_path: Path, jobs: Sequence[Job], monkeypatch: pytest.MonkeyPatch
) -> tuple[File, File]:
    """Write jobs in two files, one of them without the fast path."""
    short, long = File(tmp_path / "short.db"), File(tmp_path / "long.db")
    async with short.store, long.store:
        await short.hand.add("before")
        await long.hand.add("before")
        await short.add(jobs)
        for short_way in ("add_alike", "add_single"):
            monkeypatch.setattr(add, short_way, lambda *_: False)
        await long.add(jobs)
        assert long.rows() == short.rows()
        histories = await short.store.history([job.id for job in jobs])
        assert [list(job.trail) for job in jobs] == histories
        found = await short.store.get([job.id for job in jobs])
        assert [replace(job, trail=()) for job in jobs] == found
        assert not long.took_the_short_way
    return short, long


@pytest.mark.parametrize("count", [1, 2, 31, 64, 73, 191])
@pytest.mark.parametrize("kinds", [1, 3])
async def test_file_is_the_same_whichever_way_jobs_were_written(
    tmp_path: Path, count: int, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = File(tmp_path / "unused.db").hand
    jobs = []
    for n in range(count):
        hand.clock.advance(7.25)  # now and then a new minute
        kind = n % kinds
        jobs.append(
            hand.job(
                f"n{n}",
                type=f"t{kind}",
                payload=b"\x00%d" % n if kind else {"n": n},
                queue=("default", "b", "c")[kind],
                priority=(Priority.HIGH, Priority.NORMAL, Priority.BULK)[kind],
                max_attempts=kind + 1,
                retry_crashes=n % 2 == 0,
                lifetime=DAY if kind else HOUR,
            )
        )

    short, _ = await both_ways(tmp_path, jobs, monkeypatch)

    assert short.took_the_short_way


async def test_one_job_with_more_to_it_takes_the_others_with_it_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = File(tmp_path / "unused.db").hand
    plain = hand.job("plain")
    specials = [
        hand.job("tagged", tags={"a": "b"}),
        hand.job("late", delay=60),
        hand.job("held", hold=True),
        hand.job("correlated", correlation_id="c"),
        hand.job("limited", limit_key="k"),
        replace(hand.job("priced"), expires_at=hand.now + HOUR),
        replace(hand.job("checked"), checkpoint=b"1"),
        replace(hand.job("moved"), trail=hand.job("moved").trail[:1]),
        replace(
            hand.job("reason"),
            trail=tuple(replace(edge, reason="else") for edge in hand.job("reason").trail),
        ),
    ]
    for special in specials:
        folder = tmp_path / special.type
        folder.mkdir()
        with monkeypatch.context() as patch:
            short, _ = await both_ways(folder, [plain, special], patch)
        assert not short.took_the_short_way


async def test_ageing_queue_gets_its_times_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = File(tmp_path / "jobs.db")
    async with file.store:
        await file.store.configure("default", {"ageing": HOUR})
        await file.add([file.hand.job("ages")])

        assert not file.took_the_short_way
        assert [True] == [row is not None for (row,) in _lifts(file)]


def _lifts(file: File) -> list[tuple[int | None]]:
    return writer_of(file.store).execute("SELECT lift_at FROM job").fetchall()


async def test_job_stored_before_crashes_had_an_option_retries_them(tmp_path: Path) -> None:
    file = File(tmp_path / "jobs.db")
    async with file.store:
        job = file.hand.job("old", callback_url="https://example.org/x")
        await file.add([job])
        writer = writer_of(file.store)
        ((options,),) = writer.execute("SELECT options FROM body").fetchall()
        *older, _ = json.loads(options)
        writer.execute("UPDATE body SET options = ?", (json.dumps(older).encode(),))

        (found,) = await file.store.get([job.id])

        assert replace(job, trail=()) == found


async def test_repeat_of_plain_jobs_changes_nothing(tmp_path: Path) -> None:
    file = File(tmp_path / "jobs.db")
    async with file.store:
        jobs = [file.hand.job(f"n{n}", type="same") for n in range(70)]
        await file.add(jobs[:50])
        before = file.rows()
        await file.add(jobs[:50])
        assert before == file.rows()

        await file.add(jobs)

        assert 70 == len(file.rows()["job"])
        assert 140 == len(file.rows()["journal"])
