"""The result of a run: counters, and whether they are as required."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.torture.plan import TorturePlan

RECOVERY_MARGIN = 2.0
"""Seconds after the lease within which 99 % of a dead worker's jobs must be claimed again."""

MAX_REPEATED = 0.005
"""The share of effects that may be repetitions, with a thousand jobs or more per fault."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took after a worker was killed, in seconds."""

    count: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Recovery:
        """Return the percentiles of samples."""
        ordered = sorted(samples)
        if not ordered:
            return cls(count=0, p50=0.0, p99=0.0, longest=0.0)
        last = len(ordered) - 1
        return cls(
            count=len(ordered),
            p50=round(ordered[last // 2], 3),
            p99=round(ordered[round(last * 0.99)], 3),
            longest=round(ordered[-1], 3),
        )


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a run."""

    plan: TorturePlan
    jobs: int
    seconds: float
    """From the start until the last job has ended."""
    violations: Mapping[str, int]
    """Each must be 0."""
    happened: Mapping[str, int]
    required: Sequence[str]
    """What must have happened: a run without it proves nothing about it."""
    findings: Sequence[str]
    effects: int
    repeated: int
    """Effects after the first one of their job; the history must explain each."""
    ready: Recovery
    """Until the jobs of killed workers were ready again."""
    recovery: Recovery
    """Until they were claimed again, behind the jobs that were already waiting."""

    @property
    def disturbances(self) -> int:
        """The number of faults that can make a worker's running jobs run again."""
        workers = self.plan.alone + self.plan.supervised + 1
        crashes = self.happened.get("server crashes", 0)
        return self.happened.get("kills", 0) + self.happened.get("pauses", 0) + workers * crashes

    @property
    def problems(self) -> list[str]:
        """Every counter that is not as required."""
        found = [f"{name}: {count}" for name, count in self.violations.items() if count]
        found += [f"never happened: {name}" for name in self.required if not self.happened[name]]
        limit = self.plan.lease + RECOVERY_MARGIN
        if self.recovery.p99 > limit:
            found.append(f"recovery p99 {self.recovery.p99:.2f} s is above {limit:g} s")
        if self.repeated > self.max_repeated:
            found.append(f"{self.repeated} effects repeated, above {self.max_repeated}")
        return found

    @property
    def max_repeated(self) -> int:
        """How many effects may be repetitions: a fault repeats at most a worker's running jobs."""
        running = self.plan.slots * self.disturbances
        share = int(MAX_REPEATED * self.effects)
        return share if self.jobs >= 1000 * self.disturbances else max(share, running)
