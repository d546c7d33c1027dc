"""``python -m bench sqlite``: run one benchmark by name."""

from __future__ import annotations

import argparse
import asyncio

from bench import dashboard, http, redis, sqlite, worker
from bench.effort import Effort
from bench.operator import table as operator
from bench.pg import bloat, compare, designs
from bench.recovery import table as recovery
from bench.shapes import table

BENCHMARKS = {
    "dashboard": dashboard.main,
    "http": http.main,
    "operator": operator.main,
    "postgres": compare.main,
    "postgres-bloat": bloat.main,
    "postgres-designs": designs.main,
    "recovery": recovery.main,
    "redis": redis.main,
    "shapes": table.main,
    "sqlite": sqlite.main,
    "worker": worker.main,
}


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", default="sqlite", choices=sorted(BENCHMARKS))
    parser.set_defaults(effort=Effort.FULL)
    for effort, purpose in {
        Effort.QUICK: "fewer jobs, rougher figures",
        Effort.MOMENT: "a few jobs, only to see that it runs",
    }.items():
        parser.add_argument(
            f"--{effort}", dest="effort", action="store_const", const=effort, help=purpose
        )
    parser.add_argument("--folder", help="where the files go; default: the temporary directory")
    parser.add_argument("--only", default="", help="shapes, queues whose name contains this word")
    parser.add_argument("--store", default="", help="shapes on this store alone")
    parser.add_argument("--keep", help="a folder that keeps the filled stores for later runs")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="fill a kept store for so long"
    )
    arguments = parser.parse_args()
    options = {"effort": arguments.effort, "folder": arguments.folder}
    if arguments.name == "shapes":
        options |= {"only": arguments.only, "store": arguments.store}
    if arguments.name == "recovery":
        options |= {"only": arguments.only}
    if arguments.name in ("dashboard", "operator"):
        options |= {name: getattr(arguments, name) for name in ("store", "keep", "seconds")}
    asyncio.run(BENCHMARKS[arguments.name](**options))


if __name__ == "__main__":
    main()
