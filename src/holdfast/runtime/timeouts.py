"""Timeouts for many waiting tasks at once: one timer for all of them instead of one each."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

NEVER = float("inf")


class Timeouts:
    """Ends what takes too long; nearly free for what does not."""

    def __init__(self) -> None:
        self.open: set[_Deadline] = set()
        self.looks_at = NEVER
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> _Deadline:
        """Return a context whose body gets so many seconds; TimeoutError when it takes longer."""
        return _Deadline(self, seconds)

    async def soon(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Await something that is most often there already: then no deadline is needed."""
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the coroutine returns
        with self.within(seconds):
            return await _resumed(work, waits_for)

    def look_at(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer; it may find nothing to do then, which is cheaper than moving it."""
        if self._timer is not None:
            self._timer.cancel()
        self.looks_at = at
        self._timer = loop.call_at(at, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = max(loop.time(), self.looks_at)
        for deadline in [one for one in self.open if one.at <= now]:
            self.open.discard(deadline)
            deadline.pass_()
        self._timer, self.looks_at = None, NEVER
        if self.open:
            self.look_at(min(one.at for one in self.open), loop)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T], waits_for: object) -> Generator[object, object, T]:
    """Go on with a coroutine that has begun to wait."""
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


class _Deadline:
    """One of them, around the code of one task."""

    __slots__ = ("_cancelling", "_deadlines", "_passed", "_seconds", "_task", "at")

    def __init__(self, deadlines: Timeouts, seconds: float) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._passed = False
        self.at = NEVER

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "only a task can be told that its time is over"
        self._task = task
        self._cancelling = task.cancelling()
        self.at = loop.time() + self._seconds
        self._deadlines.open.add(self)
        if self.at < self._deadlines.looks_at:
            self._deadlines.look_at(self.at, loop)
        return self

    def pass_(self) -> None:
        """Interrupt the task."""
        self._passed = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._deadlines.open.discard(self)
        if not self._passed:
            return
        only_ours = self._task.uncancel() <= self._cancelling
        if only_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error
