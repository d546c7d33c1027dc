"""No process outlives the run it belongs to, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.runtime.clock import Clock
from holdfast.torture.plan import LINE, POST, QUEUE, ProcessPlan, TorturePlan

LOOK = 0.5


def die_with_parent() -> None:
    """Have this process end when the one that started it is gone."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


WORKER, PRODUCER = "holdfast.torture._worker", "holdfast.torture._producer"
FAILURES = 5
"""So often in a row a process may fail to get going before a run is given up."""

STEADY = 10.0
"""Seconds after which a process had got going."""

FAREWELL = 15.0
"""Seconds that workers have to stop in order."""


class TortureError(HoldfastError):
    """A run that cannot be brought to its end."""

    def __init__(self, program: str, log: str) -> None:
        self.program = program
        self.log = log
        super().__init__(program, log)

    def __str__(self) -> str:
        return f"{self.program} does not go on:\n{self.log}"


class Seat:
    """A process that is to be there, whoever sits in it."""

    def __init__(self, module: str, post: ProcessPlan, log: Path, clock: Clock) -> None:
        self.module = module
        self.resume_at: float | None = None
        self._post = post
        self._log = log
        self._clock = clock
        self._count = 0
        self._failures = 0
        self.name = ""
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._count += 1
        one_of_many = self.module == WORKER
        self.name = f"{self._post.name}-{self._count}" if one_of_many else self._post.name
        post = replace(self._post, name=self.name, seed=self._post.seed + 1000 * self._count)
        search = os.pathsep.join(place for place in sys.path if place)
        environment = {
            **os.environ,
            "PYTHONPATH": search,
            POST: msgspec.json.encode(post).decode(),
        }
        self.started = self._clock.monotonic()
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-m", self.module],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_done(self) -> bool:
        """Whether a producer has submitted its share."""
        return self.module == PRODUCER and self.process.poll() == 0

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None and self.resume_at is None

    @property
    def age(self) -> float:
        """Seconds since the process was started."""
        return self._clock.monotonic() - self.started

    def tend(self) -> None:
        """Let a stopped process go on when it is time; replace a dead one."""
        if self.resume_at is not None and self._clock.monotonic() >= self.resume_at:
            self.resume()
        code = self.process.poll()
        if code is not None and not self.is_done:
            self._failures = self._failures + 1 if code > 0 and self.age < STEADY else 0
            if self._failures > FAILURES:
                raise TortureError(self.module, self._log.read_text("utf-8", "replace")[-2000:])
            self.resume_at = None
            self.process = self._start()

    def pause(self, seconds: float) -> None:
        """Stop the process where it stands."""
        self.process.send_signal(signal.SIGSTOP)
        self.resume_at = self._clock.monotonic() + seconds

    def resume(self) -> None:
        """Let it go on."""
        self.resume_at = None
        self.process.send_signal(signal.SIGCONT)


class Crew:
    """Everybody."""

    def __init__(
        self, plan: TorturePlan, url: str, far_url: str, folder: str, clock: Clock
    ) -> None:
        """``far_url`` leads through the proxy: one worker and one producer go that way."""
        self._clock = clock
        self._log = Path(folder) / "log"
        near = ProcessPlan(
            folder=folder, url=url, lease=plan.lease, slots=plan.slots, seed=plan.seed
        )
        self.workers = [
            self._seat(WORKER, replace(near, name=f"alone{n}", queues=(QUEUE,), url=place))
            for n, place in enumerate([far_url, *[url] * (plan.alone - 1)])
        ]
        self.workers.append(self._seat(WORKER, replace(near, name="line", queues=(LINE,))))
        self.supervisors = [
            self._seat(
                WORKER,
                replace(near, name="supervisor", queues=(QUEUE,), processes=plan.supervised),
            )
            for _ in range(1 if plan.supervised else 0)
        ]
        share = replace(near, jobs=plan.jobs // 2 + 1, backlog=plan.backlog)
        self.producers = [
            self._seat(PRODUCER, replace(share, name="p0", queues=(LINE,), seed=plan.seed)),
            self._seat(PRODUCER, replace(share, name="p1", url=far_url, seed=plan.seed + 1)),
        ]
        self.members: dict[int, str] = {}
        """Processes under supervisors, as far as they announced themselves: pid -> worker id."""
        self._met: set[int] = set()

    def _seat(self, module: str, post: ProcessPlan) -> Seat:
        return Seat(module, post, self._log, self._clock)

    @property
    def _seats(self) -> Iterator[Seat]:
        yield from (*self.workers, *self.supervisors, *self.producers)

    @property
    def producing(self) -> bool:
        """Whether a producer has jobs left to submit."""
        return not all(seat.is_done for seat in self.producers)

    def tend(self) -> None:
        """Keep every seat taken."""
        for seat in self._seats:
            seat.tend()

    def met(self, present: dict[int, str]) -> None:
        """Hear which workers announced themselves."""
        own = {seat.process.pid for seat in self._seats}
        self.members = {
            pid: name for pid, name in present.items() if pid not in own and is_there(pid)
        }
        self._met |= set(self.members)

    def resume_all(self) -> None:
        """Let everybody go on who was stopped."""
        for seat in self._seats:
            if seat.resume_at is not None:
                seat.resume()

    def dismiss(self) -> int:
        """Stop everybody; return how many had to be killed for it."""
        self.resume_all()
        for seat in self._seats:
            if seat.process.poll() is None:
                seat.process.send_signal(signal.SIGTERM)
        deadline = self._clock.monotonic() + FAREWELL
        stubborn = 0
        for seat in self._seats:
            try:
                seat.process.wait(max(0.1, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                stubborn += 1
                seat.process.kill()
                seat.process.wait()
        for pid in self._met:
            if is_there(pid):
                kill(pid)
        return stubborn


def kill(pid: int) -> bool:
    """Kill -9; tell whether there was somebody."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def is_there(pid: int) -> bool:
    """Whether a process exists and is one of a run, as far as this machine tells."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"holdfast" in words
