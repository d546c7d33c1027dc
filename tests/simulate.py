"""Run the whole system in virtual time, seed by seed.

``python -m tests.simulate [--seeds N] [--start S] [--store memory|sqlite] [--trace]``
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

from tests.simulation.many import SeedResult, run_seeds


def main() -> int:
    options = _arguments()
    counts: Counter[str] = Counter()
    simulated, started = 0.0, time.monotonic()
    failed: list[str] = []
    seeds = range(options.start, options.start + options.seeds)
    which = [(seed, options.store or _store(seed)) for seed in seeds]
    for result in run_seeds(which, processes=options.processes, trace=options.trace):
        counts += result.counts
        simulated += result.simulated
        if result.report:
            print(result.report, flush=True)
        if result.wrong:
            failed.append(_repeat(result))
            if len(failed) >= options.failures:
                break
    _summary(counts, simulated, time.monotonic() - started)
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


def _store(seed: int) -> str:
    return "sqlite" if seed % 5 == 4 else "memory"


def _repeat(result: SeedResult) -> str:
    return f"python -m tests.simulate --start {result.seed} --seeds 1 --store {result.store}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=int(os.environ.get("SEEDS", "500")))
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--store", choices=["memory", "sqlite"], help="one in five is SQLite")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--trace", action="store_true", help="print every trace")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _summary(counts: Counter[str], simulated: float, took: float) -> None:
    for what, count in sorted(counts.items()):
        print(f"{count:10}  {what}")
    print(f"{simulated:10.0f}  seconds simulated in {took:.0f} s")


if __name__ == "__main__":
    raise SystemExit(main())
