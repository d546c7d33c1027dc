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

    Story = tuple[int, str]
    """A seed and the name of a store."""


@dataclass
class Told:
    """What came of one seed."""

    seed: int
    store: str
    wrong: bool
    report: str
    """The whole story, where it is wrong or was asked for."""
    counts: Counter[str]
    simulated: float


def emit(story: Story, *, trace: bool = False) -> Told:
    """Run one seed."""
    seed, store = story
    run = simulate(seed, store)
    counts = Counter(run.record.counts)
    counts.update(f"ended {job.state}" for job in run.jobs)
    counts.update(job.type for job in run.jobs)
    counts["jobs"] = len(run.jobs)
    report = run.report() if trace or run.violations else ""
    return Told(seed, store, bool(run.violations), report, counts, run.simulated)


def tell_all(stories: Sequence[Story], *, processes: int, trace: bool = False) -> Iterator[Told]:
    """Run seeds in processes of their own; what they tell comes in the order given."""
    teller = partial(emit, trace=trace)
    if processes < 2 or len(stories) < 2:
        yield from map(teller, stories)
        return
    # fresh interpreters: a fork would inherit whatever loops and threads are about
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(teller, stories, chunksize=max(1, min(10, len(stories) // 8)))
