"""Every metric of the dashboard and the alert rules comes from a real worker or service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast.model.job import State
from holdfast.worker.metrics import OUTCOMES
from tests.architecture import tree
from tests.cli.conftest import environment
from tests.deploy.test_files import COMPOSE, instructions
from tests.processes import running
from tests.waiting import in_time
from tests.worker.test_probe import free_port

DEPLOY = tree.ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text("utf-8"))
RULES = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS = [
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]),
    *(rule["expr"] for rule in ALERTS),
    *(one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one),
]
SELECTOR = re.compile(r"\b(holdfast_\w+)(?:\{([^}]*)\})?")
CLOSED = {"state": {state.value for state in State}, "outcome": set(OUTCOMES.values())}
SCRAPED = {"instance", "job", "le", "service", "check"}
"""Labels that Prometheus adds, and those of metrics without samples while all is well."""

ENDED = re.compile(r'^holdfast_attempts_total\{.*"email\.send"', re.MULTILINE)
"""The job that the first one submitted has ended."""

Series = dict[str, set[str]]


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Series:
    """The names of all samples with their labels, of the image's worker and of a service."""
    folder = tmp_path_factory.mktemp("deployed")
    url, probe, port = f"sqlite:///{folder}/jobs.db", free_port(), free_port()
    env = environment(HOLDFAST_URL=url)
    worker = [word.replace("0.0.0.0:9091", f"127.0.0.1:{probe}") for word in _command()]
    key = _key(folder, env)
    _printed(folder, env, "submit", "order.place", '{"number": 1}', "--json")
    with (
        running([*_holdfast(), *worker], cwd=DEPLOY / "app", env=env),
        running([*_holdfast(), *_service(port)], cwd=DEPLOY / "app", env=env),
    ):
        in_time(lambda: _healthy(probe), within=60, every=0.2)
        in_time(lambda: ENDED.search(_page(f"http://127.0.0.1:{probe}/metrics")), every=0.1)
        in_time(lambda: "jobs" in _page(f"http://127.0.0.1:{port}/metrics", key))
        pages = [
            _page(f"http://127.0.0.1:{probe}/metrics"),
            _page(f"http://127.0.0.1:{port}/metrics", key),
        ]
    assert not _healthy(probe)
    return {name: labels for page in pages for name, labels in _samples(page).items()}


@pytest.mark.slow
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_of_an_expression_exist(expression: str, series: Series) -> None:
    known = {label for labels in series.values() for label in labels} | SCRAPED
    named = SELECTOR.findall(expression)
    grouped = re.findall(r"(?:by|on) \(([^)]*)\)", expression)

    assert named
    for name, selector in named:
        assert name in series
        assert set(re.findall(r"(\w+)=", selector)) <= series[name]
    assert {label for group in grouped for label in group.split(", ")} <= known
    for label, values in re.findall(r'(state|outcome)=~?"([^"]*)"', expression):
        assert set(values.split("|")) <= CLOSED[label]


@pytest.mark.slow
def test_reference_names_every_metric_of_a_scrape(series: Series) -> None:
    page = (tree.ROOT / "docs" / "reference-metrics.md").read_text("utf-8")

    names = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in series}
    own = {name for name in names if name.startswith("holdfast_")}
    assert len(own) > 20
    assert [] == sorted(name for name in own if f"| `{name}` |" not in page)


def test_an_unknown_metric_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        test_metrics_and_labels_of_an_expression_exist("holdfast_nothing", {"holdfast_jobs": set()})


def test_panels_have_places_and_ids_of_their_own() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(cells) == len(set(cells))
    assert len(ids) == len(set(ids))
    assert max(x for x, _ in cells) < 24


def test_alerts_say_what_happens_and_what_to_do() -> None:
    names = [rule["alert"] for rule in ALERTS]

    assert len(names) == len(set(names))
    for rule in ALERTS:
        assert {"summary", "description"} == rule["annotations"].keys()
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_alerts_use_labels_that_their_expressions_keep() -> None:
    for rule in ALERTS:
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        kept = {
            label
            for group in re.findall(r"by \(([^)]*)\)", rule["expr"])
            for label in group.split(", ")
        }
        aggregated = re.search(r"\b(sum|max)\b", rule["expr"])

        assert used <= (kept if aggregated else {"instance", "job"}), rule["alert"]


def _holdfast() -> list[str]:
    return [sys.executable, "-m", "holdfast"]


def _command() -> list[str]:
    words: list[str] = json.loads(dict(instructions())["CMD"])
    return words


def _key(folder: Path, env: dict[str, str]) -> str:
    """The key that the compose file makes for Prometheus; made again, it stays the same."""
    _command_of_this_holdfast(folder)
    path = os.pathsep.join([str(folder / "bin"), env["PATH"]])
    shell, [script] = (
        COMPOSE["services"]["keys"]["entrypoint"],
        COMPOSE["services"]["keys"]["command"],
    )
    script = script.replace("/keys/", f"{folder}/").replace("/tmp/key", f"{folder}/key")
    keys = set()
    for _ in range(2):
        subprocess.run([*shell, script], cwd=folder, env={**env, "PATH": path}, check=True)
        keys.add((folder / "observer").read_text("utf-8").strip())
    [key] = keys
    return key


def _command_of_this_holdfast(folder: Path) -> None:
    for name, module in (("holdfast", "-m holdfast"), ("python", "")):
        path = folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n', "utf-8")
        path.chmod(0o755)


def _service(port: int) -> list[str]:
    """The service of the compose file, on this machine only."""
    changed = {"0.0.0.0": "127.0.0.1", "8080": str(port)}
    return [changed.get(word, word) for word in COMPOSE["services"]["service"]["command"]]


def _printed(folder: Path, env: dict[str, str], *words: str) -> Any:
    done = subprocess.run(
        [*_holdfast(), *words], cwd=folder, env=env, capture_output=True, check=True
    )
    return json.loads(done.stdout)


def _healthy(port: int) -> bool:
    """Whether the health check of the image succeeds."""
    check = dict(instructions())["HEALTHCHECK"]
    python, *words = json.loads(check[check.index("[") :])
    assert "python" == python
    command = [sys.executable, *(word.replace(":9091/", f":{port}/") for word in words)]
    return 0 == subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode


def _page(url: str, key: str = "") -> str:
    try:
        with urlopen(Request(url, headers={"authorization": f"Bearer {key}"})) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException):  # it starts
        return ""


def _samples(page: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(page):
        if family.type == "gauge":
            found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found
