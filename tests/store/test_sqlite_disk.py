"""The SQLite store on a disk that loses power, is full, or fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import apsw
import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import Job, State, Transition
from holdfast.runtime.clock import ManualClock
from holdfast.store import AddStatus, Change, Claim
from holdfast.store.sqlite import SQLiteStore, connection
from holdfast.store.sqlite.location import Durability, Location
from holdfast.store.sqlite.threads import LoopExecutor
from tests.conformance.hand import failure, make
from tests.store.disk import Disk, Fault, Past

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

ROUNDS = 12
IMAGES = int(os.environ.get("HOLDFAST_IMAGES", "400"))
WRITING = frozenset({"write", "sync", "truncate"})

Picture = dict[str, tuple[Job, tuple[Transition, ...]]]
"""All data of every job."""


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.fixture(autouse=True)
def often_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint the log very often, so that power is also lost during checkpoints."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 40)


def _store(
    folder: Path, clock: ManualClock, durability: Durability = Durability.FULL
) -> SQLiteStore:
    location = Location(path=folder / "jobs.db", durability=durability)
    return SQLiteStore(location, clock=clock, executor=LoopExecutor, sockets=False)


@asynccontextmanager
async def _on(
    disk: Disk, folder: Path, durability: Durability = Durability.FULL
) -> AsyncIterator[SQLiteStore]:
    with disk.connected():
        async with _store(folder, ManualClock(), durability) as store:
            yield store


@dataclass
class Story:
    """A producer and a worker, one call after the other."""

    store: SQLiteStore
    ids: list[str] = field(default_factory=list)
    held: list[Job] = field(default_factory=list)

    async def submit(self, label: str) -> None:
        jobs = [make(f"{label} {n}", now=self.store.now()) for n in range(4)]
        jobs.append(make(f"{label} after", now=self.store.now(), after=jobs[:2]))
        self.ids += [job.id for job in jobs]
        await asyncio.gather(*(self.store.add([job]) for job in jobs))

    async def claim(self, token: str) -> None:
        want = Claim(queues=("default",), limit=3, worker="w", token=token)
        self.held = await self.store.claim(want)

    async def settle(self) -> None:
        now = self.store.now()
        done, *rest = self.held
        changes = [Change(done, lifecycle.completed(done, b"1", now=now))]
        changes += [Change(job, lifecycle.after_failure(job, failure(), now=now)) for job in rest]
        self.held = []
        await self.store.swap(changes)

    def calls(self, rounds: int) -> Iterator[Callable[[], Awaitable[None]]]:
        for number in range(rounds):
            yield lambda number=number: self.submit(f"r{number}")  # type: ignore[misc]
            yield lambda number=number: self.claim(f"t{number}")  # type: ignore[misc]
            yield self.settle


async def _picture(store: SQLiteStore, ids: list[str]) -> Picture:
    jobs = await store.get(ids)
    histories = await store.history(ids)
    pairs = zip(jobs, histories, strict=True)
    return {job.id: (job, tuple(edges)) for job, edges in pairs if job is not None}


async def _recorded(disk: Disk, folder: Path, durability: Durability) -> list[Picture]:
    """Run the calls on the disk; return the contents after each acknowledged call."""
    async with _on(disk, folder, durability) as store:
        story = Story(store)
        pictures: list[Picture] = [{}]
        disk.mark("open")
        for call in story.calls(ROUNDS):
            await call()
            disk.mark("acknowledged")
            pictures.append(await _picture(store, story.ids))
    return pictures


@dataclass
class Found:
    """What was found in the images."""

    images: int = 0
    lost: int = 0
    """In how many an acknowledged write was missing."""
    ahead: int = 0
    """In how many the call under way had already happened."""
    torn: list[str] = field(default_factory=list)


async def _examined(disk: Disk, folder: Path, pictures: list[Picture], images: int) -> Found:
    """Cut the power at moments all over the run, and check what is left."""
    randomness = random.Random(7)
    opened = next(n for n, event in enumerate(disk.events) if event.kind == "mark")
    moments = {n for n, event in enumerate(disk.events) if n > opened and event.kind == "sync"}
    others = [n for n in range(opened + 1, len(disk.events)) if n not in moments]
    moments |= set(randomness.sample(others, min(len(others), max(0, images - 2 * len(moments)))))
    variants = [randomness] * max(1, images // len(moments))
    ids = list(pictures[-1])
    past, found, acknowledged = Past(), Found(), 0
    for number, event in enumerate(disk.events):
        if number in moments:  # before this event happens: what was written may be there or not
            for each in [None, *variants] if event.kind == "sync" else variants:
                past.leave(folder, each)
                seen = await _seen(folder, ids)
                found.images += 1
                _compare(found, seen, pictures, acknowledged, number)
        past.happen(event)
        acknowledged += event.file == "acknowledged"
    return found


async def _seen(folder: Path, ids: list[str]) -> Picture | str:
    with sqlite3.connect(folder / "jobs.db") as plain:
        (result,) = plain.execute("PRAGMA integrity_check").fetchone()
    plain.close()
    if result != "ok":
        return str(result)
    async with _store(folder, ManualClock()) as store:
        return await _picture(store, ids)


def _compare(
    found: Found, seen: Picture | str, pictures: list[Picture], acknowledged: int, moment: int
) -> None:
    if isinstance(seen, str):
        found.torn.append(f"at event {moment} the file is broken: {seen}")
    elif acknowledged + 1 < len(pictures) and seen == pictures[acknowledged + 1]:
        found.ahead += 1
    elif seen != pictures[acknowledged]:
        found.lost += 1
        if seen not in pictures:
            found.torn.append(f"at event {moment} half of a call is there")


@pytest.mark.req("S-1", "S-2")
async def test_what_was_acknowledged_survives_power_loss_at_any_moment(
    disk: Disk, tmp_path: Path
) -> None:
    live, image = tmp_path / "live", tmp_path / "image"
    live.mkdir()
    image.mkdir()
    pictures = await _recorded(disk, live, Durability.FULL)

    found = await _examined(disk, image, pictures, IMAGES)

    assert (0, []) == (found.lost, found.torn)
    assert found.images >= IMAGES / 2
    assert found.ahead > 0
    copied = [e for e in disk.events if e.kind == "write" and e.file == "jobs.db"]
    assert len(copied) > 100  # the log was copied into the file meanwhile


async def test_weaker_durability_loses_acknowledged_calls_but_never_half_of_one(
    disk: Disk, tmp_path: Path
) -> None:
    live, image = tmp_path / "live", tmp_path / "image"
    live.mkdir()
    image.mkdir()
    pictures = await _recorded(disk, live, Durability.PROCESS)

    found = await _examined(disk, image, pictures, IMAGES // 3)

    assert [] == found.torn
    assert found.lost > 0  # or the test above could not fail


@pytest.mark.parametrize("error", [apsw.FullError, apsw.IOError], ids=["full", "failing"])
@pytest.mark.parametrize("times", [1, 40], ids=["once", "for a while"])
@pytest.mark.req("S-9", "S-12")
async def test_failing_disk_raises_a_clear_error_and_leaves_nothing_half_done(
    disk: Disk, tmp_path: Path, error: type[apsw.Error], times: int
) -> None:
    untouched = 0
    async with _on(disk, tmp_path) as store:
        ids: list[str] = []
        for at in range(1, 40):
            new = make(f"a{at}", now=store.now())
            pair = [new, make(f"a{at} after", now=store.now(), after=[new])]
            before = await _picture(store, ids)
            ids += [job.id for job in pair]

            disk.fault = Fault(error, at, WRITING, times)
            with contextlib.suppress(StoreUnavailableError):
                await store.add(pair)
            disk.fault = None

            now_there = await _picture(store, ids)
            assert now_there in (before, {**before, **{i: now_there.get(i) for i in ids[-2:]}})
            untouched += now_there == before
            answers = await store.add(pair)  # again, as a caller does after an error
            assert [AddStatus.ACCEPTED] * 2 == [answer.status for answer in answers]
            assert ids == list(await _picture(store, ids))
        tallies = (await store.stats(timedelta(0))).tallies
    assert untouched > 5
    assert 2 * 39 == sum(tally.count for tally in tallies)
    assert "ok" == _integrity(tmp_path)


@pytest.mark.req("S-9", "S-12")
async def test_disk_that_fills_up_in_the_middle_of_a_group_answers_each_truthfully(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CACHE_KIBIBYTES", 8)  # pages go to the disk before the commit
    refused = 0
    async with _on(disk, tmp_path) as store:
        for at in range(1, 40, 3):
            jobs = [make(f"{at} {n}", now=store.now(), payload="x" * 30_000) for n in range(3)]
            disk.fault = Fault(apsw.FullError, at, frozenset({"write"}))
            calls = (store.add([job]) for job in jobs)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            disk.fault = None

            kinds = {type(answer) for answer in answers}
            assert kinds <= {list, StoreUnavailableError}, answers
            refused += StoreUnavailableError in kinds
            for job, answer in zip(jobs, answers, strict=True):
                (there,) = await store.get([job.id])
                assert there is not None or isinstance(answer, StoreUnavailableError)
            alone = make(f"{at} alone", now=store.now(), payload="x" * 60_000)
            disk.fault = Fault(apsw.FullError, at, frozenset({"write"}))
            with contextlib.suppress(StoreUnavailableError):
                await store.add([alone])
            disk.fault = None
            await asyncio.gather(*(store.add([job]) for job in (*jobs, alone)))
    assert refused > 5
    assert "ok" == _integrity(tmp_path)


async def test_error_of_a_failing_disk_names_the_file_and_the_cause(
    disk: Disk, tmp_path: Path
) -> None:
    async with _on(disk, tmp_path) as store:
        disk.fault = Fault(apsw.FullError, 1, WRITING)

        with pytest.raises(StoreUnavailableError, match=r"jobs\.db cannot be used now"):
            await store.add([make("a", now=store.now())])
        disk.fault = None


@pytest.mark.req("S-9")
async def test_worker_on_a_full_disk_keeps_its_lease_until_there_is_room(
    disk: Disk, tmp_path: Path
) -> None:
    async with _on(disk, tmp_path) as store:
        story = Story(store)
        await story.submit("first")
        await story.claim("t")
        held = list(story.held)
        disk.fault = Fault(apsw.FullError, 1, WRITING)

        with pytest.raises(StoreUnavailableError):
            await story.settle()
        with pytest.raises(StoreUnavailableError):
            await store.claim(Claim(queues=("default",), limit=1, worker="w2", token="u"))
        assert [State.RUNNING] * 3 == [
            job.state for job in await store.get([j.id for j in held]) if job
        ]
        disk.fault = None
        story.held = held
        await story.settle()

        states = [job.state for job in await store.get([j.id for j in held]) if job]
    assert [State.COMPLETED, State.RETRYING, State.RETRYING] == states


async def test_failing_read_raises_and_the_next_one_succeeds(disk: Disk, tmp_path: Path) -> None:
    async with _on(disk, tmp_path) as store:
        await Story(store).submit("first")
    async with _on(disk, tmp_path) as store:  # with nothing in memory
        ids = [make("first 0", now=store.now()).id]
        disk.fault = Fault(apsw.IOError, 1, frozenset({"read"}))

        with pytest.raises(StoreUnavailableError, match="the disk fails"):
            await store.get(ids)
        disk.fault = None

        assert [ids[0]] == [job.id for job in await store.get(ids) if job]


def _integrity(folder: Path) -> str:
    plain = sqlite3.connect(folder / "jobs.db")
    (result,) = plain.execute("PRAGMA integrity_check").fetchone()
    plain.close()
    return str(result)
