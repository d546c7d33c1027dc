"""Many seeds, on every core."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.scenario import simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    SeedAndStore = tuple[int, str]
    """A seed and the name of a store."""


@dataclass
class SeedResult:
    """The result of one seed."""

    seed: int
    store: str
    wrong: bool
    report: str
    """The whole trace, if a promise was broken or the trace was requested."""
    counts: Counter[str]
    simulated: float


def run_seed(which: SeedAndStore, *, trace: bool = False) -> SeedResult:
    """Run one seed."""
    seed, store = which
    run = simulate(seed, store)
    counts = Counter(run.record.counts)
    counts.update(f"ended {job.state}" for job in run.jobs)
    counts.update(job.type for job in run.jobs)
    counts["jobs"] = len(run.jobs)
    report = run.report() if trace or run.violations else ""
    return SeedResult(seed, store, bool(run.violations), report, counts, run.simulated)


def run_seeds(
    seeds: Sequence[SeedAndStore], *, processes: int, trace: bool = False
) -> Iterator[SeedResult]:
    """Run seeds in processes of their own; return results in the order given."""
    run = partial(run_seed, trace=trace)
    if processes < 2 or len(seeds) < 2:
        yield from map(run, seeds)
        return
    # fresh interpreters: a fork would inherit event loops and threads
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run, seeds, chunksize=max(1, min(10, len(seeds) // 8)))
