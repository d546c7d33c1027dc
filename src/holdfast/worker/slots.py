"""The jobs a worker runs, and how many more of which type it has free slots for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast.tasks.registry import Registry
from holdfast.worker.outcomes import Failed, Outcome
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.run import Run

SMALL = 16
"""A claim this small is not worth splitting."""


class Slots:
    """The slots of a worker: one per running job, fewer for a task that limits itself.

    Many slots are filled by halves: while one half works, the store looks for the other. A
    store that commits outcomes and the next claim together fills them all with one claim.
    """

    def __init__(self, registry: Registry, count: int) -> None:
        self.count = count
        self.running: dict[str, Run] = {}
        self.draining = False
        """Whether no job may be claimed although slots are free."""
        self._at_once = max(SMALL, count // 2)
        limits = {handler.type: handler.options.concurrency for handler in registry}
        self._catch_alls = registry.catch_alls
        self._unlimited = tuple(type_ for type_, most in limits.items() if most is None)
        self._limited = {type_: most for type_, most in limits.items() if most is not None}
        self._per_type: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._quarantine = Quarantine(self.wake, by_type=not self._catch_alls)

    def take(self, run: Run) -> None:
        """Put a job into a slot."""
        self.running[run.job.id] = run
        if run.job.type in self._limited:
            self._per_type[run.job.type] += 1

    def drop(self, run: Run) -> None:
        """Free a job's slot."""
        if self.running.get(run.job.id) is run:
            del self.running[run.job.id]
        if run.job.type in self._limited:
            self._per_type[run.job.type] -= 1
        self._changed.set()

    def ended(self, run: Run, outcome: Outcome) -> None:
        """Free a job's slot: at once or, for a job that is to wait, when it is in its queue again.

        Otherwise the next claim might come before, and miss a job or a closed queue.
        """
        waits = isinstance(outcome, Failed) and not outcome.failure.uses_attempt
        if not waits or run.completed is not None:
            self.drop(run)
            return
        before = run.on_written

        def written() -> None:
            self.drop(run)
            if before is not None:
                before()

        run.on_written = written

    def refused(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Return claimed jobs that must go back because they must not run beside the others."""
        failed_before = [run for run in runs if run.job.failure is not None]
        if failed_before or self._quarantine.is_careful:
            return self._quarantine.refused(runs)
        return ()

    def fill_at_once(self) -> None:
        """Fill all slots by one claim."""
        self._at_once = self.count

    async def changed(self) -> None:
        """Wait until a slot was freed since the last time."""
        await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """End a wait for a free slot."""
        self._changed.set()

    @property
    def is_full(self) -> bool:
        """Whether some jobs cannot be claimed because no slot is free for them."""
        full = any(self._per_type[type_] >= most for type_, most in self._limited.items())
        return full or self._quarantine.is_closed or len(self.running) >= self.count

    def free(self, unwritten: int) -> int:
        """Slots to fill next: fewer while outcomes pile up, and beside a quarantined job."""
        if self._quarantine.is_closed and self._calm_types:
            return self._room(unwritten)
        return self._careful_room(unwritten)

    def hold(self, *, draining: bool) -> None:
        """Claim no jobs while the worker is drained."""
        if self.draining != draining:
            self.draining = draining
            self.wake()

    def _room(self, unwritten: int) -> int:
        if self.draining:
            return 0
        free = self.count - len(self.running)
        return max(0, min(free, free + self.count - unwritten, self._at_once))

    def _careful_room(self, unwritten: int) -> int:
        """The slots for types that may have suspects: none while one of them is watched."""
        if self._quarantine.is_closed:
            return 0
        most = self._quarantine.group if self._quarantine.is_careful else self.count
        return min(self._room(unwritten), most)

    @property
    def _calm_types(self) -> bool:
        """Whether some types have no suspects; of a catch-all they are not known."""
        suspected, limited = self._quarantine.types, self._limited
        return not self._catch_alls and not suspected.issuperset((*self._unlimited, *limited))

    def claims(
        self, unwritten: int, queues: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...] | None, int]]:
        """Queues and types to claim and how many: a type with a limit of its own goes alone.

        A queue with a catch-all is claimed with all types, whatever their limits.
        """
        if self._catch_alls:
            open_to_all = tuple(queue for queue in queues if queue in self._catch_alls)
            queues = tuple(queue for queue in queues if queue not in self._catch_alls)
            if open_to_all and (free := self._careful_room(unwritten)):
                yield open_to_all, None, free
            if not queues:
                return
        for types, most in self._groups():
            is_calm = self._quarantine.types.isdisjoint(types) and not self._catch_alls
            room = self._room(unwritten) if is_calm else self._careful_room(unwritten)
            free = room if most is None else min(room, most - self._per_type[types[0]])
            if types and free > 0:
                yield queues, types, free

    def _groups(self) -> Iterator[tuple[tuple[str, ...], int | None]]:
        """Types that are claimed together, and the limit of one that is claimed alone."""
        suspected = self._quarantine.types
        if not suspected:
            yield self._unlimited, None
        else:
            # One suspect first: under load the others would leave no slot for it.
            yield tuple(type_ for type_ in self._unlimited if type_ in suspected), None
            yield tuple(type_ for type_ in self._unlimited if type_ not in suspected), None
        for type_, most in self._limited.items():
            yield (type_,), most
