"""The service on a socket, on an event loop in its own thread: for blocking clients."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from holdfast import Holdfast
from holdfast.http.application import create_app
from holdfast.store import MemoryStore
from tests.waiting import in_time

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def served_in_a_thread() -> Iterator[str]:
    """Yield the address of a service over a store in memory."""
    asgi = create_app(Holdfast(store=MemoryStore()))
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(asgi, log_config=None, http="httptools", lifespan="on")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    in_time(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
