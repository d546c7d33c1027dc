"""The worker processes of the demonstration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

LONGEST = 8.0
"""The longest time for the workers to stop, in seconds."""


@asynccontextmanager
async def workers(folder: Path, url: str) -> AsyncIterator[Path]:
    """Run two worker processes under a supervisor; yields the path of their log."""
    log = folder / "workers.log"
    command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.demo.tasks:app"]
    command += ["--processes", "2", "--slots", "10", "--grace", "1", "--log-level", "info"]
    search = os.pathsep.join(place for place in sys.path if place)
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220, S603  # our own program, started once
            command,
            env={**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": search},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        await _stop(process)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST):
                    while process.poll() is None:  # noqa: ASYNC110  # a process sends no notice
                        await asyncio.sleep(0.05)
