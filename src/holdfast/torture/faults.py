"""Misfortune, spread evenly over the jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime

from holdfast.runtime.randomness import Randomness
from holdfast.torture.plan import TorturePlan
from holdfast.torture.processes import Crew, Seat, kill
from holdfast.torture.proxy import Proxy

Crash = Callable[[], Awaitable[None]]
"""Crashes the store's server and returns when it is back."""

YOUNG = 0.7
"""Seconds after its start in which a process had hardly time to take anything."""

AT_ONCE = 2
"""Processes that may be stopped at the same time."""

LAST = 0.9
"""The last fault comes when this share of the jobs has ended."""


class Chaos:
    """Brings about the faults of a plan, each when its share of the jobs has ended."""

    def __init__(
        self,
        plan: TorturePlan,
        crew: Crew,
        randomness: Randomness,
        now: Callable[[], datetime],
        proxy: Proxy | None,
        crash: Crash | None,
    ) -> None:
        self._plan = plan
        self._crew = crew
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
        self.deaths: dict[str, datetime] = {}
        """When workers were killed, by the store's clock."""

    @property
    def is_over(self) -> bool:
        """Whether everything that was planned has happened."""
        if self._crashing is not None and self._crashing.done():
            self._crashing.result()
        busy = self._crashing is not None and not self._crashing.done()
        return not busy and all(self.counts[kind] >= n for kind, n in self._totals.items())

    @property
    def crashes_planned(self) -> int:
        """How often the server is to crash, if anybody can bring that about."""
        return self._totals["crashes"]

    @property
    def allowed(self) -> float:
        """The share of the jobs that may be submitted before more faults have happened."""
        left = [
            (self.counts[kind] + 1) / total
            for kind, total in self._totals.items()
            if self.counts[kind] < total
        ]
        return min([1.0, *left])

    def once(self, ended: float) -> None:
        """Do what is due now that a share of the jobs has ended."""
        deeds: dict[str, Callable[[], bool]] = {
            "kills": self._kill,
            "pauses": self._pause,
            "cuts": self._cut,
            "crashes": self._crash_server,
            "producer kills": self._kill_producer,
        }
        for kind, deed in deeds.items():
            total, done = self._totals[kind], self.counts[kind]
            if done < total and ended >= LAST * (done + 0.5) / total and deed():
                self.counts[kind] += 1

    def _kill(self) -> bool:
        if self._crew.members and self.counts["supervised kills"] < 0.3 * (
            self.counts["kills"] + 1
        ):
            return self._kill_supervised()
        seat = self._chosen(self._crew.workers)
        if seat is None:
            return False
        self.deaths[seat.name] = self._now()
        seat.process.kill()
        return True

    def _kill_supervised(self) -> bool:
        """Kill a process under a supervisor, or, now and then, the supervisor."""
        supervisor = self._chosen(self._crew.supervisors)
        if supervisor is not None and self._randomness.fraction() < 0.2:
            supervisor.process.kill()
            self.counts["supervisor kills"] += 1
            return True
        pids = sorted(self._crew.members)
        pid = pids[int(self._randomness.fraction() * len(pids))]
        name = self._crew.members.pop(pid)
        moment = self._now()
        if not kill(pid):
            return False
        self.deaths[name] = moment
        self.counts["supervised kills"] += 1
        return True

    def _pause(self) -> bool:
        if sum(seat.resume_at is not None for seat in self._crew.workers) >= AT_ONCE:
            return False
        seat = self._chosen(self._crew.workers)
        if seat is None:
            return False
        seat.pause(self._plan.lease * (1.2 + self._randomness.fraction()))
        return True

    def _cut(self) -> bool:
        assert self._proxy is not None
        before = self._proxy.cut_before + self._proxy.cut_after
        if before < self.counts["cuts"]:
            return False  # the one before has not found a victim yet
        self._proxy.cut(after=self._randomness.fraction() < 0.5)
        return True

    def _crash_server(self) -> bool:
        assert self._crash is not None
        if self._crashing is not None and not self._crashing.done():
            return False
        self._crashing = asyncio.ensure_future(self._crash())
        return True

    def _kill_producer(self) -> bool:
        seat = self._chosen(self._crew.producers)
        if seat is None:
            return not self._crew.producing
        seat.process.kill()
        return True

    def _chosen(self, seats: list[Seat]) -> Seat | None:
        ready = [seat for seat in seats if seat.is_up and seat.age > YOUNG]
        return ready[int(self._randomness.fraction() * len(ready))] if ready else None
