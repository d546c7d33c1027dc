"""Runs plain functions in threads.

A thread cannot be stopped. When its job is interrupted the thread is fenced off: its writes are
refused, its slot is freed, and it counts as leaked until it ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar, cast

from holdfast.errors import StaleLeaseError
from holdfast.observe import Observer
from holdfast.tasks.context import SyncJobContext
from holdfast.tasks.scope import Scope, carried
from holdfast.tasks.transactions import no_transaction
from holdfast.worker.executor import perform_sync
from holdfast.worker.outcomes import Outcome
from holdfast.worker.run import Run

T = TypeVar("T")


class ThreadBridge:
    """Runs context methods on the worker's loop while the handler's thread waits."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._context = run.context()
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self.block: asyncio.Task[bool] | None = None
        """The task that holds the thread's transaction open."""
        self.fenced = False
        self.ended = False

    def __call__(self, method: str, *args: object, **kwargs: object) -> object:
        self.must_hold()
        if threading.get_ident() == self._loop_thread:
            message = f"ctx.{method}() would block the event loop: call it in the handler's thread"
            raise RuntimeError(message)
        called = getattr(self._context, method)(*args, **kwargs)
        if isinstance(called, AbstractAsyncContextManager):
            return ThreadTransaction(self, cast("AbstractAsyncContextManager[_Closable]", called))
        answer = self.start(called).result()
        self.must_hold()
        return answer

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the worker's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of middleware on the worker's loop and block for its result."""
        return carried(coroutine, lambda coroutine: self.start(coroutine).result())

    def must_hold(self) -> None:
        """Raise StaleLeaseError in a thread whose job was interrupted."""
        if self.fenced or self._loop.is_closed():
            raise self.lost()

    def lost(self) -> StaleLeaseError:
        """Return the error for a thread whose job was interrupted."""
        return StaleLeaseError(self._context.job_id)

    def fence(self) -> None:
        """Refuse everything the thread does from now on; called on the loop."""
        self.fenced = True
        if self.block is not None:
            self.block.cancel()


class _Closable(Protocol):
    def close(self) -> None: ...


class ThreadTransaction:
    """A thread's transaction: the worker's loop holds it open until the thread leaves its block.

    So it ends with the job: a thread that is fenced off inside keeps no rows locked.
    """

    def __init__(
        self, bridge: ThreadBridge, transaction: AbstractAsyncContextManager[_Closable]
    ) -> None:
        self._bridge = bridge
        self._transaction = transaction
        self._connection: concurrent.futures.Future[_Closable] = concurrent.futures.Future()
        self._left: concurrent.futures.Future[BaseException | None] = concurrent.futures.Future()

    def __enter__(self) -> object:
        self._held = self._bridge.start(self._hold())
        either: list[concurrent.futures.Future[Any]] = [self._connection, self._held]
        concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        return self._connection.result() if self._connection.done() else self._outcome()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        with contextlib.suppress(
            concurrent.futures.InvalidStateError
        ):  # the loop does not wait for it
            self._left.set_result(error)
        try:
            return self._outcome()
        finally:
            self._connection.result().close()  # closed already, unless left to this thread

    async def __aenter__(self) -> NoReturn:
        raise no_transaction("needs 'with' where the context is a SyncJobContext")

    async def __aexit__(self, *_: object) -> None:
        """Never runs: entering raises."""

    async def _hold(self) -> bool:
        self._bridge.must_hold()
        self._bridge.block = asyncio.current_task()
        try:
            self._connection.set_result(await self._transaction.__aenter__())
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


IDLE_SECONDS = 30.0


class ThreadRunner:
    """A pool that grows with demand, shrinks when idle, and replaces leaked threads."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()
        self.leaked = 0

    async def run(self, run: Run) -> Outcome:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Outcome] = loop.create_future()
        call = ThreadBridge(run, loop)
        context = SyncJobContext(run.job, run.times_out_at, run.signals, call)

        def work() -> None:
            outcome = perform_sync(
                run.handler, run.job, context, lambda: Scope(call.wait_for, loop)
            )
            self._ended(call)
            with contextlib.suppress(RuntimeError):  # the worker stopped meanwhile
                loop.call_soon_threadsafe(_finish, done, outcome)

        self._start(work)
        try:
            return await done
        except asyncio.CancelledError:
            self._leak(run, call)
            raise

    async def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)

    def _start(self, work: Callable[[], None]) -> None:
        with self._lock:
            grow = self._idle == 0
            if not grow:
                self._idle -= 1
        if grow:
            threading.Thread(target=self._serve, name="holdfast-task", daemon=True).start()
            with self._lock:
                self._threads += 1
        self._work.put(work)

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._retire():
                    return
                continue
            if work is None:
                return
            work()
            del work  # an idle thread keeps no payload
            with self._lock:
                self._idle += 1

    def _retire(self) -> bool:
        """End this idle thread, unless work for it was queued at this moment."""
        with self._lock:
            if self._idle == 0:
                return False
            self._idle -= 1
            self._threads -= 1
            return True

    def _ended(self, call: ThreadBridge) -> None:
        with self._lock:
            call.ended = True
            if call.fenced:
                self.leaked -= 1

    def _leak(self, run: Run, call: ThreadBridge) -> None:
        """Fence off a thread that still runs; one that ended at this moment is no leak."""
        with self._lock:
            call.fence()
            if call.ended:
                return
            self.leaked += 1
        self._observer.emit(
            "thread.leaked",
            job_id=run.job.id,
            type=run.job.type,
            attempt=run.job.attempt,
            leaked=self.leaked,
        )


def _finish(done: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)
