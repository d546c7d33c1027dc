"""Runs the service: one process and one port, until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import msgspec
import uvicorn

from holdfast.app import Holdfast
from holdfast.encryption import require_keys
from holdfast.errors import HoldfastError
from holdfast.http.api_keys import list_keys
from holdfast.http.application import MakePages, create_app
from holdfast.http.connections import ClientConnections
from holdfast.http.listener import ForwardedLimit, LimitedServer, make_room_for
from holdfast.http.requests import RequestLimits, is_loopback
from holdfast.http.service import Service
from holdfast.maintenance.leader import Maintenance
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.model.policy import ConnectionLimits, ServiceLimits
from holdfast.observe import Observer, unobserved_reported
from holdfast.store.damage import described
from holdfast.worker.worker import delivery_worker

SHUTDOWN_TIMEOUT = 10
"""Seconds that requests in progress get when the service stops."""


class UnsafeAddressError(HoldfastError):
    """The service would be open to other machines without keys or TLS."""


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how the service listens."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: str | None = None
    certificate_key: str | None = None
    behind_proxy: bool = False
    """A proxy in front terminates TLS."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies; X-Forwarded headers count only from these."""
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: ConnectionLimits = ConnectionLimits()

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        return is_loopback(self.host)


async def check(app: Holdfast, address: ListenAddress) -> int:
    """Return the number of keys; UnsafeAddressError when the address needs keys or TLS."""
    keys = await list_keys(app.store)
    if not keys:
        _check_keyless(address)
    if address.is_local:
        return len(keys)
    if address.certificate is None and not address.behind_proxy:
        raise UnsafeAddressError(
            f"keys would travel to {address.host} in the clear: give --certificate and"
            " --certificate-key, or --behind-proxy when a proxy in front terminates TLS"
        )
    return len(keys)


def _check_keyless(address: ListenAddress) -> None:
    """Refuse what lets other machines or any web page call a service without keys."""
    reason = ""
    if not address.is_local:
        reason = f"{address.host} would be open to anyone who can reach it"
    elif address.behind_proxy or address.proxies:
        reason = "--behind-proxy would be open to anyone who can reach the proxy"
    elif "*" in address.cors:
        reason = "--cors '*' would be open to every web page that a browser on this machine shows"
    if reason:
        raise UnsafeAddressError(
            f"no API key exists, so {reason}: create one with 'holdfast keys create', or listen"
            " on 127.0.0.1 without these options"
        )


async def serve(
    app: Holdfast,
    address: ListenAddress,
    *,
    observer: Observer,
    ready: Callable[[str, int], None],
    capacity: ServiceLimits | None = None,
    pages: MakePages | None = None,
) -> None:
    """Serve until a signal; call ``ready`` with the address and the number of keys.

    Also runs maintenance (due jobs, lost leases, dependents, retention), so that workers over
    HTTP need no other process.
    """
    async with app:
        await require_keys(app.store)
        keys = await check(app, address)
        with _listening(address) as sockets:
            made = create_app(
                app,
                observer=observer,
                capacity=capacity,
                hosts=address.hosts,
                cors=address.cors,
                limits=RequestLimits(arrival=address.limits.body_timeout.total_seconds()),
                pages=pages,
            )
            service: Service = made.state.service
            server = _Server(service, address, made)
            port = sockets[0].getsockname()[1]
            name = f"[{address.host}]" if ":" in address.host else address.host
            scheme = "https" if address.certificate else "http"
            server.ready = lambda: ready(f"{scheme}://{name}:{port}", keys)
            with unobserved_reported(observer):
                async with maintenance(app, observer):
                    await server.serve(sockets=sockets)


@contextlib.asynccontextmanager
async def beside(
    app: Holdfast, address: ListenAddress, *, pages: MakePages | None = None
) -> AsyncIterator[str]:
    """Serve an app beside other work on this event loop; yield the address.

    OSError when the port is in use. Does not handle signals and runs no maintenance.
    """
    with _listening(address) as sockets:
        made = create_app(app, pages=pages)
        server = _EmbeddedServer(made.state.service, address, made)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=sockets))
        try:
            yield f"http://{address.host}:{sockets[0].getsockname()[1]}"
        finally:
            made.state.service.stop()
            server.should_exit = True
            await task


class _LocalServer(LimitedServer):
    """A server of a service, with the limits of its address."""

    def __init__(self, service: Service, address: ListenAddress, made: Callable[..., Any]) -> None:
        connections = _connections(service, address)
        limited = ForwardedLimit(made, connections) if address.proxies else made
        super().__init__(_config(limited, address), connections)
        self._service = service
        service.connections = connections


class _EmbeddedServer(_LocalServer):
    """A server that does not handle signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server(_LocalServer):
    """A server whose signals also end streams and long waits, which would delay its stop."""

    ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the loop; uvicorn itself would end the process with the signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully; a second signal stops at once."""
        self._service.stop()
        super().handle_exit(sig, frame)


def _connections(service: Service, address: ListenAddress) -> ClientConnections:
    """Return the connections of a server; an unnamed proxy sends those of everybody."""
    limits = msgspec.structs.replace(
        address.limits, connections=make_room_for(address.limits.connections)
    )
    if address.behind_proxy and not address.proxies:
        limits = msgspec.structs.replace(limits, connections_per_address=limits.connections)
    return ClientConnections(limits, service.rejections, address.proxies)


def _config(made: Callable[..., object], address: ListenAddress) -> uvicorn.Config:
    return uvicorn.Config(
        made,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(address.proxies),
        forwarded_allow_ips=list(address.proxies),
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        timeout_keep_alive=address.limits.idle_timeout.total_seconds(),  # type: ignore[arg-type]  # call_later()
        ssl_certfile=address.certificate,
        ssl_keyfile=address.certificate_key,
    )


@contextlib.contextmanager
def _listening(address: ListenAddress) -> Iterator[list[socket.socket]]:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.create_server((address.host, address.port), family=family, backlog=2048)
    try:
        yield [listener]
    finally:
        listener.close()


@contextlib.asynccontextmanager
async def maintenance(app: Holdfast, observer: Observer) -> AsyncIterator[None]:
    """Run the maintenance of an app's store beside other work."""
    name = f"serve-{socket.gethostname()}-{os.getpid()}-{app.randomness.token()[:8]}"
    leading = Maintenance(app, name, [DEFAULT_QUEUE], observer, make_worker=delivery_worker)

    def report(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            observer.emit("maintenance.failed", service="maintenance", error=described(error))

    task = asyncio.get_running_loop().create_task(leading.run())
    task.add_done_callback(report)  # at once, not when the service stops
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
