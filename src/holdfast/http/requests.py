"""What a request must pass before anything is done for it: who, from where, how much."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api.errors import Refusal
from holdfast.errors import ForbiddenError, UnauthorizedError
from holdfast.http.permissions import ANYONE, Caller
from holdfast.model.policy import MEBIBYTE
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.timeouts import Timeouts

if TYPE_CHECKING:
    from holdfast.http.endpoint import Endpoint
    from holdfast.http.service import Service

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{8,64}", re.ASCII)
_JSON = re.compile(rb"application/(?:json|[a-z0-9.-]+\+json)\s*(?:;.*)?", re.ASCII | re.IGNORECASE)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large and how slow a request may be."""

    body: int = 16 * MEBIBYTE + 65_536
    """Bytes: the largest payload that can be allowed, and what is said around it."""
    arrival: float = 30.0
    """Seconds until the whole body must have arrived."""


class RequestIds:
    """Names requests: a word that no other process comes up with, and a number."""

    def __init__(self, randomness: Randomness) -> None:
        self._word = randomness.token()[:20]
        self._numbers = count(1)

    def of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the client's own request id if it is a plain one, else a new one."""
        given = headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return f"{self._word}{next(self._numbers):012x}"


async def caller_of(service: Service, endpoint: Endpoint, headers: Mapping[bytes, bytes]) -> Caller:
    """Find out who calls, and whether it may."""
    if endpoint.permission is None:
        return ANYONE
    if not service.keys.are_fresh:
        await service.keys.refresh()
    if service.keys.is_empty:
        _check_host(service, headers)
        caller = ANYONE
    else:
        secret = _secret(headers)
        key = service.keys.find(secret) if secret else None
        if key is None:
            raise UnauthorizedError(
                "the API key is unknown, revoked or expired"
                if secret
                else "an API key is needed: Authorization: Bearer hf_..."
            )
        caller = Caller(
            key_id=key.id,
            name=key.name,
            role=key.role,
            namespace=key.namespace,
            rate=key.rate,
            live_jobs=key.live_jobs,
        )
    if not caller.may(endpoint.permission):
        told = f"a key of role {caller.role} may not {endpoint.permission}"
        raise ForbiddenError(told)
    return caller


def _secret(headers: Mapping[bytes, bytes]) -> str:
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return secret.strip()
    return headers.get(b"x-api-key", b"").decode("latin-1").strip()


def _check_host(service: Service, headers: Mapping[bytes, bytes]) -> None:
    """Without keys a web page in a browser here must not reach us under a name of its own."""
    name = _host_name(headers.get(b"host", b""))
    if not is_loopback(name) and name not in service.hosts:
        raise Refusal("MISDIRECTED")


@lru_cache(maxsize=64)
def _host_name(header: bytes) -> str:
    host = header.decode("latin-1").lower().rpartition("]")
    return (host[0] + host[1]).strip("[]") if host[1] else host[2].partition(":")[0]


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a host is this very machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def body_of(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    limits: RequestLimits,
    deadlines: Timeouts,
) -> bytes:
    """Read a body, as long as it is JSON, small enough and quick enough."""
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limits.body:
        raise Refusal("TOO_LARGE", f"a body may have {limits.body} bytes, got {int(length[:20])}")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal("UNSUPPORTED_MEDIA_TYPE")
    try:
        body = await deadlines.soon(_whole(receive, limits.body), limits.arrival)
    except TimeoutError:
        raise Refusal("REQUEST_TIMEOUT") from None
    if len(body) > limits.body:
        raise Refusal("TOO_LARGE")
    if body and not _is_json(headers.get(b"content-type", b"")):
        raise Refusal("UNSUPPORTED_MEDIA_TYPE")
    return body


@lru_cache(maxsize=64)
def _is_json(media_type: bytes) -> bool:
    return _JSON.fullmatch(media_type) is not None


async def _whole(receive: Callable[[], Awaitable[MutableMapping[str, Any]]], most: int) -> bytes:
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return first
    parts, size, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal("REQUEST_TIMEOUT", "the client left before its request was complete")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refusal("TOO_LARGE", f"a body may have {most} bytes")
        more = message.get("more_body", False)
    return b"".join(parts)
