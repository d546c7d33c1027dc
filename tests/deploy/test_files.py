"""Dockerfile, compose file and units: they parse, and the commands in them exist."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from holdfast import config
from holdfast.cli import cli
from tests.architecture import tree
from tests.deploy.chart import rendered

DEPLOY = tree.ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))
OURS = ("migrate", "keys", "service", "worker")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
GRACE = config.load(environment={})["worker.grace"].total_seconds()


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their lines joined."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if line.strip() and not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def unit(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[method-assign,assignment]  # as configparser documents
    parser.read_string(path.read_text("utf-8"))
    return parser


def commands() -> dict[str, list[str]]:
    """Every call of `holdfast` in deploy/, without its first word."""
    found = {"Dockerfile": json.loads(dict(instructions())["CMD"])}
    for path in UNITS:
        found[path.name] = shlex.split(unit(path)["Service"]["ExecStart"])[1:]
    for name in ("migrate", "service", "worker"):
        found[f"compose {name}"] = COMPOSE["services"][name]["command"]
    script = COMPOSE["services"]["keys"]["command"][0]
    called = re.findall(r"^holdfast (.*?) >", script, re.MULTILINE)
    found["compose keys"] = shlex.split(called[0])
    for manifest in rendered(service__enabled=True):
        if pod := manifest["spec"].get("template", {}).get("spec"):
            found[f"chart {manifest['metadata']['name']}"] = pod["containers"][0]["args"]
    return found


@pytest.mark.parametrize(("place", "words"), commands().items())
def test_command_and_its_flags_exist(place: str, words: list[str]) -> None:
    context, command = click.Context(cli), cli.get_command(click.Context(cli), words[0])
    while isinstance(command, click.Group):
        words = words[1:]
        command = command.get_command(context, words[0])

    assert command is not None, place
    command.make_context(words[0], words[1:])  # raises for a flag that does not exist


def test_a_wrong_flag_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        test_command_and_its_flags_exist("here", ["worker", "shop:app", "--prob", "x:1"])


def test_yaml_passes_the_linter() -> None:
    folders = ["compose.yml", "prometheus", "grafana", "helm/holdfast/Chart.yaml"]
    paths = [str(DEPLOY / name) for name in (*folders, "helm/holdfast/values.yaml")]
    command = [sys.executable, "-m", "yamllint", "-s", "-c", str(DEPLOY / ".yamllint.yml"), *paths]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stdout), done.stderr


def test_image_runs_without_rights_and_contains_no_build_tools() -> None:
    stages = [index for index, (word, _) in enumerate(instructions()) if word == "FROM"]
    last = instructions()[stages[-1] :]
    words = [word for word, _ in last]

    assert "-slim" in last[0][1]
    assert ("USER", "10001") in last
    assert words.index("USER") < words.index("CMD")
    assert not any("pip install" in rest for _, rest in last)
    assert ["holdfast"] == json.loads(dict(last)["ENTRYPOINT"])


def test_image_copies_what_exists_and_what_the_ignore_file_admits() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    admitted = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copies = [shlex.split(rest)[:-1] for word, rest in instructions() if word == "COPY"]
    sources = {
        path.rstrip("/") for words in copies if "--from=build" not in words for path in words
    }

    assert "*" == ignored[0]
    assert sources == admitted
    assert [] == [source for source in sources if not (tree.ROOT / source).exists()]


def test_containers_start_in_order() -> None:
    needs = {
        name: service["depends_on"]
        for name, service in COMPOSE["services"].items()
        if isinstance(service.get("depends_on"), dict)
    }
    ended = {"condition": "service_completed_successfully"}

    assert {"postgres": {"condition": "service_healthy"}} == needs["migrate"]
    assert {"migrate": ended} == needs["keys"] == needs["worker"]
    assert {"keys": ended} == needs["service"] == needs["prometheus"]


def test_containers_have_more_time_than_jobs_have_to_finish() -> None:
    seconds = int(COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s"))

    assert seconds >= GRACE + 10


def test_compose_opens_ports_to_this_machine_only_and_holds_no_password() -> None:
    ports = [port for one in COMPOSE["services"].values() for port in one.get("ports", ())]
    secret = {name: value for name, value in _variables() if "PASSWORD" in name or "URL" in name}

    assert 3 == len(ports)
    assert [] == [port for port in ports if not port.startswith("127.0.0.1:")]
    assert len(secret) >= 3
    assert [] == [name for name, value in secret.items() if "${" not in value]


def test_volumes_and_mounted_files_exist() -> None:
    mounts = [one for each in COMPOSE["services"].values() for one in each.get("volumes", ())]
    sources = {mount.partition(":")[0] for mount in mounts}

    assert COMPOSE["volumes"].keys() == {name for name in sources if not name.startswith(".")}
    assert [] == [path for path in sources if path[0] == "." and not (DEPLOY / path).exists()]


def test_our_containers_are_locked_down() -> None:
    for name in OURS:
        service = COMPOSE["services"][name]

        assert service["read_only"], name
        assert ["ALL"] == service["cap_drop"], name
        assert service["init"], name


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_stops_a_worker_after_its_jobs(path: Path) -> None:
    service = unit(path)["Service"]

    assert int(service["TimeoutStopSec"]) >= GRACE + 10
    assert "always" == service["Restart"]
    assert "worker" not in path.stem or "mixed" == service["KillMode"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_unit_passes_systemd_analyze(path: Path, tmp_path: Path) -> None:
    text = path.read_text("utf-8").replace("/srv/app/.venv/bin/holdfast", sys.executable)
    (tmp_path / path.name).write_text(text, "utf-8")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)


def test_variables_that_kubernetes_sets_for_a_service_called_holdfast_do_no_harm() -> None:
    links: dict[str, Any] = {
        "HOLDFAST_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_SERVICE_PORT": "8080",
        "HOLDFAST_SERVICE_PORT_HTTP": "8080",
        "HOLDFAST_PORT": "tcp://10.0.0.1:8080",
        "HOLDFAST_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "HOLDFAST_PORT_8080_TCP_ADDR": "10.0.0.1",
        "HOLDFAST_WORKER_SERVICE_HOST": "None",
        "HOLDFAST_WORKER_PORT": "tcp://10.0.0.2:9091",
    }

    settings = config.load(environment=links)

    assert GRACE == settings["worker.grace"].total_seconds()
    assert "8080" == settings.text("listen.port")


def _variables() -> list[tuple[str, str]]:
    return [
        item for one in COMPOSE["services"].values() for item in one.get("environment", {}).items()
    ]
