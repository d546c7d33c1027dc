"""The processes of a run: started, replaced when they die, and stopped at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.runtime.clock import Clock
from holdfast.runtime.processes import on_parent_exit
from holdfast.torture.plan import ORDERED_QUEUE, PLAN_VARIABLE, QUEUE, ProcessPlan, TorturePlan

WORKER, PRODUCER = "holdfast.torture._worker", "holdfast.torture._producer"

MAX_FAILURES = 5
"""How often in a row a process may fail at startup before the run is aborted."""

STARTUP = 10.0
"""Seconds after which a process counts as started."""

STOP_TIMEOUT = 15.0
"""Seconds that workers have to stop before they are killed."""


def exit_with_parent() -> None:
    """End this process when its parent process ends, so that none outlives a run."""
    on_parent_exit(lambda: os._exit(1))


class TortureError(HoldfastError):
    """A run that cannot be completed."""

    def __init__(self, program: str, log: str) -> None:
        self.program = program
        self.log = log
        super().__init__(program, log)

    def __str__(self) -> str:
        return f"{self.program} makes no progress:\n{self.log}"


class ManagedProcess:
    """A process that is started again whenever it dies."""

    def __init__(self, module: str, plan: ProcessPlan, log: Path, clock: Clock) -> None:
        self.module = module
        self.resume_at: float | None = None
        self.deaths = 0
        """How often it ended without being killed on purpose."""
        self._was_killed = False
        self._plan = plan
        self._log = log
        self._clock = clock
        self._starts = 0
        self._failures = 0
        self.name = ""
        self.popen = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        is_worker = self.module == WORKER
        self.name = f"{self._plan.name}-{self._starts}" if is_worker else self._plan.name
        plan = replace(self._plan, name=self.name, seed=self._plan.seed + 1000 * self._starts)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            PLAN_VARIABLE: msgspec.json.encode(plan).decode(),
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
        return self.module == PRODUCER and self.popen.poll() == 0

    @property
    def is_up(self) -> bool:
        """Whether the process runs and is not paused."""
        return self.popen.poll() is None and self.resume_at is None

    @property
    def age(self) -> float:
        """Seconds since the process was started."""
        return self._clock.monotonic() - self.started

    def maintain(self) -> None:
        """Resume a paused process when it is time; start a dead one again."""
        if self.resume_at is not None and self._clock.monotonic() >= self.resume_at:
            self.resume()
        code = self.popen.poll()
        if code is not None and not self.is_done:
            self._failures = self._failures + 1 if code > 0 and self.age < STARTUP else 0
            if self._failures > MAX_FAILURES:
                raise TortureError(self.module, self._log.read_text("utf-8", "replace")[-2000:])
            self.deaths += not self._was_killed
            self.resume_at, self._was_killed = None, False
            self.popen = self._start()

    def kill(self) -> None:
        """Kill the process on purpose."""
        self._was_killed = True
        self.popen.kill()

    def pause(self, seconds: float) -> None:
        """Stop the process with SIGSTOP for a while."""
        self.popen.send_signal(signal.SIGSTOP)
        self.resume_at = self._clock.monotonic() + seconds

    def resume(self) -> None:
        """Continue a paused process."""
        self.resume_at = None
        self.popen.send_signal(signal.SIGCONT)


class Processes:
    """All processes of a run.

    ``proxied_url`` leads through the proxy; one worker and one producer use it.
    """

    def __init__(
        self, plan: TorturePlan, url: str, proxied_url: str, folder: str, clock: Clock
    ) -> None:
        self._clock = clock
        self._log = Path(folder) / "log"
        common = ProcessPlan(
            folder=folder, url=url, lease=plan.lease, slots=plan.slots, seed=plan.seed
        )
        self.workers = [
            self._start(WORKER, replace(common, name=f"alone{n}", queues=(QUEUE,), url=worker_url))
            for n, worker_url in enumerate([proxied_url, *[url] * (plan.alone - 1)])
        ]
        ordered = replace(common, name="ordered", queues=(ORDERED_QUEUE,))
        self.workers.append(self._start(WORKER, ordered))
        supervisor = replace(common, name="supervisor", queues=(QUEUE,), processes=plan.supervised)
        self.supervisors = [self._start(WORKER, supervisor)] if plan.supervised else []
        share = replace(common, jobs=plan.jobs // 2 + 1, backlog=plan.backlog)
        self.producers = [
            self._start(
                PRODUCER, replace(share, name="p0", queues=(ORDERED_QUEUE,), seed=plan.seed)
            ),
            self._start(PRODUCER, replace(share, name="p1", url=proxied_url, seed=plan.seed + 1)),
        ]
        self.supervised: dict[int, str] = {}
        """The announced workers under supervisors: pid to worker id."""
        self._all_supervised: set[int] = set()

    def _start(self, module: str, plan: ProcessPlan) -> ManagedProcess:
        return ManagedProcess(module, plan, self._log, self._clock)

    def __iter__(self) -> Iterator[ManagedProcess]:
        yield from (*self.workers, *self.supervisors, *self.producers)

    @property
    def producing(self) -> bool:
        """Whether a producer has jobs left to submit."""
        return not all(producer.is_done for producer in self.producers)

    def maintain(self, announced: dict[int, str]) -> None:
        """Resume and restart processes; ``announced`` are the workers in the store."""
        own = {process.popen.pid for process in self}
        self.supervised = {
            pid: name for pid, name in announced.items() if pid not in own and is_running(pid)
        }
        self._all_supervised |= set(self.supervised)
        for process in self:
            process.maintain()

    @property
    def deaths(self) -> int:
        """How often a process ended without being killed on purpose."""
        return sum(process.deaths for process in self)

    def resume_all(self) -> None:
        """Continue every paused process."""
        for process in self:
            if process.resume_at is not None:
                process.resume()

    def stop(self) -> None:
        """Stop every process; kill those that do not stop in time."""
        self.resume_all()
        for process in self:
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGTERM)
        deadline = self._clock.monotonic() + STOP_TIMEOUT
        for process in self:
            try:
                process.popen.wait(max(0.1, deadline - self._clock.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
        for pid in self._all_supervised:
            if is_running(pid):
                kill(pid)


def kill(pid: int) -> bool:
    """Send SIGKILL; return whether the process existed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def is_running(pid: int) -> bool:
    """Whether a process exists on this machine and looks like one of a run."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"holdfast" in command
