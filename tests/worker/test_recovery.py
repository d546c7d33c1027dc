"""What comes back, and when, at the defaults of ``holdfast worker``, on every shared store."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.model.job import Event
from tests.conformance.stores import PLACES
from tests.worker.machines import Machines, children
from tests.worker.rig import appeared
from tests.worker.test_supervisor import crowd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

APP = "tests.worker.site:app"
LEASE = 15.0
"""The default."""


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ]
)
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    with PLACES[request.param](request) as place:
        machines = Machines(tmp_path, place.url)
        yield machines
        machines.clear()


@pytest.fixture
async def app(machines: Machines) -> AsyncIterator[Holdfast]:
    async with machines.app() as app:
        yield app


@pytest.mark.req("S-6", "S-10")
async def test_a_worker_that_dies_alone_is_replaced_and_its_job_is_back_within_a_second(
    machines: Machines, app: Holdfast
) -> None:
    machines.command("worker", APP)
    await crowd(app, 1)
    job = await app.submit("hold", {"started": machines.file("started")})
    victim = int(await appeared(Path(machines.file("started"))))
    killed = app.store.now()

    os.kill(victim, signal.SIGKILL)

    status = await app.wait(job.job_id, timeout=20)
    assert (State.COMPLETED, 2) == (status.state, status.attempt)
    (history,) = await app.store.history([job.job_id])
    lapse = next(edge for edge in history if edge.event is Event.LAPSE)
    assert lapse.at - killed < timedelta(seconds=1)


@pytest.mark.req("S-6")
async def test_the_jobs_of_a_dead_host_run_again_within_the_lease_and_a_second(
    machines: Machines, app: Holdfast
) -> None:
    first = machines.command("worker", APP)
    await crowd(app, 1)
    job = await app.submit("hold", {"started": machines.file("started")})
    await appeared(Path(machines.file("started")))
    machines.command("worker", APP)
    await crowd(app, 2)
    killed = time.monotonic()

    _kill_all(first)

    status = await app.wait(job.job_id, timeout=40)
    assert time.monotonic() - killed < LEASE + 1
    assert (State.COMPLETED, 2) == (status.state, status.attempt)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those it started at once, as a host does that loses its power."""
    for pid in (process.pid, *children(process.pid)):
        os.kill(pid, signal.SIGKILL)
