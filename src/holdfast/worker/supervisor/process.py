"""One worker process, seen from the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import msgspec
from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.model.workers import SUPERVISED
from holdfast.runtime.host import HOST
from holdfast.runtime.processes import described, ended, signal_group, start
from holdfast.worker.supervisor.lease_guard import LeaseGuard
from holdfast.worker.supervisor.protocol import (
    DRAIN,
    HALT,
    LARGEST,
    Ready,
    Stuck,
    WorkerPlan,
    pair,
    read_report,
)

MOST_READ = 100
"""Messages read at once before the loop serves others."""


class WorkerProcess:
    """A worker process: started at once, its reports read until it ends."""

    def __init__(self, plan: WorkerPlan, app: Holdfast, guard: LeaseGuard) -> None:
        self._guard = guard
        self._clock = app.clock
        self._started = app.clock.monotonic()
        self._line, theirs = pair()
        with theirs:
            self._process = start("holdfast.worker.supervisor.main", theirs)
        self.pid = self._process.pid
        self.name = f"{HOST}{SUPERVISED}{self.pid}-{app.randomness.token()[:8]}"
        self.was_ready = False
        self._blocked_by = ""
        self._line.send(msgspec.msgpack.encode(replace(plan, name=self.name)))
        asyncio.get_running_loop().add_reader(self._line.fileno(), self._read)

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return self._clock.monotonic() - self._started

    @property
    def was_blocked(self) -> bool:
        """Whether it was killed because a job blocked its event loop."""
        return bool(self._blocked_by)

    async def ended(self) -> int:
        """Wait until it exits; return its exit code."""
        code = await ended(self._process)
        self._read()
        asyncio.get_running_loop().remove_reader(self._line.fileno())
        self._line.close()
        self._guard.forget(self.name)
        return code

    def stop(self, *, halt: bool) -> None:
        """Order it to exit: when its jobs have ended, or at once."""
        with contextlib.suppress(OSError):
            self._line.send(HALT if halt else DRAIN)

    def kill(self) -> None:
        """Kill it."""
        signal_group(self._process, signal.SIGKILL)

    def exit_reason(self, code: int) -> str:
        """Describe how it ended."""
        blocked = f": job {self._blocked_by} blocked its event loop" if self._blocked_by else ""
        return f"{self.pid} {described(code)}{blocked}"

    def _read(self) -> None:
        for _ in range(MOST_READ):
            try:
                data = self._line.recv(LARGEST)
            except OSError:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(self._line.fileno())
                return
            report = read_report(data)
            self.was_ready = self.was_ready or isinstance(report, Ready)
            if isinstance(report, Stuck):
                self._blocked_by = report.job_id
                self.kill()
            self._guard.update(self.name, report)
