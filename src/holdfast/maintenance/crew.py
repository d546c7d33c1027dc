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
from holdfast.maintenance.webhooks import Courier, WebhookService
from holdfast.observe import Observer
from holdfast.pauses import Pauses

LEADERSHIP = "maintenance"
TERM = timedelta(seconds=1)
"""How long a leader that fell silent still leads: meanwhile nobody takes jobs back."""

CANVASS = 0.4
"""How often leadership is renewed or sought, in seconds."""

LONGEST_PAUSE = 0.2
"""How long after a failure the next try comes at most, in seconds: jobs wait for it."""

BREATH = 0.02
"""A busy queue rings all the time; due jobs are looked for no more often than this."""


class Maintenance:
    """Runs the services in the worker that leads; safe even if two believe they do."""

    def __init__(
        self, app: Holdfast, worker: str, queues: Sequence[str], observer: Observer
    ) -> None:
        store = app.store
        self._store = store
        self._worker = worker
        self._queues = tuple(queues)
        self._observer = observer
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
        pauses = self._pauses()
        while True:
            try:
                won, delay = await self._store.hold(LEADERSHIP, self._worker, TERM), CANVASS
            except StoreError:
                won, delay = False, pauses.next()
            else:
                pauses.over()
                self._contact.heard()
            if won and not self._leading.is_set():
                self._observer.tell("maintenance.leading", worker=self._worker)
            self._leading.set() if won else self._leading.clear()
            await asyncio.sleep(delay)

    async def _serve(self, service: Service) -> None:
        seen, pauses, is_new = 0, self._pauses(), True
        while True:
            await self._leading.wait()
            try:
                delay = await (self._once_alone(service) if is_new else service.once())
                is_new = False
                pauses.over()
            except HoldfastError as error:
                self._observer.tell("maintenance.failed", service=service.name, error=str(error))
                await asyncio.sleep(pauses.next())
                continue
            if isinstance(service, Promoter) and delay > 0:
                seen = await self._until_due(seen, delay)
            else:
                await asyncio.sleep(delay)

    async def _once_alone(self, service: Service) -> float:
        async with self._first:
            return await service.once()

    def _pauses(self) -> Pauses:
        return Pauses(self._chance, longest=LONGEST_PAUSE)

    async def _deliver(self) -> None:
        while True:
            await self._leading.wait()
            try:
                await self._courier.run(self._leading)
            except HoldfastError as error:
                self._observer.tell("maintenance.failed", service="courier", error=str(error))
                await asyncio.sleep(CANVASS)

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
