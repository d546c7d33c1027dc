"""Whether the store can be reached, and has been for a moment.

A store that was away kept heartbeats and answers away as well. When it is back they go first: a
lease that ran out meanwhile says nothing about its holder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError, StoreError, StoreUnavailableError
from holdfast.maintenance.courier import Courier, MakeWorker
from holdfast.maintenance.cron import CronService
from holdfast.maintenance.promoter import Promoter
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.releaser import Releaser
from holdfast.maintenance.service import MaintenanceService
from holdfast.observe import Observer, Outage
from holdfast.operations.workers import LEADERSHIP
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.webhooks.dispatcher import WebhookService

SILENCE = 1.5
"""Seconds without an answer after which the store counts as away."""

MOMENT = 0.5
"""Seconds that heartbeats and answers have once it is back."""


class StoreContact:
    """Told of every answer to a regular call; knows when there was none for too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard = clock.monotonic()
        self._since = float("-inf")

    def heard(self) -> None:
        """Hear that the store answered."""
        now = self._clock.monotonic()
        if now - self._heard > SILENCE:
            self._since = now
        self._heard = now

    @property
    def is_steady(self) -> bool:
        """Whether the store answers, and those who waited for it had their turn."""
        now = self._clock.monotonic()
        return self._since + MOMENT <= now <= self._heard + SILENCE


LONGEST_PAUSE = 0.2
"""How long after an outage the next try comes at most, in seconds: jobs wait for it."""
LONGEST_REST = 10.0
"""How long after anything else, which most likely somebody has to put right."""


class ServiceErrors:
    """That of one service, until it gets through."""

    def __init__(
        self, service: str, randomness: Randomness, observer: Observer, outage: Outage
    ) -> None:
        self._service = service
        self._observer = observer
        self._outage = outage
        self._pauses = GrowingDelay(randomness, longest=LONGEST_PAUSE)
        self._rests = GrowingDelay(randomness, longest=LONGEST_REST)
        self._told: set[str] = set()

    def failed(self, error: HoldfastError) -> float:
        """Hear what went wrong; return how many seconds to wait."""
        if isinstance(error, StoreUnavailableError):
            self._outage.failed(error)
            return self._pauses.next()
        if str(error) not in self._told:
            self._told.add(str(error))
            self._observer.emit("maintenance.failed", service=self._service, error=str(error))
        return self._rests.next()

    def over(self) -> None:
        """Hear that it got through."""
        self._pauses.over()
        self._rests.over()
        self._told.clear()


TERM = timedelta(seconds=1)
"""How long a leader that fell silent still leads: meanwhile nobody takes jobs back."""

CANVASS = 0.4
"""How often leadership is renewed or sought, in seconds."""

BREATH = 0.02
"""A busy queue rings all the time; due jobs are looked for no more often than this."""


class Maintenance:
    """Runs the services in the worker that leads; safe even if two believe they do."""

    def __init__(
        self,
        app: Holdfast,
        worker: str,
        queues: Sequence[str],
        observer: Observer,
        outage: Outage | None = None,
        *,
        make_worker: MakeWorker,
    ) -> None:
        store = app.store
        self._store = store
        self._worker = worker
        self._queues = tuple(queues)
        self._observer = observer
        self._outage = outage or Outage(app.clock, observer)
        self._randomness = app.randomness
        self._leading = asyncio.Event()
        self._contact = StoreContact(app.clock)
        self._services: list[MaintenanceService] = [
            Promoter(store),
            Reaper(store, app.randomness, observer, lambda: self._contact.is_steady),
            Releaser(store),
            CronService(app, store),
        ]
        webhooks = WebhookService(store, app.webhook_settings, app.submitter)
        self._services += [webhooks, Pruner(store, app.retention)]
        self._first = asyncio.Lock()
        """Held by the service whose first time it is: together each would need a connection."""
        self._courier = Courier(app, webhooks, observer, make_worker)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._campaign())
                group.create_task(self._deliver())
                for service in self._services:
                    group.create_task(self._serve(service))
        finally:
            await self._resign()

    async def _campaign(self) -> None:
        pauses = GrowingDelay(self._randomness, longest=LONGEST_PAUSE)
        while True:
            try:
                won, delay = await self._store.lock(LEADERSHIP, self._worker, TERM), CANVASS
            except StoreError as error:
                won, delay = False, pauses.next()
                self._outage.failed(error)
            else:
                pauses.over()
                self._contact.heard()
                self._outage.over()
            if won and not self._leading.is_set():
                self._observer.emit("maintenance.leading", worker=self._worker)
            self._leading.set() if won else self._leading.clear()
            await asyncio.sleep(delay)

    async def _serve(self, service: MaintenanceService) -> None:
        seen, trouble, is_new = 0, self._trouble(service.name), True
        while True:
            await self._leading.wait()
            try:
                delay = await (self._once_alone(service) if is_new else service.once())
                is_new = False
                trouble.over()
            except HoldfastError as error:
                await asyncio.sleep(trouble.failed(error))
                continue
            if isinstance(service, Promoter) and delay > 0:
                seen = await self._until_due(seen, delay)
            else:
                await asyncio.sleep(delay)

    async def _once_alone(self, service: MaintenanceService) -> float:
        async with self._first:
            return await service.once()

    def _trouble(self, service: str) -> ServiceErrors:
        return ServiceErrors(service, self._randomness, self._observer, self._outage)

    async def _deliver(self) -> None:
        trouble = self._trouble("courier")
        while True:
            await self._leading.wait()
            try:
                await self._courier.run(self._leading)
                trouble.over()
            except HoldfastError as error:
                await asyncio.sleep(trouble.failed(error))

    async def _until_due(self, seen: int, delay: float) -> int:
        """Sleep until the next job is due, or until one that may be due earlier arrives.

        Whoever can run what arrived goes first.
        """
        try:
            news = await self._store.arrivals(self._queues, seen, timedelta(seconds=delay))
        except StoreError:
            await asyncio.sleep(BREATH)
            return seen
        if news != seen:
            await asyncio.sleep(BREATH)
        return news

    async def _resign(self) -> None:
        if self._leading.is_set():
            try:
                await self._store.lock(LEADERSHIP, self._worker, timedelta(0))
            except StoreError:
                return
