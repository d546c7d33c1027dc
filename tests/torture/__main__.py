"""The full crash runs, on their own servers: ``python -m tests.torture [STORE...]``.

Without arguments: a million jobs on PostgreSQL, 700,000 on SQLite, half a million on Valkey.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from holdfast.cli.torture import interrupt, show
from holdfast.torture.plan import TorturePlan
from holdfast.torture.report import Outcome
from tests.torture.servers import STORES, on_store

FULL = {
    "postgres": TorturePlan(jobs=1_000_000, kills=500, pauses=200, cuts=500, crashes=20),
    "sqlite": TorturePlan(jobs=700_000, kills=500, pauses=200),
    "valkey": TorturePlan(jobs=500_000, kills=500, pauses=200, cuts=500, crashes=20),
}


def main() -> int:
    """Run on the given stores; return 1 if a run has problems."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, interrupt)
    failed = []
    for store in arguments.stores or list(FULL):
        outcome = asyncio.run(_run(store, arguments))
        print(f"\n=== {store} ===")
        show(outcome)
        if arguments.json:
            Path(arguments.json).mkdir(exist_ok=True)
            Path(arguments.json, f"{store}.json").write_bytes(msgspec.json.encode(outcome))
        if outcome.problems:
            failed.append(store)
    print(f"failed: {', '.join(failed)}" if failed else "every promise held")
    return 1 if failed else 0


async def _run(store: str, arguments: argparse.Namespace) -> Outcome:
    values = {name: getattr(arguments, name) for name in ("jobs", "kills", "pauses", "cuts")}
    values |= {"crashes": arguments.server_crashes, "seed": arguments.seed}
    given = {name: value for name, value in values.items() if value is not None}
    plan = msgspec.structs.replace(FULL[store], **given)
    with tempfile.TemporaryDirectory(prefix="holdfast-run-") as folder:
        return await on_store(store, plan, Path(folder), progress=_report)


def _report(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("stores", nargs="*", choices=[*STORES, []], help="all three, unless named")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--pauses", type=int)
    parser.add_argument("--cuts", type=int)
    parser.add_argument("--server-crashes", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--json", metavar="FOLDER", help="also write each outcome there")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
