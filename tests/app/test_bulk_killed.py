"""Operations on many jobs survive the process that runs them: it is killed within a page."""

from __future__ import annotations

import signal
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, State
from holdfast.model.bulk import BulkState
from holdfast.observe import Silent
from holdfast.operations import bulk_runner
from holdfast.operations.bulk_runner import BulkRunner
from tests.processes import running
from tests.waiting import eventually

if TYPE_CHECKING:
    import pytest

    from holdfast.model.bulk import BulkOperation
    from tests.conformance.stores import Place

pytestmark = pytest.mark.req("O-1")
JOBS = 1100
TERM = 1.0
"""Seconds that the operation stays with the killed process."""
DYING = """
import asyncio, os, signal, sys
from datetime import timedelta
from holdfast import Holdfast
from holdfast.observe import Silent
from holdfast.operations import bulk_runner

bulk_runner.TERM = timedelta(seconds=float(sys.argv[3]))
calls = 0


async def main():
    async with Holdfast(sys.argv[1]) as app:
        verb = sys.argv[2]
        change = getattr(app.store, verb)

        async def deadly(*given):
            global calls
            answer = await change(*given)
            calls += 1
            if calls == 2:
                os.kill(os.getpid(), signal.SIGKILL)  # the page is changed, and not recorded
            return answer

        setattr(app.store, verb, deadly)
        runner = bulk_runner.BulkRunner(app.store, "dying", Silent())
        while True:
            await runner.once()


asyncio.run(main())
"""


async def test_operation_resumes_within_the_page_after_kill_9(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not place.is_shared:
        return  # nothing of a memory store survives its process
    monkeypatch.setattr(bulk_runner, "TERM", timedelta(seconds=TERM))
    async with Holdfast(place.url) as app:
        for _ in range(2):
            await app.submit_batch([{"type": "t"} for _ in range(JOBS // 2)])
        cancelled = await _survived(app, place, "cancel", "swap")
        found = await app.search(states=["CANCELLED"], limit=100)
        trails = await app.store.history([job.job_id for job in found.jobs])
        deleted = await _survived(app, place, "delete", "delete")

        assert (BulkState.COMPLETED, JOBS, 0, 0, JOBS) == _counts(cancelled)
        assert (BulkState.COMPLETED, JOBS, 0, 0, JOBS) == _counts(deleted)
        assert JOBS == found.total_count
        ends = [sum(one.to_state is State.CANCELLED for one in trail) for trail in trails]
        assert {1} == set(ends)
        assert 0 == (await app.search(limit=1)).total_count


async def _survived(app: Holdfast, place: Place, action: str, verb: str) -> BulkOperation:
    """Run an operation in a process that dies in its second page, then here."""
    made = await app.bulk.start(action, filter={})
    command = [sys.executable, "-c", DYING, place.url, verb, str(TERM)]
    with running(command) as process:
        code = await eventually(process.poll)
    assert -signal.SIGKILL == code
    left = await app.bulk.get(made.id)
    assert (BulkState.RUNNING, 500) == (left.state, left.done)
    runner = BulkRunner(app.store, "other", Silent())

    async def ended() -> BulkOperation | None:
        await runner.once()
        found = await app.bulk.get(made.id)
        return found if found.ended else None

    return await eventually(ended)


def _counts(done: BulkOperation) -> tuple[BulkState, int, int, int, int]:
    return done.state, done.done, done.skipped, done.failed, done.matched
