"""Drains workers from afar: a drained worker claims nothing, and stays up until it is undrained."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, ForbiddenError, NotFoundError, ValidationError
from holdfast.model.policy import DAY
from holdfast.model.reserved import DRAINED
from holdfast.model.times import Instant
from holdfast.model.workers import ALL, PREFIX, WorkerInfo
from holdfast.operations.workers import WORKER_TTL, workers
from holdfast.store import RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import readable
from holdfast.store.tenants import TenantStore

FOLLOWED_EVERY = WORKER_TTL.total_seconds() / 3
"""Seconds between two looks of a worker at whether it is drained."""
KEPT = DAY
"""How long a dead worker's request is kept: under the same name it may start again."""


async def drain(store: Store, worker: str, *, drained: bool) -> WorkerInfo:
    """Ask a worker to stop claiming, or to claim again; it follows within seconds.

    NotFoundError when no such worker is alive.
    """
    if isinstance(store, TenantStore) and store.namespace:
        raise ForbiddenError("a worker may serve several namespaces: use a key without a namespace")
    info = next((each for each in await workers(store) if each.id == worker), None)
    if info is None:
        raise NotFoundError(worker, "worker")
    if not any(lock.name == PREFIX + worker for lock in await store.locks(ALL)):
        message = "a worker over HTTP decides by itself when it claims"
        raise ValidationError([Fault("worker", "UNSUPPORTED", message)])
    data = msgspec.json.encode({"at": store.now()}) if drained else None
    await store.keep([RecordWrite(kind=DRAINED, key=worker, data=data)])
    return replace(info, draining=drained)


async def is_drained(store: Store, worker: str) -> bool:
    """Whether an operator has drained a worker."""
    return (await store.records(DRAINED, [worker])) != [None]


async def forget_drained(store: Store, worker: str) -> None:
    """Remove the request of a worker that stops."""
    await store.keep([RecordWrite(kind=DRAINED, key=worker, data=None)])


async def prune_drained(store: Store) -> None:
    """Remove the requests for workers that died a day ago; one that restarts keeps its own."""
    records = await every_record(store, DRAINED)
    if not records:
        return
    alive = {worker.id for worker in await workers(store)}
    old = store.now() - KEPT
    gone = [
        RecordWrite(kind=DRAINED, key=each.key, data=None, version=each.version)
        for each in records
        if each.key not in alive and next(iter(readable([each.data], _since)), old) <= old
    ]
    if gone:
        await store.keep(gone)


class _Drain(msgspec.Struct):
    at: Instant


def _since(data: bytes) -> datetime:
    return msgspec.json.decode(data, type=_Drain).at
