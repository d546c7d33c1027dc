"""The channel of a handler in a process of its own: every call is a question to the worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, cast

from holdfast.errors import ValidationError
from holdfast.model.job import LogLine, Progress
from holdfast.model.payload import PayloadError, encode
from holdfast.model.submission import SubmitOptions
from holdfast.tasks.context import Call, JobContext, no_transaction
from holdfast.worker.runners.frames import (
    KeepCheckpoint,
    Question,
    ReadResults,
    SpawnJob,
    TellLog,
    TellProgress,
)

Ask = Callable[[Question], object]


class RemoteChannel:
    """Asks the worker; blocks the thread unless told that a loop runs in it."""

    def __init__(self, ask: Ask, now: datetime) -> None:
        self._ask = ask
        self._now = now
        self._since = time.monotonic()
        self._in_loop = False

    def leave_the_loop_alone(self) -> None:
        """Wait for answers in another thread from now on."""
        self._in_loop = True

    def now(self) -> datetime:
        return self._now + timedelta(seconds=time.monotonic() - self._since)

    async def progress(self, progress: Progress) -> None:
        await self._asked(TellProgress(progress))

    async def checkpoint(self, data: bytes) -> bool:
        return await self._asked(KeepCheckpoint(data)) is True

    async def log(self, line: LogLine) -> None:
        await self._asked(TellLog(line))

    async def spawn(
        self, type_: str, payload: object, key: str | None, options: SubmitOptions
    ) -> str:
        try:
            data, encoding = encode(payload)
        except PayloadError as error:
            raise ValidationError([error.fault("payload")]) from None
        return str(await self._asked(SpawnJob(type_, data, encoding, key, {**options})))

    async def results(self) -> dict[str, bytes | None]:
        results = await self._asked(ReadResults())
        assert isinstance(results, dict)
        return cast("dict[str, bytes | None]", results)

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        raise no_transaction("needs a handler in the worker's own process: not runner='process'")

    async def _asked(self, question: Question) -> object:
        if self._in_loop:
            return await asyncio.to_thread(self._ask, question)
        return self._ask(question)


def blocking(context: JobContext) -> Call:
    """Return a way to call a context's methods without a loop: its channel never suspends."""

    def call(method: str, *args: object, **kwargs: object) -> object:
        return _finished(getattr(context, method)(*args, **kwargs))

    return call


def _finished(coroutine: Coroutine[Any, Any, object]) -> object:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a blocking channel must not suspend")  # pragma: no cover
