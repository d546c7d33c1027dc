"""Many callers, few round trips: items that wait together are written together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from holdfast.errors import StoreUnavailableError
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.timeouts import NEVER, SharedTimer, Timeouts

T = TypeVar("T")
R = TypeVar("R")

LONGEST_GATHER = 16
"""Turns of the event loop for which a group gathers at most."""
QUIET_TURNS = 3
"""Turns without a new item that end the gathering: answered callers need them to come back."""
DIRECT_WRITES = 16
"""Direct writes after which a lone caller yields the loop: some stores never wait for I/O."""
LONGEST_PAUSE = 2.0
"""The longest pause, in seconds, between two calls of a store that is unavailable."""
MANY = 16
"""Callers, being written or waiting, from which several groups at once are worth it."""


class Batcher(Generic[T, R]):
    """Collects items and writes them in groups, one group at a time.

    While a group is written the next one gathers, and callers that were answered together get
    a few turns of the loop to come back together. So groups grow with the load, and a lone
    caller never waits for others. With ``parallel`` above 1, and many callers, so many groups
    are written at once. A group that fails, fails for each of its callers. An item that waits
    longer than ``timeout`` seconds fails with ``timeout_error()``; one timer serves all items.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        most: int = 1000,
        parallel: int = 1,
        timeout: float | None = None,
        timeout_error: Callable[[], Exception] = TimeoutError,
    ) -> None:
        self._write = write
        self._most = most
        self._parallel = parallel
        self._timeout = timeout
        self._timeout_error = timeout_error
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._deadlines: deque[tuple[float, asyncio.Future[R]]] = deque()
        self._timer = SharedTimer(self._expire)
        self._last_size = 1
        """The size of the newest group."""
        self._being_written = 0
        """Items of the groups that are being written."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._active = 0
        """Tasks that write groups."""
        self._is_direct = False
        """Whether a lone caller is writing its own item."""
        self._direct_done: asyncio.Future[None] | None = None
        """Resolved when it has written, if ``close`` waits for that."""
        self._direct_writes = 0

    def put(self, item: T) -> asyncio.Future[R]:
        """Queue an item; the future holds its answer, or the timeout error."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, answer))
        if self._timeout is not None:
            deadline = loop.time() + self._timeout
            self._deadlines.append((deadline, answer))
            if deadline < self._timer.at:
                self._timer.set(deadline)
        if not self._is_direct and self._may_start:
            self._start()
        return answer

    async def write(self, item: T, direct: Callable[[T], Awaitable[R]]) -> R:
        """Write an item together with those that wait, or with ``direct`` when none do.

        A lone caller writes directly when the newest group had one item, too: the way through
        a group would take two turns of the loop.
        """
        if self._is_direct or self._active or self._last_size > 1:
            return await self.put(item)
        self._is_direct = True
        self._direct_writes += 1
        try:
            if self._direct_writes % DIRECT_WRITES == 0:
                await asyncio.sleep(0)
            return await direct(item)
        finally:
            self._is_direct = False
            if self._direct_done is not None:
                self._direct_done.set_result(None)
                self._direct_done = None
            if self._waiting:
                self._start()

    async def close(self) -> None:
        """Wait until everything is written."""
        while self._is_direct or self._active > 0:
            if self._is_direct and self._direct_done is None:
                self._direct_done = asyncio.get_running_loop().create_future()
            direct = [self._direct_done] if self._direct_done else []
            await asyncio.wait([*self._tasks, *direct])

    @property
    def _may_start(self) -> bool:
        """Whether another group may be written now."""
        return not self._active or (
            self._active < self._parallel and self._being_written >= MANY // 2
        )

    def _start(self) -> None:
        self._active += 1
        task = asyncio.get_running_loop().create_task(self._write_groups())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_groups(self) -> None:
        try:
            while self._waiting:
                await self._gather()
                if group := self._next_group():
                    if self._waiting and self._may_start:
                        self._start()
                    await self._write_group(group)
                    self._being_written -= len(group)
        finally:
            self._active -= 1

    def _next_group(self) -> Sequence[tuple[T, asyncio.Future[R]]]:
        """Take all that wait; of many callers only one part per group that may be written."""
        most, callers = self._most, self._being_written + len(self._waiting)
        if callers >= MANY:
            most = min(most, -(-callers // self._parallel))
        group, self._waiting = self._waiting[:most], self._waiting[most:]
        self._being_written += len(group)
        self._last_size = len(group)
        return group

    async def _gather(self) -> None:
        """Wait until there are as many items as in the newest group, or no new ones come."""
        quiet = 0
        for _ in range(LONGEST_GATHER):
            before = len(self._waiting)
            if before >= self._last_size or quiet == QUIET_TURNS:
                return
            await asyncio.sleep(0)
            quiet = 0 if len(self._waiting) > before else quiet + 1

    async def _write_group(self, group: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
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
        while self._deadlines and self._deadlines[0][1].done():
            self._deadlines.popleft()

    def _expire(self, now: float) -> float:
        """Fail the items whose deadline has passed; all wait equally long, so oldest first."""
        while self._deadlines and self._deadlines[0][0] <= now:
            answer = self._deadlines.popleft()[1]
            if not answer.done():
                answer.set_exception(self._timeout_error())
        return self._deadlines[0][0] if self._deadlines else NEVER


def no_answer(seconds: float) -> StoreUnavailableError:
    """Return the error of a call that a store did not answer in time."""
    return StoreUnavailableError(f"the store did not answer within {seconds:g} s")


async def with_retries(
    call: Callable[[], Coroutine[Any, Any, T]],
    randomness: Randomness,
    timeout: timedelta,
    timeouts: Timeouts | None = None,
    longest: float = LONGEST_PAUSE,
) -> T:
    """Await a call; repeat it with growing, jittered pauses while the store is unavailable.

    Raises ``StoreUnavailableError`` when there is no result within ``timeout``: the newest one
    of the store, if it raised any, else that it did not answer.
    """
    loop = asyncio.get_running_loop()
    seconds = timeout.total_seconds()
    deadline = loop.time() + seconds
    timeouts = timeouts or Timeouts()
    delay: GrowingDelay | None = None
    newest: StoreUnavailableError | None = None
    while True:
        try:
            return await timeouts.wait_for(call(), deadline - loop.time())
        except TimeoutError:
            raise newest or no_answer(seconds) from None
        except StoreUnavailableError as error:
            newest = error
            delay = delay or GrowingDelay(randomness, longest=longest)
            pause = delay.next()
            if loop.time() + pause > deadline:
                raise
            await asyncio.sleep(pause)
            if loop.time() >= deadline:  # the pause took longer than that
                raise
