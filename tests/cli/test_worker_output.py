"""What ``holdfast worker`` prints: what it serves, what looks wrong, what handlers log."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import AbstractContextManager
from subprocess import Popen
from typing import Any

import pytest

from tests.cli.conftest import Place, environment
from tests.processes import PIPE, running

pytestmark = pytest.mark.slow

APP = """
import asyncio, logging
from holdfast import Holdfast

app = Holdfast()
log = logging.getLogger("shop")


@app.task("talk", max_attempts=1)
async def talk() -> None:
    log.info("coroutine speaks")


@app.task("compute", runner="process", max_attempts=1)
def compute() -> None:
    log.info("process speaks")


@app.task("fails", max_attempts=1)
def fails() -> None:
    raise ValueError("token=hunter2")


@app.task("endless", queue="slow")
async def endless() -> None:
    log.warning("endless runs")
    await asyncio.Event().wait()
"""


@pytest.fixture
def shop(place: Place) -> Place:
    (place.path / "shop.py").write_text(APP, "utf-8")
    return place


def logged(place: Place, *args: str) -> list[dict[str, Any]]:
    """Run a worker for a burst and return its log."""
    done = place.process("worker", *args, "--burst", "--log-format", "json")
    assert 0 == done.returncode, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def named(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("flag", ["--supervisor", "--no-supervisor"])
def test_first_line_names_store_queues_tasks_and_slots(shop: Place, flag: str) -> None:
    lines = logged(shop, "shop", "-Q", "a,b", "-c", "3", flag)

    first = lines[0]
    assert "worker.serves" == first["event"]
    assert "sqlite:///holdfast.db" == first["store"]
    assert (["a", "b"], 3) == (first["queues"], first["slots"])
    assert ["talk", "compute", "fails", "endless"] == first["tasks"]


def test_worker_without_a_task_is_warned_about(place: Place) -> None:
    (place.path / "bare.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast()\n", "utf-8"
    )

    (warning,) = named(logged(place, "bare"), "worker.no_tasks")

    assert "WARNING" == warning["level"]
    assert "register tasks with @app.task" in warning["advice"]


def test_new_sqlite_file_is_reported_once(shop: Place) -> None:
    (shop.path / "holdfast.db").unlink(missing_ok=True)

    first, second = logged(shop, "shop"), logged(shop, "shop")

    assert [str(shop.path / "holdfast.db")] == [line["file"] for line in named(first, "store.new")]
    assert [] == named(second, "store.new")


@pytest.mark.parametrize("flag", ["--supervisor", "--no-supervisor"])
def test_ready_jobs_of_the_tasks_in_another_queue_are_reported(shop: Place, flag: str) -> None:
    shop.submit("talk", "--queue", "elsewhere")
    shop.submit("foreign", "--queue", "third")

    (warning,) = named(logged(shop, "shop", flag), "worker.other_queue")

    assert ("elsewhere", "serve it with -Q elsewhere") == (warning["queue"], warning["advice"])


@pytest.mark.parametrize("flag", ["--supervisor", "--no-supervisor"])
def test_lines_and_tracebacks_of_handlers_appear_in_the_log(shop: Place, flag: str) -> None:
    ids = {type_: shop.submit(type_) for type_ in ("talk", "compute")}
    failing = shop.submit("fails", "--max-attempts", "1")

    lines = logged(shop, "shop", flag)

    for type_, message in (("talk", "coroutine speaks"), ("compute", "process speaks")):
        (line,) = named(lines, message)
        assert ("INFO", "shop", ids[type_], 1) == (
            line["level"],
            line["logger"],
            line["job_id"],
            line["attempt"],
        )
    (dead,) = named(lines, "job.dead")
    assert failing == dead["job_id"]
    assert "in fails" in dead["stack_trace"]
    assert "ValueError: token=***" in dead["stack_trace"]


@pytest.mark.parametrize("flag", ["--supervisor", "--no-supervisor"])
def test_first_interrupt_says_what_it_waits_for_and_how_to_hurry(shop: Place, flag: str) -> None:
    job_id = shop.submit("endless", "--queue", "slow")

    with _running(shop, "worker", "shop", "-Q", "slow", flag) as process:
        _read_until(process, "endless runs")
        process.send_signal(signal.SIGINT)
        said = _read_until(process, "stopping, waits for running jobs")
        process.send_signal(signal.SIGINT)
        process.wait(20)

    assert "running=1 grace=30" in said
    assert "a second Ctrl-C or TERM returns them to the queue at once" in said
    assert "SCHEDULED" == shop.stored(job_id)[0].state


def _read_until(process: Popen[str], text: str) -> str:
    """Read the output of a process up to this text; the timeout of the test limits the wait."""
    assert process.stderr is not None
    return next(line for line in process.stderr if text in line)


def _running(place: Place, *args: str) -> AbstractContextManager[Popen[str]]:
    command = [sys.executable, "-u", "-m", "holdfast", *args]
    return running(command, cwd=place.path, env=environment(), stderr=PIPE)
