"""Many processes on one file, and processes that die or freeze."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import statistics
import time
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.acceptance import accept
from holdfast.model.job import State
from holdfast.model.submission import Submission
from holdfast.store import Change, Claim, LimitRule, Search, open_store
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location
from tests.conformance.hand import job_id, make
from tests.store.processes import emit, line_of, process
from tests.store.sqlite_inside import sockets_of
from tests.waiting import in_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.model.job import Job

START = """
import asyncio, itertools, sys, threading, time
from datetime import timedelta
from holdfast.runtime.randomness import Randomness
from holdfast.model.submission import Submission
from holdfast.store import Claim, open_store
from holdfast.model.acceptance import accept

randomness = Randomness()
url = sys.argv[1]

def new(store, **fields):
    submission = Submission(type="a", **fields)
    return accept(submission, job_id=randomness.uuid(), now=store.now())
"""
SUBMIT_FOR_EVER = (
    START
    + """
async def main():
    async with open_store(url) as store:
        async def submit():
            for _ in itertools.count():
                job = new(store)
                await store.add([job])
                print(job.id, flush=True)
        await asyncio.gather(*(submit() for _ in range(5)))

asyncio.run(main())
"""
)
SUBMIT_MANY = (
    START
    + """
async def main():
    async with open_store(url) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(int(sys.argv[2])):
            await store.add([new(store)])
            token = randomness.token()
            await store.claim(Claim(queues=("default",), limit=1, worker="w", token=token))
        print("done", flush=True)

asyncio.run(main())
"""
)
COME_AND_GO = (
    START
    + """
async def main():
    for _ in range(int(sys.argv[2])):
        async with open_store(url) as store:
            await store.add([new(store)])
    print("done", flush=True)

asyncio.run(main())
"""
)
WAKE_UPS = (
    START
    + """
async def main():
    async with open_store(url) as store:
        seen = await store.arrivals(["default"], -1, timedelta(0))
        print("ready", flush=True)
        for _ in range(int(sys.argv[2])):
            while True:
                moved = await store.arrivals(["default"], seen, timedelta(seconds=20))
                at = time.monotonic()
                seen = moved
                want = Claim(queues=("default",), limit=5, worker="w", token=randomness.token())
                if await store.claim(want):
                    break
            print(at, flush=True)

asyncio.run(main())
"""
)
FREEZE = (
    START
    + """
async def main():
    async with open_store(url) as store:
        def hold(tx):
            tx.execute("DELETE FROM hold")
            print("inside", flush=True)
            threading.Event().wait()
        await store._session.write(hold)

asyncio.run(main())
"""
)


def _url(folder: Path, options: str = "") -> str:
    return f"sqlite:///{folder}/jobs.db{options}"


def _new(store: SQLiteStore, label: str) -> Job:
    return make(label, now=store.now(), type="a")


@pytest.mark.req("S-1", "S-2", stores=["sqlite"])
@pytest.mark.parametrize("options", ["", "?durability=process"])
async def test_acknowledged_job_survives_kill_9(tmp_path: Path, options: str) -> None:
    acknowledged: list[str] = []
    for _ in range(3):
        with process(SUBMIT_FOR_EVER, _url(tmp_path, options)) as submitter:
            acknowledged += [line_of(submitter) for _ in range(20)]
            submitter.kill()
            rest, _ = submitter.communicate(timeout=30)
            acknowledged += [line for line in rest.splitlines() if len(line) == 36]

    async with open_store(_url(tmp_path)) as store:
        found = await store.get(acknowledged)
        histories = await store.history(acknowledged)

    assert len(acknowledged) >= 60
    assert None not in found
    assert {State.SCHEDULED} == {job.state for job in found if job}
    assert {2} == {len(history) for history in histories}


@pytest.mark.req("S-1", stores=["sqlite"])
async def test_many_processes_write_at_once_without_an_error(tmp_path: Path) -> None:
    with ExitStack() as stack:
        writers = [stack.enter_context(process(SUBMIT_MANY, _url(tmp_path), 25)) for _ in range(8)]
        assert ["ready"] * 8 == [line_of(each) for each in writers]
        for each in writers:
            emit(each)
        assert ["done"] * 8 == [line_of(each) for each in writers]

    async with open_store(_url(tmp_path)) as store:
        page = await store.find(Search(limit=1000))
        tallies = (await store.stats(timedelta(minutes=5))).tallies

    assert 200 == page.total == len(page.jobs)
    assert 200 == sum(tally.count for tally in tallies)


@pytest.mark.req("S-1", "S-2", stores=["sqlite"])
async def test_processes_that_open_and_close_the_file_lose_nothing(tmp_path: Path) -> None:
    """The last process to close the file deletes its log, while others may be opening it."""
    with ExitStack() as stack:
        guests = [stack.enter_context(process(COME_AND_GO, _url(tmp_path), 15)) for _ in range(4)]
        assert ["done"] * 4 == [line_of(guest) for guest in guests]

    async with open_store(_url(tmp_path)) as store:
        assert 60 == (await store.find(Search(limit=1000))).total


async def test_work_wakes_another_process_within_milliseconds(tmp_path: Path) -> None:
    rounds = 25
    async with open_store(_url(tmp_path)) as store:
        with process(WAKE_UPS, _url(tmp_path), rounds) as waiter:
            assert "ready" == await asyncio.to_thread(line_of, waiter)
            took = []
            for n in range(rounds):
                await asyncio.sleep(0.02)  # until the other process waits again
                started = time.monotonic()
                await store.add([_new(store, f"n{n}")])
                took.append(float(await asyncio.to_thread(line_of, waiter)) - started)

    assert statistics.median(took) < 0.05, took  # half the poll: it was not the poll


async def test_work_is_found_by_polling_when_messages_are_lost(tmp_path: Path) -> None:
    location = Location.from_url(_url(tmp_path))
    async with SQLiteStore(location, sockets=False) as deaf, SQLiteStore(location) as other:
        seen = await deaf.arrivals(["default"], -1, timedelta(0))
        waiting = asyncio.create_task(deaf.arrivals(["default"], seen, timedelta(seconds=20)))
        news = asyncio.create_task(deaf.events(None, 10, timedelta(seconds=20)))
        await asyncio.sleep(0)

        await other.add([_new(other, "a")])

        async with asyncio.timeout(5):
            assert seen != await waiting
            assert 2 == len((await news).events)


async def test_commit_of_another_process_without_work_wakes_no_waiter(tmp_path: Path) -> None:
    location = Location.from_url(_url(tmp_path))
    async with SQLiteStore(location) as one, SQLiteStore(location) as other:
        seen = await one.arrivals(["default"], -1, timedelta(0))

        await other.lock("leader", "other", timedelta(seconds=30))

        assert seen == await one.arrivals(["default"], seen, timedelta(seconds=0.3))


@pytest.mark.parametrize(
    ("rule", "woken"), [(LimitRule(concurrency=1), True), (LimitRule(rate=1), False)]
)
async def test_end_of_a_job_wakes_others_only_if_it_makes_room(
    tmp_path: Path, rule: LimitRule, *, woken: bool
) -> None:
    location = Location.from_url(_url(tmp_path))
    async with SQLiteStore(location) as one, SQLiteStore(location) as other:
        await one.limit("task:a", rule)
        await one.add([make("a", now=one.now(), type="a")])
        want = Claim(queues=("default",), limit=1, worker="w", token="t")
        (job,) = await one.claim(want)
        seen = [await each.arrivals(["default"], -1, timedelta(0)) for each in (one, other)]

        await one.swap([Change(job, lifecycle.completed(job, None, now=one.now()))])

        wait = timedelta(seconds=0.3)
        found = [
            await each.arrivals(["default"], before, wait)
            for each, before in zip((one, other), seen, strict=True)
        ]
        assert [woken, woken] == [a != b for a, b in zip(seen, found, strict=True)]


async def test_work_in_another_queue_wakes_no_waiter(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        seen = await store.arrivals(["quiet"], -1, timedelta(0))
        waiting = asyncio.create_task(store.arrivals(["quiet"], seen, timedelta(seconds=20)))
        await asyncio.sleep(0)

        await store.add([make("a", now=store.now(), queue="busy")])
        await asyncio.sleep(0)

        assert not waiting.done()
        await store.configure("quiet", {"paused": False})
        async with asyncio.timeout(5):
            assert seen != await waiting


async def test_waiting_costs_next_to_nothing(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        seen = await store.arrivals(["default"], -1, timedelta(0))
        before = time.process_time()

        await asyncio.gather(
            *(store.arrivals(["default"], seen, timedelta(seconds=2)) for _ in range(10))
        )

        assert time.process_time() - before < 0.1  # 5 % for ten waiters on a crowded machine


async def test_socket_of_a_dead_process_is_deleted(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        with process(WAKE_UPS, _url(tmp_path), 1) as waiter:
            assert "ready" == await asyncio.to_thread(line_of, waiter)
            assert isinstance(store, SQLiteStore)
            folder = sockets_of(store)
            await asyncio.to_thread(_until, lambda: bool(_sockets_of(folder, waiter.pid)))
            waiter.kill()
            waiter.wait(timeout=30)
            assert _sockets_of(folder, waiter.pid)

            await store.add([_new(store, "a")])

            await asyncio.to_thread(_until, lambda: not _sockets_of(folder, waiter.pid))
        assert 0o700 == folder.stat().st_mode & 0o777


def _until(condition: Callable[[], bool]) -> None:
    """Poll for what another process does to a directory."""
    in_time(condition)


def _sockets_of(folder: Path, pid: int) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(f"{pid}-")]


@pytest.mark.slow
@pytest.mark.req("S-9", stores=["sqlite"])
async def test_frozen_writer_raises_a_clear_error_and_reads_still_work(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        await store.add([_new(store, "a")])
        with process(FREEZE, _url(tmp_path)) as frozen:
            assert "inside" == await asyncio.to_thread(line_of, frozen)
            os.kill(frozen.pid, signal.SIGSTOP)
            started = time.monotonic()

            blocked = asyncio.create_task(store.add([_new(store, "b")]))
            await asyncio.sleep(0.1)  # until it waits for the lock
            assert 1 == (await store.find(Search())).total
            with pytest.raises(StoreUnavailableError, match="may be frozen"):
                await blocked

            assert 4 < time.monotonic() - started < 15
        await store.add([_new(store, "b")])
        assert 2 == (await store.find(Search())).total


async def test_forked_child_opens_the_file_for_itself(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        await store.add([_new(store, "parent")])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.Runner().run(_add_in_child(store))
                status = 0
            finally:
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)

        assert 0 == os.waitstatus_to_exitcode(status)
        await store.add([_new(store, "parent again")])
        assert 3 == (await store.find(Search())).total


async def _add_in_child(store: SQLiteStore) -> None:
    async with asyncio.timeout(20):
        await store.add([_new(store, "child")])
        assert 2 == (await store.find(Search())).total
        await store.close()


@pytest.mark.req("S-1", "S-9", stores=["sqlite"])
async def test_full_disk_refuses_whole_batches_and_heals(tmp_path: Path) -> None:
    async with open_store(_url(tmp_path)) as store:
        before = [make(f"before {n}", now=store.now(), type="a") for n in range(50)]
        await store.add(before)
        accepted = len(before)
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = (tmp_path / "jobs.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, most))
        try:
            accepted += await _add_until_refused(store)
            assert accepted == (await store.find(Search())).total
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            signal.signal(signal.SIGXFSZ, ignored)

        await store.add(_large(store, 1000))
        accepted += 10
        claimed = await store.claim(Claim(queues=("default",), limit=1000, worker="w", token="t"))

        assert accepted == (await store.find(Search())).total == len(claimed)
        assert accepted == sum(t.count for t in (await store.stats(timedelta(0))).tallies)


async def _add_until_refused(store: SQLiteStore) -> int:
    """Submit batches until the disk is full; return how many jobs were accepted."""
    for round_ in range(100):
        try:
            await store.add(_large(store, round_))
        except StoreUnavailableError:
            return round_ * 10
    raise AssertionError("the disk was never full")


def _large(store: SQLiteStore, round_: int) -> list[Job]:
    submission = Submission(type="a", payload=b"x" * 5000)
    return [accept(submission, job_id=job_id(f"{round_} {n}"), now=store.now()) for n in range(10)]
