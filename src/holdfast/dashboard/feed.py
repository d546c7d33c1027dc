"""One feed per server process: asks the store for what open tabs show, and sends what changed.

Tabs with the same page for the same kind of caller share a topic, which is rendered once. A budget
of reads per second bounds what all tabs together cost, however many are open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec

from holdfast.api.errors import error_body
from holdfast.dashboard.rendering import stable
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.http.service import Service

INTERVAL = 1.0
"""Seconds between two looks at the topics."""
BUDGET = 1.8
"""Reads of the store per second for all topics; the keys cost one more."""
SAVED = 6.0
"""Reads that can be saved up while little is open."""
KEEP_ALIVE = 15.0
"""Seconds after which a quiet stream sends a comment, so that proxies keep it open."""
REFRESH = timedelta(seconds=10)
"""A page of one job that did not change is read again after so long."""
PATIENCE = 20.0
"""Seconds that a view may take."""

TopicKey = tuple[str, ...]
ShowView = Callable[[ScreenRoute, Visit], Awaitable[Mapping[str, str]]]


def digest(fragments: Mapping[str, str]) -> str:
    """Return a mark of what a page shows, apart from what the clock changes."""
    text = "\0".join(f"{name}\0{stable(fragments[name])}" for name in sorted(fragments))
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


class Tab:
    """One open page."""

    def __init__(self, token: str, is_valid: Callable[[], bool], seen: str = "") -> None:
        """``seen`` is the mark of what the tab shows when it opens."""
        self.token = token
        self.seen = seen
        self.is_valid = is_valid
        self.waiting: dict[str, str] = {}
        """Fragments to send; a slow tab gets only the newest of each."""
        self.events: list[str] = []
        self.changed = asyncio.Event()

    def patch(self, fragments: Mapping[str, str]) -> None:
        """Send fragments."""
        self.waiting.update(fragments)
        self.changed.set()

    def tell(self, event: str) -> None:
        """Send an event without data."""
        self.events.append(event)
        self.changed.set()


class Topic:
    """A page that is open in some tabs."""

    def __init__(self, screen: ScreenRoute, visit: Visit) -> None:
        self.screen = screen
        self.visit = visit
        self.tabs: set[Tab] = set()
        self.fragments: Mapping[str, str] = {}
        self.stable: dict[str, str] = {}
        self.refreshed: datetime | None = None
        self.stale = True
        self.has_failed = False

    @property
    def job_id(self) -> str:
        """The one job that it shows, if it shows one."""
        return self.visit.path.get("job_id", "") if self.screen.one_job else ""

    def update(self, fragments: Mapping[str, str]) -> None:
        """Take new fragments and send those that changed."""
        marks = {name: stable(html) for name, html in fragments.items()}
        changed = {n: html for n, html in fragments.items() if self.stable.get(n) != marks[n]}
        mark = digest(fragments) if changed else ""
        self.fragments, self.stable, self.stale = fragments, marks, False
        for tab in self.tabs if changed else ():
            if tab.seen != mark:
                tab.patch(fragments if tab.seen else changed)
                tab.seen = ""


class Feed:
    """Keeps the open tabs of one server current."""

    def __init__(self, service: Service, show: ShowView, placeholder: str) -> None:
        self._service = service
        self._show = show
        self._placeholder = placeholder
        self._topics: dict[TopicKey, Topic] = {}
        self._task: asyncio.Task[None] | None = None
        self._left = SAVED
        self._cursor: str | None = None
        self.is_away = False
        """Whether the store did not answer the last time."""

    @property
    def tabs(self) -> int:
        """How many tabs are open."""
        return sum(len(topic.tabs) for topic in self._topics.values())

    async def close(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def follow(self, key: TopicKey, topic: Topic, tab: Tab) -> AsyncIterator[bytes]:
        """Yield the events of a page for one tab."""
        topic = self._topics.setdefault(key, topic)
        topic.tabs.add(tab)
        if topic.fragments:
            if digest(topic.fragments) != tab.seen:
                tab.patch(topic.fragments)
            tab.seen = ""
        if self.is_away:
            tab.tell("away")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield b"retry: 2000\n\n"
            while True:
                yield await self._next(tab)
                if not tab.is_valid():
                    yield b"event: ended\ndata:\n\n"
                    return
        finally:
            topic.tabs.discard(tab)
            if not topic.tabs and self._topics.get(key) is topic:
                del self._topics[key]

    async def _next(self, tab: Tab) -> bytes:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE):
                await tab.changed.wait()
        tab.changed.clear()
        sent = [f"event: {event}\ndata:\n\n".encode() for event in tab.events]
        if tab.waiting:
            data = {n: h.replace(self._placeholder, tab.token) for n, h in tab.waiting.items()}
            sent.append(b"event: patch\ndata: " + msgspec.json.encode(data) + b"\n\n")
        tab.events, tab.waiting = [], {}
        return b"".join(sent) or b": still here\n\n"

    async def _run(self) -> None:
        while self._topics and not self._service.stopping.is_set():
            await asyncio.sleep(INTERVAL)
            self._left = min(SAVED, self._left + BUDGET * INTERVAL)
            try:
                await self._service.keys.refresh()
                await self._note_events()
                await self._refresh()
            except Exception:  # noqa: BLE001  # the store is away: tabs show it, the next look reads again
                self._tell_all("away", away=True)
            else:
                self._tell_all("back", away=False)
            for tab in [tab for topic in self._topics.values() for tab in topic.tabs]:
                if not tab.is_valid():
                    tab.changed.set()

    def _tell_all(self, event: str, *, away: bool) -> None:
        if self.is_away == away:
            return
        self.is_away = away
        for topic in self._topics.values():
            for tab in topic.tabs:
                tab.tell(event)

    async def _note_events(self) -> None:
        """Find out which of the jobs on open pages changed: one read for all of them."""
        of_jobs = [topic for topic in self._topics.values() if topic.job_id]
        if len(of_jobs) < 2:
            return
        self._left -= 1
        store = self._service.app.store
        page = await store.events(self._cursor, 0 if self._cursor is None else 500, timedelta(0))
        self._cursor = page.cursor
        all_changed = page.gap or len(page.events) == 500
        changed = {event.job_id for event in page.events}
        for topic in of_jobs:
            if all_changed or topic.job_id in changed:
                topic.stale = True
        if all_changed:
            self._cursor = None

    async def _refresh(self) -> None:
        """Read topics again, those that waited longest first, as far as the budget goes."""
        now = self._service.app.clock.now()
        many = sum(bool(topic.job_id) for topic in self._topics.values()) > 1
        waiting = [topic for topic in self._topics.values() if self._is_due(topic, now, many)]
        waiting.sort(key=lambda topic: topic.refreshed or datetime.min.replace(tzinfo=now.tzinfo))
        for topic in waiting:
            if self._left <= 0:
                return
            self._left -= topic.screen.reads
            topic.refreshed = now
            try:
                async with asyncio.timeout(PATIENCE):
                    topic.update(await self._show(topic.screen, topic.visit))
            except Exception as error:
                if error_body(error)[0] == 503:
                    raise
                self._note_failure(topic, error)

    def _note_failure(self, topic: Topic, error: Exception) -> None:
        """Leave a page as it is that cannot be shown, such as that of a deleted job.

        No other tab is concerned. An unexpected error is logged once for a topic.
        """
        topic.stale = False
        if error_body(error)[0] == 500 and not topic.has_failed:
            topic.has_failed = True
            self._service.observer.emit("dashboard.failed", error=repr(error))

    def _is_due(self, topic: Topic, now: datetime, many: bool) -> bool:
        """Whether a topic is read again: one of many jobs only when its job has changed."""
        if topic.refreshed is None or topic.stale or not (topic.job_id and many):
            return True
        return now - topic.refreshed >= REFRESH * max(1, len(self._topics) / 4)
