"""Signing in with an API key, and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.dashboard.access import Visitor, session_cookie
from holdfast.dashboard.forms import LOGIN_BYTES, read_form
from holdfast.dashboard.pages import STRANGER, Pages
from holdfast.dashboard.replies import WebReply, redirection
from holdfast.dashboard.routing import Addresses, query_of
from holdfast.dashboard.security import TOKEN_FIELD, FormTokens, check_own_page
from holdfast.dashboard.sessions import Sessions
from holdfast.errors import UnauthorizedError
from holdfast.http.responses import Receive
from holdfast.http.service import Service

WRONG_KEY = "This key is unknown, revoked or expired."
LONGEST_NEXT = 2000
"""Characters of an address that follows the login; its form stays small."""

CountRefusal = Callable[[int, str, Mapping[str, Any], str], None]


class SignIn:
    """The login of a dashboard."""

    def __init__(
        self,
        service: Service,
        sessions: Sessions,
        tokens: FormTokens,
        pages: Pages,
        refused: CountRefusal,
    ) -> None:
        self._service = service
        self._sessions = sessions
        self._tokens = tokens
        self._pages = pages
        self._refused = refused

    async def stranger(
        self,
        scope: Mapping[str, Any],
        receive: Receive,
        url: Addresses,
        segments: tuple[str, ...],
    ) -> WebReply:
        """Serve someone who is not signed in: the login, and nothing else."""
        query = scope["query_string"].decode("latin-1")
        if segments != ("login",):
            if scope["method"] not in ("GET", "HEAD") or segments == ("live",):
                raise UnauthorizedError("sign in first: the session has ended")
            here = url(*segments) + (f"?{query}" if query else "")
            known = here != url("") and len(here) <= LONGEST_NEXT
            return redirection(url("login", next=here if known else None))
        if scope["method"] == "POST":
            return await self._begin(scope, receive, url)
        to = "".join(query_of(scope, 10).get("next", []))
        return self._pages.login(scope, url, to=to if len(to) <= LONGEST_NEXT else "")

    async def _begin(self, scope: Mapping[str, Any], receive: Receive, url: Addresses) -> WebReply:
        headers = dict(scope["headers"])
        check_own_page(headers)
        form = await read_form(headers, receive, LOGIN_BYTES)
        self._tokens.check(STRANGER, "".join(form.get(TOKEN_FIELD, [])))
        to = "".join(form.get("next", []))
        secret = "".join(form.get("key", [])).strip()
        key = self._service.keys.find(secret)
        if key is None:
            self._refused(401, "signed in with a wrong key", scope, secret)
            return self._pages.login(scope, url, to=to, fault=WRONG_KEY, status=401)
        cookie = session_cookie(scope, await self._sessions.begin(key.id))
        return redirection(to if url.is_own(to) else url(""), ("set-cookie", cookie))

    async def end(
        self,
        scope: Mapping[str, Any],
        url: Addresses,
        visitor: Visitor,
        form: Mapping[str, list[str]],
    ) -> WebReply:
        """Sign out."""
        self._tokens.check(visitor.subject, "".join(form.get(TOKEN_FIELD, [])))
        if visitor.session is not None:
            await self._sessions.end(visitor.session)
        return redirection(url("login"), ("set-cookie", session_cookie(scope, "")))
