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


async def bare(request: Request) -> Response:
    """Read a job and say that it was taken."""
    job = msgspec.json.decode(await request.body(), type=Job)
    body = msgspec.json.encode({"job_id": "0" * 36, "status": "ACCEPTED", "type": job.type})
    return Response(body, 201, media_type="application/json")


def main(mode: str, url: str = "") -> None:
    """Serve on one core until killed; the first line says the port."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {0})
    made: object
    if mode == "bare":
        made = Starlette(routes=[Route("/api/v1/jobs", bare, methods=["POST"])])
    else:
        made = create_app(Holdfast(url))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(made, http="httptools", log_config=None, access_log=False)  # type: ignore[arg-type]
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
