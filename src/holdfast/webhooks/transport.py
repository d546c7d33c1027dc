"""Posts a message to an address that the guard permits: no redirects, bounded time and size."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import MissingExtraError
from holdfast.runtime.version import __version__
from holdfast.webhooks.address_guard import AddressGuard

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

try:
    from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
    from aiohttp.abc import AbstractResolver
except ImportError:
    raise MissingExtraError("webhooks", "aiohttp") from None

LONGEST_RETRY_AFTER = timedelta(hours=1)
"""The longest Retry-After that is respected."""


class Response(msgspec.Struct, frozen=True):
    """The response of a receiver, without its body."""

    status: int
    retry_after: timedelta | None = None


class UnreachableError(Exception):
    """There was no response in time."""


async def post(
    url: str, body: bytes, headers: Mapping[str, str], *, guard: AddressGuard, timeout: timedelta
) -> Response:
    """Send a message; RefusedAddressError, or UnreachableError when there was no response."""
    guard.url(url)
    connector = TCPConnector(
        resolver=_CheckedResolver(guard),
        use_dns_cache=False,
        force_close=True,
        socket_factory=lambda info: _socket(guard, info),
    )
    session = ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=timeout.total_seconds()),
        headers={"User-Agent": f"holdfast/{__version__}", "Content-Type": "application/json"},
        auto_decompress=False,
    )
    try:
        async with (
            session,
            session.post(url, data=body, headers=dict(headers), allow_redirects=False) as response,
        ):
            return Response(response.status, _retry_after(response.headers.get("Retry-After", "")))
    except TimeoutError:
        raise UnreachableError(f"no answer within {timeout.total_seconds():g} s") from None
    except (ClientError, OSError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from None


class _CheckedResolver(AbstractResolver):
    """Resolves names and checks every address: one refused address refuses the name."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        for *_, place in found:
            self._guard.address(str(place[0]))
        return [
            {
                "hostname": host,
                "host": str(place[0]),
                "port": port,
                "family": kind,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for kind, _, protocol, _, place in found
        ]

    async def close(self) -> None:
        pass


def _socket(guard: AddressGuard, info: tuple[object, ...]) -> socket.socket:
    """Create the socket for one connection; check its address once more."""
    family, kind, protocol, _, place = info
    assert isinstance(place, tuple)
    guard.address(str(place[0]))
    return socket.socket(family, kind, protocol)  # type: ignore[arg-type]  # as getaddrinfo has them


def _retry_after(text: str) -> timedelta | None:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return min(timedelta(seconds=int(text)), LONGEST_RETRY_AFTER)
