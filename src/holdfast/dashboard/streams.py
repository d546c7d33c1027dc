"""Opens the stream of a page: the same screen and permission, in a topic that tabs share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from holdfast.api.errors import RequestError
from holdfast.dashboard.access import Visitor
from holdfast.dashboard.feed import Feed, Tab, Topic, TopicKey
from holdfast.dashboard.pages import LiveVisit, Pages
from holdfast.dashboard.routing import Addresses, RouteTable, fields_of, query_of, segments_of
from holdfast.dashboard.security import FormTokens
from holdfast.dashboard.sessions import Sessions
from holdfast.dashboard.visits import DashboardSettings, ScreenRoute
from holdfast.http.service import Service


class Streams:
    """The streams of one dashboard."""

    def __init__(
        self,
        service: Service,
        feed: Feed,
        *,
        pages: Pages,
        settings: DashboardSettings,
        tokens: FormTokens,
        sessions: Sessions,
        screens: RouteTable[ScreenRoute],
        by_site: bool,
    ) -> None:
        """``by_site``: the site that the dashboard is mounted in knows who is signed in."""
        self._service = service
        self._feed = feed
        self._pages = pages
        self._settings = settings
        self._tokens = tokens
        self._sessions = sessions
        self._screens = screens
        self._by_site = by_site

    def find(self, scope: Mapping[str, Any], url: Addresses) -> tuple[ScreenRoute, LiveVisitPlace]:
        """Return the screen of a stream and where it is; NotFoundError when it has none."""
        query = query_of(scope, 10)
        address = "".join(query.get("at", []))
        place = urlsplit(address if url.is_own(address) else "")
        inner = {"root_path": scope.get("root_path", ""), "raw_path": place.path.encode()}
        found = self._screens.find(segments_of(inner)) if place.path else None
        if found is None or not found[0].live:
            raise RequestError("NOT_FOUND", f"there is no live page {address[:100]}")
        screen, path = found
        asked = fields_of(place.query, 1200)
        return screen, (address, path, asked, "".join(query.get("seen", [])))

    async def open(
        self,
        scope: Mapping[str, Any],
        url: Addresses,
        visitor: Visitor,
        screen: ScreenRoute,
        place: LiveVisitPlace,
    ) -> AsyncIterator[bytes]:
        """Yield the events of a page for one tab, which counts among the streams of its key."""
        address, path, query, seen = place
        caller = visitor.caller
        visit = LiveVisit(
            self._service,
            caller,
            settings=self._settings,
            path=path,
            query=query,
        )
        visit.common = {**self._pages.common(scope, url, visitor, screen), "here": address}
        owner = caller.key_id if caller.only_own else ""
        key: TopicKey = (url.root, address, caller.namespace, caller.role.value, owner)
        tab = Tab(self._tokens.of(visitor.subject), self._validity(visitor), seen)
        use = self._service.capacity.of(caller.key_id)
        try:
            end = use.open_stream()
            try:
                async for chunk in self._feed.follow(key, Topic(screen, visit), tab):
                    yield chunk
            finally:
                end()
        finally:
            use.close()

    def _validity(self, visitor: Visitor) -> Callable[[], bool]:
        """Return what says whether a visitor is still let in."""
        service, session = self._service, visitor.session
        if session is None:
            return (lambda: True) if self._by_site else (lambda: service.keys.is_empty)

        def holds() -> bool:
            newest = self._sessions.newest(session)
            now = service.app.store.now()
            return service.keys.holds(session.key_id) and not newest.has_ended(now)

        return holds


LiveVisitPlace = tuple[str, Mapping[str, str], Mapping[str, list[str]], str]
"""The address of a page, its path parameters, its query, and the mark of what the tab shows."""
