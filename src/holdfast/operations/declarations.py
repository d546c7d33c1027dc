"""The defaults of new jobs: what the app declares, else what workers published in the store.

A submitter without the code of a task so submits the same job as one with it. What was read is
kept for a few seconds, and longer where only the profile of the queue is of interest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.model.job import DEFAULT_QUEUE
from holdfast.model.policy import Limits
from holdfast.model.profiles import BULLMQ, STANDARD, Profile, ProfileValues, stored_profile
from holdfast.model.reserved import QUEUE_PROFILES, TASKS
from holdfast.model.submission import Declaration, Defaults, defaults_for
from holdfast.runtime.clock import Clock
from holdfast.store import Record, Store
from holdfast.tasks.registry import Registry

T = TypeVar("T")

FRESH = 5.0
"""How many seconds the declaration of a task that is not this app's is used."""
FRESH_PROFILE = 60.0
"""The same for a task of this app, of which only the profile of its queue is read."""
MOST = 1000
"""Callers name types and queues, so the number of different defaults has no other bound."""
NEVER = float("inf")
NOTHING = Declaration()

Key = tuple[str, str]
"""A job type and the queue that the submission names, empty for none."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a declaration, and the worker that wrote it."""

    declared: msgspec.Raw
    worker: str
    started_at: datetime
    """When that worker started."""
    at: datetime
    """When it was published."""


class Known(NamedTuple):
    """Defaults, how long they are used by the monotonic clock, and for which registrations."""

    defaults: Defaults
    until: float
    version: int


class Declarations:
    """Finds the defaults of new jobs."""

    def __init__(self, store: Store, registry: Registry, limits: Limits, clock: Clock) -> None:
        self.registry = registry
        self.monotonic = clock.monotonic
        self.known: dict[Key, Known] = {}
        """What was found before. Callers look here first, which saves most calls."""
        self._store = store
        self._limits = limits
        self._reading = asyncio.Lock()

    async def read(self, keys: Collection[Key]) -> dict[Key, Defaults]:
        """Return the defaults of these jobs; reads at most once for tasks and once for queues."""
        async with self._reading:  # those that wait find what the first one read
            now, version = self.monotonic(), self.registry.version
            found = {
                key: known
                for key in keys
                if (known := self.known.get(key)) and known.until > now and known.version == version
            }
            if missing := [key for key in keys if key not in found]:
                found |= await self._read(missing, now, version)
        return {key: known.defaults for key, known in found.items()}

    async def _read(self, keys: Collection[Key], now: float, version: int) -> dict[Key, Known]:
        own, registry = self.registry.profiles, self.registry
        published = await self._tasks({type_ for type_, _ in keys if type_ not in registry})
        declared = {
            type_: handler.options if (handler := registry.get(type_)) else published[type_]
            for type_, _ in keys
        }
        queues = {key: key[1] or declared[key[0]].queue or DEFAULT_QUEUE for key in keys}
        profiles = await self._profiles(set(queues.values()) - own.keys())
        found: dict[Key, Known] = {}
        for key, queue in queues.items():
            handler = registry.get(key[0])
            defaults = defaults_for(
                declared[key[0]],
                queue,
                profile=own.get(queue) or profiles.get(queue, STANDARD),
                limits=self._limits,
                misfit=handler.signature.misfit if handler else None,
            )
            defaults = msgspec.structs.replace(
                defaults,
                internal=registry.internal,
                reserved_queues=self._store.capabilities.reserved_queues,
                any_name=self._store.capabilities.bullmq_names
                and defaults.profile.name == BULLMQ.name,
                removes_ended=self._store.capabilities.removes_ended,
                deduplicates=self._store.capabilities.deduplicates,
                encrypts=self._store.capabilities.encrypts,
            )
            fresh = FRESH if handler is None else NEVER if queue in own else FRESH_PROFILE
            found[key] = Known(defaults, now + fresh, version)
        if len(self.known) + len(found) > MOST:
            self.known.clear()
        self.known |= found
        return found

    async def _tasks(self, types: Collection[str]) -> Mapping[str, Declaration]:
        found = await published(self._store, TASKS, types)
        return {type_: declaration(found.get(type_)) or NOTHING for type_ in types}

    async def _profiles(self, queues: Collection[str]) -> Mapping[str, Profile]:
        found = await published(self._store, QUEUE_PROFILES, queues)
        profiles = {queue: profile(record) for queue, record in found.items()}
        return {queue: each for queue, each in profiles.items() if each is not None}


async def published(store: Store, kind: str, keys: Iterable[str]) -> dict[str, Published]:
    """Return what workers published, by job type or queue, where there is anything readable."""
    wanted = list(keys)
    records = await store.records(kind, wanted) if wanted else []
    found = {record.key: contents(record) for record in records if record}
    return {key: value for key, value in found.items() if value is not None}


def contents(record: Record) -> Published | None:
    """Return what a record holds, if it is readable."""
    return _decoded(record.data, Published)


def declaration(found: Published | None) -> Declaration | None:
    """Return the declaration in a record, if it is readable."""
    return _decoded(found.declared, Declaration) if found else None


def profile(found: Published | None) -> Profile | None:
    """Return the profile in a record, if it is readable."""
    values = _decoded(found.declared, ProfileValues) if found else None
    return stored_profile(values) if values else None


def _decoded(data: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """Read what a program of another version wrote; unknown fields are ignored."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        return None
