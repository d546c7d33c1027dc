"""Twenty thousand jobs, four worker processes, one of them killed every second."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.job import Event
from holdfast.verify import violations
from tests.worker.machines import Machines

JOBS = 20_000
PROCESSES = 4
PAGE = 1000
LONGEST = 100.0


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    yield machines
    machines.clear()


class Slaughter:
    """Keeps workers going and kills one of them every second."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self._machines = machines
        self._random = random.Random(seed)
        self._workers: list[subprocess.Popen[bytes]] = [self._start() for _ in range(PROCESSES)]
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return self._machines.start("alone", slots=50)

    async def once(self) -> None:
        await asyncio.sleep(1.0)
        place = self._random.randrange(PROCESSES)
        self._workers[place].kill()
        self.kills += 1
        self._workers[place] = self._start()


async def submit(app: Holdfast) -> list[str]:
    ids: list[str] = []
    for start in range(0, JOBS, PAGE):
        batch = [
            {"type": "flaky", "payload": {"number": i}, "max_attempts": 100, "lease": 1}
            for i in range(start, start + PAGE)
        ]
        result = await app.submit_batch(batch)
        ids.extend(answer.job_id for answer in result.results)
    return ids


async def is_done(app: Holdfast) -> bool:
    (queue,) = await app.queues()
    return queue.counts.get(State.COMPLETED, 0) == JOBS


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.req("S-1", "S-2", "S-4", "S-6", "S-10", "S-15", "L-6", stores=["sqlite"])
async def test_no_job_is_lost_or_leased_twice_however_many_workers_are_killed(
    machines: Machines,
) -> None:
    async with machines.app() as app:
        ids = await submit(app)
        slaughter = Slaughter(machines, seed=7)
        end = time.monotonic() + LONGEST
        while not await is_done(app) and time.monotonic() < end:
            await slaughter.once()

        seen: Counter[str] = Counter()
        for start in range(0, JOBS, PAGE):
            page = ids[start : start + PAGE]
            jobs = await app.store.get(page)
            records = await app.store.history(page)
            assert None not in jobs
            for i, (job, record) in enumerate(zip(jobs, records, strict=True), start):
                assert job is not None
                assert [] == violations(job, record)
                assert (State.COMPLETED, str(i).encode()) == (job.state, job.result)
                seen.update(edge.event for edge in record)
                seen["most attempts"] = max(seen["most attempts"], job.attempt)

    assert JOBS == seen[Event.COMPLETE]
    assert slaughter.kills >= 3
    assert seen[Event.LAPSE] > 0
    assert seen["most attempts"] <= slaughter.kills + 2
