"""pytest finds the fixtures."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
JOBS = """
from holdfast import Holdfast
app = Holdfast("sqlite:///never-created.db")

@app.task("greet")
async def greet(name: str) -> str:
    return f"hello {name}"
"""
TEST = """
from jobs import greet

def test_greeting(holdfast_sandbox):
    job = greet.submit_sync("ada")
    holdfast_sandbox.sync.drain()
    assert "hello ada" == holdfast_sandbox.job(job).result
"""
FIXTURE = """
import pytest, jobs

@pytest.fixture
def holdfast_app():
    return jobs.app
"""


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "holdfast.testing.pytest_plugin",
            "-p",
            "no:cacheprovider",
        ],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{folder}", "PATH": "", **FAST},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "test_jobs.py").write_text(TEST)
    return tmp_path


def test_the_configuration_names_the_app(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nholdfast_app = jobs:app\n")

    done = _pytest(project)

    assert "1 passed" in done.stdout, done.stdout
    assert not (project / "never-created.db").exists()


def test_a_fixture_names_the_app(project: Path) -> None:
    (project / "conftest.py").write_text(FIXTURE)

    assert "1 passed" in _pytest(project).stdout


def test_a_missing_app_is_an_error_that_says_what_to_do(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")

    assert "holdfast_app is not set: add holdfast_app" in _pytest(project).stdout


def test_an_unknown_app_is_an_error(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nholdfast_app = jobs:nothing\n")

    assert "holdfast_app must name an app, got 'jobs:nothing'" in _pytest(project).stdout


def test_installing_holdfast_registers_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    # the entry point has the module's name, so that naming it with -p as well does no harm
    assert {"holdfast.testing.pytest_plugin": "holdfast.testing.pytest_plugin"} == project[
        "entry-points"
    ]["pytest11"]
