"""The server process that ``bench.http`` measures: ``python -m bench.http_site MODE [URL]``.

``bare`` is the same framework that reads the same body and answers without storing anything, with
as little as that takes; ``usual`` does the same as its documentation shows it. ``checks`` is the
service itself over a store that keeps nothing, and ``serve`` the service.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.http.application import create_app
from holdfast.runtime.event_loop import run
from holdfast.store import Added, AddStatus
from holdfast.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from holdfast.model.job import Job as StoredJob
    from holdfast.store import Fence


class Job(msgspec.Struct):
    """What the bare server takes."""

    type: str
    payload: msgspec.Raw


class Batch(msgspec.Struct):
    """Several of them."""

    jobs: list[Job]


async def one(request: Request) -> Response:
    """Read a job and say that it was taken."""
    job = msgspec.json.decode(await request.body(), type=Job)
    return Response(msgspec.json.encode(_taken(job)), 201, media_type="application/json")


async def many(request: Request) -> Response:
    """Read a batch and say that it was taken."""
    batch = msgspec.json.decode(await request.body(), type=Batch)
    body = msgspec.json.encode({"results": [_taken(job) for job in batch.jobs]})
    return Response(body, media_type="application/json")


async def usual(request: Request) -> Response:
    """Read a job and say that it was taken, as one would first write it."""
    job = await request.json()
    return JSONResponse(_taken(Job(job["type"], job["payload"])), 201)


def _taken(job: Job) -> dict[str, str]:
    return {"job_id": "0" * 36, "status": "ACCEPTED", "type": job.type}


class Forgetful(MemoryStore):
    """A store that takes every job and keeps none."""

    async def add(
        self, jobs: Sequence[StoredJob], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


def application(mode: str, url: str) -> object:
    """Return what is to be measured."""
    if mode == "serve":
        return create_app(Holdfast(url))
    if mode == "checks":
        return create_app(Holdfast(store=Forgetful()))
    routes = [
        Route("/api/v1/jobs", one if mode == "bare" else usual, methods=["POST"]),
        Route("/api/v1/jobs/batch", many, methods=["POST"]),
    ]
    return Starlette(routes=routes)


def main(mode: str, url: str = "") -> None:
    """Serve on one core until killed; the first line says the port."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {0})
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(  # as the service itself is run
        application(mode, url),  # type: ignore[arg-type]  # one of several applications
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main(*sys.argv[1:])
