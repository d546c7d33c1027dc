"""The jobs a worker runs, and how many more of which type it has free slots for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from holdfast.tasks.registry import Handler, Registry, RunnerKind
from holdfast.worker.outcomes import Failed, Outcome
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.run import Run

SMALL = 16
"""A claim this small is not worth splitting."""

LEAST, MOST = 20, 500
"""How many slots a worker has at first, and at most, if the number is not given."""
FAST, SLOW = 0.05, 0.1
"""Seconds in which the event loop should start the jobs of a claim: it gets more slots if that
takes less, and fewer if it takes longer."""
LOOK_AGAIN = 0.5
"""Seconds after which a worker whose slots are full looks again whether its loop keeps up."""
PAYLOADS = 64 * 1024 * 1024
"""Bytes of payload after which such a worker claims no more jobs."""


class SlotCount:
    """How many jobs a worker runs at once, if the number is not given.

    Coroutines that wait need many slots, those that compute need few: the number grows while
    claims fill it and the event loop keeps up. Threads and processes have a fixed share.
    """

    def __init__(self, on_grown: Callable[[], None]) -> None:
        self.count = LEAST
        self._on_grown = on_grown
        self.heavy = 0
        """How many jobs run in threads and processes."""
        self._bytes = 0
        self._jobs = 0
        self._taken = 0
        self._wanted = LEAST
        self._again: asyncio.TimerHandle | None = None

    def take(self, run: Run, wanted: int) -> None:
        """Count a job that starts; after the first of a claim, watch the loop start all of them."""
        self.heavy += run.handler.runner is not RunnerKind.ASYNC
        self._bytes += len(run.job.payload)
        self._jobs += 1
        self._taken += 1
        if self._taken == 1:
            self._wanted = wanted
            self._look()

    def drop(self, run: Run) -> None:
        """Count a job that ended."""
        self.heavy -= run.handler.runner is not RunnerKind.ASYNC
        self._bytes -= len(run.job.payload)
        self._jobs -= 1

    def room(self, free: int) -> int:
        """How many jobs of the size of those that run fit into memory, of so many."""
        if self._bytes <= PAYLOADS // MOST:
            return free
        left = (PAYLOADS - self._bytes) * self._jobs // self._bytes
        return min(free, left)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._started, loop.time())

    def _started(self, begun: float) -> None:
        """Called when the loop has begun every job of a claim."""
        loop = asyncio.get_running_loop()
        took = loop.time() - begun
        taken, self._taken = self._taken, 0
        is_full = self._jobs >= self.count
        if took > SLOW:
            self.count = max(LEAST, self.count // 2)
        elif took < FAST and self.count < MOST and (taken >= self._wanted or is_full):
            self.count = min(MOST, self.count * 2)
            self._on_grown()
            is_full = False
        if is_full and self.count < MOST and self._again is None:
            self._again = loop.call_later(LOOK_AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        if not self._taken and self._jobs >= self.count:
            self._look()


class Slots:
    """The slots of a worker: one per running job, fewer for a task that limits itself.

    Many slots are filled by halves: while one half works, the store looks for the other. A
    store that commits outcomes and the next claim together fills them all with one claim.
    """

    def __init__(self, registry: Registry, count: int | None) -> None:
        self._count = count or LEAST
        self._capacity = SlotCount(self.wake) if count is None else None
        self._fills_at_once = False
        self.running: dict[str, Run] = {}
        self.draining = False
        """Whether no job may be claimed although slots are free."""
        limits = {handler.type: handler.options.concurrency for handler in registry}
        self._catch_alls = registry.catch_alls
        self._unlimited = tuple(type_ for type_, most in limits.items() if most is None)
        self._limited = {type_: most for type_, most in limits.items() if most is not None}
        light = {handler.type for handler in registry if not _is_heavy(handler)}
        self._light = tuple(type_ for type_ in self._unlimited if type_ in light)
        self._has_heavy = len(self._light) < len(self._unlimited) or any(
            map(_is_heavy, registry.catch_alls.values())
        )
        self._per_type: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._quarantine = Quarantine(self.wake, by_type=not self._catch_alls)

    def take(self, run: Run) -> None:
        """Put a job into a slot."""
        if self._capacity is not None:
            self._capacity.take(run, self._at_once)
        self.running[run.job.id] = run
        if run.job.type in self._limited:
            self._per_type[run.job.type] += 1

    def drop(self, run: Run) -> None:
        """Free a job's slot."""
        if self.running.get(run.job.id) is run:
            del self.running[run.job.id]
            if self._capacity is not None:
                self._capacity.drop(run)
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
        self._fills_at_once = True

    async def changed(self) -> None:
        """Wait until a slot was freed since the last time."""
        await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """End a wait for a free slot."""
        self._changed.set()

    @property
    def count(self) -> int:
        """How many jobs may run at once."""
        return self._count if self._capacity is None else self._capacity.count

    @property
    def _at_once(self) -> int:
        """The most jobs of one claim."""
        return self.count if self._fills_at_once else max(SMALL, self.count // 2)

    @property
    def _heavy_room(self) -> int:
        """How many more jobs may run in threads and processes."""
        if self._capacity is None or not self._has_heavy:
            return self.count
        return max(0, LEAST - self._capacity.heavy)

    @property
    def is_full(self) -> bool:
        """Whether some jobs cannot be claimed because no slot is free for them."""
        if not self._heavy_room:
            return True
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
        if self._capacity is not None:
            free = self._capacity.room(free)
        if self._heavy_room or not self._light:  # the next job may be one of these
            free = min(free, self._heavy_room)
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
            if open_to_all and self._heavy_room and (free := self._careful_room(unwritten)):
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
        unlimited = self._unlimited if self._heavy_room else self._light
        if not suspected:
            yield unlimited, None
        else:
            # One suspect first: under load the others would leave no slot for it.
            yield tuple(type_ for type_ in unlimited if type_ in suspected), None
            yield tuple(type_ for type_ in unlimited if type_ not in suspected), None
        for type_, most in self._limited.items():
            yield (type_,), most


def _is_heavy(handler: Handler) -> bool:
    return handler.runner is not RunnerKind.ASYNC
