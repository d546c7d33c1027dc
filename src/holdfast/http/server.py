"""Running the service: one process, one port, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType

import msgspec
import uvicorn

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.http.api_keys import list_keys
from holdfast.http.application import create_app
from holdfast.http.requests import is_loopback
from holdfast.http.service import Service
from holdfast.maintenance.leader import Maintenance
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.observe import Observer
from holdfast.worker.worker import delivery_worker

GRACE = 10
"""Seconds that requests under way get when the service stops."""


class UnsafeAddressError(HoldfastError):
    """The service would be open to others without protection."""


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how the service listens."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str | None = None
    certificate_key: str | None = None
    behind_proxy: bool = False
    """A proxy in front speaks TLS; its X-Forwarded headers are believed."""
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


async def check(app: Holdfast, place: ListenAddress) -> int:
    """Return how many keys there are; UnsafeAddressError when the address asks for more."""
    keys = await list_keys(app.store)
    if place.is_local:
        return len(keys)
    if not keys:
        raise UnsafeAddressError(
            f"no API key exists, so {place.host} would be open to anyone who can reach it:"
            " make one with 'holdfast keys create', or listen on 127.0.0.1"
        )
    if place.certificate is None and not place.behind_proxy:
        raise UnsafeAddressError(
            f"keys would travel to {place.host} in the clear: give --certificate and"
            " --certificate-key, or say --behind-proxy when a proxy in front speaks TLS"
        )
    return len(keys)


async def serve(
    app: Holdfast,
    place: ListenAddress,
    *,
    observer: Observer,
    told: Callable[[str, int], None],
) -> None:
    """Serve until a signal; ``told`` hears the address and the number of keys once it listens.

    Also looks after the jobs (due times, lost leases, dependents, retention), so that workers
    over HTTP need nobody else.
    """
    async with app:
        keys = await check(app, place)
        with _listening(place) as sockets:
            made = create_app(app, observer=observer, hosts=place.hosts, cors=place.cors)
            service: Service = made.state.service
            server = _Server(_config(made, place), service)
            port = sockets[0].getsockname()[1]
            name = f"[{place.host}]" if ":" in place.host else place.host
            scheme = "https" if place.certificate else "http"
            server.ready = lambda: told(f"{scheme}://{name}:{port}", keys)
            async with _looked_after(app, observer):
                await server.serve(sockets=sockets)


@contextlib.asynccontextmanager
async def beside(app: Holdfast, place: ListenAddress) -> AsyncIterator[str]:
    """Serve an app that also does something else on this loop; yield the address.

    OSError when the port is taken. Signals and looking after the jobs are left to others.
    """
    with _listening(place) as sockets:
        made = create_app(app)
        server = _Guest(_config(made, place))
        task = asyncio.get_running_loop().create_task(server.serve(sockets=sockets))
        try:
            yield f"http://{place.host}:{sockets[0].getsockname()[1]}"
        finally:
            made.state.service.stop()
            server.should_exit = True
            await task


class _Guest(uvicorn.Server):
    """Leaves signals to its host."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server(uvicorn.Server):
    """Lets streams and long waits end when it is told to stop, or they would hold it up."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self.ready: Callable[[], None] = lambda: None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take signals on the loop; uvicorn's own way ends the process with the signal itself."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully; at a second signal at once."""
        self._service.stop()
        super().handle_exit(sig, frame)


def _config(made: Callable[..., object], place: ListenAddress) -> uvicorn.Config:
    return uvicorn.Config(
        made,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=place.behind_proxy,
        forwarded_allow_ips="*" if place.behind_proxy else None,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=30,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.certificate_key,
    )


@contextlib.contextmanager
def _listening(place: ListenAddress) -> Iterator[list[socket.socket]]:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    made = socket.create_server((place.host, place.port), family=family, backlog=2048)
    try:
        yield [made]
    finally:
        made.close()


@contextlib.asynccontextmanager
async def _looked_after(app: Holdfast, observer: Observer) -> AsyncIterator[None]:
    name = f"serve-{socket.gethostname()}-{os.getpid()}-{app.randomness.token()[:8]}"
    crew = Maintenance(app, name, [DEFAULT_QUEUE], observer, make_worker=delivery_worker)
    task = asyncio.get_running_loop().create_task(crew.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
