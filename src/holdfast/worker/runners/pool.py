"""Child processes for handlers: started ahead of need, reused, replaced, ended when idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque

from holdfast.observe import Observer
from holdfast.runtime.processes import described, ended, signal_group, start
from holdfast.worker.runners.environment import child_environment
from holdfast.worker.runners.protocol import (
    Broken,
    ChildMessage,
    Setup,
    Unframer,
    Up,
    WorkerMessage,
    child_messages,
    frame,
)

TERM_SECONDS = 0.4
"""How long a handler may clean up before it is killed, in seconds."""

FINAL_READ = 0.1
"""How long after its end a child's last message may take to be read, in seconds."""

LEAVE_SECONDS = 5.0
"""How long an idle child may take to leave its resources, in seconds."""

IDLE_SECONDS = 30.0
KEPT_WARM = 1
CORES = max(2, os.cpu_count() or 2)
GROW_AFTER = 0.1
"""How long a job waits for a free child, once there is one per core, before another is started:
few children finish short jobs sooner."""


class ChildDiedError(Exception):
    """A child process ended before it sent an outcome; the message describes how."""


class ChildBrokenError(Exception):
    """A child process could not be set up; the message gives the reason."""


class ChildProcess(asyncio.Protocol):
    """One child process and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start(
                "holdfast.worker.runners.child", theirs, child_environment(os.environ)
            )
        self._ours = ours
        self._unframer = Unframer()
        self._received: deque[ChildMessage] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._disconnected = asyncio.Event()
        self.code: int | None = None
        self.idle_since = 0.0
        self._watch = asyncio.get_running_loop().create_task(self._await_end())

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can run a job, as far as is known."""
        return self.code is None and not self._disconnected.is_set()

    async def connect(self, setup: Setup) -> None:
        """Send it where to find handlers, and wait until it has loaded them."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=self._ours)
        self.send(setup)
        match await self.receive():
            case Up():
                return
            case Broken(message):
                raise ChildBrokenError(message)
            case message:
                raise ChildBrokenError(f"it sent {message!r:.200} before it was ready")

    def send(self, message: WorkerMessage) -> None:
        """Send it a message."""
        self._transport.write(frame(message))

    async def receive(self) -> ChildMessage:
        """Return its next message; ChildDiedError when it ended without one."""
        while not self._received:
            if self.code is not None:
                raise ChildDiedError(f"child process {self.pid} {described(self.code)}")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._received.popleft()

    async def stop(self, seconds: float = TERM_SECONDS) -> None:
        """Terminate it and everything it started; kill what is left after a moment."""
        signal_group(self._process, signal.SIGTERM)
        timer = asyncio.get_running_loop().call_later(seconds, self.kill)
        try:
            await asyncio.shield(self._watch)
        finally:
            timer.cancel()

    def kill(self) -> None:
        """Kill it and everything it started."""
        signal_group(self._process, signal.SIGKILL)

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._received.append(child_messages.decode(message))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Kill a child that closed its connection: it is of no use."""
        self._disconnected.set()
        self.kill()

    async def _await_end(self) -> None:
        code = await ended(self._process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINAL_READ):
                await self._disconnected.wait()
        self.code = code
        self._transport.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class ChildPool:
    """As many children as there are jobs for them.

    ``graceful``: an idle child has resources to leave before it ends.
    """

    def __init__(self, setup: Setup, observer: Observer, *, graceful: bool = False) -> None:
        self._setup = setup
        self._graceful = graceful
        self._ends: set[asyncio.Task[None]] = set()
        self._observer = observer
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._waiting: deque[tuple[float, asyncio.Future[ChildProcess]]] = deque()
        self._starts: set[asyncio.Task[None]] = set()
        self._shrinking: asyncio.TimerHandle | None = None
        self._growing: asyncio.TimerHandle | None = None
        self._closed = False

    def warm_up(self) -> None:
        """Start a child before the first job needs it."""
        if not self._idle and not self._starts and not self._closed:
            self._start_one()

    async def take(self) -> ChildProcess:
        """Return an idle child; ChildBrokenError when none can be started."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[ChildProcess] = loop.create_future()
        self._waiting.append((loop.time(), waiting))
        self._start_enough()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.give_back(waiting.result())
            raise

    def give_back(self, child: ChildProcess) -> None:
        """Return a child, for the next job."""
        waiting = self._next_waiting() if child.is_alive else None
        if waiting is not None:
            waiting.set_result(child)
        elif child.is_alive:
            self._keep(child)
        else:
            self.forget(child)

    def forget(self, child: ChildProcess) -> None:
        """Replace a child that ended, before its successor is needed."""
        self._children.discard(child)
        self._start_enough()
        self.warm_up()

    async def close(self) -> None:
        """End every child: busy ones at once, idle ones when they have left their resources."""
        self._closed = True
        for timer in (self._shrinking, self._growing):
            if timer is not None:
                timer.cancel()
        for task in self._starts:
            task.cancel()
        children, self._children = self._children, set()
        for child in children:
            self._end(child, graceful=self._graceful and child in self._idle)
        await asyncio.gather(*self._starts, return_exceptions=True)
        await asyncio.gather(*self._ends, *(child.stop(LEAVE_SECONDS) for child in children))

    def _end(self, child: ChildProcess, *, graceful: bool) -> None:
        if not graceful:
            child.kill()
            return
        end = asyncio.get_running_loop().create_task(child.stop(LEAVE_SECONDS))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    def _next_waiting(self) -> asyncio.Future[ChildProcess] | None:
        while self._waiting:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _keep(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        child.idle_since = loop.time()
        self._idle.append(child)
        if self._shrinking is None:
            self._shrinking = loop.call_later(IDLE_SECONDS, self._shrink)

    def _shrink(self) -> None:
        """Kill children that were idle for a while; the busiest are last in the list."""
        loop = asyncio.get_running_loop()
        self._shrinking = None
        while len(self._idle) > KEPT_WARM:
            if self._idle[0].idle_since + IDLE_SECONDS > loop.time():
                self._shrinking = loop.call_at(
                    self._idle[0].idle_since + IDLE_SECONDS, self._shrink
                )
                return
            child = self._idle.pop(0)
            self._children.discard(child)
            self._end(child, graceful=self._graceful)

    def _start_enough(self) -> None:
        """Start children for waiting jobs: one per core at once, more when that is not enough."""
        now = asyncio.get_running_loop().time()
        while not self._closed and len(self._starts) < CORES:
            since = [since for since, waiting in self._waiting if not waiting.done()]
            if len(since) <= len(self._starts):
                return
            if len(self._children) >= CORES and now < since[0] + GROW_AFTER:
                self._grow_at(since[0] + GROW_AFTER)
                return
            self._start_one()

    def _grow_at(self, moment: float) -> None:
        if self._growing is None:
            self._growing = asyncio.get_running_loop().call_at(moment, self._grow)

    def _grow(self) -> None:
        self._growing = None
        self._start_enough()

    def _start_one(self) -> None:
        task = asyncio.get_running_loop().create_task(self._start())
        self._starts.add(task)
        task.add_done_callback(self._start_ended)

    def _start_ended(self, task: asyncio.Task[None]) -> None:
        """Start another child if more jobs wait by now."""
        self._starts.discard(task)
        self._start_enough()

    async def _start(self) -> None:
        try:
            child = await self._started()
        except (ChildBrokenError, ChildDiedError, OSError) as error:
            self._observer.emit("child.broken", error=str(error))
            if (waiting := self._next_waiting()) is not None:
                waiting.set_exception(ChildBrokenError(str(error)))
        else:
            self._observer.emit("child.started", pid=child.pid)
            self.give_back(child)

    async def _started(self) -> ChildProcess:
        child = ChildProcess()
        self._children.add(child)
        try:
            await child.connect(self._setup)
        except (ChildBrokenError, ChildDiedError):
            self._children.discard(child)
            raise
        return child
