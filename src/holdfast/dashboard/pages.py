"""Makes whole pages: what every page has, its own part, and the token of the visitor's forms."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from markupsafe import escape
from msgspec.structs import replace

from holdfast.api.errors import error_body
from holdfast.dashboard.access import Visitor, cookies
from holdfast.dashboard.feed import digest
from holdfast.dashboard.notices import Notice
from holdfast.dashboard.rendering import Renderer
from holdfast.dashboard.replies import WebReply
from holdfast.dashboard.routes import NAVIGATION
from holdfast.dashboard.routing import Addresses
from holdfast.dashboard.security import FormTokens
from holdfast.dashboard.statics import StaticFiles
from holdfast.dashboard.visits import PERMISSIONS, DashboardSettings, ScreenRoute, Visit
from holdfast.http.service import Service

FEED_MARK = 'data-feed=""'
"""Where the address of the feed goes; it depends on what the page shows."""


class LiveVisit(Visit):
    """The visit of a feed: with what its page needs besides the view."""

    __slots__ = ("common",)
    common: dict[str, Any]


class Pages:
    """The pages of one dashboard."""

    def __init__(
        self, service: Service, settings: DashboardSettings, files: StaticFiles, placeholder: str
    ) -> None:
        self._service = service
        self._settings = settings
        self._renderer = Renderer(files)
        self._placeholder = placeholder
        """Stands for the form token, so that all visitors can share what is rendered."""
        self.tokens: FormTokens | None = None

    def common(
        self,
        scope: Mapping[str, Any],
        url: Addresses,
        visitor: Visitor | None,
        screen: ScreenRoute | None = None,
    ) -> dict[str, Any]:
        """Return what every page needs."""
        caller = visitor.caller if visitor else None
        theme = cookies(scope).get("holdfast-theme", "")

        def may(call: str) -> bool:
            permission = PERMISSIONS[call]
            return caller is not None and (permission is None or caller.may(permission))

        return {
            "url": url,
            "caller": caller,
            "may": may,
            "can_sign_out": visitor is not None and visitor.session is not None,
            "title": screen.title if screen else self._settings.title,
            "section": screen.section if screen else "",
            "site": self._settings.title,
            "navigation": [item for item in NAVIGATION if may(item.call)],
            "token": self._placeholder,
            "theme": theme if theme in ("light", "dark") else "",
            "notice": None,
            "feed": None,
            "here": "",
        }

    async def screen(
        self,
        screen: ScreenRoute,
        view: object,
        common: Mapping[str, Any],
        *,
        visitor: Visitor,
        notice: Notice | None,
        address: str,
        url: Addresses,
    ) -> WebReply:
        """Return the page of a screen; a live one names the feed that keeps it current.

        It is rendered beside the event loop: a long table or a large payload takes 0.2 s.
        """
        feed = "" if screen.live else None
        values = {**common, "view": view, "notice": notice, "here": address, "feed": feed}
        now = self._service.app.store.now()

        def made() -> WebReply:
            shown = self._renderer.page(screen.template, values, now=now)
            html = shown.html
            if screen.live:
                at = url("live", at=address, seen=digest(shown.fragments))
                html = html.replace(FEED_MARK, f'data-feed="{escape(at)}"', 1)
            return self._reply(html, visitor)

        return await asyncio.to_thread(made)

    async def fragments(
        self, screen: ScreenRoute, view: object, common: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return the live fragments of a screen, as the feed sends them."""
        values = {**common, "view": view}
        now = self._service.app.store.now()
        made = await asyncio.to_thread(
            self._renderer.page, screen.template, values, now=now, bare=True
        )
        return made.fragments

    def login(
        self,
        scope: Mapping[str, Any],
        url: Addresses,
        *,
        to: str,
        fault: str = "",
        status: int = 200,
    ) -> WebReply:
        """Return the page to sign in."""
        values = {**self.common(scope, url, None), "next": to, "fault": fault}
        shown = self._renderer.page("login.html", values, now=self._service.app.clock.now())
        return self._reply(shown.html, None, status)

    def error(
        self,
        error: Exception,
        scope: Mapping[str, Any],
        url: Addresses,
        visitor: Visitor | None,
        request_id: str,
    ) -> WebReply:
        """Return the page of an error: what happened, and what to do."""
        status, body = error_body(error)
        body = replace(body, request_id=request_id)
        values = {**self.common(scope, url, visitor), "status": status, "error": body}
        shown = self._renderer.page("error.html", values, now=self._service.app.clock.now())
        headers = [("retry-after", "2")] if status == 503 else []
        return self._reply(shown.html, visitor, status, headers)

    def _reply(
        self,
        html: str,
        visitor: Visitor | None,
        status: int = 200,
        headers: list[tuple[str, str]] | None = None,
    ) -> WebReply:
        subject = visitor.subject if visitor else STRANGER
        token = self.tokens.of(subject) if self.tokens else ""
        body = html.replace(self._placeholder, token).encode("utf-8", "replace")
        return WebReply(body=body, status=status, headers=headers or ())


STRANGER = "stranger"
"""What the form token of someone who is not signed in is made for."""
