"""A coroutine that blocks the worker's loop: reported while it does, failed at its timeout."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from holdfast import FailureCategory, Holdfast, State, Worker
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES, Place
from tests.waiting import PATIENCE
from tests.worker.rig import EventLog, ended


@pytest.fixture(
    params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES if name != "memory"]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A store that a second thread can open: the one in memory lives on the blocked loop."""
    with PLACES[request.param](request) as place:
        yield place


@pytest.mark.req("S-8", "M-6")
async def test_coroutine_that_blocks_the_loop_is_reported_and_fails_at_its_timeout(
    place: Place,
) -> None:
    app, release, events = Holdfast(place.url), threading.Event(), EventLog()
    workers: list[Worker] = []

    @app.task("block", timeout=0.5)
    async def block() -> str:
        release.wait(2 * PATIENCE)
        return "too late"

    async def work() -> None:
        workers.append(Worker(app, observer=events, maintenance=False))
        await workers[0].run(burst=True)

    async with Holdfast(place.url) as client:
        job = await client.submit("block", max_attempts=1)
        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        try:
            assert State.DEAD_LETTER is await ended(client, job.job_id)
            assert not release.is_set()
        finally:
            release.set()
            await asyncio.to_thread(thread.join, PATIENCE)
        failure = (await client.failure(job.job_id)).failure
        status = await client.get(job.job_id)

    reported = events.all("loop.blocked")[0]
    assert (job.job_id, "block", 1) == (reported["job_id"], reported["type"], reported["attempt"])
    assert "use a plain function or runner='process'" == reported["advice"]
    assert isinstance(reported["blocked"], float)
    assert reported["blocked"] >= 2.0
    assert failure is not None
    assert (FailureCategory.TIMEOUT, "EXECUTION_TIMEOUT") == (failure.category, failure.code)
    assert (State.DEAD_LETTER, None) == (status.state, status.output)
