"""Child processes for handlers: started ahead of need, reused, replaced, let go when idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque

from holdfast.observe import Observer
from holdfast.runtime.processes import described, ended, signal_group, start
from holdfast.worker.runners.protocol import Broken, Order, Setup, Unframer, Up, Word, frame, words

TERM_SECONDS = 0.4
"""What a handler is given to clean up before it is killed."""

LAST_WORDS = 0.1
"""How long after its death a child's last message may take to be read."""

IDLE_SECONDS = 30.0
KEPT_WARM = 1
CORES = max(2, os.cpu_count() or 2)
PATIENCE = 0.1
"""How long a job waits for a child to be free, once there is one per core, before another is
started: short jobs are done sooner by few."""


class ChildDiedError(Exception):
    """A child process ended before it answered; the message says how."""


class ChildBrokenError(Exception):
    """A child process could not be set up; the message says why."""


class ChildProcess(asyncio.Protocol):
    """One child process and the line to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start("holdfast.worker.runners.child", theirs)
        self._ours = ours
        self._unframer = Unframer()
        self._heard: deque[Word] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._hung_up = asyncio.Event()
        self.code: int | None = None
        self.idle_since = 0.0
        self._watch = asyncio.get_running_loop().create_task(self._await_end())

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be given work, as far as is known."""
        return self.code is None and not self._hung_up.is_set()

    async def connect(self, setup: Setup) -> None:
        """Tell it where to find handlers, and wait until it has."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=self._ours)
        self.send(setup)
        match await self.hear():
            case Up():
                return
            case Broken(message):
                raise ChildBrokenError(message)
            case word:
                raise ChildBrokenError(f"it said {word!r:.200} before it was ready")

    def send(self, order: Order) -> None:
        """Tell it something."""
        self._transport.write(frame(order))

    async def hear(self) -> Word:
        """Return the next thing it says; ChildDiedError when that will never come."""
        while not self._heard:
            if self.code is not None:
                raise ChildDiedError(f"child process {self.pid} {described(self.code)}")
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._heard.popleft()

    async def stop(self) -> None:
        """End it and everything it started: politely, and a moment later for sure."""
        signal_group(self._process, signal.SIGTERM)
        timer = asyncio.get_running_loop().call_later(TERM_SECONDS, self.kill)
        try:
            await asyncio.shield(self._watch)
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it and everything it started."""
        signal_group(self._process, signal.SIGKILL)

    def data_received(self, data: bytes) -> None:
        for message in self._unframer.feed(data):
            self._heard.append(words.decode(message))
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """A child without a line is of no use, even should it live."""
        self._hung_up.set()
        self.kill()

    async def _await_end(self) -> None:
        code = await ended(self._process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._hung_up.wait()
        self.code = code
        self._transport.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Pool:
    """As many children as there are jobs for them."""

    def __init__(self, setup: Setup, observer: Observer) -> None:
        self._setup = setup
        self._observer = observer
        self._children: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._waiting: deque[tuple[float, asyncio.Future[ChildProcess]]] = deque()
        self._starts: set[asyncio.Task[None]] = set()
        self._shrinking: asyncio.TimerHandle | None = None
        self._growing: asyncio.TimerHandle | None = None
        self._closed = False

    def warm_up(self) -> None:
        """Have a child ready before the first job comes."""
        if not self._idle and not self._starts and not self._closed:
            self._start_one()

    async def take(self) -> ChildProcess:
        """Return a child that does nothing just now; ChildBrokenError when none can be had."""
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
        """Let a child serve the next job."""
        waiting = self._next_waiting() if child.is_alive else None
        if waiting is not None:
            waiting.set_result(child)
        elif child.is_alive:
            self._rest(child)
        else:
            self.forget(child)

    def forget(self, child: ChildProcess) -> None:
        """Replace a child that is gone, before its successor is needed."""
        self._children.discard(child)
        self._start_enough()
        self.warm_up()

    async def close(self) -> None:
        """End every child."""
        self._closed = True
        for timer in (self._shrinking, self._growing):
            if timer is not None:
                timer.cancel()
        for task in self._starts:
            task.cancel()
        children, self._children = self._children, set()
        for child in children:
            child.kill()
        await asyncio.gather(*self._starts, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in children))

    def _next_waiting(self) -> asyncio.Future[ChildProcess] | None:
        while self._waiting:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                return waiting
        return None

    def _rest(self, child: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        child.idle_since = loop.time()
        self._idle.append(child)
        if self._shrinking is None:
            self._shrinking = loop.call_later(IDLE_SECONDS, self._shrink)

    def _shrink(self) -> None:
        """Let children go that nobody needed for a while; the busiest are last in the list."""
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
            child.kill()

    def _start_enough(self) -> None:
        """Start what the waiting need: one per core at once, more when that is not enough."""
        now = asyncio.get_running_loop().time()
        while not self._closed and len(self._starts) < CORES:
            since = [since for since, waiting in self._waiting if not waiting.done()]
            if len(since) <= len(self._starts):
                return
            if len(self._children) >= CORES and now < since[0] + PATIENCE:
                self._look_again(since[0] + PATIENCE)
                return
            self._start_one()

    def _look_again(self, moment: float) -> None:
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
        """See whether others came to wait meanwhile."""
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
