"""Each example starts as a server, is used over HTTP, and survives a kill -9 of its worker."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from holdfast import Holdfast, State
from tests.architecture import tree
from tests.processes import running
from tests.servers import Postgres, free_port
from tests.waiting import in_time

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # real servers on a busy machine
EXAMPLES = tree.ROOT / "examples"
PAUSE = "2"
"""Seconds that a job takes: long enough to be killed in its middle."""
PYTHON = sys.executable


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """An empty database."""
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
        yield urlsplit(postgres_server.dsn)._replace(path="/shop").geturl()
        connection.execute("DROP DATABASE shop WITH (FORCE)")


@pytest.mark.postgres
def test_fastapi_shop(database: str, tmp_path: Path) -> None:
    folder, port = EXAMPLES / "fastapi_shop", free_port()
    variables = {"DATABASE_URL": database, "HOLDFAST_URL": database}
    server = [PYTHON, "-m", "uvicorn", "shop:site", "--port", str(port)]
    worker = [PYTHON, "-m", "holdfast", "worker", "shop:jobs"]

    with (
        _started(server, folder, variables, tmp_path / "server"),
        _site(port) as site,
        _started(worker, folder, variables, tmp_path / "worker"),
    ):
        _order_and_kill_the_worker(site, database)
        _refused_order_leaves_no_job(site, database)


@pytest.mark.parametrize("on", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_django_shop(on: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder, port = EXAMPLES / "django_shop", free_port()
    url = f"sqlite:///{tmp_path}/jobs.db"
    variables = {"HOLDFAST_URL": url, "DATABASE_URL": ""}
    if on == "postgres":
        url = request.getfixturevalue("database")
        variables = {"DATABASE_URL": url}
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))  # its database is beside it
    manage = [PYTHON, str(copy / "manage.py")]
    server = [*manage, "runserver", "--noreload", f"127.0.0.1:{port}"]
    subprocess.run([*manage, "migrate", "-v0"], env=_environment(variables), check=True)

    with (
        _started(server, tmp_path, variables, tmp_path / "server"),
        _site(port) as site,
        _started([*manage, "holdfast", "worker"], tmp_path, variables, tmp_path / "worker"),
    ):
        _order_and_kill_the_worker(site, url)
        _refused_order_leaves_no_job(site, url)


def test_flask_shop(tmp_path: Path) -> None:
    port, url = free_port(), f"sqlite:///{tmp_path}/jobs.db"
    variables = {"HOLDFAST_URL": url, "DATABASE_URL": f"sqlite:///{tmp_path}/shop.db"}
    flask = [PYTHON, "-m", "flask", "--app", "shop"]
    server = [*flask, "run", "--port", str(port)]
    folder = EXAMPLES / "flask_shop"

    with (
        _started(server, folder, variables, tmp_path / "server"),
        _site(port) as site,
        _started([*flask, "holdfast", "worker"], folder, variables, tmp_path / "worker"),
    ):
        _order_and_kill_the_worker(site, url)
        _refused_order_leaves_no_job(site, url)


def test_litestar_shop_finishes_after_a_kill_of_the_whole_site(tmp_path: Path) -> None:
    port = free_port()
    variables = {"HOLDFAST_URL": f"sqlite:///{tmp_path}/jobs.db"}
    server = [PYTHON, "-m", "uvicorn", "shop:site", "--port", str(port)]
    folder = EXAMPLES / "litestar_shop"

    with _started(server, folder, variables, tmp_path / "first") as first, _site(port) as site:
        job_id = site.post("/reports/2026-01").raise_for_status().json()["job_id"]
        in_time(lambda: _state(site, job_id) == State.RUNNING)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()

    with _started(server, folder, variables, tmp_path / "second"), _site(port) as site:
        assert job_id == site.post("/reports/2026-01").json()["job_id"]
        in_time(lambda: _state(site, job_id) == State.COMPLETED, within=40)
        job = site.get(f"/jobs/{job_id}").json()

    assert ("the report of 2026-01", 2) == (job["output"], job["attempt"])


def _order_and_kill_the_worker(site: httpx.Client, url: str) -> None:
    """Order, kill the process that confirms the order, and see it confirmed all the same."""
    created = site.post("/orders", json={"item": "tea"}).raise_for_status().json()
    in_time(lambda: _state(site, created["job_id"]) == State.RUNNING, within=40)

    jobs = Holdfast(url)
    worker = jobs.sync.get(created["job_id"]).worker_id
    jobs.sync.close()
    os.kill(_pid(worker), signal.SIGKILL)

    order = f"/orders/{created['id']}"
    in_time(lambda: site.get(order).json()["confirmed"], within=40)
    in_time(lambda: _state(site, created["job_id"]) == State.COMPLETED)
    job = site.get(f"/jobs/{created['job_id']}").json()
    assert ("tea", 2) == (job["output"], job["attempt"])


def _refused_order_leaves_no_job(site: httpx.Client, url: str) -> None:
    refused = site.post("/orders", json={"item": "unicorn"})

    assert 409 == refused.status_code
    jobs = Holdfast(url)
    assert 1 == jobs.sync.search().total_count
    jobs.sync.close()


def _pid(worker: str | None) -> int:
    """Return the process of a worker under a supervisor."""
    found = re.search(r"(\d+)-[0-9a-f]+$", worker or "")
    assert found, worker
    return int(found[1])


def _state(site: httpx.Client, job_id: str) -> object:
    return site.get(f"/jobs/{job_id}").json().get("state")


@contextlib.contextmanager
def _site(port: int) -> Iterator[httpx.Client]:
    """Wait until a server answers, and return a client of it."""

    def answers() -> bool:
        try:
            client.get("/")
        except httpx.HTTPError:
            return False
        return True

    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        in_time(answers, within=30)
        yield client


@contextlib.contextmanager
def _started(
    command: list[str], folder: Path, variables: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    with log.open("w") as file:
        environment = _environment({**variables, "SHOP_PAUSE": PAUSE})
        try:
            with running(
                command, cwd=folder, env=environment, stdout=file.fileno(), stderr=file.fileno()
            ) as process:
                yield process
        finally:
            print(log.read_text("utf-8")[-4000:])  # pytest shows it if the test fails


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    given: dict[str, Any] = {name: os.environ[name] for name in kept if name in os.environ}
    return {**given, "PYTHONDONTWRITEBYTECODE": "1", **variables}
