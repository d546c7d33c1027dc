"""The dashboard as an ASGI application: finds the page, knows the visitor, answers, refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import escape
from msgspec import structs

from holdfast.api.errors import RequestError, error_body
from holdfast.api.responses import AuditEntry
from holdfast.app import Holdfast
from holdfast.dashboard import statics
from holdfast.dashboard.access import Access, KeyAccess, SiteAccess, Visitor
from holdfast.dashboard.actions import ActionRunner, sentence_of
from holdfast.dashboard.feed import Feed
from holdfast.dashboard.forms import read_form
from holdfast.dashboard.notices import Notice, Notices
from holdfast.dashboard.pages import LiveVisit, Pages
from holdfast.dashboard.payloads import ShownJob
from holdfast.dashboard.refills import refilled
from holdfast.dashboard.replies import (
    WebReply,
    WebStream,
    redirection,
    send_events,
    send_reply,
)
from holdfast.dashboard.routes import ACTIONS, SCREENS
from holdfast.dashboard.routing import Addresses, RouteTable, query_of, segments_of
from holdfast.dashboard.security import FormTokens, check_own_page, shared_secret
from holdfast.dashboard.sessions import Sessions
from holdfast.dashboard.signing import SignIn
from holdfast.dashboard.streams import Streams
from holdfast.dashboard.visits import (
    PERMISSIONS,
    SMALL_FORM,
    DashboardSettings,
    ScreenRoute,
    Visit,
)
from holdfast.errors import Fault, ForbiddenError, ValidationError
from holdfast.http.permissions import Authorize
from holdfast.http.refusals import ACTIONS as REFUSED
from holdfast.http.requests import RequestIds
from holdfast.http.responses import Receive, Scope, Send
from holdfast.http.service import Service

PATIENCE = 30.0
"""Seconds that a page or an action may take."""


def dashboard(
    app: Holdfast,
    *,
    authorize: Authorize | None = None,
    title: str = "holdfast",
    show_payloads: bool = True,
    format_payload: Callable[[ShownJob], str] | None = None,
) -> Dashboard:
    """Return the dashboard of an app, to mount into a Starlette or FastAPI site.

    ``authorize(scope)`` returns the ``Caller`` of a request, or None to refuse it; it may be a
    coroutine. Without it, people sign in with an API key. ``show_payloads=False`` hides payloads
    and results; ``format_payload(job)`` returns the text that is shown for a payload. It starts
    with the first request and uses the app if that is started, else it starts the app itself.
    """
    settings = DashboardSettings(
        title=title, show_payloads=show_payloads, format_payload=format_payload
    )
    return Dashboard(
        Service(app, describe=dict), settings=settings, authorize=authorize, embedded=True
    )


class Request(msgspec.Struct, frozen=True):
    """One request, before anything is known about it but its place."""

    id: str
    scope: Scope
    receive: Receive
    url: Addresses
    segments: tuple[str, ...]

    @property
    def method(self) -> str:
        """GET, HEAD, POST or what else was sent."""
        return str(self.scope["method"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers, the last of each name."""
        return dict(self.scope["headers"])


class Dashboard:
    """The pages, as an ASGI application."""

    closes_with_site = True
    """The lifespan of ``holdfast.contrib.starlette`` closes it."""

    def __init__(
        self,
        service: Service,
        *,
        settings: DashboardSettings | None = None,
        authorize: Authorize | None = None,
        embedded: bool = False,
    ) -> None:
        self._service = service
        self._settings = settings or DashboardSettings()
        self._authorize = authorize
        self._embedded = embedded
        self._screens = RouteTable(SCREENS)
        self._actions = RouteTable(ACTIONS)
        self._statics = statics.load()
        self._starting = asyncio.Lock()
        self._started = False
        randomness = service.app.randomness
        self._notices = Notices(randomness)
        placeholder = f"token-{randomness.token()}"
        self._pages = Pages(service, self._settings, self._statics, placeholder)
        self._request_ids = RequestIds(randomness)
        self.feed = Feed(service, self._fragments, placeholder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            reply = await self._answer(scope, receive)
            if isinstance(reply, WebStream):
                await send_events(receive, send, reply, self._service.stopping)
            else:
                await send_reply(scope, send, reply)

    async def start(self) -> None:
        """Prepare for requests; the first one does this by itself."""
        async with self._starting:
            if self._started:
                return
            if self._embedded:
                await self._service.join()
            service, app = self._service, self._service.app
            sessions = Sessions(app.store, app.clock, app.randomness)
            tokens = FormTokens(await shared_secret(app.store, app.randomness))
            self._pages.tokens = tokens
            self._access: Access = (
                SiteAccess(self._authorize)
                if self._authorize
                else KeyAccess(service, sessions, keyless=not self._embedded)
            )
            self._runner = ActionRunner(tokens)
            self._sign_in = SignIn(service, sessions, tokens, self._pages, self._count_refusal)
            self._streams = Streams(
                service,
                self.feed,
                pages=self._pages,
                settings=self._settings,
                tokens=tokens,
                sessions=sessions,
                screens=self._screens,
                by_site=self._authorize is not None,
            )
            self._started = True

    async def close(self) -> None:
        """End the streams, and what the dashboard itself has started."""
        await self.feed.close()
        if self._embedded and self._started:
            self._started = False
            await self._service.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive) -> WebReply | WebStream:
        url = Addresses(str(scope.get("root_path", "")))
        id_ = self._request_ids.of(dict(scope["headers"]))
        request = Request(id_, scope, receive, url, segments_of(scope))
        if request.segments[0] == "static":
            return self._static(request.segments)
        visitor: Visitor | None = None
        try:
            if not self._started:
                await self.start()
            async with asyncio.timeout(PATIENCE):
                visitor = await self._access.visitor(scope)
                if visitor is None or _signs_in(request):
                    return await self._stranger(request)
                self._service.key_limits.admit(visitor.caller)
                if request.method in ("GET", "HEAD"):
                    return await self._shown(request, visitor)
                return await self._changed(request, visitor)
        except Exception as error:  # noqa: BLE001  # every error becomes a page
            self._report(error, request)
            return self._pages.error(error, scope, url, visitor, id_)

    async def _stranger(self, request: Request) -> WebReply:
        if not self._access.signs_in:
            raise ForbiddenError("this site does not show you its jobs: sign in there first")
        scope, receive = request.scope, request.receive
        return await self._sign_in.stranger(scope, receive, request.url, request.segments)

    async def _shown(self, request: Request, visitor: Visitor) -> WebReply | WebStream:
        """Return a page, or the stream of one."""
        url, segments = request.url, request.segments
        if segments == ("login",):
            return redirection(url(""))
        if segments == ("live",):
            screen, place = self._streams.find(request.scope, url)
            _check(visitor, screen.call)
            return WebStream(self._streams.open(request.scope, url, visitor, screen, place))
        found = self._screens.find(segments)
        if found is None:
            raise RequestError("NOT_FOUND", f"there is no page {'/'.join(segments)[:200]}")
        screen, path = found
        _check(visitor, screen.call)
        query = query_of(request.scope, 1200)
        notice = self._notices.take(visitor.subject, "".join(query.pop("notice", [])))
        view = await screen.view(self._visit(visitor, path, query))
        if isinstance(view, WebReply):
            return view
        if isinstance(view, tuple):  # the segments of another page
            return redirection(url(*view))
        return await self._pages.screen(
            screen,
            view,
            self._pages.common(request.scope, url, visitor, screen),
            visitor=visitor,
            notice=notice,
            address=url(*segments, **query),
            url=url,
        )

    async def _changed(self, request: Request, visitor: Visitor) -> WebReply:
        """Run the action of a form, then lead to a page."""
        if request.method != "POST":
            raise RequestError("METHOD_NOT_ALLOWED", allow="GET, HEAD, POST")
        check_own_page(request.headers)
        if request.segments == ("logout",):
            form = await read_form(request.headers, request.receive, SMALL_FORM)
            return await self._sign_in.end(request.scope, request.url, visitor, form)
        found = self._actions.find(request.segments)
        if found is None:
            raise RequestError(
                "NOT_FOUND", f"there is no action {'/'.join(request.segments)[:200]}"
            )
        action, path = found
        _check(visitor, action.call)
        form = await read_form(request.headers, request.receive, action.most_bytes)
        visit = self._visit(visitor, path, {}, form)
        back = visit.given("back")
        place = back if request.url.is_own(back) else request.url("")
        try:
            notice, to, query = await self._runner.run(
                action, visit, visitor, request.scope, request_id=request.id
            )
        except ValidationError as error:
            page = await self._refused(request, visitor, place, form=form, faults=error.faults)
            if page is not None:
                return page
            notice, to, query = Notice(sentence_of(error), failed=True), (), {}
        id_ = self._notices.add(visitor.subject, notice) if notice.message else None
        if to:
            return redirection(request.url(*to, **query, notice=id_))
        return redirection(f"{place}{'&' if '?' in place else '?'}notice={id_}")

    async def _refused(
        self,
        request: Request,
        visitor: Visitor,
        place: str,
        *,
        form: Mapping[str, Sequence[str]],
        faults: Sequence[Fault],
    ) -> WebReply | None:
        """Return the page of a form with what was typed and what is wrong; None: it has none."""
        path, _, query = place.partition("?")
        scope = {**request.scope, "raw_path": path.encode(), "query_string": query.encode()}
        before = structs.replace(request, scope=scope, segments=segments_of(scope))
        reply = await self._shown(before, visitor)
        if not isinstance(reply, WebReply) or reply.status != 200:
            return None
        action = request.url(*request.segments)
        page = reply.body.decode()
        html = await asyncio.to_thread(refilled, page, action, form=form, faults=faults)
        if html is None:
            return None
        html = html.replace("<body ", f'<body data-here="{escape(place)}" ', 1)
        return structs.replace(reply, body=html.encode("utf-8", "replace"), status=422)

    def _visit(
        self,
        visitor: Visitor,
        path: Mapping[str, str],
        query: Mapping[str, list[str]],
        form: Mapping[str, list[str]] | None = None,
    ) -> Visit:
        return Visit(
            self._service,
            visitor.caller,
            settings=self._settings,
            path=path,
            query=query,
            form=form,
        )

    async def _fragments(self, screen: ScreenRoute, visit: Visit) -> Mapping[str, str]:
        """Return the live fragments of a page, for the feed."""
        assert isinstance(visit, LiveVisit)
        view = await screen.view(visit)
        if isinstance(view, tuple | WebReply):
            return {}
        return await self._pages.fragments(screen, view, visit.common)

    def _static(self, segments: tuple[str, ...]) -> WebReply:
        found = self._statics.files.get(segments[-1]) if len(segments) == 2 else None
        if found is None:
            return WebReply(body=b"no such file", media_type="text/plain", status=404)
        return WebReply(
            body=found.body, media_type=found.media_type, compressed=found.compressed, cached=True
        )

    def _report(self, error: Exception, request: Request) -> None:
        """Count a refused request for the audit log; log an unexpected error."""
        status = error_body(error)[0]
        if status in REFUSED and self._started:
            self._count_refusal(status, str(error), request.scope, "")
        if status == 500:
            self._service.observer.emit(
                "dashboard.failed", request_id=request.id, error=repr(error)
            )

    def _count_refusal(
        self, status: int, message: str, scope: Mapping[str, Any], secret: str
    ) -> None:
        client = scope.get("client")
        call = AuditEntry(
            timestamp=self._service.app.store.now(),
            request_id=self._request_ids.of({}),
            key_id="",
            key_name="",
            role="",
            namespace="",
            action="",
            target=f"{scope['method']} {scope['path']}",
            detail=message,
            client=client[0] if client else "",
        )
        self._service.refusals.add(status, self._service.keys.named(secret), call)


def _signs_in(request: Request) -> bool:
    return request.method == "POST" and request.segments == ("login",)


def _check(visitor: Visitor, call: str) -> None:
    permission = PERMISSIONS[call]
    if permission is not None and not visitor.caller.may(permission):
        raise ForbiddenError(f"a key of role {visitor.caller.role} may not {permission}")
