"""Limits on how many jobs wait in a queue and how fast they are submitted.

The depth is read from the store at most once a second and counted in this process in
between, so it costs nearly nothing and may be off by what other processes submit within that
second. The rate counts only the submissions of this app.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from holdfast.errors import QuotaError
from holdfast.model.job import LIVE, Job, State
from holdfast.model.policy import SECOND, Limits
from holdfast.runtime.clock import Clock
from holdfast.store import Store

READ_INTERVAL = 1.0
"""Seconds between two reads of the depths."""

WAITING = LIVE - {State.RUNNING}


class Quota:
    """Admits new jobs, or raises QuotaError."""

    def __init__(self, store: Store, limits: Limits, clock: Clock) -> None:
        self._store = store
        self._depth = limits.queue_depth
        self._rate = limits.submission_rate
        self._clock = clock
        self.is_limited = self._depth is not None or self._rate is not None
        """Whether there is any limit to check."""
        self._waiting: Counter[str] = Counter()
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        self._allowance = float(self._rate or 0)
        self._filled_at = clock.monotonic()

    async def admit(self, jobs: Sequence[Job]) -> None:
        """Admit jobs, all or none, and count them."""
        if not jobs:
            return
        if self._depth is not None:
            await self._check_depth(jobs, self._depth)
        if self._rate is not None:
            self._check_rate(len(jobs), self._rate)
        self._waiting.update(job.queue for job in jobs)

    def give_back(self, jobs: Sequence[Job]) -> None:
        """Take back the count of jobs that were not written."""
        self._waiting.subtract(job.queue for job in jobs)
        if self._rate is not None:
            self._allowance = min(self._rate, self._allowance + len(jobs))

    async def _check_depth(self, jobs: Sequence[Job], most: int) -> None:
        async with self._reading:
            if self._clock.monotonic() - self._read_at >= READ_INTERVAL:
                await self._read()
        for queue, count in Counter(job.queue for job in jobs).items():
            if self._waiting[queue] + count > most:
                raise QuotaError(
                    f"queue {queue} depth",
                    current=self._waiting[queue],
                    maximum=most,
                    retry_after=SECOND,
                )

    async def _read(self) -> None:
        queues = await self._store.queues()
        self._read_at = self._clock.monotonic()
        self._waiting = Counter(
            {queue.name: sum(queue.counts.get(state, 0) for state in WAITING) for queue in queues}
        )

    def _check_rate(self, count: int, rate: int) -> None:
        """A token bucket of one second's rate; a larger batch takes it below zero."""
        now = self._clock.monotonic()
        self._allowance = min(rate, self._allowance + (now - self._filled_at) * rate)
        self._filled_at = now
        missing = min(count, rate) - self._allowance
        if missing > 0:
            raise QuotaError(
                "submission rate",
                current=round(rate - self._allowance),
                maximum=rate,
                retry_after=timedelta(seconds=missing / rate),
            )
        self._allowance -= count
