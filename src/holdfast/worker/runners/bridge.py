"""How a handler in a thread reaches its context, which lives on the worker's loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar, cast

from holdfast.errors import StaleLeaseError
from holdfast.tasks.context import no_transaction
from holdfast.worker.run import Run

T = TypeVar("T")


class Bridge:
    """Runs context methods on the worker's loop and blocks the handler's thread for them."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self.block: asyncio.Task[bool] | None = None
        """What holds the thread's transaction open."""
        self.fenced = False
        self.ended = False

    def __call__(self, method: str, *args: object, **kwargs: object) -> object:
        self.must_hold()
        asked = getattr(self._run.context, method)(*args, **kwargs)
        if isinstance(asked, AbstractAsyncContextManager):
            return Block(self, cast("AbstractAsyncContextManager[_Lent]", asked))
        answer = self.start(asked).result()
        self.must_hold()
        return answer

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run something on the worker's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def must_hold(self) -> None:
        """Refuse a thread whose job is no longer its own."""
        if self.fenced or self._loop.is_closed():
            raise self.lost()

    def lost(self) -> StaleLeaseError:
        """Say that the job is no longer the thread's own."""
        return StaleLeaseError(self._run.job.id)

    def fence(self) -> None:
        """Let nothing count any more that the thread does; called on the loop."""
        self.fenced = True
        if self.block is not None:
            self.block.cancel()


class _Lent(Protocol):
    def close(self) -> None: ...


class Block:
    """A thread's transaction: the worker's loop holds it open until the thread leaves its block.

    So it ends with the job: a thread that is fenced off inside keeps no rows from anybody.
    """

    def __init__(self, bridge: Bridge, transaction: AbstractAsyncContextManager[_Lent]) -> None:
        self._bridge = bridge
        self._transaction = transaction
        self._lent: concurrent.futures.Future[_Lent] = concurrent.futures.Future()
        self._left: concurrent.futures.Future[BaseException | None] = concurrent.futures.Future()

    def __enter__(self) -> object:
        self._held = self._bridge.start(self._hold())
        either: list[concurrent.futures.Future[Any]] = [self._lent, self._held]
        concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        return self._lent.result() if self._lent.done() else self._outcome()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it was not waited for
            self._left.set_result(error)
        try:
            return self._outcome()
        finally:
            self._lent.result().close()  # which it is already, unless it was left to this thread

    async def __aenter__(self) -> NoReturn:
        raise no_transaction("needs 'with' where the context is a SyncJobContext")

    async def __aexit__(self, *_: object) -> None:
        """Is never come to."""

    async def _hold(self) -> bool:
        self._bridge.must_hold()
        self._bridge.block = asyncio.current_task()
        try:
            self._lent.set_result(await self._transaction.__aenter__())
            try:
                error = await asyncio.wrap_future(self._left)
            except asyncio.CancelledError as stop:
                await self._transaction.__aexit__(type(stop), stop, stop.__traceback__)
                raise
            if error is None:
                return bool(await self._transaction.__aexit__(None, None, None))
            return bool(await self._transaction.__aexit__(type(error), error, error.__traceback__))
        finally:
            self._bridge.block = None

    def _outcome(self) -> bool:
        try:
            return self._held.result()
        except concurrent.futures.CancelledError:
            raise self._bridge.lost() from None
