"""``python -m bench sqlite``: run one benchmark by name."""

from __future__ import annotations

import argparse
import asyncio

from bench import http, redis, sqlite, worker
from bench.pg import bloat, compare, designs

BENCHMARKS = {
    "http": http.main,
    "postgres": compare.main,
    "postgres-bloat": bloat.main,
    "postgres-designs": designs.main,
    "redis": redis.main,
    "sqlite": sqlite.main,
    "worker": worker.main,
}


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="?", default="sqlite", choices=sorted(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="fewer jobs, rougher figures")
    parser.add_argument("--folder", help="where the files go; default: the temporary directory")
    arguments = parser.parse_args()
    asyncio.run(BENCHMARKS[arguments.name](quick=arguments.quick, folder=arguments.folder))


main()
