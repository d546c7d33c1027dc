"""The rows of ``python -m bench shapes``, and how they are printed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.effort import Effort
from bench.shapes import growth, limits, payloads, submits, tools, tracing, workers
from bench.shapes.places import STORES, opened
from bench.shapes.rows import Shape

DISK = ("sqlite", "postgres")
SHAPES = (
    Shape("an unused limit", STORES, limits.unused),
    Shape("jobs wait behind a limit", STORES, limits.waiting),
    Shape("blocked jobs in front", STORES, limits.in_front),
    Shape("two keys, five of each at once", STORES, limits.binding),
    Shape("many small workers", STORES, workers.small),
    Shape("default slots", STORES, workers.slots),
    Shape("failing jobs", STORES, workers.failing),
    Shape("traced jobs, 1 % sampled", STORES, tracing.traced),
    Shape("large payloads", STORES, payloads.large),
    Shape("start of a worker", STORES, workers.start),
    Shape("a hundred schedules", STORES, workers.cron),
    Shape("spawned jobs", STORES, submits.spawn),
    Shape("single submits", ("sqlite",), submits.single),
    Shape("copy and verify", STORES, tools.copy_and_verify),
    Shape("search", DISK, growth.search),
)


async def main(*, effort: Effort, folder: str | None, only: str = "", store: str = "") -> None:
    """Print a line per figure."""
    missed = 0
    with tempfile.TemporaryDirectory(dir=folder) as place, opened(Path(place)) as places:
        for turn, shape in enumerate(SHAPES):
            if only not in shape.name:
                continue
            for name in _stores(shape, turn, effort):
                if store not in ("", name):
                    continue
                for figure in await shape.measure(places, name, effort):
                    missed += not figure.reached
                    mark = " " if figure.reached else "!"
                    what = f"{shape.name}: {figure.what}"
                    print(f"{mark} {name:9} {what:66} {figure.text:28} {figure.behind}", flush=True)
    print(f"{missed} figures missed" if missed else "every figure reached")


def _stores(shape: Shape, turn: int, effort: Effort) -> tuple[str, ...]:
    """Return the stores of a shape; for a moment one after the other."""
    if effort is Effort.MOMENT:
        return (shape.stores[turn % len(shape.stores)],)
    return shape.stores
