"""Follows the event stream and lets a job deliver each end that someone wants to hear of.

The place in the stream is kept after the deliveries are stored, and each has the end it tells
as its key: a crash repeats a step, nothing is told twice or not at all. Where the stream has a
gap, or none was followed yet, ended jobs are looked up by time instead.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import ValidationError
from holdfast.model.job import DEFAULT_QUEUE, TERMINAL, Encoding, Job, Priority
from holdfast.model.policy import Backoff
from holdfast.model.reserved import CALLBACKS, DELIVERIES, DELIVERY, PLACE, WEBHOOK
from holdfast.model.results import BatchResult
from holdfast.model.submission import Submission
from holdfast.store import EventPage, JobEvent, Order, RecordWrite, Search, Store
from holdfast.store.tenants import TenantStore
from holdfast.webhooks.messages import delivery
from holdfast.webhooks.registry import read
from holdfast.webhooks.values import CALLBACK, End, Webhook, WebhookSettings

PAGE = 1000
RESTING = 1.0
"""How often it looks whether anybody wants to hear, in seconds."""
PATIENCE = timedelta(seconds=1)
MARGIN = timedelta(seconds=5)
"""Ends that much older than the place are looked at again: clocks differ."""
SAVE_EVERY = 1.0


class StreamPosition(msgspec.Struct, frozen=True):
    """Where in the stream the next end will be; by time where the stream cannot tell."""

    cursor: str | None
    at: datetime


class Audience(msgspec.Struct, frozen=True):
    """Who wants to hear what: webhooks and callbacks by namespace."""

    webhooks: dict[str, list[Webhook]]
    callbacks: frozenset[str]
    since: datetime | None


class DeliverySubmitter(Protocol):
    """What stores deliveries as jobs."""

    async def submit_batch(self, submissions: Sequence[Submission], *, atomic: bool) -> BatchResult:
        """Submit jobs; each gets its own result unless ``atomic``."""
        ...


class WebhookService:
    """Turns ends into deliveries."""

    name = "webhooks"

    def __init__(
        self,
        store: Store,
        settings: WebhookSettings,
        submitter: Callable[[Store], DeliverySubmitter],
    ) -> None:
        self._store = store
        self._settings = settings
        self._submitter = submitter
        self._place: StreamPosition | None = None
        self._saved = 0.0

    async def once(self) -> float:
        """Look for ends and store a delivery for each that is wanted."""
        kinds = await self._kinds()
        if not kinds:
            self._place = None
            return RESTING
        place = self._place or await self._read_place()
        page = await self._page(place)
        newest = None if page else (await self._store.events(None, 0, timedelta(0))).cursor
        now = self._store.now()
        audience = await self._audience(kinds)
        if page is None:
            known = [place.at] if place else []
            known += [audience.since] if audience.since else []
            async for jobs in self._ended_since(max(known, default=now) - MARGIN):
                await self._tell([_end_of(job) for job in jobs], audience)
        else:
            await self._tell(await self._ends(page.events), audience)
        cursor = page.cursor if page else newest
        await self._save(StreamPosition(cursor, now), at_once=page is None)
        return 0.0 if page and page.events else RESTING / 10

    async def queues(self) -> tuple[str, ...]:
        """Return the queues in which there can be deliveries, none when nobody wants to hear."""
        names = sorted(set((await self._kinds()).values()))
        return tuple(f"{name}/{DELIVERIES}" if name else DELIVERIES for name in names)

    async def _kinds(self) -> dict[str, str]:
        """Return the kinds of records that hold wishes, each with its namespace."""
        kinds = await self._store.kinds()
        return {kind: name for kind in kinds if (name := _namespace(kind)) is not None}

    async def _read_place(self) -> StreamPosition | None:
        (record,) = await self._store.records(PLACE, [PLACE])
        return None if record is None else msgspec.json.decode(record.data, type=StreamPosition)

    async def _page(self, place: StreamPosition | None) -> EventPage | None:
        """Return what happened since; None when the stream cannot tell all of it."""
        if place is None or place.cursor is None:
            return None
        try:
            page = await self._store.events(place.cursor, PAGE, PATIENCE)
        except ValidationError:
            return None
        return None if page.gap else page

    async def _save(self, place: StreamPosition, *, at_once: bool) -> None:
        """Keep the place; a little late is early enough, since telling again is harmless."""
        moved = self._place is None or self._place.cursor != place.cursor
        self._place = place
        now = asyncio.get_running_loop().time()
        if at_once or (moved and now - self._saved >= SAVE_EVERY):
            self._saved = now
            data = msgspec.json.encode(place)
            await self._store.keep([RecordWrite(kind=PLACE, key=PLACE, data=data)])

    async def _audience(self, kinds: Mapping[str, str]) -> Audience:
        webhooks: dict[str, list[Webhook]] = {}
        callbacks: set[str] = set()
        times: list[datetime] = []
        for kind, namespace in kinds.items():
            records = await self._store.browse(kind)
            if kind.partition("@")[0] == CALLBACKS:
                callbacks.add(namespace)
                times += [datetime.fromisoformat(record.data.decode()) for record in records]
            else:
                found = [read(record.data) for record in records if record.key != CALLBACK]
                webhooks[namespace] = found
                times += [webhook.created_at for webhook in found]
        return Audience(webhooks, frozenset(callbacks), min(times, default=None))

    async def _ends(self, events: Iterable[JobEvent]) -> list[End]:
        """Return the ends among what happened, with their jobs as they are now."""
        ended = [
            event
            for event in events
            if event.transition is not None
            and event.transition.to_state in TERMINAL
            and event.type != DELIVERY
        ]
        jobs = await self._store.get([event.job_id for event in ended])
        return [_end(event, job or _gone(event)) for event, job in zip(ended, jobs, strict=True)]

    async def _ended_since(self, since: datetime) -> AsyncIterator[Sequence[Job]]:
        cursor: str | None = None
        while True:
            page = await self._store.find(
                Search(
                    states=tuple(sorted(TERMINAL)),
                    updated_after=since,
                    order=Order.UPDATED_DESC,
                    limit=PAGE // 4,
                    cursor=cursor,
                )
            )
            yield [job for job in page.jobs if job.type != DELIVERY]
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _tell(self, ends: Sequence[End], audience: Audience) -> None:
        wanted: defaultdict[str, list[Submission]] = defaultdict(list)
        for end in ends:
            wanted[end.namespace] += self._wanted(end, audience)
        for namespace, submissions in wanted.items():
            store: Store = TenantStore(self._store, namespace) if namespace else self._store
            submitter = self._submitter(store)
            for first in range(0, len(submissions), PAGE):
                await submitter.submit_batch(submissions[first : first + PAGE], atomic=False)

    def _wanted(self, end: End, audience: Audience) -> list[Submission]:
        settings = self._settings
        found = [
            delivery(end, webhook.id, settings, with_result=webhook.include_result)
            for webhook in audience.webhooks.get(end.namespace, ())
            if webhook.wants(end)
        ]
        url = end.job.callback_url
        if url and end.namespace in audience.callbacks:
            found.append(delivery(end, CALLBACK, settings, url=url, with_result=True))
        return found


def _namespace(kind: str) -> str | None:
    """The namespace whose wishes a kind of record holds; None for other records."""
    base, _, namespace = kind.partition("@")
    return namespace if base in (WEBHOOK, CALLBACKS) else None


def _end(event: JobEvent, job: Job) -> End:
    assert event.transition is not None
    return _placed(End(job, event.transition.to_state, event.transition.at))


def _end_of(job: Job) -> End:
    return _placed(End(job, job.state, job.finished_at or job.updated_at))


def _placed(end: End) -> End:
    """Name the queue as its tenant knows it."""
    namespace, _, queue = end.job.queue.rpartition("/")
    job = replace(end.job, queue=queue) if namespace else end.job
    return End(job, end.state, end.at, namespace)


def _gone(event: JobEvent) -> Job:
    """What is left of a job that was deleted as soon as it had ended."""
    epoch = datetime.fromtimestamp(0, UTC)
    return Job(
        id=event.job_id,
        type=event.type,
        queue=event.queue or DEFAULT_QUEUE,
        payload=b"null",
        encoding=Encoding.JSON,
        profile="standard",
        created_at=epoch,
        timeout=timedelta(0),
        lease_ttl=timedelta(0),
        lifetime=timedelta(0),
        backoff=Backoff(),
        priority=Priority.NORMAL,
        max_attempts=1,
        updated_at=event.at,
        expires_at=epoch,
    )
