"""What background tasks and callbacks raise is reported, in workers and in the service."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.http.server import ListenAddress, serve
from tests.waiting import PATIENCE
from tests.worker.rig import EventLog, ended, working

if TYPE_CHECKING:
    from pathlib import Path


async def _fail() -> None:
    raise ValueError("nobody awaits this")


def _fail_at_once() -> None:
    raise ValueError("nobody awaits this")


async def _leave_behind() -> None:
    """Start a task and forget it, and a callback that fails."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(_fail(), name="forgotten")
    await asyncio.wait([task])
    loop.call_soon(_fail_at_once)
    del task
    gc.collect()


def _check(reports: list[dict[str, object]]) -> None:
    assert ["ValueError: nobody awaits this"] * 2 == [one["error"] for one in reports]
    assert {"forgotten"} == {one["task"] for one in reports if "task" in one}
    assert all("_fail" in str(one["stack_trace"]) for one in reports)


@pytest.mark.asyncio(loop_scope="function")
async def test_worker_reports_what_nobody_awaits(tmp_path: Path) -> None:
    app, log = Holdfast(f"sqlite:///{tmp_path}/jobs.db"), EventLog()
    app.task("leave")(_leave_behind)
    async with working(app, observer=log):
        job = await app.submit("leave")
        assert "COMPLETED" == await ended(app, job.job_id)
        _check(await log.wait_for("loop.error", 2))

    assert asyncio.get_running_loop().get_exception_handler() is None


@pytest.mark.asyncio(loop_scope="function")
async def test_service_reports_what_nobody_awaits(tmp_path: Path) -> None:
    app, log, ready = Holdfast(f"sqlite:///{tmp_path}/jobs.db"), EventLog(), asyncio.Event()
    place = ListenAddress(port=0)
    serving = asyncio.create_task(serve(app, place, observer=log, ready=lambda *_: ready.set()))
    async with asyncio.timeout(PATIENCE):
        await ready.wait()
        await _leave_behind()
        _check(await log.wait_for("loop.error", 2))
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


async def test_handler_of_the_program_stays(tmp_path: Path) -> None:
    app, log, seen = Holdfast(f"sqlite:///{tmp_path}/jobs.db"), EventLog(), []
    app.task("leave")(_leave_behind)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context))
    async with working(app, observer=log):
        job = await app.submit("leave")
        assert "COMPLETED" == await ended(app, job.job_id)

    assert 2 == len(seen)
    assert [] == log.all("loop.error")
    assert loop.get_exception_handler() is not None
