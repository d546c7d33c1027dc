"""The process of a worker ends, whatever the tasks and threads of its handlers do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from tests.worker.rig import appeared

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SITE = """
import asyncio, pathlib, threading
from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db")

@app.task("deaf")
async def deaf() -> None:
    pathlib.Path("started").write_text("yes")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@app.task("thread")
async def thread() -> None:
    threading.Thread(target=threading.Event().wait, name="forgotten").start()
    pathlib.Path("started").write_text("yes")
"""


@pytest.mark.parametrize(
    ("type_", "state", "reported"),
    [
        ("deaf", State.SCHEDULED, "job deaf"),
        ("thread", State.COMPLETED, "thread forgotten"),
    ],
)
async def test_a_lone_worker_exits_although_a_handler_holds_it(
    tmp_path: Path, type_: str, state: State, reported: str
) -> None:
    (tmp_path / "site_.py").write_text(SITE)
    async with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        job = await app.submit(type_)
        worker = _start(tmp_path)
        await appeared(tmp_path / "started")
        if state is State.COMPLETED:
            await app.wait(job.job_id, timeout=20)

        worker.send_signal(signal.SIGTERM)
        _, lines = worker.communicate(timeout=30)

        assert state is (await app.get(job.job_id)).state
    assert 1 == worker.returncode
    assert f"holdfast: exits although this still runs: {reported}" in lines.splitlines()[-1]


def _start(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast", "worker", "site_:app"),
            *("--no-supervisor", "--grace", "0.5"),
        ],
        cwd=place,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOLDFAST_URL": ""},
        text=True,
    )
