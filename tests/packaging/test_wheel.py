"""The wheel works in a clean environment: the core alone, and each extra alone."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from trove_classifiers import classifiers

from tests.architecture import tree
from tests.packaging.environments import CleanEnvironment, build

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PROMISES = {
    "postgres": "import holdfast.store.postgres",
    "redis": "import holdfast.store.redis",
    "server": "from holdfast.dashboard import Dashboard",
    "webhooks": "import holdfast.webhooks.transport",
    "crypto": "from holdfast.encryption import KeyRing; KeyRing.parse(KeyRing.generate('k1'))",
    "metrics": "from holdfast.worker.metrics import series; series()",
    "otel": "from holdfast.contrib.otel import OpenTelemetry; OpenTelemetry()",
    "sentry": "from holdfast.contrib.sentry import Sentry; Sentry()",
    "django": "from holdfast.contrib.django import app",
    "fastapi": "from holdfast.contrib.fastapi import JobApp, lifespan",
    "litestar": "from holdfast.contrib.litestar import HoldfastPlugin",
    "flask": "from holdfast.contrib.flask import FlaskHoldfast",
    "sqlalchemy": "from holdfast.contrib.sqlalchemy import in_session",
}
"""What an extra makes possible; without it the statement raises MissingExtraError."""
BROUGHT = {"fastapi": {"otel"}}
"""What the packages of an extra require themselves."""
TRIED = """
import contextlib, json, sys

with contextlib.suppress(ImportError):
    from django.conf import settings

    settings.configure(HOLDFAST={"URL": "memory://"})

from holdfast.errors import MissingExtraError

found = {}
for extra, statement in json.loads(sys.argv[1]).items():
    try:
        exec(statement, {})
    except MissingExtraError as error:
        found[extra] = f"{error.extra}: {error}"
    else:
        found[extra] = "works"
print(json.dumps(found))
"""
IMPORTED = """
import importlib, json, pkgutil
import holdfast.contrib, holdfast.store
from holdfast.errors import MissingExtraError

faults = {}

def walk(package):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        try:
            module = importlib.import_module(found.name)
        except MissingExtraError:
            continue
        except Exception as error:
            faults[found.name] = repr(error)
        else:
            if found.ispkg:
                walk(module)

walk(holdfast.contrib)
walk(holdfast.store)
print(json.dumps(faults))
"""
"""Imports every integration and store; an extra that is missing is named, for whatever part."""
APP = """
from holdfast import Holdfast

app = Holdfast()


@app.task("greet")
async def greet(name: str) -> str:
    return f"hello {name}"
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("built"), tree.ROOT)


@pytest.fixture(scope="module")
def core(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> CleanEnvironment:
    return CleanEnvironment(tmp_path_factory.mktemp("core"), built[0])


def test_wheel_contains_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    source = {
        path.relative_to(tree.PACKAGE.parent).as_posix()
        for path in tree.PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    with zipfile.ZipFile(built[0]) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert source == packed
    assert {".sql", ".lua", ".html", ".css", ".js", ".svg"} <= {Path(one).suffix for one in packed}
    assert "holdfast/py.typed" in packed


def test_source_distribution_contains_what_its_tests_and_image_need(
    built: tuple[Path, Path],
) -> None:
    with tarfile.open(built[1]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "dev.py",
        "pins/core.txt",
        "constraints.txt",
        "CONTRIBUTING.md",
        "tests/conftest.py",
        "docs/tutorial.md",
        "deploy/Dockerfile",
        "deploy/helm/holdfast/Chart.yaml",
        "scripts/sbom.py",
        "src/holdfast/py.typed",
        "LICENSE",
    } <= packed
    assert [] == [name for name in packed if re.search(r"\.venv|__pycache__|\.db\b|\.git/", name)]


def test_metadata_is_complete(built: tuple[Path, Path]) -> None:
    found = _metadata(built[0])

    assert "MIT" == found["License-Expression"]
    assert "text/markdown" == found["Description-Content-Type"]
    assert ">=3.11" == found["Requires-Python"]
    assert found["Summary"] == PROJECT["description"]
    assert "job queue" in found["Keywords"]
    assert set() == set(found.get_all("Classifier", [])) - classifiers
    assert PROJECT["optional-dependencies"].keys() == set(found.get_all("Provides-Extra", []))
    assert "# holdfast" in str(found.get_payload())


def test_core_alone_runs_jobs(core: CleanEnvironment) -> None:
    (core.folder / "greeting.py").write_text(APP, "utf-8")

    version = core.holdfast("--version")
    submitted = core.holdfast("submit", "greet", '{"name": "ann"}', "--json")
    worked = core.holdfast("worker", "greeting:app", "--burst")
    job = core.holdfast("job", json.loads(submitted.stdout)["job_id"], "--json")

    assert {"click", "cronsim", "msgspec"} == core.distributions - {"tzdata", "colorama"}
    assert _metadata_version() in version.stdout
    assert 0 == worked.returncode, worked.stderr
    assert "COMPLETED" == json.loads(job.stdout)["state"], job.stdout
    assert "hello ann" in job.stdout


def test_core_alone_names_the_extra_that_is_missing(core: CleanEnvironment) -> None:
    found = _tried(core)

    assert {extra: f"{extra}: " for extra in PROMISES} == {
        extra: answer[: len(extra) + 2] for extra, answer in found.items()
    }
    assert all(f"pip install 'holdfast-queue[{extra}]'" in found[extra] for extra in PROMISES)


def test_every_module_of_the_core_imports_or_names_its_extra(core: CleanEnvironment) -> None:
    done = core.run("-c", IMPORTED)

    assert 0 == done.returncode, done.stderr
    assert {} == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve"], "server"),
        (["worker", "greeting:app", "--probe", "127.0.0.1:0"], "metrics"),
        (["jobs", "--url", "postgresql://localhost/x"], "postgres"),
        (["jobs", "--url", "redis://localhost/0"], "redis"),
    ],
)
def test_commands_name_the_extra_that_is_missing(
    words: list[str], extra: str, core: CleanEnvironment
) -> None:
    (core.folder / "greeting.py").write_text(APP, "utf-8")

    done = core.holdfast(*words)

    assert 0 != done.returncode
    assert f"pip install 'holdfast-queue[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("extra", PROMISES)
def test_extra_alone_keeps_its_promise_and_no_other(
    extra: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    environment = CleanEnvironment(tmp_path, built[0], extra)

    found = _tried(environment)

    working = {name for name, answer in found.items() if answer == "works"}
    assert {extra} == working - BROUGHT.get(extra, set())


def test_speed_alone_brings_its_event_loop(
    built: tuple[Path, Path], core: CleanEnvironment, tmp_path: Path
) -> None:
    environment = CleanEnvironment(tmp_path, built[0], "speed")
    asked = (
        "import asyncio; from holdfast.runtime.event_loop import run\n"
        "async def loop(): return type(asyncio.get_running_loop()).__module__\n"
        "print(run(loop()))"
    )

    assert "uvloop" == environment.run("-c", asked).stdout.strip()
    assert "asyncio.unix_events" == core.run("-c", asked).stdout.strip()


def test_all_brings_every_store_and_the_service(built: tuple[Path, Path], tmp_path: Path) -> None:
    environment = CleanEnvironment(tmp_path, built[0], "all")

    found = _tried(environment)

    assert {"sentry", "django", "fastapi", "litestar", "flask", "sqlalchemy"} == {
        name for name, answer in found.items() if answer != "works"
    }


def test_every_extra_is_tried() -> None:
    assert PROJECT["optional-dependencies"].keys() == {*PROMISES, "speed", "all"}


def _tried(environment: CleanEnvironment) -> dict[str, str]:
    done = environment.run("-c", TRIED, json.dumps(PROMISES))
    assert 0 == done.returncode, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def _metadata_version() -> str:
    from holdfast import __version__

    return __version__
