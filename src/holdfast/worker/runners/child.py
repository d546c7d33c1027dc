"""The main function of a child process that runs handlers for a worker, one job at a time.

The main thread runs the handler. A second thread reads messages, so that signals reach a
handler that computes, and so that the process exits with its worker.
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
from functools import partial
from typing import Any, NoReturn, cast

from holdfast.errors import JobCancelledError, ValidationError
from holdfast.model.children import ChildJob
from holdfast.model.job import Job, LogLine, Progress, read_extra
from holdfast.model.payload import PayloadError, clean, encode
from holdfast.model.submission import Submission
from holdfast.observe import logging
from holdfast.runtime.importing import UnguardedScriptError
from holdfast.tasks.context import Call, JobContext, SyncJobContext
from holdfast.tasks.job_view import Signals
from holdfast.tasks.registry import Handler, is_coroutine
from holdfast.tasks.spawning import given_options
from holdfast.tasks.transactions import no_transaction
from holdfast.worker.executor import MAX_MESSAGE, perform, perform_sync, system_failure
from holdfast.worker.outcomes import Failed, Outcome
from holdfast.worker.runners.child_loop import ChildLoop
from holdfast.worker.runners.handlers import Handlers
from holdfast.worker.runners.protocol import (
    Broken,
    ChildMessage,
    Done,
    KeepCheckpoint,
    Question,
    ReadChildren,
    ReadResults,
    Reply,
    ReportProgress,
    Setup,
    Signal,
    SpawnJob,
    Unframer,
    Up,
    UpdatePayload,
    Work,
    WriteLog,
    frame,
    raised_error,
    worker_messages,
)

Ask = Callable[[Question], object]
Prepare = Callable[[Submission], Coroutine[Any, Any, Submission]]
"""Returns a submission as the app's middleware makes it."""


class RemoteChannel:
    """Sends requests to the worker; blocks the thread unless an event loop runs in it."""

    def __init__(self, ask: Ask, now: datetime, prepare: Prepare) -> None:
        self._ask = ask
        self._prepare = prepare
        self._now = now
        self._since = time.monotonic()
        self._in_loop = False

    def use_threads(self) -> None:
        """Wait for answers in another thread from now on, because a loop runs in this one."""
        self._in_loop = True

    def now(self) -> datetime:
        return self._now + timedelta(seconds=time.monotonic() - self._since)

    async def progress(self, progress: Progress) -> None:
        await self._request(ReportProgress(progress))

    async def checkpoint(self, data: bytes) -> bool:
        return await self._request(KeepCheckpoint(data)) is True

    async def update_payload(self, data: bytes) -> bool:
        return await self._request(UpdatePayload(data)) is True

    async def log(self, line: LogLine) -> None:
        await self._request(WriteLog(line))

    async def spawn(self, submission: Submission, key: str | None) -> str:
        return await self.spawn_prepared(await self._prepare(submission), key)

    async def spawn_prepared(self, submission: Submission, key: str | None) -> str:
        if submission.faults:
            raise ValidationError(submission.faults)
        try:
            data, encoding = encode(submission.payload)
        except PayloadError as error:
            raise ValidationError([error.fault("payload")]) from None
        fields = {"type": submission.type, **given_options(submission)}
        return str(await self._request(SpawnJob(data, encoding, key, fields)))

    async def results(self) -> dict[str, bytes | None]:
        results = await self._request(ReadResults())
        assert isinstance(results, dict)
        return cast("dict[str, bytes | None]", results)

    async def children(self) -> list[ChildJob]:
        found = await self._request(ReadChildren())
        assert isinstance(found, list)
        return cast("list[ChildJob]", found)

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        raise no_transaction("needs a handler in the worker's own process: not runner='process'")

    async def _request(self, question: Question) -> object:
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
WHY_SECONDS = 0.1
"""How long a handler that is stopped waits for the reason, which middleware sees."""


def main() -> None:
    """Run jobs for the worker at the other end of the inherited socket."""
    _die_with_parent()
    connection = ParentConnection(socket.socket(fileno=int(sys.argv[1])))
    setup = connection.setup()
    try:
        handlers = Handlers(setup)
    except UnguardedScriptError as error:
        connection.send(Broken(str(error)))
        return
    except BaseException:  # noqa: BLE001  # a user's module may raise anything
        connection.send(Broken(clean(traceback.format_exc(limit=-5), MAX_MESSAGE)))
        return
    if setup.log:
        logging.configure(setup.log[0], setup.log[1])
    with ChildLoop(handlers.apps) as loop:
        try:
            loop.open()
        except BaseException:  # noqa: BLE001  # a user's resource may raise anything
            connection.send(Broken(clean(traceback.format_exc(limit=-5), MAX_MESSAGE)))
            return
        connection.send(Up())
        Child(connection, handlers, loop).serve()


class ParentConnection:
    """The child's end of the connection to its worker."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._setup: queue.SimpleQueue[Setup] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.work: queue.SimpleQueue[tuple[Work, Signals]] = queue.SimpleQueue()
        self._signals = Signals()
        self.told_why = threading.Event()
        """Set when the worker has sent why it stops the handler."""
        threading.Thread(target=self._listen, name="holdfast-reader", daemon=True).start()

    def setup(self) -> Setup:
        """Wait for the first message."""
        return self._setup.get()

    def send(self, message: ChildMessage) -> None:
        """Send a message to the worker."""
        with self._sending:
            try:
                self._sock.sendall(frame(message))
            except (BrokenPipeError, ConnectionResetError):
                _die()  # with the worker, before anything prints

    def ask(self, question: Question) -> object:
        """Send a question and wait for its answer; raise the error it caused."""
        with self._asking:
            self.send(question)
            reply = self._replies.get()
        if reply.error is not None:
            raise raised_error(reply.error)
        return reply.value

    def _listen(self) -> None:
        unframer = Unframer()
        while data := self._receive():
            for message in unframer.feed(data):
                self._handle(message)
        _die()

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(65_536)
        except OSError:
            return b""

    def _handle(self, message: bytes) -> None:
        match worker_messages.decode(message):
            case Setup() as setup:
                self._setup.put(setup)
            case Work() as work:
                self._signals = Signals()
                self.work.put((work, self._signals))
            case Reply() as reply:
                self._replies.put(reply)
            case Signal(cancel, lease_lost, interruption):
                self._signals.cancel = cancel
                self._signals.lease_lost = lease_lost
                self._signals.interruption = interruption
                if interruption is not None:
                    self.told_why.set()


class Child:
    """Runs one job after another."""

    def __init__(self, connection: ParentConnection, handlers: Handlers, loop: ChildLoop) -> None:
        self._connection = connection
        self._handlers = handlers
        self._loop = loop
        self._job_id = ""
        self._leaving = False

    def serve(self) -> None:
        """Run jobs until the worker ends this process."""
        signal.signal(signal.SIGTERM, self._terminate)
        with contextlib.suppress(JobCancelledError):
            while not self._leaving:
                work, signals = self._connection.work.get()
                self._job_id = work.job.id
                outcome = self._run(work, signals)
                sys.stdout.flush()
                self._job_id = ""
                self._connection.send(Done(outcome, self._leaving))

    def _run(self, work: Work, signals: Signals) -> Outcome:
        handler = self._handlers.get(work.job)
        if handler is None:
            return system_failure(_not_found(work.job.type), "HANDLER_NOT_FOUND")
        with _memory_limited(work.memory_limit):
            outcome = self._perform(handler, work, signals)
        if isinstance(outcome, Failed) and outcome.failure.code == "MemoryError":
            self._leaving = True
        return outcome

    def _perform(self, handler: Handler, work: Work, signals: Signals) -> Outcome:
        prepare = partial(self._prepared, handler, work.job)
        channel = RemoteChannel(self._connection.ask, work.now, prepare)
        context = JobContext(work.job, work.deadline, signals, channel)
        if not is_coroutine(handler.function):
            call = blocking(context)
            sync_context = SyncJobContext(work.job, work.deadline, signals, call)
            return perform_sync(handler, work.job, sync_context, self._loop.scope)
        channel.use_threads()
        try:
            return self._loop.run(perform(handler, work.job, context))
        except asyncio.CancelledError:
            return system_failure("the handler cancelled itself", "CANCELLED_ITSELF")

    async def _prepared(self, handler: Handler, job: Job, submission: Submission) -> Submission:
        """Apply the middleware here, where the handler's context variables are."""
        chain = handler.seams.middleware
        if not chain.submits:
            return submission
        prepared = chain.prepared(submission, read_extra(job.extra).headers)
        return await self._loop.scope().wait(prepared) if self._loop.is_idle else await prepared

    def _terminate(self, number: int, stack: types.FrameType | None) -> NoReturn:
        """Unwind the handler, so that it can clean up in the time it has."""
        self._leaving = True
        self._connection.told_why.wait(WHY_SECONDS if self._job_id else 0)
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
    """Have Linux kill this process with its worker, even during a long call."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _die() -> None:
    """End this process and what its handler started."""
    os.killpg(0, signal.SIGKILL)


def _not_found(type_: str) -> str:
    return (
        f"task {type_!r} is not registered in a new process: register it while its module is"
        " imported, and keep the app as an attribute of a module"
    )
