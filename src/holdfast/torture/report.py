"""What came of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.torture.plan import TorturePlan

MOST_LATE = 2.0
"""Seconds past the lease after which nearly every job of a dead worker runs again."""

MOST_REPEATED = 0.005
"""The share of effects that may be repetitions, with a thousand jobs or more per fault."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took after a worker's death, in seconds."""

    count: int
    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Recovery:
        """Sum up samples."""
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
    """Counters, and whether they are as they must be."""

    plan: TorturePlan
    jobs: int
    seconds: float
    """From the first submission to the last end."""
    violations: Mapping[str, int]
    """Each must be 0."""
    happened: Mapping[str, int]
    required: Sequence[str]
    """What must have happened: a run in which it did not proves nothing about it."""
    findings: Sequence[str]
    effects: int
    repeated: int
    """Effects that came after the first one of their job; each is explained by its history."""
    ready: Recovery
    """Until dead workers' jobs could be claimed again."""
    recovery: Recovery
    """Until they were claimed again, behind the jobs that waited already."""

    @property
    def disturbances(self) -> int:
        """Faults that can make a worker repeat what it had in hand."""
        workers = self.plan.alone + self.plan.supervised + 1
        crashes = self.happened.get("server crashes", 0)
        return self.happened.get("kills", 0) + self.happened.get("pauses", 0) + workers * crashes

    @property
    def problems(self) -> list[str]:
        """Everything that is not as it must be."""
        found = [f"{name}: {count}" for name, count in self.violations.items() if count]
        found += [f"never happened: {name}" for name in self.required if not self.happened[name]]
        limit = self.plan.lease + MOST_LATE
        if self.recovery.p99 > limit:
            found.append(f"recovery p99 {self.recovery.p99:.2f} s is above {limit:g} s")
        if self.repeated > self.most_repeated:
            found.append(f"{self.repeated} effects repeated, above {self.most_repeated}")
        return found

    @property
    def most_repeated(self) -> int:
        """How many effects may be repetitions: a worker repeats at most what it had in hand."""
        in_hand = self.plan.slots * self.disturbances
        share = int(MOST_REPEATED * self.effects)
        return share if self.jobs >= 1000 * self.disturbances else max(share, in_hand)
