"""What a worker with nothing to do costs; ``python -m bench worker`` has the exact figures."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.machines import Machines, worker_pids
from tests.worker.rig import PATIENCE

SECONDS = 4
MOST_CPU = 0.03
MOST_MEGABYTES = 60.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.clear()


@pytest.mark.slow
async def test_an_idle_worker_uses_next_to_no_cpu(machines: Machines) -> None:
    machines.start("alone")
    async with machines.app() as app:
        async with asyncio.timeout(PATIENCE):
            while not await worker_pids(app):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.05)
        (pid,) = (await worker_pids(app)).values()
        await asyncio.sleep(1.0)  # the time over which idle ticks are counted
        before = ticks(pid)
        await asyncio.sleep(SECONDS)  # the time over which is measured
        used = (ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / SECONDS

    assert used < MOST_CPU
    assert megabytes(pid) < MOST_MEGABYTES


def ticks(pid: int) -> int:
    """Return the processor time a process used, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def megabytes(pid: int) -> float:
    """Return how much memory of a process is resident."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
