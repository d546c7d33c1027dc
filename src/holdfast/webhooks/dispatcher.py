"""Follows the event stream and submits a delivery job for each end that a webhook wants.

The position in the stream is stored after the deliveries, and each delivery has its end as
idempotency key: a crash repeats a step, but no end is delivered twice or lost. Where the stream
has a gap, or was not followed yet, ended jobs are searched by time instead.
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
from holdfast.model.times import Instant
from holdfast.store import EventPage, JobEvent, Order, Record, RecordWrite, Search, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable
from holdfast.store.tenants import TenantStore
from holdfast.webhooks.messages import delivery
from holdfast.webhooks.proof import Proof
from holdfast.webhooks.registry import read
from holdfast.webhooks.values import CALLBACK, End, Webhook, WebhookSettings

PAGE = 1000
LOOK_EVERY = 1.0
"""How often it looks whether there are webhooks, in seconds."""
EVENT_WAIT = timedelta(seconds=1)
MARGIN = timedelta(seconds=5)
"""How far before the position ends are searched again: clocks differ."""
SAVE_EVERY = 1.0


class StreamPosition(msgspec.Struct, frozen=True):
    """The position in the stream, and its time in case the stream has a gap."""

    cursor: str | None
    at: Instant


_position = msgspec.json.Decoder(StreamPosition)


class Subscriptions(msgspec.Struct, frozen=True):
    """Webhooks and callbacks by namespace; ``since`` is the time of the oldest."""

    webhooks: dict[str, list[Webhook]]
    callbacks: frozenset[str]
    since: datetime | None


class DeliverySubmitter(Protocol):
    """Submits deliveries as jobs."""

    async def submit_batch(self, submissions: Sequence[Submission], *, atomic: bool) -> BatchResult:
        """Submit jobs; each gets its own result unless ``atomic``."""
        ...


class WebhookService:
    """Submits a delivery for each end that is wanted."""

    name = "webhooks"

    def __init__(
        self,
        store: Store,
        settings: WebhookSettings,
        submitter: Callable[[Store], DeliverySubmitter],
    ) -> None:
        self._store = store
        self._settings = settings
        self._proof = Proof(store)
        self._submitter = submitter
        self._position: StreamPosition | None = None
        self._saved = 0.0

    async def once(self) -> float:
        """Look for ends and submit a delivery for each that is wanted."""
        kinds = await self._kinds()
        if not kinds:
            self._position = None
            return LOOK_EVERY
        position = self._position or await self._read_position()
        page = await self._page(position)
        newest = None if page else (await self._store.events(None, 0, timedelta(0))).cursor
        now = self._store.now()
        subscriptions = await self._subscriptions(kinds)
        if page is None:
            known = [position.at] if position else []
            known += [subscriptions.since] if subscriptions.since else []
            async for jobs in self._ended_since(max(known, default=now) - MARGIN):
                await self._deliver([_end_of(job) for job in jobs], subscriptions)
        else:
            await self._deliver(await self._ends(page.events), subscriptions)
        cursor = page.cursor if page else newest
        await self._save(StreamPosition(cursor, now), at_once=page is None)
        return 0.0 if page and page.events else LOOK_EVERY / 10

    async def queues(self) -> tuple[str, ...]:
        """Return the queues that can hold deliveries; none when there are no webhooks."""
        names = sorted(set((await self._kinds()).values()))
        return tuple(f"{name}/{DELIVERIES}" if name else DELIVERIES for name in names)

    async def _kinds(self) -> dict[str, str]:
        """Return the kinds of records that hold webhooks or callbacks, each with its namespace."""
        kinds = await self._store.kinds()
        return {kind: name for kind in kinds if (name := _namespace(kind)) is not None}

    async def _read_position(self) -> StreamPosition | None:
        (record,) = await self._store.records(PLACE, [PLACE])
        positions = readable([record.data] if record else [], _position.decode)
        return next(positions, None)  # without one, ended jobs are searched by time

    async def _page(self, position: StreamPosition | None) -> EventPage | None:
        """Return the events since a position; None when the stream does not have all of them."""
        if position is None or position.cursor is None:
            return None
        try:
            page = await self._store.events(position.cursor, PAGE, EVENT_WAIT)
        except ValidationError:
            return None
        return None if page.gap else page

    async def _save(self, position: StreamPosition, *, at_once: bool) -> None:
        """Store the position; a little late is soon enough, since a repeated step is harmless."""
        moved = self._position is None or self._position.cursor != position.cursor
        self._position = position
        now = asyncio.get_running_loop().time()
        if at_once or (moved and now - self._saved >= SAVE_EVERY):
            self._saved = now
            data = msgspec.json.encode(position)
            await self._store.keep([RecordWrite(kind=PLACE, key=PLACE, data=data)])

    async def _subscriptions(self, kinds: Mapping[str, str]) -> Subscriptions:
        webhooks: dict[str, list[Webhook]] = {}
        callbacks: set[str] = set()
        times: list[datetime] = []
        for kind, namespace in kinds.items():
            records = await every_record(self._store, kind)
            if kind.partition("@")[0] == CALLBACKS:
                callbacks.add(namespace)
                times += readable(records, _instant)
            else:
                hooks = [record.data for record in records if record.key != CALLBACK]
                found = list(readable(hooks, read))
                webhooks[namespace] = found
                times += [webhook.created_at for webhook in found]
        return Subscriptions(webhooks, frozenset(callbacks), min(times, default=None))

    async def _ends(self, events: Iterable[JobEvent]) -> list[End]:
        """Return the ends among events, with their jobs as they are now."""
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

    async def _deliver(self, ends: Sequence[End], subscriptions: Subscriptions) -> None:
        wanted: defaultdict[str, list[Submission]] = defaultdict(list)
        for end in ends:
            wanted[end.namespace] += await self._wanted(end, subscriptions)
        for namespace, submissions in wanted.items():
            store: Store = TenantStore(self._store, namespace) if namespace else self._store
            submitter = self._submitter(store)
            for first in range(0, len(submissions), PAGE):
                await submitter.submit_batch(submissions[first : first + PAGE], atomic=False)

    async def _wanted(self, end: End, subscriptions: Subscriptions) -> list[Submission]:
        settings, proof = self._settings, self._proof
        found = [
            await delivery(end, webhook.id, settings, proof, with_result=webhook.include_result)
            for webhook in subscriptions.webhooks.get(end.namespace, ())
            if webhook.wants(end)
        ]
        url = end.job.callback_url
        if url and end.namespace in subscriptions.callbacks:
            found.append(await delivery(end, CALLBACK, settings, proof, url=url, with_result=True))
        return found


def _namespace(kind: str) -> str | None:
    """The namespace of a kind of record that holds webhooks or callbacks; None for others."""
    base, _, namespace = kind.partition("@")
    return namespace if base in (WEBHOOK, CALLBACKS) else None


def _end(event: JobEvent, job: Job) -> End:
    assert event.transition is not None
    return _in_namespace(End(job, event.transition.to_state, event.transition.at))


def _end_of(job: Job) -> End:
    return _in_namespace(End(job, job.state, job.finished_at or job.updated_at))


def _in_namespace(end: End) -> End:
    """Split the namespace from the queue's name."""
    namespace, _, queue = end.job.queue.rpartition("/")
    job = replace(end.job, queue=queue) if namespace else end.job
    return End(job, end.state, end.at, namespace)


def _instant(record: Record) -> datetime:
    return msgspec.convert(record.data.decode(), Instant)


def _gone(event: JobEvent) -> Job:
    """A stand-in for a job that was deleted right after it ended."""
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
