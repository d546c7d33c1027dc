"""Starlette, FastAPI, Litestar and Flask open an app with the site and close it with the site."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import flask
import httpx
import pytest
from fastapi import FastAPI
from litestar import Litestar, get
from litestar.di import NamedDependency
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from holdfast import Holdfast, State, Worker
from holdfast.contrib.fastapi import JobApp
from holdfast.contrib.flask import FlaskHoldfast
from holdfast.contrib.litestar import HoldfastPlugin
from holdfast.contrib.mounting import Caller, MountedApi, Role, dashboard
from holdfast.contrib.starlette import job_app, lifespan
from holdfast.runtime.event_loop import run
from tests.waiting import eventually


@contextlib.asynccontextmanager
async def opened(site: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """Run a site with its lifespan, and return a client of it."""
    async with site.router.lifespan_context(site) as state:

        async def with_state(scope: Any, receive: Any, send: Any) -> None:
            scope["state"] = dict(state or {})
            await site(scope, receive, send)

        transport = httpx.ASGITransport(app=with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            yield client


@pytest.fixture
def jobs(tmp_path: Path) -> Holdfast:
    made = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @made.task("double")
    async def double(number: int) -> int:
        return 2 * number

    return made


async def test_site_opens_the_app_and_closes_it(jobs: Holdfast) -> None:
    order: list[str] = []

    @contextlib.asynccontextmanager
    async def own(_: Starlette) -> AsyncIterator[dict[str, str]]:
        order.append(f"own {jobs.operations is not None}")
        yield {"colour": "red"}
        order.append("closed")

    async def view(request: Request) -> JSONResponse:
        job = await job_app(request).submit("double", {"number": 21})
        return JSONResponse({"job": job.job_id, "colour": request.state.colour})

    site = Starlette(routes=[Route("/", view)], lifespan=lifespan(jobs, own))
    async with opened(site) as client:
        answer = (await client.get("/")).json()

    assert "red" == answer["colour"]
    assert ["own True", "closed"] == order
    assert State.SCHEDULED == jobs.sync.get(answer["job"]).state
    jobs.sync.close()
    with pytest.raises(RuntimeError, match="not started"):
        _ = jobs.operations


async def test_site_with_a_worker_runs_jobs_itself(jobs: Holdfast) -> None:
    site = FastAPI(lifespan=lifespan(jobs, worker=True, slots=2, grace=timedelta(seconds=5)))

    @site.get("/")
    async def view(app: JobApp) -> object:
        job = await app.submit("double", {"number": 21})
        return (await app.wait(job.job_id, timeout=10)).output

    async with opened(site) as client:
        assert 42 == (await client.get("/")).json()


async def test_worker_that_fails_is_logged_while_the_site_serves_on(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.lifespan
    async def broken() -> AsyncIterator[None]:
        raise RuntimeError("no such pool")
        yield

    site = FastAPI(lifespan=lifespan(jobs, worker=True))

    @site.get("/")
    async def view(app: JobApp) -> int:
        return (await app.search()).total_count

    async with opened(site) as client:
        await eventually(lambda: _failed(caplog))
        assert 0 == (await client.get("/")).json()

    (record,) = _failed(caplog)
    assert "ERROR" == record.levelname
    assert re.match(r"worker failed  worker=\S+ error=.*no such pool", record.getMessage())


def _failed(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if getattr(each, "event", "") == "worker.failed"]


async def test_worker_in_a_site_logs_lines_that_say_what_happened(
    jobs: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @jobs.task("fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError("no tea")

    async with opened(FastAPI(lifespan=lifespan(jobs, worker=True))):
        job = await jobs.submit("fail")
        await jobs.wait(job.job_id, timeout=20)

    (line,) = [text for text in caplog.messages if text.startswith("job is in DEAD_LETTER")]
    assert f"{job.job_id} fail attempt 1" in line
    assert "ValueError" in line
    assert "no tea" in line


async def test_site_without_the_lifespan_says_what_is_missing() -> None:
    site = FastAPI()

    @site.get("/")
    async def view(app: JobApp) -> None: ...

    async with opened(site) as client:
        with pytest.raises(RuntimeError, match="lifespan="):
            await client.get("/")


def test_litestar_provides_the_app(jobs: Holdfast) -> None:
    @get("/")
    async def view(jobs: NamedDependency[Holdfast]) -> object:
        job = await jobs.submit("double", {"number": 21})
        return {"output": (await jobs.wait(job.job_id, timeout=10)).output}

    site = Litestar([view], plugins=[HoldfastPlugin(jobs, worker=True)])
    with LitestarClient(site) as client:
        assert {"output": 42} == client.get("/").json()


def test_flask_handlers_run_in_the_context_of_the_application(tmp_path: Path) -> None:
    jobs = Holdfast()
    queue = FlaskHoldfast(jobs)

    @jobs.task("colour")
    def colour() -> object:
        return flask.current_app.config["COLOUR"]

    @jobs.task("colour.async")
    async def colour_async() -> object:
        return flask.current_app.config["COLOUR"]

    site = flask.Flask("shop")
    site.config.update(COLOUR="red", HOLDFAST_URL=f"sqlite:///{tmp_path}/jobs.db")
    queue.init_app(site)
    made = [task.submit_sync() for task in (colour, colour_async)]

    async def work() -> None:
        await Worker(jobs).run(burst=True)

    run(work())
    outputs = [jobs.sync.get(job.job_id).output for job in made]
    jobs.sync.close()

    assert ["red", "red"] == outputs
    assert (tmp_path / "jobs.db").exists()


def test_flask_command_runs_on_the_store_of_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = Holdfast()
    site = flask.Flask("shop")
    site.config["HOLDFAST_URL"] = f"sqlite:///{tmp_path}/jobs.db"
    FlaskHoldfast(jobs, site)
    job = jobs.sync.submit("double", {"number": 1})
    jobs.sync.close()

    result = site.test_cli_runner().invoke(args=["holdfast", "job", job.job_id, "--json"])

    assert 0 == result.exit_code, result.output
    assert job.job_id in result.output + capsys.readouterr().out


ROLES = {"boss": Role.ADMIN, "guest": Role.OBSERVER}


def authorize(scope: Mapping[str, Any]) -> Caller | None:
    """The login of a site, which a header stands for here."""
    name = dict(scope["headers"]).get(b"x-login", b"").decode()
    return Caller(name=name, role=ROLES[name]) if name in ROLES else None


def test_litestar_mounts_the_api_and_the_dashboard(jobs: Holdfast) -> None:
    board, api = dashboard(jobs, authorize=authorize), MountedApi(jobs, authorize)
    plugin = HoldfastPlugin(jobs, mounts={"/board": board, "queue/": api})
    body = {"type": "double", "payload": {"number": 1}}

    with LitestarClient(Litestar([], plugins=[plugin])) as client:
        made = client.post("/queue/api/v1/jobs", json=body, headers={"x-login": "boss"})
        refused = client.post("/queue/api/v1/jobs", json=body, headers={"x-login": "guest"})
        home = client.get("/board", headers={"x-login": "guest"})
        page = client.get("/board/jobs", headers={"x-login": "guest"})
        stranger = client.get("/board/jobs")

    assert [201, 403, 200, 200, 403] == [
        answer.status_code for answer in (made, refused, home, page, stranger)
    ]
    assert made.json()["job_id"] in page.text
    assert 'href="/board/' in page.text


def _site_with_mounts(jobs: Holdfast) -> FastAPI:
    site = FastAPI(lifespan=lifespan(jobs))

    async def authorize_later(scope: Mapping[str, Any]) -> Caller | None:
        return authorize(scope)

    site.mount("/queue", MountedApi(jobs, authorize_later))
    site.mount("/board", dashboard(jobs, authorize=authorize))
    return site


async def test_mounted_api_takes_the_login_of_the_site(jobs: Holdfast) -> None:
    body = {"type": "double", "payload": {"number": 1}}

    async with opened(_site_with_mounts(jobs)) as client:
        made = await client.post("/queue/api/v1/jobs", json=body, headers={"x-login": "boss"})
        refused = await client.post("/queue/api/v1/jobs", json=body, headers={"x-login": "guest"})
        stranger = await client.get("/queue/api/v1/jobs")
        seen = await client.get("/queue/api/v1/jobs", headers={"x-login": "guest"})
        elsewhere = await client.post(
            "/queue/api/v1/jobs",
            json=body,
            headers={"x-login": "boss", "origin": "http://evil", "sec-fetch-site": "cross-site"},
        )

    assert [201, 403, 401, 403] == [
        answer.status_code for answer in (made, refused, stranger, elsewhere)
    ]
    assert [made.json()["job_id"]] == [job["job_id"] for job in seen.json()["jobs"]]


async def test_mounted_dashboard_takes_the_login_of_the_site(jobs: Holdfast) -> None:
    async with opened(_site_with_mounts(jobs)) as client:
        page = await client.get("/board/jobs", headers={"x-login": "guest"})
        stranger = await client.get("/board/jobs")

    assert [200, 403] == [page.status_code, stranger.status_code]
    assert 'href="/board/' in page.text


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("holdfast.contrib.fastapi", ["sqlalchemy", "jinja2", "django", "flask", "psycopg"]),
        ("holdfast.contrib.starlette", ["sqlalchemy", "jinja2", "fastapi", "litestar"]),
        ("holdfast.contrib.litestar", ["sqlalchemy", "fastapi", "flask"]),
        ("holdfast.contrib.flask", ["sqlalchemy", "starlette", "fastapi"]),
        ("holdfast.contrib.sqlalchemy", ["fastapi", "starlette", "psycopg", "redis", "greenlet"]),
    ],
)
def test_integration_needs_only_its_own_framework(module: str, missing: list[str]) -> None:
    hidden = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))"

    ended = subprocess.run(
        [sys.executable, "-c", f"{hidden}; import {module}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == ended.returncode, ended.stderr


def test_command_of_a_framework_leaves_its_process_alone() -> None:
    program = """
import threading, time
from holdfast.contrib.command_line import run_command
from holdfast.runtime import exit

exit.LINGER = 0.1
threading.Thread(target=time.sleep, args=(0.6,)).start()
assert 0 == run_command(["--version"], {}, "manage.py holdfast")
time.sleep(0.4)
print("alive")
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (0, "alive") == (ended.returncode, ended.stdout.splitlines()[-1]), ended.stderr
