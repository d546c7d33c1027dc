"""Checks before a request is handled: request id, API key, host, and the size of its body."""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import msgspec

from holdfast.api.errors import RequestError
from holdfast.errors import ForbiddenError, UnauthorizedError
from holdfast.http.api_keys import ApiKey, ApiKeys
from holdfast.http.capacity import BodyBytes
from holdfast.http.permissions import LOCAL_CALLER, Authorize, Caller, Permission
from holdfast.http.responses import Receive
from holdfast.model.policy import MEBIBYTE
from holdfast.runtime.randomness import Randomness
from holdfast.runtime.timeouts import Timeouts

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{8,64}", re.ASCII)
_JSON = re.compile(rb"application/(?:json|[a-z0-9.-]+\+json)\s*(?:;.*)?", re.ASCII | re.IGNORECASE)


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large and how slow a request may be."""

    body: int = 16 * MEBIBYTE + 65_536
    """Bytes: the largest payload that a store can be set to accept, and the fields around it."""
    arrival: float = 30.0
    """Seconds within which the whole body must arrive."""

    def of(self, size: int) -> RequestLimits:
        """Return the limits of a route whose body may have so many bytes."""
        return self if size >= self.body else msgspec.structs.replace(self, body=size)


class RequestIds:
    """Names requests: a prefix that is unique to this process, and a number."""

    def __init__(self, randomness: Randomness) -> None:
        self._prefix = randomness.token()[:20]
        self._numbers = count(1)

    def of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the client's own request id if it is well formed, else a new one."""
        given = headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        return f"{self._prefix}{next(self._numbers):012x}"


async def authenticate(
    keys: ApiKeys,
    hosts: frozenset[str],
    permission: Permission | None,
    headers: Mapping[bytes, bytes],
) -> Caller:
    """Return who calls; UnauthorizedError or ForbiddenError when the call is not allowed."""
    if permission is None:
        return LOCAL_CALLER
    if not keys.are_fresh:
        await keys.refresh()
    if keys.is_empty:
        _check_host(hosts, headers)
        caller = LOCAL_CALLER
    else:
        caller = _caller(keys, secret(headers))
    if not caller.may(permission):
        raise ForbiddenError(f"a key of role {caller.role} may not {permission}")
    return caller


def _caller(keys: ApiKeys, given: str) -> Caller:
    if not given:
        raise UnauthorizedError("an API key is needed: Authorization: Bearer hf_...")
    key = keys.find(given)
    if key is None:
        raise UnauthorizedError("the API key is unknown, revoked or expired")
    return caller_of(key)


async def site_caller(authorize: Authorize, scope: Mapping[str, Any]) -> Caller | None:
    """Return who calls, as the site knows that the service is mounted in."""
    found = authorize(scope)
    return await found if inspect.isawaitable(found) else found


async def authorized(
    authorize: Authorize, permission: Permission | None, scope: Mapping[str, Any]
) -> Caller:
    """Return who calls by the login of a site; refuse what its role, or another site, may not do.

    A login is a cookie, which browsers send with the requests of other sites, too.
    """
    if permission is None:
        return LOCAL_CALLER
    caller = await site_caller(authorize, scope)
    if caller is None:
        raise UnauthorizedError("sign in to this site first")
    if not caller.may(permission):
        raise ForbiddenError(f"the role {caller.role} may not {permission}")
    return caller


def caller_of(key: ApiKey) -> Caller:
    """Return the caller that a key stands for."""
    return Caller(
        key_id=key.id,
        name=key.name,
        role=key.role,
        namespace=key.namespace,
        rate=key.rate,
        live_jobs=key.live_jobs,
    )


def secret(headers: Mapping[bytes, bytes]) -> str:
    """Return the secret of the caller's key; empty without one."""
    scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    return headers.get(b"x-api-key", b"").decode("latin-1").strip()


def _check_host(hosts: frozenset[str], headers: Mapping[bytes, bytes]) -> None:
    """Refuse foreign host names: a web page could resolve its own name to this machine."""
    name = _host_name(headers.get(b"host", b""))
    if not is_loopback(name) and name not in hosts:
        raise RequestError("MISDIRECTED")


def check_origin(origins: frozenset[str], headers: Mapping[bytes, bytes]) -> None:
    """Refuse a change that a page of another site requests; browsers name the page's origin.

    Without keys nothing else distinguishes such a request from one of a local program.
    """
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    if origin in origins:
        return
    site = headers.get(b"sec-fetch-site", b"none").decode("latin-1").lower()
    host = headers.get(b"host", b"").decode("latin-1").lower()
    own = not origin or origin in (f"http://{host}", f"https://{host}")
    if not own or site not in ("none", "same-origin"):
        raise ForbiddenError(
            f"pages of other sites may not change anything, got Origin {origin[:100]!r} and"
            f" Sec-Fetch-Site {site[:100]!r}: name the origin with --cors, or create an API key"
        )


def is_local_host(header: bytes) -> bool:
    """Whether a Host header names this machine."""
    return is_loopback(_host_name(header))


@lru_cache(maxsize=64)
def _host_name(header: bytes) -> str:
    host = header.decode("latin-1").lower().rpartition("]")
    return (host[0] + host[1]).strip("[]") if host[1] else host[2].partition(":")[0]


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    limits: RequestLimits,
    timeouts: Timeouts,
    reserved: BodyBytes,
) -> bytes:
    """Read a body whose bytes are reserved first.

    RequestError when it is not JSON, too large or too slow, QuotaError when too many bytes of
    the key are in flight.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limits.body:
        message = f"a body may have {limits.body} bytes, got {int(length[:20])}"
        raise RequestError("TOO_LARGE", message)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestError("UNSUPPORTED_MEDIA_TYPE")
    if length.isdigit():
        reserved.grow(int(length[:20]))
    whole = _whole_body(receive, limits.body, reserved)
    try:
        body = await timeouts.wait_for(whole, limits.arrival)
    except TimeoutError:
        raise RequestError("REQUEST_TIMEOUT") from None
    if len(body) > limits.body:
        raise RequestError("TOO_LARGE")
    if body and not _is_json(headers.get(b"content-type", b"")):
        raise RequestError("UNSUPPORTED_MEDIA_TYPE")
    return body


@lru_cache(maxsize=64)
def _is_json(media_type: bytes) -> bool:
    return _JSON.fullmatch(media_type) is not None


async def _whole_body(receive: Receive, limit: int, reserved: BodyBytes) -> bytes:
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return first
    parts, size, more = [first], len(first), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("REQUEST_TIMEOUT", "the client disconnected during its request")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise RequestError("TOO_LARGE", f"a body may have {limit} bytes")
        reserved.grow(size)
        more = message.get("more_body", False)
    return b"".join(parts)
