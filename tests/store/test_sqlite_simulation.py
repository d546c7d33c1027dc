"""The store on a virtual event loop: no thread, no real time, the same run every time."""

from __future__ import annotations

import asyncio
import heapq
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.runtime.clock import ManualClock
from holdfast.store.sqlite import SQLiteStore
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor
from tests.conformance.hand import Hand

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

HOUR = timedelta(hours=1)


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop whose clock jumps to the next timer when nothing else can run."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self.now:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # as asyncio itself does: a timer that is cancelled asks
            if not timer.cancelled():
                self._ready.append(timer)
        assert self._ready, "nothing can ever run again"
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()  # what a loop is for; there is no other name

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: object) -> None:
        pass


def _run(main: Coroutine[object, object, None]) -> float:
    """Run in virtual time; return how much of it passed."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
        return loop.time()
    finally:
        loop.close()


def _store(path: Path) -> SQLiteStore:
    return SQLiteStore(
        Location(path=path / "jobs.db"),
        clock=ManualClock(),
        executor=LoopExecutor,
        sockets=False,
        poll=5,
    )


def test_store_waits_in_virtual_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with _store(tmp_path) as store:
            seen = await store.arrivals(["default"], -1, timedelta(0))
            assert seen == await store.arrivals(["default"], seen, HOUR)
            assert () == (await store.events(None, 10, HOUR)).events

    assert 7200 <= _run(main()) < 7201


def test_store_on_the_same_file_wakes_waiters_in_virtual_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with _store(tmp_path) as one, _store(tmp_path) as other:
            hand = Hand(other, ManualClock())
            seen = await one.arrivals(["default"], -1, timedelta(0))
            waiting = asyncio.create_task(one.arrivals(["default"], seen, HOUR))
            await asyncio.sleep(10)  # in virtual time
            await hand.add("a")
            assert seen != await waiting
            (job,) = await Hand(one, ManualClock()).claim()
            await hand.complete(job)

    assert 10 <= _run(main()) <= 15
