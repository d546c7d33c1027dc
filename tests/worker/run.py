"""Starts a worker with the options of a test: ``python -m tests.worker.run KIND {options}``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from datetime import timedelta

from holdfast.worker import Worker
from holdfast.worker.loading import load_app
from holdfast.worker.supervisor.supervisor import supervise

SITE = "tests.worker.site:app"


def main() -> int:
    kind, options = sys.argv[1], json.loads(sys.argv[2])
    if "grace" in options:
        options["grace"] = timedelta(seconds=options["grace"])
    if kind == "supervisor":
        return supervise(options.pop("app", SITE), **options)
    asyncio.run(alone(options))
    return 0


async def alone(options: dict[str, object]) -> None:
    burst = bool(options.pop("burst", False))
    site = str(options.pop("app", SITE))
    worker = Worker(load_app(site), **options)  # type: ignore[arg-type]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run(burst=burst)


if __name__ == "__main__":
    sys.exit(main())
