"""A seeded event loop in virtual time, with processes that can be paused, hung and killed.

Every callback carries a context, and a context variable there names its process. The loop runs
one callback at a time: a process is drawn among those that can run, its callbacks keep their
order. When none can run, the clock jumps. Same seed, same run, byte for byte.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

WORLD = "world"
"""What is not part of any process: the network, the chaos, the heal."""

PULSE = "/pulse"
"""The heartbeat of a process: it runs while the rest hangs, as a thread would."""

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default=WORLD)


class Stuck(Exception):
    """Nothing can ever run again, or too much ran: a deadlock or a busy loop."""


class SimLoop(asyncio.BaseEventLoop):
    """The loop; everything else in a simulation is ordinary asyncio code."""

    def __init__(self, draw: random.Random, *, most_steps: int = 2_000_000) -> None:
        super().__init__()
        self.steps = 0
        self.world: object = None
        """For handlers, who know nothing but their context."""
        self.complaints: list[str] = []
        """What asyncio would only have logged: callbacks and tasks that died."""
        self._draw = draw
        self._most_steps = most_steps
        self._virtual = 0.0
        self._clock_resolution = 1e-9
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._asleep: dict[str, float] = {}
        self._dead: set[str] = set()
        self._made: list[asyncio.Task[Any]] = []
        self._graves: list[object] = []
        self._numbers = 0
        self._buried = False
        self.set_debug(False)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # ours takes any coroutine
        self.set_exception_handler(lambda _, context: self._complain(context))

    # --- processes -----------------------------------------------------------------------

    def spawn(self, process: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a process with a coroutine."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(coroutine, context=context)

    def kill(self, process: str) -> None:
        """Kill -9: nothing of the process runs any more, no except, no finally.

        Its tasks stay referenced: a collected coroutine would run its finally blocks.
        """
        for part in (process, process + PULSE):
            self._dead.add(part)
            self._graves.append(self._queues.pop(part, None))

    def pause(self, process: str, seconds: float) -> None:
        """Stop a process and continue it later, as SIGSTOP and SIGCONT do."""
        for part in (process, process + PULSE):
            self._asleep[part] = max(self._asleep.get(part, 0.0), self._virtual + seconds)

    def hang(self, process: str, seconds: float) -> None:
        """Keep a process's event loop busy while its heartbeat goes on."""
        self._asleep[process] = max(self._asleep.get(process, 0.0), self._virtual + seconds)

    def skip_beats(self, process: str, seconds: float) -> None:
        """Stop a process's heartbeat while the rest of it goes on."""
        self.hang(process + PULSE, seconds)

    def wake_all(self) -> None:
        """Continue every stopped process."""
        self._asleep = {}

    def is_alive(self, process: str) -> bool:
        """Whether a process was not killed."""
        return process not in self._dead

    # --- what asyncio asks of a loop ---------------------------------------------------------

    def time(self) -> float:
        return self._virtual

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        future = _Future(loop=self)
        future.number = self._numbers
        return future

    def run_in_executor(  # type: ignore[override]  # runs here, a moment later
        self, executor: object, func: Callable[..., Any], *args: object
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        self.call_later(
            self._draw.random() * 0.05,
            lambda: future.cancelled() or future.set_result(func(*args)),
        )
        return future

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None and PROCESS.get().endswith(PULSE):
            context = contextvars.copy_context()
            context.run(PROCESS.set, PROCESS.get().removesuffix(PULSE))
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""

    def _write_to_self(self) -> None:
        """There are no threads to wake."""

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        if getattr(coroutine, "__qualname__", "") == "Pulse._beat":
            context = contextvars.copy_context()
            context.run(PROCESS.set, PROCESS.get() + PULSE)
        task = _Task(self._number(), coroutine, loop=loop, context=context, **options)
        self._made.append(task)
        return task

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- running -------------------------------------------------------------------------

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps > self._most_steps:
            raise Stuck(f"{self._most_steps} steps by {self._virtual:.3f} s and no end")
        queues, timers, asleep = self._queues, self._scheduled, self._asleep
        while True:
            if self._ready or (timers and timers[0].when() <= self._virtual):
                self._sort_in()
            ready = [name for name, queue in queues.items() if queue]
            if asleep:
                ready = [name for name in ready if asleep.get(name, 0.0) <= self._virtual]
            if not ready:
                self._jump()
                continue
            name = ready[0] if len(ready) == 1 else self._draw.choice(ready)
            handle = queues[name].popleft()
            if not handle.cancelled():
                handle._run()  # what a loop is for; there is no other name
                return

    def _sort_in(self) -> None:
        """Give everything that is ready to its process."""
        timers, queues, ready = self._scheduled, self._queues, self._ready
        while timers and (timers[0].cancelled() or timers[0].when() <= self._virtual):
            timer = heapq.heappop(timers)
            timer._scheduled = False  # as asyncio itself does: a timer that is cancelled asks
            ready.append(timer)
        while ready:
            handle = ready.popleft()
            if handle.cancelled():
                continue
            # Python 3.12 has handle.get_context().
            process = handle._context.get(PROCESS, WORLD)
            if process in queues:
                queues[process].append(handle)
            elif process in self._dead:
                self._graves.append(handle)
            else:
                queues[process] = deque([handle])

    def _jump(self) -> None:
        """Nothing can run now: go to the next instant at which something can."""
        instants = [timer.when() for timer in self._scheduled[:1]]
        instants += [
            end
            for process, end in self._asleep.items()
            if end > self._virtual and self._queues.get(process)
        ]
        if not instants:
            raise Stuck(f"nothing can run after {self._virtual:.3f} s")
        self._virtual = max(self._virtual, min(instants))

    # --- the end -------------------------------------------------------------------------

    def take_back(self) -> None:
        """Close everything quietly, in a loop that schedules nothing more."""
        for task in self._made:
            # Whether somebody has asked for the exception is told nowhere else.
            if task.done() and not task.cancelled() and task._log_traceback:  # type: ignore[attr-defined]
                self.complaints.append(f"{task.get_coro()!r} died: {task.exception()!r}")
        self._buried = True
        self.call_soon = self._unheard  # type: ignore[method-assign]  # nothing runs any more
        for task in self._made:
            # Its end is ours: it is no mistake of the program.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            try:
                if coroutine is not None:
                    coroutine.close()  # type: ignore[union-attr]
            except (RuntimeError, ValueError):
                continue
        self._ready.clear()
        self._scheduled.clear()
        self._queues.clear()
        self.close()

    def _unheard(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return asyncio.Handle(callback, args, self, context)

    def _complain(self, context: dict[str, Any]) -> None:
        if not self._buried:
            self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    number = 0

    def __hash__(self) -> int:
        return self.number
