"""The server process that ``bench.http`` measures: ``python -m bench.http_site MODE [URL]``.

``bare`` is the same framework that reads the same body and answers without storing anything.
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
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.http.application import create_app

if TYPE_CHECKING:
    from starlette.requests import Request


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


def _taken(job: Job) -> dict[str, str]:
    return {"job_id": "0" * 36, "status": "ACCEPTED", "type": job.type}


def main(mode: str, url: str = "") -> None:
    """Serve on one core until killed; the first line says the port."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {0})
    made: object
    if mode == "bare":
        routes = [
            Route("/api/v1/jobs", one, methods=["POST"]),
            Route("/api/v1/jobs/batch", many, methods=["POST"]),
        ]
        made = Starlette(routes=routes)
    else:
        made = create_app(Holdfast(url))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(  # as the service itself is run
        made,  # type: ignore[arg-type]  # either of two applications
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
