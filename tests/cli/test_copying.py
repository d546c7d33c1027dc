"""``holdfast copy``, also when it is killed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.cli.conftest import environment
from tests.processes import PIPE, running

if TYPE_CHECKING:
    from tests.cli.conftest import Place

JOBS = 3000


@pytest.mark.slow
@pytest.mark.req("S-1", "S-2")
def test_killed_copy_is_resumed_and_loses_nothing(place: Place) -> None:
    asyncio.run(_fill(place.url))
    target = f"sqlite:///{place.path}/new.db"

    _killed_after(place, "500 jobs copied", place.url, target)
    _killed_after(place, "1000 jobs copied", place.url, target)
    report = _run_until_finished(place, place.url, target)

    assert report["resumed"]
    assert JOBS == report["jobs"]
    assert 0 < report["adopted"] < JOBS - 800
    assert asyncio.run(_all(place.url)) == asyncio.run(_all(target))
    again = place.process("copy", place.url, target)
    assert 1 == again.returncode
    assert "was already copied" in again.stderr


def test_copy_reports_the_result_and_the_jobs_run_in_the_target(place: Place) -> None:
    job = place.submit("greet", '{"name": "Ada"}')
    target = f"sqlite:///{place.path}/new.db"

    result = place.run("copy", place.url, target)

    assert 0 == result.exit_code
    assert "both stores are equal" in result.stdout
    done = place.process("worker", "jobs_here", "--burst", HOLDFAST_URL=target)
    assert 0 == done.returncode
    assert "COMPLETED" in place.run("job", job, "--url", target).output
    assert "SCHEDULED" in place.run("job", job).output


def test_copy_from_a_missing_store_is_refused(place: Place) -> None:
    result = place.run("copy", f"sqlite:///{place.path}/none.db", place.url)

    assert 3 == result.exit_code
    assert "no store" in result.output


async def _fill(url: str) -> None:
    async with Holdfast(url) as app:
        for first in range(0, JOBS, 1000):
            jobs = [{"type": "t", "payload": {"n": n}} for n in range(first, first + 1000)]
            await app.submit_batch(jobs)


async def _all(url: str) -> list[str]:
    async with Holdfast(url) as app:
        found, cursor = [], None
        while True:
            page = await app.search(order="CREATED_ASC", limit=1000, cursor=cursor)
            found += [job.job_id for job in page.jobs]
            cursor = page.next_cursor
            if cursor is None:
                return found


def _killed_after(place: Place, line: str, *stores: str) -> None:
    """Start a copy and kill it after this line; try again while the lock of a killed one holds."""
    for _ in range(30):
        command = [sys.executable, "-m", "holdfast", "copy", *stores]
        with running(command, cwd=place.path, env=environment(), stderr=PIPE) as process:
            assert process.stderr is not None
            for text in process.stderr:
                if text.strip() == line:
                    process.kill()
                    return
        time.sleep(0.5)  # until the lock of a copy that was killed expires
    pytest.fail(f"never printed {line!r}")


def _run_until_finished(place: Place, *stores: str) -> dict[str, object]:
    for _ in range(30):
        done = place.process("copy", *stores, "--json")
        if done.returncode == 0:
            report: dict[str, object] = json.loads(done.stdout)
            return report
        assert "another copy is using" in done.stderr
        time.sleep(0.5)  # until the lock of a copy that was killed expires
    pytest.fail("never finished")
