"""What every part of the store builds on: the database, its time, its settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.errors import HoldfastError
from holdfast.model.job import Job, State
from holdfast.runtime.clock import Clock
from holdfast.store.contract import EVENTS_KEPT
from holdfast.store.postgres.claim_position import ClaimPositions, LeasePosition, Throttle
from holdfast.store.postgres.clock import ServerClock
from holdfast.store.postgres.connection import Params, PostgresSession
from holdfast.store.postgres.errors import translated
from holdfast.store.postgres.handler_pool import HandlerPool
from holdfast.store.postgres.migrate import take_in
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.rows import Row, job_of
from holdfast.store.postgres.settings import PostgresSettings
from holdfast.store.postgres.wake import Wake
from holdfast.store.values import Change

FOLD_EVERY = 1.0
"""Seconds between two times at which counters are summed up."""

WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})
"""States in which a job is work for somebody, now or at some time."""

_FOR_SEARCHES = b"""
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL plan_cache_mode = force_custom_plan
"""


class Base:
    """The state of one opened store."""

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        clock: Clock | None = None,
        events_kept: int = EVENTS_KEPT,
    ) -> None:
        self.settings = settings
        self._clock = ServerClock(clock)
        self._events_kept = events_kept
        self._database = Pool(settings)
        self._guests = HandlerPool(self._database, settings)
        direct = settings.listen_url or (None if settings.pgbouncer else settings.dsn)
        self._wake = Wake(self._database, settings.schema, direct)
        self._heads = ClaimPositions()
        self._leases = LeasePosition()
        self._ageing = Throttle(self._clock.ticks)
        self._folding = Throttle(self._clock.ticks, FOLD_EVERY)
        self._numbers: dict[str, int] = {}
        """The numbers of jobs that were claimed here, until they end."""
        self._rules: set[str] = set()
        """The limits last seen: claims that one applies to go the long way."""
        self._place: list[object] = []
        """The name of the database, and the number of the server it is on."""
        self._restoring: asyncio.Task[None] | None = None

    def now(self) -> datetime:
        return self._clock.now()

    def _ticks(self) -> float:
        return asyncio.get_running_loop().time()

    async def _run(self, name: str, params: Params) -> list[Row]:
        if self._clock.is_stale:
            await self._look_at_clock()
        return await self._database.run(name, params)

    async def _search(self, name: str, params: Params) -> list[Row]:
        """Run a search: planned for what is asked, with every means the planner has."""

        async def search(session: PostgresSession) -> list[Row]:
            await session.connection.execute(_FOR_SEARCHES)
            return await session.run(name, params, prepare=False)

        return await self._database.atomically(search)

    def _jobs(self, rows: Sequence[Row]) -> list[Job]:
        """Read jobs; what is decided on them next must not be older than they are."""
        return self._seen([job_of(row) for row in rows])

    def _seen(self, jobs: list[Job]) -> list[Job]:
        if jobs:
            self._clock.saw(max(job.updated_at for job in jobs))
        return jobs

    def _woken(self, changes: Sequence[Change], written: Collection[int]) -> set[str]:
        done = [changes[n] for n in written]
        return {
            change.after.queue
            for change in done
            if change.after.state in WAKING
            or (self._rules and change.before.state is State.RUNNING)
        }

    async def _look_at_clock(self) -> None:
        asked = self._clock.ticks()
        ((at, *self._place, is_restored),) = await self._database.run("clock", {})
        self._clock.heard(at, asked)
        if is_restored and (self._restoring is None or self._restoring.done()):
            self._restoring = asyncio.create_task(self._take_in())

    async def _take_in(self) -> None:
        """Take in jobs of another server; that may last, and is tried again when it fails."""
        with contextlib.suppress(HoldfastError), translated():
            async with await self._database.connect() as connection:
                await take_in(connection, self.settings.schema)
