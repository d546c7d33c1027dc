"""The server process that ``bench.http`` measures: ``python -m bench.http_site MODE [URL]``.

``bare`` is the same framework, which reads the same body and responds without a store, with as
little code as possible; ``usual`` does the same in the style of its documentation. ``checks`` is
the service over a store that keeps nothing, and ``serve`` the service.
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
    """The body that the bare server reads."""

    type: str
    payload: msgspec.Raw


class Batch(msgspec.Struct):
    """The body of a batch."""

    jobs: list[Job]


async def one(request: Request) -> Response:
    """Read a job and accept it."""
    job = msgspec.json.decode(await request.body(), type=Job)
    return Response(msgspec.json.encode(_accepted(job)), 201, media_type="application/json")


async def many(request: Request) -> Response:
    """Read a batch and accept it."""
    batch = msgspec.json.decode(await request.body(), type=Batch)
    body = msgspec.json.encode({"results": [_accepted(job) for job in batch.jobs]})
    return Response(body, media_type="application/json")


async def usual(request: Request) -> Response:
    """Read a job and accept it, in the style of the framework's documentation."""
    job = await request.json()
    return JSONResponse(_accepted(Job(job["type"], job["payload"])), 201)


def _accepted(job: Job) -> dict[str, str]:
    return {"job_id": "0" * 36, "status": "ACCEPTED", "type": job.type}


class DiscardingStore(MemoryStore):
    """A store that accepts every job and keeps none."""

    async def add(
        self, jobs: Sequence[StoredJob], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        return [Added(AddStatus.ACCEPTED, job.id) for job in jobs]


def application(mode: str, url: str) -> object:
    """Return the application of a mode."""
    if mode == "serve":
        return create_app(Holdfast(url))
    if mode == "checks":
        return create_app(Holdfast(store=DiscardingStore()))
    routes = [
        Route("/api/v1/jobs", one if mode == "bare" else usual, methods=["POST"]),
        Route("/api/v1/jobs/batch", many, methods=["POST"]),
    ]
    return Starlette(routes=routes)


def main(mode: str, url: str = "") -> None:
    """Serve on one core until killed; the first line of output is the port."""
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
