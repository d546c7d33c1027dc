"""Writes the children of running jobs: those that wait together, in one call for each lease."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from holdfast.errors import HoldfastError
from holdfast.model.job import Job
from holdfast.operations.batcher import Batcher, no_answer
from holdfast.store import Added, Fence, Store

T = TypeVar("T")


class Persist(Protocol):
    """Repeats a call while the store is unavailable."""

    def __call__(self, call: Callable[[], Coroutine[Any, Any, T]], /) -> Coroutine[Any, Any, T]: ...


class Spawns:
    """Adds spawned jobs; a stale lease fails the children of that lease only."""

    def __init__(self, store: Store, persist: Persist, timeout: timedelta) -> None:
        self._store = store
        self._persist = persist
        seconds = timeout.total_seconds()
        self._batcher: Batcher[tuple[Job, Fence], Added | HoldfastError] = Batcher(
            self._write, timeout=seconds, timeout_error=partial(no_answer, seconds)
        )

    async def add(self, job: Job, fence: Fence) -> Added:
        """Add one child. Raises ``StaleLeaseError`` when the lease is not held any more.

        A child with a key may wait for another transaction, and a child with dependencies for
        their locks: each is written by itself.
        """
        if job.dedupe is not None or job.depends_on:
            return (await self._persist(lambda: self._store.add([job], fence=fence)))[0]
        answer = await self._batcher.write((job, fence), self._write_one)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def close(self) -> None:
        """Wait until every child is written."""
        await self._batcher.close()

    async def _write_one(self, child: tuple[Job, Fence]) -> Added | HoldfastError:
        return (await self._write([child]))[0]

    async def _write(self, children: Sequence[tuple[Job, Fence]]) -> list[Added | HoldfastError]:
        leases: defaultdict[Fence, list[Job]] = defaultdict(list)
        for job, fence in children:
            leases[fence].append(job)
        calls = (self._write_under(fence, jobs) for fence, jobs in leases.items())
        answers = dict(zip(leases, map(iter, await asyncio.gather(*calls)), strict=True))
        return [next(answers[fence]) for _, fence in children]

    async def _write_under(
        self, fence: Fence, jobs: Sequence[Job]
    ) -> Sequence[Added | HoldfastError]:
        try:
            return await self._persist(lambda: self._store.add(jobs, atomic=False, fence=fence))
        except HoldfastError as error:
            return [error] * len(jobs)
