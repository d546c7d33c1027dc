"""Commands about the system, and how the command line behaves as a program."""

from __future__ import annotations

import ast
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.cli import cli
from holdfast.cli.commands import SECTIONS
from tests.cli.conftest import Place, environment
from tests.processes import PIPE, running

COMMANDS = [name for section in SECTIONS.values() for name in section]
SUMMARIES = {
    name: summary for section in SECTIONS.values() for name, (_, summary) in section.items()
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(place: Place, name: str) -> None:
    result = place.run(name, "--help")

    assert 0 == result.exit_code
    assert result.stdout.startswith(f"Usage: holdfast {name}")
    assert len(result.stdout.splitlines()) > 4


def test_help_lists_every_command(place: Place) -> None:
    result = place.run("--help")

    assert all(f"  {name} " in result.stdout for name in COMMANDS)
    assert f"holdfast, version {holdfast.__version__}\n" == place.run("--version").stdout


def test_mistyped_command_suggests_the_nearest(place: Place) -> None:
    result = place.run("sumbit")

    assert 2 == result.exit_code
    assert "No such command 'sumbit'. Did you mean 'submit'?" in result.stderr


def test_queues_are_paused_resumed_and_listed(place: Place) -> None:
    place.submit("greet")

    paused = place.json("queues", "pause", "default")
    document = place.json("queues")
    shown = place.run("queues").stdout
    place.run("queues", "resume", "default")

    assert {"queue": "default", "paused": True} == paused
    assert [("default", True, {"SCHEDULED": 1})] == [
        (queue["name"], queue["paused"], {k: v for k, v in queue["counts"].items() if v})
        for queue in document
    ]
    assert " paused by " in shown.splitlines()[1]
    assert not place.json("queues")[0]["paused"]


def test_statistics_are_shown_and_grouped(place: Place) -> None:
    place.submit("greet")

    document = place.json("stats", "--by", "type", "--time-range", "PT5M")
    shown = place.run("stats", "--by", "type").stdout

    assert (1, {"greet"}) == (document["scheduled"], set(document["by_type"]))
    assert "scheduled    1" in shown
    assert "jobs/s:" in shown
    assert "TYPE" in shown


def test_workers_are_listed(place: Place) -> None:
    assert [] == place.json("workers")
    assert place.run("workers").stdout.startswith("WORKER")


def test_events_are_printed_as_lines(place: Place) -> None:
    job_id = place.submit("greet")

    lines = place.run("events", "--json").stdout.splitlines()
    shown = place.run("events", "--type", "greet").stdout
    others = place.run("events", "--type", "else").stdout

    events = [json.loads(line) for line in lines]
    assert ["PENDING", "SCHEDULED"] == [event["transition"]["to_state"] for event in events]
    assert 2 == shown.count(job_id)
    assert "" == others
    after = place.run("events", "--json", "--after", events[0]["cursor"]).stdout
    assert lines[1:] == after.splitlines()


def test_config_shows_values_and_sources(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.path / "holdfast.toml").write_text('[worker]\nqueues = "a=2,b"\n', "utf-8")
    monkeypatch.setenv("HOLDFAST_WORKER_SLOTS", "5")

    document = place.json("config", "--url", "memory://")
    shown = place.run("config").stdout

    assert {"value": "memory://", "source": "flag"} == document["url"]
    assert {"value": "a=2,b=1", "source": "holdfast.toml"} == document["worker.queues"]
    assert {"value": "5", "source": "$HOLDFAST_WORKER_SLOTS"} == {
        k: str(v) for k, v in document["worker.slots"].items()
    }
    assert {"value": "PT30S", "source": "default"} == document["worker.grace"]
    assert "$HOLDFAST_WORKER_SLOTS" in shown


def test_migrate_creates_the_store(place: Place) -> None:
    url = f"sqlite:///{place.path}/new.db"

    first = place.json("migrate", "--url", url)
    second = place.run("migrate", "--url", url)

    assert {"url": url, "status": "UP_TO_DATE"} == first
    assert f"{url} is up to date\n" == second.stdout
    assert (place.path / "new.db").exists()


def test_reading_a_missing_store_creates_no_file(place: Place) -> None:
    result = place.run("jobs", "--url", "sqlite:///elsewhere.db")

    assert 3 == result.exit_code
    assert "no store at elsewhere.db (from flag)" in result.stderr
    assert not (place.path / "elsewhere.db").exists()


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("mysql://x", 3, "no store for 'mysql'"),
        ("sqlite:////nowhere/at/all.db", 3, "no store at /nowhere/at/all.db"),
        ("sqlite://host/x.db", 3, "names a host"),
    ],
)
def test_store_that_cannot_be_opened_is_an_error_without_a_traceback(
    place: Place, url: str, code: int, message: str
) -> None:
    result = place.run("jobs", "--url", url)

    assert code == result.exit_code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_store_comes_from_flag_environment_file_or_default(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sources() -> str:
        return str(place.json("config")["url"]["source"])

    assert "default" == sources()
    (place.path / "holdfast.toml").write_text('url = "sqlite:///a.db"\n', "utf-8")
    assert "holdfast.toml" == sources()
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///b.db")
    assert "$HOLDFAST_URL" == sources()


def test_unknown_setting_is_a_usage_error(place: Place) -> None:
    (place.path / "holdfast.toml").write_text("[worker]\nslotz = 3\n", "utf-8")

    result = place.run("jobs")

    assert 2 == result.exit_code
    assert "did you mean 'worker.slots'?" in result.stderr


@pytest.mark.parametrize(("span", "shown"), [("0.1", "0.1 s"), ("100ms", "0.1 s")])
def test_wait_that_runs_out_of_time_names_the_job_and_the_reason(
    place: Place, span: str, shown: str
) -> None:
    result = place.run("submit", "greet", "--wait", "--wait-timeout", span)

    assert 4 == result.exit_code
    (line,) = result.stderr.splitlines()
    assert re.fullmatch(
        rf"holdfast: job [0-9a-f-]+ has not ended within {shown}: no worker.*", line
    )


@pytest.mark.slow
def test_exit_codes_reach_the_shell(place: Place) -> None:
    job_id = place.submit("greet")

    codes = {
        "done": place.process("job", job_id).returncode,
        "not found": place.process("job", "unknown").returncode,
        "usage": place.process("job").returncode,
        "unreachable": place.process("jobs", "--url", "sqlite:///no.db").returncode,
        "timed out": place.process("submit", "greet", "--wait", "--wait-timeout", "0.1").returncode,
    }

    assert {"done": 0, "not found": 1, "usage": 2, "unreachable": 3, "timed out": 4} == codes


@pytest.mark.slow
def test_closed_pipe_is_not_an_error(place: Place) -> None:
    for _ in range(3):
        place.submit("greet")
    command = f"{sys.executable} -m holdfast events --json | head -n 1; echo ${{PIPESTATUS[0]}}"

    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place.path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    first, code = done.stdout.splitlines()
    assert json.loads(first)
    assert ("0", "") == (code, done.stderr)


@pytest.mark.slow
def test_following_events_ends_with_an_interrupt(place: Place) -> None:
    command = [sys.executable, "-u", "-m", "holdfast", "events", "--follow", "--json"]
    with running(command, cwd=place.path, env=environment(), stdout=PIPE, stderr=PIPE) as follower:
        assert follower.stdout is not None
        os.set_blocking(follower.stdout.fileno(), False)
        line, deadline = "", time.monotonic() + 30
        while not line and time.monotonic() < deadline:
            place.submit("greet")  # until it follows the stream
            select.select([follower.stdout], [], [], 0.2)
            line = follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        _, error = follower.communicate(timeout=20)

    assert "greet" == json.loads(line)["type"]
    assert (130, "") == (follower.returncode, error.strip())


def test_help_imports_no_heavy_module() -> None:
    script = (
        "import sys\nfrom holdfast.cli import cli\n"
        "try:\n    cli.main(['--help'], prog_name='holdfast')\n"
        "except SystemExit:\n"
        "    print(sorted(m for m in sys.modules if m.startswith('holdfast')))\n"
        "    print([m for m in ('asyncio', 'msgspec', 'sqlite3', 'rich') if m in sys.modules])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    *_, ours, heavy = done.stdout.splitlines()
    assert [
        "holdfast",
        "holdfast.cli",
        "holdfast.cli.commands",
        "holdfast.cli.errors",
        "holdfast.runtime",
        "holdfast.runtime.exit",
        "holdfast.runtime.version",
    ] == ast.literal_eval(ours)
    assert "[]" == heavy


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main()"],
        env=environment(_HOLDFAST_COMPLETE=f"{shell}_source"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "_HOLDFAST_COMPLETE" in done.stdout


def test_summaries_agree_with_the_commands() -> None:
    ctx = cli.make_context("holdfast", ["jobs"], resilient_parsing=True)

    for name, summary in SUMMARIES.items():
        command = cli.get_command(ctx, name)
        assert command is not None
        assert summary.split()[0].rstrip(",.") in (command.help or "")


@pytest.mark.req("S-13")
def test_doctor_reports_problems_and_what_to_do(place: Place) -> None:
    place.submit("greet", '{"name": "Ada"}')

    result = place.run("doctor")

    assert 0 == result.exit_code
    assert "no worker for it" in result.output
    assert "2 warning(s)" in result.output
    assert 1 == place.run("doctor", "--strict").exit_code
    assert "workers" in {finding["name"] for finding in place.json("doctor")}


def test_doctor_fails_on_errors(place: Place) -> None:
    with sqlite3.connect(place.path / "holdfast.db") as connection:
        place.submit("greet", '{"name": "Ada"}', "--lifetime", "60")
        connection.execute("UPDATE job SET expires_at = expires_at - 3600000000")

    result = place.run("doctor")

    assert 1 == result.exit_code
    assert "past its lifetime" in result.output


def test_series_are_shown_over_time(place: Place) -> None:
    place.json("submit", "greet", '{"name": "Ann"}')

    found = place.json("series", "--by", "QUEUE", "--type", "greet")
    text = place.run("series", "--time-range", "P7D", "--step", "3600", "--queue", "default").output

    assert (61, 1) == (found["points"], sum(found["by_queue"]["default"]["submitted"]))
    assert ["greet"] == list(found["by_type"])
    assert "queue default" in text
    assert "169 steps since" in text
    assert 2 == place.run("series", "--step", "5").exit_code
