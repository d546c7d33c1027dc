"""The steps of an attempt: the points at which a crash can happen."""

from __future__ import annotations

import concurrent.futures
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from holdfast.model.children import ChildJob
from holdfast.model.job import Job, LogLine, Progress
from holdfast.model.submission import Submission
from holdfast.store import Added, Store
from holdfast.tasks.context import Channel
from holdfast.worker.outcomes import Outcome


class Steps:
    """Records the steps of one attempt, and kills it at one of them."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.names: list[str] = []
        self.outcome: concurrent.futures.Future[Outcome | None] = concurrent.futures.Future()
        """The outcome of the attempt; None when it was killed."""
        self._kill_at = kill_at
        self._counts: Counter[str] = Counter()

    def reach(self, name: str) -> None:
        """Record a step; never return from the one at which the attempt is killed."""
        number = len(self.names)
        self.names.append(name)
        if number == self._kill_at:
            self._stop_forever()

    def before_and_after(self, name: str) -> tuple[str, str]:
        """Return the names of the steps around an action, numbered when it is repeated."""
        self._counts[name] += 1
        numbered = name if self._counts[name] == 1 else f"{name} #{self._counts[name]}"
        return f"before {numbered}", f"after {numbered}"

    def _stop_forever(self) -> NoReturn:
        """Stop as a killed process does: no except, no finally, no further step.

        The thread, its event loop and its stack block forever. An exception would run the
        handler's clean-up at once, and a garbage-collected coroutine would run it later.
        """
        self.outcome.set_result(None)
        while True:
            threading.Event().wait()


CURRENT_STEPS: ContextVar[Steps | None] = ContextVar("holdfast_steps", default=None)
"""The steps of the current attempt, inside ``crash_points``."""


def effect(name: str) -> None:
    """Mark a point in a handler at which ``crash_points`` kills the attempt.

    Call it right after a side effect. Outside ``crash_points`` it does nothing.
    """
    steps = CURRENT_STEPS.get()
    if steps is not None:
        steps.reach(steps.before_and_after(f"effect {name!r}")[1])


class SteppingChannel:
    """A context's channel that records a step before and after every write."""

    def __init__(self, channel: Channel, steps: Steps) -> None:
        self._channel = channel
        self._steps = steps

    def now(self) -> datetime:
        return self._channel.now()

    async def progress(self, progress: Progress) -> None:
        before, after = self._steps.before_and_after("report_progress")
        self._steps.reach(before)
        await self._channel.progress(progress)
        self._steps.reach(after)

    async def checkpoint(self, data: bytes) -> bool:
        before, after = self._steps.before_and_after("checkpoint")
        self._steps.reach(before)
        saved = await self._channel.checkpoint(data)
        self._steps.reach(after)
        return saved

    async def update_payload(self, data: bytes) -> bool:
        before, after = self._steps.before_and_after("update_payload")
        self._steps.reach(before)
        saved = await self._channel.update_payload(data)
        self._steps.reach(after)
        return saved

    async def log(self, line: LogLine) -> None:
        before, after = self._steps.before_and_after("log")
        self._steps.reach(before)
        await self._channel.log(line)
        self._steps.reach(after)

    async def spawn(self, submission: Submission, key: str | None) -> str:
        before, after = self._steps.before_and_after(f"spawn of {submission.type}")
        self._steps.reach(before)
        job_id = await self._channel.spawn(submission, key)
        self._steps.reach(after)
        return job_id

    async def spawn_prepared(self, submission: Submission, key: str | None) -> str:
        return await self._channel.spawn_prepared(submission, key)

    async def results(self) -> dict[str, bytes | None]:
        return await self._channel.results()

    async def children(self) -> list[ChildJob]:
        return await self._channel.children()

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        return self._channel.transaction(result, blocking=blocking)


class SteppingStore:
    """A store that records a step before and after every submission."""

    def __init__(self, store: Store, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def add_now(self, *_: object, **__: object) -> None:
        """Leave every submission to ``add``."""

    async def add(self, jobs: Sequence[Job], **options: Any) -> list[Added]:
        before, after = self._steps.before_and_after(f"submission of {jobs[0].type}")
        self._steps.reach(before)
        added = await self._store.add(jobs, **options)
        self._steps.reach(after)
        return added
