"""Starlette, FastAPI, Litestar and Flask open an app with the site and close it with the site."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
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
from holdfast.contrib.starlette import job_app, lifespan
from holdfast.runtime.event_loop import run


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
