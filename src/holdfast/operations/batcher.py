"""Many callers, few round trips: items that wait together are written together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURNS = 16
"""Turns of the loop for which a group gathers at most."""
BREATH = 16
"""Writes of lone callers after which others get their turn: not every store waits for anything."""
MANY = 16
"""Callers, written for or waiting, from which on it pays to write for one part after the other."""
QUIET = 3
"""Turns without anyone new that end it: answers go out, what comes next is read, and asked for."""


class Batcher(Generic[T, R]):
    """Collects items and hands them over in groups, one group at a time.

    While a group is being written the next one gathers, and those who were answered together get
    a moment to ask again together. So groups grow with the load, and a lone caller never waits
    for company. With more than one of ``lanes``, and many callers, so many groups are under way:
    one is written while another is answered. A group that fails, fails for each of its callers.
    Whoever waits longer than ``patience`` seconds is told so, with what ``late`` makes, by one
    timer for all of them.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        most: int = 1000,
        lanes: int = 1,
        patience: float | None = None,
        late: Callable[[], Exception] = TimeoutError,
    ) -> None:
        self._write = write
        self._most = most
        self._lanes = lanes
        self._patience = patience
        self._late = late
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._due: deque[tuple[float, asyncio.Future[R]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._usual = 1
        self._written = 0
        """Items that are being written."""
        self._open = 0
        """Lanes that are in use."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_alone = False
        """Whether a caller who is alone is writing."""
        self._over: asyncio.Future[None] | None = None
        """Ends when he has written, should anybody want to know."""
        self._lone = 0

    def put(self, item: T) -> asyncio.Future[R]:
        """Queue an item; the future holds its answer, or that it is late when patience ends."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, answer))
        if self._patience is not None:
            self._due.append((loop.time() + self._patience, answer))
            if self._timer is None:
                self._timer = loop.call_later(self._patience, self._look, loop)
        if not self._is_alone and self._has_lane:
            self._open_lane()
        return answer

    async def write(self, item: T, alone: Callable[[T], Awaitable[R]]) -> R:
        """Write an item with those that wait; alone, when there were none the last time either.

        Whoever is alone writes for himself, with ``alone``: handing over and being answered would
        take two turns of the loop.
        """
        if self._is_alone or self._open or self._usual > 1:
            return await self.put(item)
        self._is_alone = True
        self._lone += 1
        try:
            if self._lone % BREATH == 0:
                await asyncio.sleep(0)
            return await alone(item)
        finally:
            self._is_alone = False
            if self._over is not None:
                self._over.set_result(None)
                self._over = None
            if self._waiting:
                self._open_lane()

    async def close(self) -> None:
        """Wait until everything is written."""
        while self._is_writing:
            if self._is_alone and self._over is None:
                self._over = asyncio.get_running_loop().create_future()
            await asyncio.wait([*self._tasks, *([self._over] if self._over else [])])

    @property
    def _is_writing(self) -> bool:
        return self._is_alone or self._open > 0

    @property
    def _has_lane(self) -> bool:
        return not self._open or (self._open < self._lanes and self._written >= MANY // 2)

    def _open_lane(self) -> None:
        self._open += 1
        task = asyncio.get_running_loop().create_task(self._drain())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                if group := self._next_group():
                    if self._waiting and self._has_lane:
                        self._open_lane()
                    await self._answer(group)
                    self._written -= len(group)
        finally:
            self._open -= 1

    def _next_group(self) -> Sequence[tuple[T, asyncio.Future[R]]]:
        """Take those whose turn it is: all, or their part when there are many and several lanes."""
        most, callers = self._most, self._written + len(self._waiting)
        if callers >= MANY:
            most = min(most, -(-callers // self._lanes))
        group, self._waiting = self._waiting[:most], self._waiting[most:]
        self._written += len(group)
        self._usual = len(group)
        return group

    async def _gather(self) -> None:
        """Wait until there are as many as last time, or until nobody comes."""
        quiet = 0
        for _ in range(TURNS):
            before = len(self._waiting)
            if before >= self._usual or quiet == QUIET:
                return
            await asyncio.sleep(0)
            quiet = 0 if len(self._waiting) > before else quiet + 1

    async def _answer(self, group: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            answers = await self._write([item for item, _ in group])
        except Exception as error:  # noqa: BLE001  # it belongs to the callers
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        while self._due and self._due[0][1].done():
            self._due.popleft()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waiting of those whose time is over; all have the same, so the oldest first."""
        now = max(loop.time(), self._timer.when()) if self._timer else loop.time()
        while self._due and self._due[0][0] <= now:
            answer = self._due.popleft()[1]
            if not answer.done():
                answer.set_exception(self._late())
        self._timer = loop.call_at(self._due[0][0], self._look, loop) if self._due else None
