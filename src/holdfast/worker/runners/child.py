"""A process that runs handlers for a worker: one job at a time, until it is told to go.

The main thread runs the handler. A second thread listens, so that news reaches a handler that
computes, and so that the process dies with its worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, NoReturn, cast

from holdfast.errors import JobCancelledError, ValidationError
from holdfast.model.job import LogLine, Progress
from holdfast.model.payload import PayloadError, clean, encode
from holdfast.model.submission import SubmitOptions
from holdfast.tasks.context import Call, JobContext, Signals, SyncJobContext, no_transaction
from holdfast.tasks.registry import Handler, is_coroutine
from holdfast.worker.executor import (
    MAX_MESSAGE,
    Failed,
    Outcome,
    perform,
    perform_sync,
    system_failure,
)
from holdfast.worker.runners.handlers import Handlers
from holdfast.worker.runners.protocol import (
    Broken,
    Done,
    KeepCheckpoint,
    Question,
    ReadResults,
    Reply,
    Setup,
    Signal,
    SpawnJob,
    TellLog,
    TellProgress,
    Unframer,
    Up,
    Word,
    Work,
    error_of,
    frame,
    orders,
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


PR_SET_PDEATHSIG = 1


def main() -> None:
    """Work for whoever holds the other end of the inherited socket."""
    _die_with_parent()
    line = ParentConnection(socket.socket(fileno=int(sys.argv[1])))
    setup = line.setup()
    try:
        handlers = Handlers(setup)
    except BaseException:  # noqa: BLE001  # whatever a user's module raises
        line.send(Broken(clean(traceback.format_exc(limit=-5), MAX_MESSAGE)))
        return
    line.send(Up())
    Child(line, handlers).serve()


class ParentConnection:
    """The child's end of the line to its worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._setup: queue.SimpleQueue[Setup] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.work: queue.SimpleQueue[tuple[Work, Signals]] = queue.SimpleQueue()
        self._signals = Signals()
        threading.Thread(target=self._listen, name="holdfast-line", daemon=True).start()

    def setup(self) -> Setup:
        """Wait for the first message."""
        return self._setup.get()

    def send(self, word: Word) -> None:
        """Say something to the worker."""
        with self._sending:
            self._sock.sendall(frame(word))

    def ask(self, question: Question) -> object:
        """Ask the worker and wait for its answer, or raise the error it led to."""
        with self._asking:
            self.send(question)
            reply = self._replies.get()
        if reply.problem is not None:
            raise error_of(reply.problem)
        return reply.value

    def _listen(self) -> None:
        unframer = Unframer()
        while data := self._receive():
            for message in unframer.feed(data):
                self._hear(message)
        os.killpg(0, signal.SIGKILL)

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(65_536)
        except OSError:
            return b""

    def _hear(self, message: bytes) -> None:
        match orders.decode(message):
            case Setup() as setup:
                self._setup.put(setup)
            case Work() as work:
                self._signals = Signals()
                self.work.put((work, self._signals))
            case Reply() as reply:
                self._replies.put(reply)
            case Signal(cancel, lease_lost):
                self._signals.cancel = cancel
                self._signals.lease_lost = lease_lost


class Child:
    """Runs one job after the other."""

    def __init__(self, line: ParentConnection, handlers: Handlers) -> None:
        self._line = line
        self._handlers = handlers
        self._job_id = ""
        self._leaving = False

    def serve(self) -> None:
        """Work until told to go."""
        signal.signal(signal.SIGTERM, self._terminate)
        with contextlib.suppress(JobCancelledError):
            while not self._leaving:
                work, signals = self._line.work.get()
                self._job_id = work.job.id
                outcome = self._run(work, signals)
                sys.stdout.flush()
                self._line.send(Done(outcome, self._leaving))

    def _run(self, work: Work, signals: Signals) -> Outcome:
        handler = self._handlers.get(work.job.type)
        if handler is None:
            return system_failure(_not_found(work.job.type), "HANDLER_NOT_FOUND")
        with _memory_limited(work.memory_limit):
            outcome = self._perform(handler, work, signals)
        if isinstance(outcome, Failed) and outcome.failure.code == "MemoryError":
            self._leaving = True
        return outcome

    def _perform(self, handler: Handler, work: Work, signals: Signals) -> Outcome:
        channel = RemoteChannel(self._line.ask, work.now)
        context = JobContext(work.job, work.deadline, signals, channel)
        if not is_coroutine(handler.function):
            call = blocking(context)
            return perform_sync(
                handler, work.job, SyncJobContext(work.job, work.deadline, signals, call)
            )
        channel.leave_the_loop_alone()
        try:
            return asyncio.run(perform(handler, work.job, context))
        except asyncio.CancelledError:
            return system_failure("the handler cancelled itself", "CANCELLED_ITSELF")

    def _terminate(self, number: int, stack: types.FrameType | None) -> NoReturn:
        """Unwind the handler, so that it can clean up in the moment it is given."""
        self._leaving = True
        raise JobCancelledError(self._job_id)


@contextlib.contextmanager
def _memory_limited(limit: int | None) -> Generator[None, None, None]:
    if limit is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _die_with_parent() -> None:
    """Linux ends this process with its worker even while it is stuck in a long call."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _not_found(type_: str) -> str:
    return (
        f"task {type_!r} is not there in a fresh process: register it while its module is"
        " imported, and keep the app as an attribute of a module"
    )
