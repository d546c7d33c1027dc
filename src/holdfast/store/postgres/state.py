"""The state of an opened store, which the functions behind its verbs receive."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.model.job import Job, State
from holdfast.runtime.clock import Clock
from holdfast.store.postgres.claim_position import ClaimPositions, LeasePosition, Throttle
from holdfast.store.postgres.clock import ServerClock
from holdfast.store.postgres.connection import Params
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.limit_memory import LimitMemory
from holdfast.store.postgres.migrate import adopt_restored
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.rows import Row, job_of
from holdfast.store.postgres.settings import PostgresSettings
from holdfast.store.postgres.wake import Arrival, Wake, arrivals_of
from holdfast.store.values import Change

RULES_EVERY = 1.0
"""Seconds between two times at which a claim without jobs reads which limits there are."""
FOLD_EVERY = 1.0
"""Seconds between two times at which counters are summed up."""


class StoreState:
    """The pool of a store, its clock, its wake-ups, and what it remembers between calls."""

    def __init__(self, settings: PostgresSettings, clock: Clock | None, events_kept: int) -> None:
        self.settings = settings
        self.events_kept = events_kept
        self.clock = ServerClock(clock)
        self.pool = Pool(settings)
        listen_dsn = settings.listen_url or (None if settings.pgbouncer else settings.dsn)
        self.wake = Wake(self.pool, settings.schema, listen_dsn)
        self.positions = ClaimPositions()
        self.leases = LeasePosition()
        self.ageing = Throttle(self.clock.ticks)
        self.folding = Throttle(self.clock.ticks, FOLD_EVERY)
        self.numbers: dict[str, int] = {}
        """The row numbers of jobs that were claimed here, until they end."""
        self.limits = LimitMemory()
        self.rule_reading = Throttle(self.clock.ticks, RULES_EVERY)
        self.server: list[object] = []
        """The name of the database, and the identifier of its server."""
        self.restoring: asyncio.Task[None] | None = None
        self.restore_error = ""
        """Why restored jobs could not be adopted the last time, if so."""

    def now(self) -> datetime:
        return self.clock.now()

    def ticks(self) -> float:
        return asyncio.get_running_loop().time()

    async def run(self, name: str, params: Params) -> list[Row]:
        """Run one statement, after checking the clock when that is due."""
        await self.refresh()
        return await self.pool.run(name, params)

    async def refresh(self) -> None:
        """Check the clock when that is due."""
        if self.clock.is_stale:
            await self.check_clock()

    def jobs(self, rows: Sequence[Row]) -> list[Job]:
        """Read jobs from rows."""
        return self.seen([job_of(row) for row in rows])

    def seen(self, jobs: list[Job]) -> list[Job]:
        """Advance the clock to jobs that were read: no decision on them may be older than they."""
        if jobs:
            self.clock.advance_to(max(job.updated_at for job in jobs))
        return jobs

    def woken(self, changes: Sequence[Change], written: Collection[int]) -> list[Arrival]:
        """Return what written changes are for workers: jobs, or room under a limit for others."""
        done = [changes[n] for n in written]
        room = [(each.after.queue, "", False) for each in done if self._makes_room(each)]
        return room + arrivals_of([each.after for each in done])

    def _makes_room(self, change: Change) -> bool:
        before = change.before
        if not self.limits.rules or before.state is not State.RUNNING:
            return False
        return self.limits.ended(before)

    async def check_clock(self) -> None:
        """Compare clocks, and find out which server this is and whether it was restored."""
        requested = self.clock.ticks()
        ((at, *self.server, is_restored),) = await self.pool.run("clock", {})
        self.clock.observe(at, requested)
        if is_restored and (self.restoring is None or self.restoring.done()):
            self.restoring = asyncio.create_task(self._restore())

    async def _restore(self) -> None:
        """Adopt jobs of another server; this may take long, and is repeated if it fails."""
        try:
            with translated():
                async with await self.pool.connect() as connection:
                    await adopt_restored(connection, self.settings.schema)
            self.restore_error = ""
        except Exception as error:  # noqa: BLE001  # of a background task: reported, and repeated
            self._report_restore(error)

    def _report_restore(self, error: Exception) -> None:
        """Report each new reason once, through the loop, whose users observe it."""
        if str(error) != self.restore_error:
            self.restore_error = str(error)
            message = "restored jobs could not be adopted, trying again"
            context = {"message": message, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
