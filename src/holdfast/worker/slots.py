"""The jobs a worker has in hand, and how many more of which type it has room for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from holdfast.tasks.registry import Registry
from holdfast.worker.run import Run

SMALL = 16
"""A claim this small is not worth splitting."""


class Slots:
    """Slots, by job; and per type, where a task limits itself.

    Many slots are filled by halves: while one half of them works, the store looks for the other.
    A store that writes answers and the next claim in one go is better asked for all at once.
    """

    def __init__(self, registry: Registry, slots: int) -> None:
        self._slots = slots
        self._at_once = max(SMALL, slots // 2)
        self._most = {h.type: h.options.concurrency for h in registry}
        self._unlimited = tuple(type_ for type_, most in self._most.items() if most is None)
        self._limited = {type_: most for type_, most in self._most.items() if most is not None}
        self._per_type: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self.running: dict[str, Run] = {}

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

    def fill_at_once(self) -> None:
        """Fill all slots by one claim."""
        self._at_once = self._slots

    async def changed(self) -> None:
        """Wait until a slot was freed since the last time."""
        await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """End a wait for a free slot."""
        self._changed.set()

    @property
    def is_full(self) -> bool:
        """Whether some work could not be taken for want of room."""
        full = any(self._per_type[type_] >= most for type_, most in self._limited.items())
        return full or len(self.running) >= self._slots

    def room(self, unwritten: int) -> int:
        """Free slots to fill next; fewer while answers pile up because the store is slow."""
        free = self._slots - len(self.running)
        return max(0, min(free, free + self._slots - unwritten, self._at_once))

    def claims(self, unwritten: int) -> Iterator[tuple[tuple[str, ...], int]]:
        """Groups of types to claim and how many: those with a limit of their own go alone."""
        if self._unlimited and (room := self.room(unwritten)):
            yield self._unlimited, room
        for type_, most in self._limited.items():
            room = min(self.room(unwritten), most - self._per_type[type_])
            if room > 0:
                yield (type_,), room
