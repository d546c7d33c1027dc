"""The process runner's children: how they find handlers, how many run, when they end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.worker.runners import pool as pool_module
from holdfast.worker.runners.handlers import setup_for
from holdfast.worker.runners.pool import ChildBrokenError, ChildPool
from holdfast.worker.runners.protocol import Setup
from tests.worker.machines import ROOT
from tests.worker.rig import EventLog, is_alive, until
from tests.worker.tasks import app

SCRIPT = """
    import asyncio, os, sys
    from holdfast import Holdfast
    from holdfast.worker import Worker

    app = Holdfast("memory://")

    def make(factor):
        @app.task(f"times.{factor}", runner="process")
        def times(number: int) -> list[int]:
            return [number * factor, os.getpid()]

    for factor in (2, 3):
        make(factor)

    async def main():
        async with app:
            jobs = [await app.submit(f"times.{f}", {"number": 7}) for f in (2, 3)]
            worker = Worker(app)
            task = asyncio.create_task(worker.run())
            for job in jobs:
                result, pid = (await app.wait(job.job_id, timeout=20)).output
                print(result, pid != os.getpid())
            worker.stop()
            await task

    if __name__ == "__main__":
        asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["script", "module"])
def test_functions_of_the_main_module_are_found_even_nested_ones(tmp_path: Path, how: str) -> None:
    (tmp_path / "main_app.py").write_text(textwrap.dedent(SCRIPT))
    what = ["main_app.py"] if how == "script" else ["-m", "main_app"]

    done = subprocess.run(
        [sys.executable, *what],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ("14 True\n21 True\n", 0) == (done.stdout, done.returncode), done.stderr


@pytest.fixture
def events() -> EventLog:
    return EventLog()


async def test_short_jobs_share_a_child_per_core(
    events: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "GROW_AFTER", 60.0)
    pool = ChildPool(setup_for(app), events)
    takers = [asyncio.create_task(pool.take()) for _ in range(12)]
    served = 0
    while takers:
        done, rest = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
        takers = list(rest)
        for taker in done:
            served += 1
            pool.give_back(taker.result())

    assert 12 == served
    assert len(events.all("child.started")) <= pool_module.CORES
    await pool.close()


async def test_long_jobs_get_a_child_each(events: EventLog) -> None:
    pool = ChildPool(setup_for(app), events)

    async with asyncio.timeout(30):
        children = await asyncio.gather(*(pool.take() for _ in range(pool_module.CORES + 3)))

    assert pool_module.CORES + 3 == len({child.pid for child in children})
    await pool.close()


async def test_idle_children_are_ended(events: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.2)
    pool = ChildPool(setup_for(app), events)
    children = [await pool.take() for _ in range(3)]
    pids = [child.pid for child in children]
    for child in children:
        pool.give_back(child)

    await until(lambda: sum(map(is_alive, pids)) == pool_module.KEPT_WARM)

    assert (await pool.take()).is_alive
    await pool.close()
    assert not any(map(is_alive, pids))


async def test_an_idle_child_that_dies_is_not_used(events: EventLog) -> None:
    pool = ChildPool(setup_for(app), events)
    child = await pool.take()
    pool.give_back(child)
    child.kill()
    await until(lambda: not child.is_alive)

    other = await pool.take()

    assert child.pid != other.pid
    await pool.close()


async def test_a_module_that_cannot_be_imported_is_named(events: EventLog) -> None:
    pool = ChildPool(Setup(app="nowhere:app", main="", modules=["nowhere"]), events)

    with pytest.raises(ChildBrokenError, match="No module named 'nowhere'"):
        await pool.take()

    await pool.close()


async def test_a_cancelled_wait_for_a_child_loses_no_child(events: EventLog) -> None:
    pool = ChildPool(setup_for(app), events)
    impatient = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])

    child = await asyncio.wait_for(pool.take(), 15)

    assert child.is_alive
    await pool.close()
