"""The probe of a worker: ``/live``, ``/ready`` and ``/metrics`` on a port of its own.

It needs no web framework. Each connection serves one request, has a few seconds and a few
kilobytes, and there is a limit on how many are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Generator
from http import HTTPStatus
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from holdfast.errors import Fault, HoldfastError, ValidationError
from holdfast.runtime.clock import Clock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MOST_BYTES = 8192
"""Bytes of a request."""
PATIENCE = 5.0
"""Seconds for one request."""
MOST_OPEN = 32
"""Connections at a time."""
SILENT_AFTER = 15.0
"""Seconds after which an event loop that was not seen is not alive."""
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Where the processes of one worker write their numbers; prometheus-client's own variable."""
TEXT = "text/plain; charset=utf-8"


def read_address(given: str) -> tuple[str, int]:
    """Read HOST:PORT, or :PORT for this machine only; ValidationError when it is neither."""
    host, colon, port = given.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        message = f"must be HOST:PORT, such as 127.0.0.1:9091, got {given!r:.60}"
        raise ValidationError([Fault("probe", "INVALID", message)])
    return host.strip("[]") or "127.0.0.1", int(port)


class Probe:
    """Answers whether a worker is alive and ready, and what it measured."""

    def __init__(self, clock: Clock, is_ready: Callable[[], str], *, several: bool) -> None:
        """``is_ready`` returns an empty text, or why the worker does not take jobs.

        ``several``: the numbers are those of several processes.
        """
        self._clock = clock
        self._is_ready = is_ready
        self._several = several
        self._started = clock.now().timestamp()
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The connections, the oldest first."""
        self._pages = {"/live": self._live, "/ready": self._ready, "/metrics": self._metrics}

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncGenerator[int, None]:
        """Serve while the block runs; yields the port. HoldfastError when it cannot listen."""
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=MOST_BYTES)
        except OSError as error:
            message = f"cannot listen on {host}:{port} for the probe: {error.strerror or error}"
            raise HoldfastError(message) from None
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_OPEN:
            self._close_oldest()
        self._open[writer] = None
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that leaves or dawdles gets no response
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _close_oldest(self) -> None:
        """Make room: silent clients must not keep the probe of an orchestrator out."""
        oldest = next(iter(self._open))
        del self._open[oldest]
        oldest.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        method, target, *_ = [*head.split(b"\r\n", 1)[0].decode("latin-1").split(" "), "", ""]
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            status, kind, body = HTTPStatus.NOT_FOUND, TEXT, b"/live, /ready or /metrics\n"
        elif method not in ("GET", "HEAD"):
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET\n"
        else:
            status, kind, body = page()
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"content-type: {kind}",
            f"content-length: {len(body)}",
            "connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if method != "HEAD" else b"")

    def _live(self) -> tuple[HTTPStatus, str, bytes]:
        silent = self._clock.now().timestamp() - max(self._ticked(), self._started)
        if silent > SILENT_AFTER:
            text = f"an event loop was not seen for {silent:.0f} s\n"
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, text.encode()
        return HTTPStatus.OK, TEXT, b"ok\n"

    def _ready(self) -> tuple[HTTPStatus, str, bytes]:
        if why := self._is_ready():
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{why}\n".encode()
        return HTTPStatus.OK, TEXT, b"ok\n"

    def _metrics(self) -> tuple[HTTPStatus, str, bytes]:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry())

    def _registry(self) -> CollectorRegistry:
        from prometheus_client import REGISTRY, CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        if not self._several:
            return REGISTRY
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # has no types
        return registry

    def _ticked(self) -> float:
        """When the slowest event loop was last seen."""
        name = "holdfast_worker_ticked_seconds"
        return self._registry().get_sample_value(name) or 0.0


@contextlib.contextmanager
def shared_numbers() -> Generator[None, None, None]:
    """Give the processes of one worker a folder for their numbers, unless they have one."""
    if FOLDER in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="holdfast-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def forget_process(pid: int) -> None:
    """Drop the gauges of a process that has ended; its counters stay in the sums."""
    if FOLDER in os.environ:
        from prometheus_client import multiprocess

        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # has no types
