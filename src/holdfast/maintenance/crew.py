"""Maintenance inside workers: one of them leads at a time, any can take over in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError, StoreError
from holdfast.maintenance.contact import Contact
from holdfast.maintenance.cron import CronService
from holdfast.maintenance.promoter import Promoter
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.releaser import Releaser
from holdfast.maintenance.service import Service
from holdfast.maintenance.trouble import LONGEST_PAUSE, Trouble
from holdfast.maintenance.webhooks import Courier, WebhookService
from holdfast.observe import Observer, Outage
from holdfast.operations.workers import LEADERSHIP
from holdfast.runtime.backoff import Pauses

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
    ) -> None:
        store = app.store
        self._store = store
        self._worker = worker
        self._queues = tuple(queues)
        self._observer = observer
        self._outage = outage or Outage(app.clock, observer)
        self._chance = app.chance
        self._leading = asyncio.Event()
        self._contact = Contact(app.clock)
        self._services: list[Service] = [
            Promoter(store),
            Reaper(store, app.chance, observer, lambda: self._contact.is_steady),
            Releaser(store),
            CronService(app, store),
        ]
        webhooks = WebhookService(app, store)
        self._services += [webhooks, Pruner(store, app.retention)]
        self._first = asyncio.Lock()
        """Held by the service whose first time it is: together each would need a connection."""
        self._courier = Courier(app, webhooks, observer)

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
        pauses = Pauses(self._chance, longest=LONGEST_PAUSE)
        while True:
            try:
                won, delay = await self._store.hold(LEADERSHIP, self._worker, TERM), CANVASS
            except StoreError as error:
                won, delay = False, pauses.next()
                self._outage.failed(error)
            else:
                pauses.over()
                self._contact.heard()
                self._outage.over()
            if won and not self._leading.is_set():
                self._observer.tell("maintenance.leading", worker=self._worker)
            self._leading.set() if won else self._leading.clear()
            await asyncio.sleep(delay)

    async def _serve(self, service: Service) -> None:
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

    async def _once_alone(self, service: Service) -> float:
        async with self._first:
            return await service.once()

    def _trouble(self, service: str) -> Trouble:
        return Trouble(service, self._chance, self._observer, self._outage)

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
                await self._store.hold(LEADERSHIP, self._worker, timedelta(0))
            except StoreError:
                return
