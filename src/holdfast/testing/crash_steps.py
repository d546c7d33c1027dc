"""The steps of an attempt: the points between which a crash can fall."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from holdfast.model.job import Job, LogLine, Progress
from holdfast.model.submission import SubmitOptions
from holdfast.store import Added, Store
from holdfast.tasks.context import Channel
from holdfast.worker.executor import Outcome

Answer = concurrent.futures.Future[Outcome | None]


class Steps:
    """Counts the steps of one attempt, and kills it at one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.names: list[str] = []
        self.answer: Answer = concurrent.futures.Future()
        """How the attempt went; None once it was killed."""
        self._kill_at = kill_at
        self._counts: Counter[str] = Counter()

    def take(self, name: str) -> None:
        """Come to a step; the attempt does not come back from the one where it is killed."""
        number = len(self.names)
        self.names.append(name)
        if number == self._kill_at:
            self._die()

    def around(self, name: str) -> tuple[str, str]:
        """The names of the steps before and after something that may happen several times."""
        self._counts[name] += 1
        numbered = name if self._counts[name] == 1 else f"{name} #{self._counts[name]}"
        return f"before {numbered}", f"after {numbered}"

    def _die(self) -> NoReturn:
        """End as a killed process does: no except, no finally, no further step.

        The thread, its event loop and everything on its stack stand still for ever; raising
        would run the handler's clean-up, and a collected coroutine would run it later.
        """
        self.answer.set_result(None)
        while True:
            threading.Event().wait()


CURRENT: ContextVar[Steps | None] = ContextVar("holdfast_steps", default=None)
"""The steps of the attempt this code is part of, while a crash is being rehearsed."""


def effect(name: str) -> None:
    """Mark a point in a handler as one where a crash is to be tried; does nothing otherwise.

    Put it right after a side effect, so that ``crash_points`` kills the attempt there.
    """
    steps = CURRENT.get()
    if steps is not None:
        steps.take(steps.around(f"effect {name!r}")[1])


class SteppingChannel:
    """A context's channel where every write is a step."""

    def __init__(self, channel: Channel, steps: Steps) -> None:
        self._channel = channel
        self._steps = steps

    def now(self) -> datetime:
        return self._channel.now()

    async def progress(self, progress: Progress) -> None:
        before, after = self._steps.around("report_progress")
        self._steps.take(before)
        await self._channel.progress(progress)
        self._steps.take(after)

    async def checkpoint(self, data: bytes) -> bool:
        before, after = self._steps.around("checkpoint")
        self._steps.take(before)
        kept = await self._channel.checkpoint(data)
        self._steps.take(after)
        return kept

    async def log(self, line: LogLine) -> None:
        before, after = self._steps.around("log")
        self._steps.take(before)
        await self._channel.log(line)
        self._steps.take(after)

    async def spawn(
        self, type_: str, payload: object, key: str | None, options: SubmitOptions
    ) -> str:
        before, after = self._steps.around(f"spawn of {type_}")
        self._steps.take(before)
        job_id = await self._channel.spawn(type_, payload, key, options)
        self._steps.take(after)
        return job_id

    async def results(self) -> dict[str, bytes | None]:
        return await self._channel.results()

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        return self._channel.transaction(result, blocking=blocking)


class SteppingStore:
    """A store where every submission is a step."""

    def __init__(self, store: Store, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def add(self, jobs: Sequence[Job], **how: Any) -> list[Added]:
        before, after = self._steps.around(f"submission of {jobs[0].type}")
        self._steps.take(before)
        added = await self._store.add(jobs, **how)
        self._steps.take(after)
        return added
