"""Notices that the store's clock was set, and corrects what was dated before.

A clock is set back: leases of dead workers and waits of jobs would end hours later. A clock is set
forward: leases of live workers end before their next heartbeat. The store's clock is compared with
the monotonic clock of this process, also while another process leads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.model.clock_changes import TOLERANCE, ClockChange, is_lease_ahead, redated
from holdfast.model.job import Job, State
from holdfast.observe import Observer
from holdfast.operations.clock_reports import report_change
from holdfast.operations.quarantine import set_aside, swap_each
from holdfast.runtime.clock import Clock
from holdfast.store import Change, Fence, Order, Search, Store

EVERY = 1.0
PAGE = 100
REPEAT_EVERY = 5.0
REPEAT_FOR = 30.0
"""Seconds after a change in which another process may still write by the old time."""
INTERRUPTED = 0.1
"""Seconds after which a reading of two clocks is too old: the process stood still between them."""


class StoreClock:
    """Compares the store's clock with the monotonic clock of this process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._monotonic = clock.monotonic
        self._last: tuple[datetime, float] | None = None
        self.change: ClockChange | None = None
        """The newest change, if there was one."""
        self.changed_at = float("-inf")

    def look(self) -> ClockChange | None:
        """Compare the clocks; return the newest change."""
        begun, now, ticks = self._monotonic(), self._store.now(), self._monotonic()
        if ticks - begun > INTERRUPTED:
            return self.change
        if self._last is not None:
            seen, at = self._last
            expected = seen + timedelta(seconds=ticks - at)
            if abs(now - expected) > TOLERANCE:
                self.change, self.changed_at = ClockChange(expected, now), ticks
        self._last = (now, ticks)
        return self.change


class ClockService:
    """Reports changes of the clock, and corrects leases and waits after it was set back."""

    name = "clock"

    def __init__(self, store: Store, clock: Clock, watch: StoreClock, observer: Observer) -> None:
        self._store = store
        self._monotonic = clock.monotonic
        self._watch = watch
        self._observer = observer
        self._reported: ClockChange | None = None
        self._served_at = self._corrected_at = float("-inf")

    async def once(self) -> float:
        ticks = self._monotonic()
        change = self._watch.look()
        is_recent = ticks - self._watch.changed_at < REPEAT_FOR
        if change is not None and change is not self._reported:
            self._reported = change
            self._corrected_at = float("-inf")
            await self._report(change)
        is_new = ticks - self._served_at > REPEAT_EVERY  # the clock may have been set before
        self._served_at = ticks
        if is_new or (is_recent and ticks - self._corrected_at >= REPEAT_EVERY):
            self._corrected_at = ticks
            await self.correct()
        return EVERY

    async def correct(self) -> None:
        """Correct the leases and waits that were dated before the clock was set back."""
        now = self._store.now()
        async for jobs in self._pages(Search(states=(State.RUNNING,))):
            ahead = [job for job in jobs if is_lease_ahead(job, now)]
            fences = [Fence(job.id, job.lease.token) for job in ahead if job.lease]
            if fences:  # a live holder renews it again; a dead one does not
                await self._store.extend(fences)
        waiting = Search(states=(State.DELAYED, State.RETRYING), updated_after=now + TOLERANCE)
        async for jobs in self._pages(waiting):
            decided = [(job, await self._redated(job, now)) for job in jobs]
            await swap_each(self._store, [Change(a, b) for a, b in decided if a is not b])

    async def _redated(self, job: Job, now: datetime) -> Job:
        try:
            return redated(job, now=now)
        except Exception as error:  # noqa: BLE001  # the others are corrected
            await set_aside(self._store, job.id, error)
            return job

    async def _report(self, change: ClockChange) -> None:
        self._observer.emit("store.clock_set", seconds=round(change.by.total_seconds(), 1))
        await report_change(self._store, change)

    async def _pages(self, search: Search) -> AsyncIterator[Sequence[Job]]:
        """Return matching jobs page by page, in an order that changes do not disturb."""
        cursor: str | None = None
        while True:
            page = await self._store.find(
                replace(search, order=Order.CREATED_ASC, cursor=cursor, limit=PAGE)
            )
            yield page.jobs
            if (cursor := page.next_cursor) is None:
                return
