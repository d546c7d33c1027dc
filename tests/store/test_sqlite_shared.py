"""Stores of one process over one file share its threads, connections and sockets."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StoreError
from holdfast.store import Claim, LimitRule, open_store
from tests.conformance.hand import make
from tests.store.processes import line_of, process
from tests.store.sqlite_inside import session_of, writer_of
from tests.store.test_sqlite_processes import START

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from holdfast.model.job import Job
    from holdfast.store.sqlite import SQLiteStore

FORK = (
    START
    + """
import os

first, second, third = (open_store(url) for _ in range(3))

async def add(*stores):
    for store in stores:
        await store.start()
        await store.add([new(store)])

with asyncio.Runner() as runner:
    runner.run(add(first, second))
    if not os.fork():
        asyncio.run(add(first, third))
        os._exit(0)
    assert os.wait()[1] == 0
    runner.run(add(second))
    claim = Claim(queues=("default",), limit=9, worker="w", token="t")
    print(len(runner.run(second.claim(claim))), flush=True)
"""
)
ADD = (
    START
    + """
async def main():
    async with open_store(url) as store:
        await store.add([new(store)])
        print("added", flush=True)

asyncio.run(main())
"""
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def _new(store: SQLiteStore, label: str) -> Job:
    return make(label, now=store.now(), type="a")


def _descriptors() -> int:
    return len(_listed(Path("/proc/self/fd")))


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def _claim(token: str) -> Claim:
    return Claim(queues=("default",), limit=5, worker="w", token=token)


async def test_hundred_stores_need_no_more_threads_and_descriptors_than_one(url: str) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_store(url))
        threads, descriptors = threading.active_count(), _descriptors()

        stores = [await stack.enter_async_context(open_store(url)) for _ in range(100)]
        await asyncio.gather(*(store.queues() for store in stores))

        assert threading.active_count() <= threads + 3  # reads at once
        assert _descriptors() <= descriptors + 2 * 3


async def test_last_store_closes_the_file(url: str, tmp_path: Path) -> None:
    threads, descriptors = threading.active_count(), _descriptors()
    first, second = open_store(url), open_store(url)
    await first.start()
    await second.start()

    await first.close()
    await second.add([_new(second, "1")])
    await second.close()

    assert (threads, descriptors) == (threading.active_count(), _descriptors())
    assert ["jobs.db"] == [path.name for path in _listed(tmp_path)]


async def test_closed_store_is_refused_while_others_use_the_file(url: str) -> None:
    async with open_store(url) as first, open_store(url) as second:
        waiting = asyncio.create_task(first.arrivals(["q"], 0, timedelta(seconds=60)))
        seen = await second.arrivals(["default"], -1, timedelta(0))
        other = asyncio.create_task(second.arrivals(["default"], seen, timedelta(seconds=60)))
        await asyncio.sleep(0.05)  # nothing shows that they wait

        await first.close()

        await asyncio.wait_for(waiting, 5)
        assert not other.done()
        with pytest.raises(StoreError, match="not open"):
            await first.queues()
        await second.add([_new(second, "1")])
        assert seen != await asyncio.wait_for(other, 5)


@pytest.mark.parametrize("options", ["?durability=process", "?events_kept=7"])
async def test_stores_with_other_options_share_nothing(url: str, options: str) -> None:
    async with open_store(url) as plain, open_store(url + options) as other:
        assert writer_of(plain) is not writer_of(other)

        levels = [writer_of(each).execute("PRAGMA synchronous").fetchone() for each in (plain,)]
        await other.add([_new(other, "1")])

        assert [(2,)] == levels
        assert 1 == len(await plain.claim(_claim("t")))


async def test_two_names_of_one_file_are_both_served(url: str, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")

    async with open_store(url) as plain, open_store(f"sqlite:///{tmp_path}/link.db") as linked:
        await plain.add([_new(plain, "1")])
        (tmp_path / "link.db").unlink()

        with pytest.raises(StoreError, match="deleted, moved or replaced"):
            await linked.add([_new(linked, "2")])
        assert 1 == len(await plain.claim(_claim("t")))


async def test_store_of_a_file_that_replaced_another_shares_nothing_with_it(
    url: str, tmp_path: Path
) -> None:
    async with open_store(url) as before:
        await before.add([_new(before, "1")])
        for name in ("jobs.db", "jobs.db-wal", "jobs.db-shm"):
            (tmp_path / name).unlink()

        async with open_store(url) as after:
            await after.add([_new(after, "2")])
            assert 1 == len(await after.claim(_claim("t")))

        with pytest.raises(StoreError, match="deleted, moved or replaced"):
            await before.add([_new(before, "3")])


async def test_stores_on_loops_of_other_threads_wake_each_other(url: str) -> None:
    found: list[int] = []

    async def work(ready: threading.Event) -> None:
        async with open_store(url) as store:
            seen = await store.arrivals(["default"], -1, timedelta(0))
            ready.set()
            began = time.monotonic()
            await store.arrivals(["default"], seen, timedelta(seconds=20))
            assert time.monotonic() - began < 5
            found.append(len(await store.claim(_claim(threading.current_thread().name))))

    async with open_store(url) as store:
        events = [threading.Event() for _ in range(4)]
        threads = [threading.Thread(target=asyncio.run, args=(work(event),)) for event in events]
        for thread in threads:
            thread.start()
        for event in events:
            await asyncio.to_thread(event.wait, 10)

        await store.add([_new(store, "1")])
        for thread in threads:
            await asyncio.to_thread(thread.join, 10)

        assert [0, 0, 0, 1] == sorted(found)


async def test_messages_of_other_processes_arrive_after_the_loop_that_received_them_ended(
    url: str,
) -> None:
    async def listen() -> int:
        async with open_store(url) as store:
            return await store.arrivals(["default"], 0, timedelta(seconds=0.2))

    async with open_store(url) as store:
        await asyncio.to_thread(asyncio.run, listen())
        seen = await store.arrivals(["default"], -1, timedelta(0))
        waiting = asyncio.create_task(store.arrivals(["default"], seen, timedelta(seconds=20)))

        with process(ADD, url) as child:
            assert "added" == line_of(child)

        assert seen != await asyncio.wait_for(waiting, 5)


async def test_slow_read_delays_no_other(url: str) -> None:
    released = threading.Event()

    def slow(_: Any) -> bool:
        return released.wait(10)

    async with open_store(url) as store, open_store(url) as other:
        blocked = [asyncio.create_task(session_of(store).read(slow)) for _ in range(3)]
        await asyncio.sleep(0.05)  # nothing shows that they wait

        await asyncio.wait_for(other.queues(), 5)

        assert not any(task.done() for task in blocked)
        released.set()
        await asyncio.gather(*blocked)


async def test_forked_child_shares_nothing_with_its_parent(url: str) -> None:
    with process(FORK, url) as parent:
        assert "5" == line_of(parent)


async def test_stores_opened_and_closed_at_once_lose_nothing(url: str) -> None:
    async def come_and_go(number: int) -> None:
        for turn in range(10):
            async with open_store(url) as store:
                await store.add([_new(store, f"{number}-{turn}")])

    def in_thread(number: int) -> Callable[[], None]:
        return lambda: asyncio.run(come_and_go(number))

    await asyncio.gather(*(asyncio.to_thread(in_thread(number)) for number in range(4)))

    async with open_store(url) as store:
        found = [await store.claim(_claim(f"t{turn}")) for turn in range(9)]
        assert 40 == sum(map(len, found))


async def test_claims_of_one_transaction_respect_a_limit_together(url: str) -> None:
    async with open_store(url) as store, open_store(url) as other:
        await store.limit("queue:default", LimitRule(concurrency=2))
        await store.add([_new(store, f"{number}") for number in range(9)])

        taken = await asyncio.gather(
            store.claim(_claim("first")),
            other.swap([]),
            other.claim(_claim("second")),
            store.claim(_claim("third")),
        )

        assert 2 == sum(map(len, taken))
        assert [2] == [state.running for state in await store.limits()]
