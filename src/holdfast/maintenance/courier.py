"""Runs the jobs that deliver webhooks, in a worker of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from holdfast.app import Holdfast
from holdfast.model.reserved import DELIVERIES, DELIVERY
from holdfast.observe import Observer
from holdfast.store import Store
from holdfast.webhooks.delivery import Deliverer
from holdfast.webhooks.dispatcher import LOOK_EVERY, WebhookService


class DeliveryWorker(Protocol):
    """The part of a worker that the courier uses."""

    async def run(self) -> None:
        """Run jobs until stopped."""
        ...

    def halt(self) -> None:
        """Stop claiming and return running jobs to the queue at once."""
        ...


MakeWorker = Callable[[Holdfast, Sequence[str], Observer], DeliveryWorker]


class Courier:
    """Runs delivery jobs in a worker of its own, so that slow receivers take no slot of others."""

    def __init__(
        self,
        app: Holdfast,
        service: WebhookService,
        observer: Observer,
        make_worker: MakeWorker,
    ) -> None:
        self._app = app
        self._make_worker = make_worker
        self._service = service
        self._observer = observer
        self._store = app.store

    async def run(self, leading: asyncio.Event) -> None:
        """Deliver while this process leads and the webhooks stay in the same queues."""
        queues = await self._service.queues()
        if not queues:
            await asyncio.sleep(LOOK_EVERY)
            return
        worker = self._worker(queues)
        task = asyncio.get_running_loop().create_task(worker.run())
        try:
            while leading.is_set() and not task.done() and queues == await self._service.queues():
                await asyncio.wait([task], timeout=LOOK_EVERY)
        finally:
            worker.halt()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()):
                raise error

    def _worker(self, queues: Sequence[str]) -> DeliveryWorker:
        app = Holdfast(
            store=cast(Store, BorrowedStore(self._store)),
            clock=self._app.clock,
            randomness=self._app.randomness,
            redaction=self._app.redaction,
        )
        app.registry.internal = True
        settings = self._app.webhook_settings
        deliverer = Deliverer(self._store, settings, self._app.clock)
        app.task(DELIVERY, queue=DELIVERIES, on_mismatch="fail")(deliverer.deliver)
        return self._make_worker(app, queues, self._observer)


class BorrowedStore:
    """A store whose owner opens and closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def start(self) -> BorrowedStore:
        return self

    async def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
