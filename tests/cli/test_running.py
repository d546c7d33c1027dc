"""The commands that run jobs, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest

from tests.cli.conftest import Place, environment
from tests.processes import PIPE, running

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere:app", "no app at 'nowhere:app': there is no module 'nowhere'"),
        ("nowhere:app", ": run the command in the directory of your module"),
        ("jobs_her:app", ": did you mean jobs_here?"),
        ("jobs_here:nope", "module 'jobs_here' has no 'nope'"),
        ("jobs_here:ap", "has no 'ap'; did you mean jobs_here:app?"),
        ("jobs_here.app", ": write jobs_here:app for 'app' of module 'jobs_here'"),
        ("jobs_here.py", ": name the module, not the file: jobs_here:app"),
        ("./jobs_here.py:app", ": name the module, not the file: jobs_here:app"),
        ("no.such.place:app", "there is no module 'no'"),
        ("jobs_here:greet", "it is a Task, not a Holdfast"),
        ("several", "it holds several apps, name several:one or several:two"),
        ("empty", "the module holds no Holdfast app"),
        ("broken", "importing 'broken' failed: ZeroDivisionError: division by zero (broken.py"),
        ("unreadable", "failed: SyntaxError: invalid syntax (unreadable.py, line 1)\n"),
        (":", "it must look like module:name"),
    ],
)
def test_wrong_app_is_reported_in_one_line(
    place: Place, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.syspath_prepend(place.path)
    (place.path / "several.py").write_text(
        "from holdfast import Holdfast\none = Holdfast()\ntwo = Holdfast()\n", "utf-8"
    )
    (place.path / "empty.py").write_text("", "utf-8")
    (place.path / "broken.py").write_text("1 / 0\n", "utf-8")
    (place.path / "unreadable.py").write_text("def (\n", "utf-8")

    result = place.run("worker", path)

    assert 2 == result.exit_code
    assert message in result.stderr.replace(str(place.path) + os.sep, "")
    assert 1 == len(result.stderr.splitlines())


def test_worker_without_an_app_is_a_usage_error(place: Place) -> None:
    result = place.run("worker")

    assert 2 == result.exit_code
    assert "MODULE:APP" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-c", "0"], "worker.slots: must be a whole number from 1, got '0'"),
        (
            ["--processes", "2", "--no-supervisor"],
            "--no-supervisor runs one process: omit --processes",
        ),
        (["--processes", "many"], "worker.processes: must be a whole number"),
        (["-Q", "a:b"], "worker.queues: must be 1 to 128 characters without a colon"),
        (["--grace", "soon"], "worker.grace: must be a duration"),
    ],
)
def test_errors_name_the_wrong_flag(place: Place, args: list[str], message: str) -> None:
    result = place.run("worker", "jobs_here", *args)

    assert 2 == result.exit_code
    assert message in result.stderr


def test_flag_cannot_override_the_store_of_an_app(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(place.path)
    (place.path / "fixed.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///own.db')\n", "utf-8"
    )

    result = place.run("worker", "fixed", "--url", "sqlite:///other.db")

    assert 2 == result.exit_code
    assert "fixed names its own store, sqlite:///own.db" in result.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_burst_runs_all_ready_jobs_and_exits(place: Place, processes: str) -> None:
    ids = [place.submit("greet", '{"name": "Ada"}') for _ in range(5)]
    side = place.submit("other", "--queue", "side")

    done = place.process(
        *("worker", "jobs_here:app", "-Q", "default=3,side", "-c", "4", "--burst"),
        *("--processes", processes, "--log-format", "json"),
    )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    completed = {line["job_id"] for line in lines if line["event"] == "job.completed"}
    assert (0, "") == (done.returncode, done.stdout)
    assert {*ids, side} == completed


def test_submit_uses_the_options_of_the_task_and_waits(place: Place) -> None:
    with _running(place, "worker", "jobs_here") as worker:
        done = place.process(
            *("submit", "greet", '{"name": "Ada"}', "--app", "jobs_here"),
            *("--wait", "--wait-timeout", "30", "--json"),
        )
        failed = place.process("submit", "fail", "--wait", "--wait-timeout", "30")
        worker.send_signal(signal.SIGTERM)
        worker.wait(20)

    job = json.loads(done.stdout)
    assert (0, "COMPLETED", "hello Ada", 5) == (
        done.returncode,
        job["state"],
        job["result"]["output"],
        job["max_attempts"],
    )
    assert 1 == failed.returncode
    assert "ended FAILED" in failed.stderr
    assert 0 == worker.returncode


def test_settings_file_is_enough_to_start_a_worker(place: Place) -> None:
    place.submit("other", "--queue", "side")
    (place.path / "holdfast.toml").write_text(
        'app = "jobs_here"\n[worker]\nqueues = ["side"]\n[log]\nlevel = "debug"\n', "utf-8"
    )

    done = place.process("worker", "--burst")

    assert 0 == done.returncode
    assert "job started" in done.stderr
    assert "COMPLETED" == place.json("jobs")["jobs"][0]["state"]


def test_dev_serves_the_queues_of_all_tasks(place: Place) -> None:
    place.submit("other", "--queue", "side")

    with _running(place, "dev", "jobs_here") as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "job completed" in line:
                break
        process.send_signal(signal.SIGINT)
        process.wait(20)

    output = "".join(seen)
    assert "queues     default, side" in output
    assert "task       greet (async)" in output
    assert 0 == process.returncode


def test_dev_reloads_changed_sources_even_after_a_syntax_error(place: Place) -> None:
    source = place.path / "fresh.py"
    source.write_text("this is no python")

    with _running(place, "dev", "fresh") as process:
        _read_until(process, "SyntaxError")
        source.write_text(FRESH.format(task="first"))
        _read_until(process, "task       first")
        source.write_text(FRESH.format(task="second"))
        output = _read_until(process, "task       second")
        process.send_signal(signal.SIGTERM)
        process.wait(20)

    assert "fresh.py changed, restarting" in output
    assert 0 == process.returncode


def test_killed_dev_leaves_no_worker_running(place: Place) -> None:
    with _running(place, "dev", "jobs_here") as process:
        _read_until(process, "worker started")
        process.kill()
        output = _read_until(process, "worker stopped")

    assert "worker stopped" in output


FRESH = """from holdfast import Holdfast
app = Holdfast()

@app.task("{task}")
async def work() -> None: ...
"""


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read the output of a process up to this text; the timeout of the test limits the wait."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if text in line:
            break
    assert text in seen
    return seen


def _running(place: Place, *args: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-m", "holdfast", *args]
    return running(command, cwd=place.path, env=environment(), stderr=PIPE)
