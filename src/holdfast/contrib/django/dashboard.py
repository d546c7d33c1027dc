"""The dashboard behind a view of Django: the same pages, with the login of the project.

The dashboard is an ASGI application on an event loop of its own; the view passes requests on. A
WSGI process cannot keep streams open, so the script fetches a page that changes every five seconds
and changes what differs. Without script the browser reloads a page on which nobody can type.
"""

from __future__ import annotations

import copy
import os
import re
from typing import Any
from urllib.parse import quote

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from holdfast.app import Holdfast
from holdfast.contrib.django.configured import app
from holdfast.dashboard import Caller, Dashboard, Role, dashboard

CALLER = "holdfast.caller"
"""The key of the scope under which the view passes the visitor on."""
RELOAD = 5
"""Seconds after which a page that changes is loaded again."""
_STREAM = re.compile(rb' data-feed="[^"]*"')
_TYPED = re.compile(rb"<(?:textarea|select)\b|<input(?![^>]* type=\"hidden\")")
"""Something that people type or tick: a reload would take it away."""
_NOT_PASSED = frozenset({"accept-encoding", "content-length", "content-type"})
"""Headers that Django handles itself, or that a scope has under another name."""


def board(request: HttpRequest, path: str = "") -> HttpResponse:
    """Serve a page of the dashboard to a user who may view jobs."""
    if not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    caller = caller_of(request.user)
    if caller is None or path == "live":
        raise PermissionDenied("you may not view jobs")
    status, headers, body = _Site.current().serve(_scope(request, path, caller), request.body)
    answer = HttpResponse(_reloading(body), status=status)
    for name, value in headers:
        answer[name.decode("latin-1")] = value.decode("latin-1")
    answer["Content-Length"] = str(len(answer.content))
    return answer


board.csrf_exempt = True  # type: ignore[attr-defined]  # it has tokens of its own, and checks the origin


def _reloading(page: bytes) -> bytes:
    """Return a page that is fetched again instead of keeping a stream open."""
    page, streams = _STREAM.subn(b' data-refresh="%d"' % RELOAD, page, count=1)
    if not streams or _TYPED.search(page.partition(b"<main")[2]):
        return page
    reload = b'<noscript><meta http-equiv="refresh" content="%d"></noscript></head>' % RELOAD
    return page.replace(b"</head>", reload, 1)


def caller_of(user: Any) -> Caller | None:
    """Return what a user may do: view jobs, change them, or everything; None for nothing."""
    name = str(user.get_username())
    if user.is_superuser:
        return Caller(name=name, role=Role.ADMIN)
    if user.has_perm("holdfast.change_storedjob"):
        return Caller(name=name, role=Role.OPERATOR)
    return (
        Caller(name=name, role=Role.OBSERVER) if user.has_perm("holdfast.view_storedjob") else None
    )


def _scope(request: HttpRequest, path: str, caller: Caller) -> dict[str, Any]:
    root = request.path[: len(request.path) - len(path)].rstrip("/")
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in request.headers.items()
        if name.lower() not in _NOT_PASSED
    ]
    headers.append((b"content-type", request.META.get("CONTENT_TYPE", "").encode("latin-1")))
    return {
        "type": "http",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": root,
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (request.META.get("REMOTE_ADDR", ""), 0),
        CALLER: caller,
    }


Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


class _Site:
    """The dashboard of one process."""

    _made: _Site | None = None

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._url = app.url
        self._jobs = _twin(app)
        self._pages: Dashboard | None = None

    @classmethod
    def current(cls) -> _Site:
        """Return that of this process, over the store that the settings name now."""
        made = cls._made
        if made is None or made._pid != os.getpid() or made._url != app.url:
            made = cls._made = cls()
        return made

    def serve(self, scope: dict[str, Any], body: bytes) -> Answer:
        """Answer a request."""
        return self._jobs.sync.run(lambda _: self._serve(scope, body))

    async def _serve(self, scope: dict[str, Any], body: bytes) -> Answer:
        if self._pages is None:
            self._pages = dashboard(self._jobs, authorize=lambda given: given[CALLER])
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._pages(scope, receive, send)
        return (
            sent[0]["status"],
            list(sent[0]["headers"]),
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


def _twin(original: Holdfast) -> Holdfast:
    """Return an app with the same tasks that is started on its own, on another loop."""
    twin = copy.copy(original)
    twin._operations = twin._loop = twin._sync = None
    twin._users = 0
    return twin
