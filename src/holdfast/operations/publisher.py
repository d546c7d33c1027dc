"""Publishes what the code of a worker declares about its tasks and queues, for all submitters.

A worker that started later replaces what an earlier one published, and any worker replaces what
one published that is gone. So during a deployment the newer code wins, whichever worker restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from holdfast.model.profiles import Profile
from holdfast.model.reserved import CRONS, DELIVERY, QUEUE_PROFILES, TASKS
from holdfast.operations.declarations import Published, contents
from holdfast.operations.schedule_records import cron_declaration
from holdfast.operations.workers import workers
from holdfast.store import RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.tenants import TenantStore
from holdfast.tasks.registry import Handler
from holdfast.tasks.schedule import CronEntry


class Publisher:
    """Publishes the declarations of one worker; writes only what is new or different."""

    def __init__(self, store: Store, worker: str, started_at: datetime) -> None:
        self._store = store
        self._worker = worker
        self._started_at = started_at

    async def publish_tasks(self, handlers: Iterable[Handler], queues: Iterable[str]) -> None:
        """Publish the defaults of tasks in every namespace whose queues the worker serves."""
        declared = {
            handler.type: msgspec.json.encode(handler.options.declaration)
            for handler in handlers
            if handler.type != DELIVERY
        }
        for namespace in sorted({_split(queue)[0] for queue in queues}):
            await self._publish(namespace, TASKS, declared)

    async def publish_profiles(self, profiles: Mapping[str, Profile]) -> None:
        """Publish the profiles of queues."""
        by_namespace: dict[str, dict[str, bytes]] = {}
        for queue, profile in profiles.items():
            namespace, name = _split(queue)
            encoded = msgspec.json.encode(profile.values)
            by_namespace.setdefault(namespace, {})[name] = encoded
        for namespace, declared in by_namespace.items():
            await self._publish(namespace, QUEUE_PROFILES, declared)

    async def publish_crons(self, crons: Mapping[str, CronEntry]) -> None:
        """Publish the schedules of the code; remove those that no code declares any more."""
        await self._publish("", CRONS, {name: cron_declaration(e) for name, e in crons.items()})
        others = [r for r in await every_record(self._store, CRONS) if r.key not in crons]
        if not others:
            return
        alive = {worker.id for worker in await workers(self._store)} - {self._worker}
        await self._store.keep(
            [
                RecordWrite(kind=CRONS, key=record.key, data=None, version=record.version)
                for record in others
                if (there := contents(record)) is None or there.worker not in alive
            ]
        )

    async def _publish(self, namespace: str, kind: str, declared: Mapping[str, bytes]) -> None:
        if not declared:
            return
        store = TenantStore(self._store, namespace) if namespace else self._store
        records = {r.key: r for r in await store.records(kind, list(declared)) if r}
        found = {key: contents(record) for key, record in records.items()}
        different = {
            key: data
            for key, data in declared.items()
            if (there := found.get(key)) is None or bytes(there.declared) != data
        }
        if not different:
            return
        alive = {worker.id for worker in await workers(self._store)}
        await store.keep(
            [
                RecordWrite(
                    kind=kind,
                    key=key,
                    data=self._record(data),
                    version=records[key].version if key in records else 0,
                )
                for key, data in different.items()
                if self._replaces(found.get(key), alive)
            ]
        )

    def _replaces(self, there: Published | None, alive: set[str]) -> bool:
        return there is None or there.started_at <= self._started_at or there.worker not in alive

    def _record(self, declared: bytes) -> bytes:
        return msgspec.json.encode(
            Published(
                declared=msgspec.Raw(declared),
                worker=self._worker,
                started_at=self._started_at,
                at=self._store.now(),
            )
        )


def _split(queue: str) -> tuple[str, str]:
    """The namespace and the name of a queue as it is stored."""
    namespace, _, name = queue.rpartition("/")
    return namespace, name
