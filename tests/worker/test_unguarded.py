"""A script that does its work when it is imported does not do it again in other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.cli.conftest import environment

pytestmark = [pytest.mark.slow, pytest.mark.req("L-5", stores=["sqlite"])]

TASKS = """
import asyncio
from holdfast import Holdfast
from holdfast.worker import Worker
from holdfast.worker.supervisor.supervisor import supervise

app = Holdfast()


@app.task("crunch", runner="process", max_attempts=1)
def crunch(n: int) -> int:
    return n * n


async def main():
    async with app:
        job = await crunch.submit(3)
        await Worker(app).run(burst=True)
        done = await app.get(job.job_id)
        print(done.state, done.output, done.failure)

"""
GUARD = 'if __name__ == "__main__":\n    '
WHAT_TO_ADD = "put that part of it under 'if __name__ == \"__main__\":'"


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _jobs(folder: Path) -> int:
    app = Holdfast(f"sqlite:///{folder}/holdfast.db")
    try:
        return len(app.sync.search().jobs)
    finally:
        app.sync.close()


def test_script_with_a_guard_runs_once_and_its_children_find_the_task(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"{TASKS}{GUARD}asyncio.run(main())\n", "utf-8")

    done = _run(tmp_path, "script.py")

    assert "COMPLETED 9 None\n" == done.stdout, done.stderr
    assert 1 == _jobs(tmp_path)


def test_script_without_a_guard_fails_in_its_children_with_what_to_add(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"{TASKS}asyncio.run(main())\ncrunch.submit_sync(4)\n", "utf-8")

    done = _run(tmp_path, "script.py")

    (line,) = done.stdout.splitlines()
    assert line.startswith("DEAD_LETTER None CHILD_BROKEN"), done.stderr
    assert f"{script.name} uses its app while holdfast imports it" in line
    assert WHAT_TO_ADD in line
    assert 2 == _jobs(tmp_path)


@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
@pytest.mark.parametrize(
    "start", ["crunch.submit_sync(3)", "asyncio.run(main())", "supervise('site_:app', processes=2)"]
)
def test_worker_of_an_unguarded_module_fails_with_one_line(
    tmp_path: Path, start: str, more: list[str]
) -> None:
    (tmp_path / "site_.py").write_text(f"{TASKS}{start}\n", "utf-8")

    done = _run(tmp_path, "-m", "holdfast", "worker", "site_:app", *more)

    assert 2 == done.returncode
    (line,) = done.stderr.splitlines()
    assert "module 'site_' uses its app while holdfast imports it" in line
    assert WHAT_TO_ADD in line
    assert not (tmp_path / "holdfast.db").exists()


def test_unguarded_script_that_supervises_fails_with_one_line(tmp_path: Path) -> None:
    start = "supervise('script:app', processes=2, burst=True)"
    (tmp_path / "script.py").write_text(f"{TASKS}{start}\n", "utf-8")

    done = _run(tmp_path, "script.py")

    assert 1 == done.returncode
    assert WHAT_TO_ADD in done.stderr.splitlines()[-1]
    assert not (tmp_path / "holdfast.db").exists()
