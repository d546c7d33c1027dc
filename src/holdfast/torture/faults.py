"""Injects the faults of a plan, spread evenly over the jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime

from holdfast.runtime.randomness import Randomness
from holdfast.torture.plan import TorturePlan
from holdfast.torture.processes import ManagedProcess, Processes, kill
from holdfast.torture.proxy import Proxy

Crash = Callable[[], Awaitable[None]]
"""Crashes the store's server and returns when it is back."""

MIN_AGE = 0.7
"""Seconds after its start before which a process has hardly claimed anything."""

MAX_PAUSED = 2
"""Processes that may be paused at the same time."""

LAST_FAULT = 0.9
"""The last fault comes when this share of the jobs has ended."""


class FaultInjector:
    """Injects the faults of a plan, each when its share of the jobs has ended."""

    def __init__(
        self,
        plan: TorturePlan,
        processes: Processes,
        randomness: Randomness,
        now: Callable[[], datetime],
        proxy: Proxy | None,
        crash: Crash | None,
    ) -> None:
        self._plan = plan
        self._processes = processes
        self._randomness = randomness
        self._now = now
        self._proxy = proxy
        self._crash = crash
        self._crashing: asyncio.Task[None] | None = None
        self._totals = {
            "kills": plan.kills,
            "pauses": plan.pauses,
            "cuts": plan.cuts if proxy else 0,
            "crashes": plan.crashes if crash else 0,
            "producer kills": min(plan.kills // 10, 20),
        }
        self.counts: Counter[str] = Counter()
        self.killed_at: dict[str, datetime] = {}
        """When workers were killed, by the store's clock."""

    @property
    def is_done(self) -> bool:
        """Whether all planned faults have happened."""
        if self._crashing is not None and self._crashing.done():
            self._crashing.result()
        busy = self._crashing is not None and not self._crashing.done()
        return not busy and all(self.counts[kind] >= n for kind, n in self._totals.items())

    @property
    def deaths(self) -> int:
        """How often a process ended without being killed on purpose."""
        return self._processes.deaths

    @property
    def crashes_planned(self) -> int:
        """How often the server is to crash; 0 if the caller cannot crash it."""
        return self._totals["crashes"]

    @property
    def allowed(self) -> float:
        """The share of the jobs that may be submitted before more faults have happened."""
        shares = [
            (self.counts[kind] + 1) / total
            for kind, total in self._totals.items()
            if self.counts[kind] < total
        ]
        return min([1.0, *shares])

    def inject(self, ended: float) -> None:
        """Inject the faults that are due after this share of the jobs has ended."""
        actions: dict[str, Callable[[], bool]] = {
            "kills": self._kill,
            "pauses": self._pause,
            "cuts": self._cut,
            "crashes": self._crash_server,
            "producer kills": self._kill_producer,
        }
        for kind, action in actions.items():
            total, done = self._totals[kind], self.counts[kind]
            if done < total and ended >= LAST_FAULT * (done + 0.5) / total and action():
                self.counts[kind] += 1

    def _kill(self) -> bool:
        if self._processes.supervised and self.counts["supervised kills"] < 0.3 * (
            self.counts["kills"] + 1
        ):
            return self._kill_supervised()
        worker = self._pick(self._processes.workers)
        if worker is None:
            return False
        self.killed_at[worker.name] = self._now()
        worker.kill()
        return True

    def _kill_supervised(self) -> bool:
        """Kill a process under a supervisor, or, one time in five, the supervisor."""
        supervisor = self._pick(self._processes.supervisors)
        if supervisor is not None and self._randomness.fraction() < 0.2:
            supervisor.kill()
            self.counts["supervisor kills"] += 1
            return True
        pids = sorted(self._processes.supervised)
        pid = pids[int(self._randomness.fraction() * len(pids))]
        name = self._processes.supervised.pop(pid)
        now = self._now()
        if not kill(pid):
            return False
        self.killed_at[name] = now
        self.counts["supervised kills"] += 1
        return True

    def _pause(self) -> bool:
        paused = sum(worker.resume_at is not None for worker in self._processes.workers)
        if paused >= MAX_PAUSED:
            return False
        worker = self._pick(self._processes.workers)
        if worker is None:
            return False
        worker.pause(self._plan.lease * (1.2 + self._randomness.fraction()))
        return True

    def _cut(self) -> bool:
        assert self._proxy is not None
        proxy = self._proxy
        if proxy.cut_before + proxy.cut_after + proxy.reset < self.counts["cuts"]:
            return False  # the cut before still waits for a request
        if self.counts["cuts"] % 3 == 0:
            return proxy.reset_idle()
        self._proxy.cut(after=self._randomness.fraction() < 0.5)
        return True

    def _crash_server(self) -> bool:
        assert self._crash is not None
        if self._crashing is not None and not self._crashing.done():
            return False
        self._crashing = asyncio.ensure_future(self._crash())
        return True

    def _kill_producer(self) -> bool:
        producer = self._pick(self._processes.producers)
        if producer is None:
            return not self._processes.producing
        producer.kill()
        return True

    def _pick(self, processes: list[ManagedProcess]) -> ManagedProcess | None:
        ready = [process for process in processes if process.is_up and process.age > MIN_AGE]
        return ready[int(self._randomness.fraction() * len(ready))] if ready else None
