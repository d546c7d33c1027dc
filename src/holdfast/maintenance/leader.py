"""Runs the maintenance services in one worker, the leader.

An outage of the store delays heartbeats and outcomes as well. They go first when it is over: a
lease that expired meanwhile does not mean that its holder is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.maintenance.clock import ClockService, StoreClock
from holdfast.maintenance.courier import Courier, MakeWorker
from holdfast.maintenance.cron import CronService
from holdfast.maintenance.keeper import Keeper
from holdfast.maintenance.promoter import Promoter
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.quarantine_log import QuarantineLog
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.releaser import Releaser
from holdfast.maintenance.service import MaintenanceService
from holdfast.maintenance.store_watch import StoreWatch
from holdfast.maintenance.summariser import Summariser
from holdfast.model.workers import LEADERSHIP
from holdfast.observe import Observer, Outage, Reasons
from holdfast.operations.bulk_runner import BulkRunner
from holdfast.operations.quarantine import report_failing
from holdfast.operations.workers import TERM
from holdfast.runtime.backoff import LONGEST_WITH_JITTER, GrowingDelay
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from holdfast.store.damage import described
from holdfast.webhooks.dispatcher import WebhookService

SILENCE = 1.5
"""Seconds without an answer after which the store counts as unavailable."""

SETTLING = 0.5
"""Seconds that heartbeats and outcomes have after a silence: their calls are answered as well."""

BACKOFF_SETTLING = LONGEST_WITH_JITTER + SETTLING
"""Seconds that they have after calls that failed: each is tried again after its delay."""


class StoreContact:
    """Records every answer to a regular call, and knows when there was none for too long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered = clock.monotonic()
        self._steady_at = float("-inf")
        self._failed = False

    def failed(self) -> None:
        """Record that a call failed."""
        self._failed = True

    def answered(self) -> None:
        """Record that the store answered."""
        now = self._clock.monotonic()
        if now - self._answered > SILENCE:
            self._steady_at = now + (BACKOFF_SETTLING if self._failed else SETTLING)
        self._answered, self._failed = now, False

    @property
    def is_steady(self) -> bool:
        """Whether the store answers, and heartbeats and outcomes had time to get through."""
        now = self._clock.monotonic()
        return self._steady_at <= now <= self._answered + SILENCE


LONGEST_OUTAGE_DELAY = 0.2
"""The longest delay before a retry in an outage, in seconds: jobs wait for it."""
LONGEST_ERROR_DELAY = 10.0
"""The longest delay after any other error, which most likely needs an operator."""


REPORTED_AFTER = 3
"""Errors in a row after which readiness, doctor, explain and metrics report a service."""


class ServiceErrors:
    """Reports the errors of one service, each once, and delays its retries."""

    def __init__(
        self, service: str, store: Store, randomness: Randomness, observer: Observer, outage: Outage
    ) -> None:
        self._service = service
        self._store = store
        self._in_a_row = 0
        self._observer = observer
        self._outage = outage
        self._outage_delay = GrowingDelay(randomness, longest=LONGEST_OUTAGE_DELAY)
        self._error_delay = GrowingDelay(randomness, longest=LONGEST_ERROR_DELAY)
        self._reported = Reasons()

    async def failed(self, error: Exception) -> float:
        """Report an error; return how many seconds to wait."""
        if isinstance(error, StoreUnavailableError):
            self._outage.failed(error)
            return self._outage_delay.next()
        if self._reported.is_new(error):
            text = described(error)
            self._observer.emit("maintenance.failed", service=self._service, error=text)
        self._in_a_row += 1
        if self._in_a_row >= REPORTED_AFTER:
            await report_failing(self._store, self._service, error)
        return self._error_delay.next()

    async def over(self) -> None:
        """Start again with short delays: the service succeeded."""
        if self._in_a_row >= REPORTED_AFTER:
            await report_failing(self._store, self._service, None)
            self._observer.emit("maintenance.recovered", service=self._service)
        self._in_a_row = 0
        self._outage_delay.over()
        self._error_delay.over()
        self._reported.clear()


ELECT_EVERY = 0.4
"""How often leadership is renewed or requested, in seconds."""

PROMOTE_EVERY = 0.02
"""A busy queue wakes all the time; due jobs are promoted no more often than this, in seconds."""


class Maintenance:
    """Runs the services in the worker that leads; safe even if two believe that they lead."""

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
        self._clock = StoreClock(store, app.clock)
        self._services: list[MaintenanceService] = [
            Promoter(store),
            Reaper(store, app.randomness, observer, lambda: self._contact.is_steady, self._clock),
            Releaser(store),
            ClockService(store, app.clock, self._clock, observer),
            StoreWatch(store, observer),
            QuarantineLog(store, observer),
            CronService(app, store),
            Keeper(store, observer),
            BulkRunner(store, worker, observer),
            Summariser(store),
        ]
        webhooks = WebhookService(store, app.webhook_settings, app.internal_submitter)
        self._services += [webhooks, Pruner(store, app.retention)]
        self._first = asyncio.Lock()
        """Held by a service that runs for the first time: at once, each would need a connection."""
        self._courier = Courier(app, webhooks, observer, make_worker)

    async def run(self) -> None:
        """Run the services until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._elect())
                group.create_task(self._deliver())
                for service in self._services:
                    group.create_task(self._serve(service))
        finally:
            await self._resign()

    async def _elect(self) -> None:
        outage_delay = GrowingDelay(self._randomness, longest=LONGEST_OUTAGE_DELAY)
        while True:
            try:
                won, delay = await self._store.lock(LEADERSHIP, self._worker, TERM), ELECT_EVERY
            except Exception as error:  # noqa: BLE001  # whatever it is, try again
                won, delay = False, outage_delay.next()
                self._outage.failed(error)
                self._contact.failed()
            else:
                outage_delay.over()
                self._contact.answered()
                self._clock.look()
                self._outage.over()
            if won and not self._leading.is_set():
                self._observer.emit("maintenance.leading", worker=self._worker)
            self._leading.set() if won else self._leading.clear()
            await asyncio.sleep(delay)

    async def _serve(self, service: MaintenanceService) -> None:
        seen, errors, is_new = 0, self._errors(service.name), True
        while True:
            await self._leading.wait()
            try:
                delay = await (self._once_alone(service) if is_new else service.once())
                is_new = False
                await errors.over()
            except Exception as error:  # noqa: BLE001  # no service may stop, or stop the others
                await asyncio.sleep(await errors.failed(error))
                continue
            if isinstance(service, Promoter) and delay > 0:
                seen = await self._until_due(seen, delay)
            else:
                await asyncio.sleep(delay)

    async def _once_alone(self, service: MaintenanceService) -> float:
        async with self._first:
            return await service.once()

    def _errors(self, service: str) -> ServiceErrors:
        store, randomness = self._store, self._randomness
        return ServiceErrors(service, store, randomness, self._observer, self._outage)

    async def _deliver(self) -> None:
        errors = self._errors("courier")
        while True:
            await self._leading.wait()
            try:
                await self._courier.run(self._leading)
                await errors.over()
            except Exception as error:  # noqa: BLE001  # deliveries wait, and are tried again
                await asyncio.sleep(await errors.failed(error))

    async def _until_due(self, seen: int, delay: float) -> int:
        """Sleep until the next job is due, or until one arrives that may be due earlier.

        Workers that can run what arrived go first.
        """
        try:
            arrivals = await self._store.arrivals(self._queues, seen, timedelta(seconds=delay))
        except Exception as error:  # noqa: BLE001  # a lost wake-up only delays a promotion
            self._outage.failed(error)
            await asyncio.sleep(PROMOTE_EVERY)
            return seen
        if arrivals != seen:
            await asyncio.sleep(PROMOTE_EVERY)
        return arrivals

    async def _resign(self) -> None:
        if self._leading.is_set():
            try:
                await self._store.lock(LEADERSHIP, self._worker, timedelta(0))
            except Exception as error:  # noqa: BLE001  # its term ends by itself
                self._outage.failed(error)
