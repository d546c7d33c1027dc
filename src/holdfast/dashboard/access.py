"""Who looks at the dashboard: a session of an API key, this machine, or the login of a site."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol

import msgspec

from holdfast.dashboard.sessions import LoginSession, Sessions
from holdfast.errors import ForbiddenError
from holdfast.http.permissions import LOCAL_CALLER, Authorize, Caller, Permission
from holdfast.http.requests import authenticate, caller_of, is_local_host, site_caller
from holdfast.http.service import Service

SECURE_COOKIE = "__Host-holdfast"
LOCAL_COOKIE = "holdfast-local"
"""Over plain HTTP on this machine, where some browsers keep no secure cookies."""


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """A caller with what their forms are bound to."""

    caller: Caller
    subject: str
    """What the form tokens of this visitor are made for."""
    session: LoginSession | None = None


class Access(Protocol):
    """Decides who a request comes from."""

    signs_in: bool
    """Whether a visitor who is not known can sign in with an API key."""

    async def visitor(self, scope: Mapping[str, Any]) -> Visitor | None:
        """Return who a request comes from; None when that is not known."""
        ...


class SiteAccess:
    """The login of the site that the dashboard is mounted in."""

    signs_in = False

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    async def visitor(self, scope: Mapping[str, Any]) -> Visitor | None:
        """Ask the site."""
        caller = await site_caller(self._authorize, scope)
        if caller is None:
            return None
        subject = f"site:{caller.key_id}:{caller.name}:{caller.role}:{caller.namespace}"
        return Visitor(caller=caller, subject=subject)


class KeyAccess:
    """API keys: people sign in with one. While none exists, only this machine is served."""

    signs_in = True

    def __init__(self, service: Service, sessions: Sessions, *, keyless: bool) -> None:
        """``keyless``: while no key exists, every caller on this machine may see all."""
        self._service = service
        self._sessions = sessions
        self._keyless = keyless

    async def visitor(self, scope: Mapping[str, Any]) -> Visitor | None:
        """Return the caller of a session whose key is valid, or this machine."""
        keys = self._service.keys
        if not keys.are_fresh:
            await keys.refresh()
        headers = dict(scope["headers"])
        if keys.is_empty and not self._keyless:
            raise ForbiddenError(
                "no API key exists: create one with 'holdfast keys create --role admin', or give"
                " the dashboard the login of this site with authorize="
            )
        if keys.is_empty:
            await authenticate(keys, self._service.hosts, Permission.READ, headers)
            return Visitor(caller=LOCAL_CALLER, subject="local")
        session = await self._sessions.find(session_secret(scope))
        if session is None or not keys.holds(session.key_id):
            return None
        key = keys.get(session.key_id)
        assert key is not None
        return Visitor(caller=caller_of(key), subject=session.id, session=session)


def is_plain_local(scope: Mapping[str, Any]) -> bool:
    """Whether a request came to this machine itself without TLS."""
    headers = dict(scope["headers"])
    return scope.get("scheme") != "https" and is_local_host(headers.get(b"host", b""))


def cookies(scope: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the cookies of a request; malformed ones do not count."""
    given = dict(scope["headers"]).get(b"cookie", b"").decode("latin-1")[:8192]
    found: SimpleCookie = SimpleCookie()
    try:
        found.load(given)
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def session_secret(scope: Mapping[str, Any]) -> str:
    """Return what the session cookie of a request holds."""
    name = LOCAL_COOKIE if is_plain_local(scope) else SECURE_COOKIE
    return cookies(scope).get(name, "")


def session_cookie(scope: Mapping[str, Any], secret: str) -> str:
    """Return the header that sets the session cookie, or with no secret removes it."""
    plain = is_plain_local(scope)
    ends = "" if secret else "; Max-Age=0"
    secure = "" if plain else "; Secure"
    name = LOCAL_COOKIE if plain else SECURE_COOKIE
    return f"{name}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}"
