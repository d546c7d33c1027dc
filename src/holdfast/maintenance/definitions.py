"""The schedules that a leader serves: those of its code, and the dynamic ones of the store.

Dynamic schedules are read again when the version of their record of edits differs, which costs one
small read per namespace and look, and at least once a minute.
"""

from __future__ import annotations

import msgspec

from holdfast.app import Holdfast
from holdfast.model.reserved import EDITS
from holdfast.operations.schedule_records import ALL, ALWAYS, stored
from holdfast.operations.submitter import Submitter
from holdfast.store import Store
from holdfast.store.tenants import TenantStore
from holdfast.tasks.plans import Plan
from holdfast.tasks.schedule import CronEntry
from holdfast.tasks.schedule_values import StoredPause, StoredSchedule

LONGEST_UNREAD = 60.0
"""Seconds after which dynamic schedules are read again, whatever the version says."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with its plans, and where its jobs go."""

    entry: CronEntry
    state: str
    """The name under which the store keeps the last instant, and the prefix of its keys."""
    plans: tuple[Plan, ...]
    namespace: str = ""
    is_dynamic: bool = False


class _Read(msgspec.Struct, frozen=True):
    version: int
    at: float
    dynamic: dict[str, StoredSchedule]
    pauses: dict[str, StoredPause]


_NOTHING = _Read(0, 0.0, {}, {})


class Definitions:
    """Reads schedules, and knows the submitter of each namespace."""

    def __init__(self, app: Holdfast, store: Store) -> None:
        self._app = app
        self._store = store
        self._read: dict[str, _Read] = {}
        self._submitters: dict[str, Submitter] = {}

    async def read(self) -> list[Definition]:
        """Return all schedules as they are now."""
        for namespace in await self._namespaces():
            await self._refresh(namespace)
        pauses = self._read.get("", _NOTHING).pauses
        crons = self._app.crons
        found = [
            Definition(
                entry=entry,
                state=name,
                plans=pauses[name].plans if name in pauses else (ALWAYS,),
            )
            for name, entry in crons.items()
        ]
        for namespace, each in self._read.items():
            found += [
                Definition(
                    entry=schedule.entry(name),
                    state=f"@{namespace}/{name}",
                    plans=schedule.plans,
                    namespace=namespace,
                    is_dynamic=True,
                )
                for name, schedule in each.dynamic.items()
                if namespace or name not in crons
            ]
        return found

    def submitter(self, definition: Definition) -> Submitter:
        """Return the submitter of the namespace of a schedule."""
        namespace = definition.namespace
        if namespace not in self._submitters:
            # One address must not stop a schedule.
            made = self._app.submitter(self._within(namespace), screens=False)
            self._submitters[namespace] = made
        return self._submitters[namespace]

    async def _namespaces(self) -> list[str]:
        """The namespaces in which a schedule was ever edited."""
        kinds = [kind.partition("@") for kind in await self._store.kinds()]
        return [namespace for kind, _, namespace in kinds if kind == EDITS]

    async def _refresh(self, namespace: str) -> None:
        store, now = self._within(namespace), self._app.clock.monotonic()
        (edits,) = await store.records(EDITS, [ALL])
        version, known = edits.version if edits else 0, self._read.get(namespace)
        if known and known.version == version and now - known.at < LONGEST_UNREAD:
            return
        dynamic, pauses = await stored(store, StoredSchedule), await stored(store, StoredPause)
        self._read[namespace] = _Read(version, now, dynamic, pauses)

    def _within(self, namespace: str) -> Store:
        return TenantStore(self._store, namespace) if namespace else self._store
