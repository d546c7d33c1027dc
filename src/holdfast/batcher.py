"""Many callers, few round trips: items that wait together are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURNS = 16
"""Turns of the loop for which a group gathers at most."""
BREATH = 16
"""Writes of lone callers after which others get their turn: not every store waits for anything."""
QUIET = 3
"""Turns without anyone new that end it: answers go out, what comes next is read, and asked for."""


class Batcher(Generic[T, R]):
    """Collects items and hands them over in groups, one group at a time.

    While a group is being written the next one gathers, and those who were answered together get
    a moment to ask again together. So groups grow with the load, and a lone caller never waits
    for company. A group that fails, fails for each of its callers.
    """

    def __init__(
        self, write: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, most: int = 1000
    ) -> None:
        self._write = write
        self._most = most
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._usual = 1
        self._task: asyncio.Task[None] | None = None
        self._lone: asyncio.Future[None] | None = None
        """Ends when a caller who is alone has written."""
        self._alone = 0

    def put(self, item: T) -> asyncio.Future[R]:
        """Queue an item; the future holds its answer."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if not self._is_writing:
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return answer

    async def write(self, item: T) -> R:
        """Write an item with those that wait; alone, when there were none the last time either.

        Whoever is alone writes for himself: handing over and being answered would take two turns
        of the loop.
        """
        if self._is_writing or self._usual > 1:
            return await self.put(item)
        self._lone = asyncio.get_running_loop().create_future()
        self._alone += 1
        try:
            if self._alone % BREATH == 0:
                await asyncio.sleep(0)
            (answer,) = await self._write([item])
        finally:
            self._lone.set_result(None)
            if self._waiting:
                self._task = asyncio.get_running_loop().create_task(self._drain())
        return answer

    async def close(self) -> None:
        """Wait until everything is written."""
        while self._is_writing:
            await asyncio.wait([f for f in (self._lone, self._task) if f is not None])

    @property
    def _is_writing(self) -> bool:
        return (self._task is not None and not self._task.done()) or (
            self._lone is not None and not self._lone.done()
        )

    async def _drain(self) -> None:
        while self._waiting:
            await self._gather()
            group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            self._usual = len(group)
            await self._answer(group)

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
