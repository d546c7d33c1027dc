"""The schedules that a leader serves: those of its code, and the dynamic ones of the store.

Dynamic schedules are read again when the version of their record of edits differs, which costs one
small read per namespace and look, and at least once a minute. A schedule that has not changed stays
the same object, so that the cron service works out its next instant once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.app import Holdfast
from holdfast.model.reserved import EDITS
from holdfast.operations.quarantine import set_aside
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
    owner: str = ""
    """The API key whose jobs its jobs are."""
    is_dynamic: bool = False


class _Read(msgspec.Struct, frozen=True):
    version: int
    at: float
    dynamic: dict[str, Definition]
    pauses: dict[str, StoredPause]
    damaged: frozenset[str] = frozenset()


_NOTHING = _Read(0, 0.0, {}, {})


class Definitions:
    """Reads schedules, and knows the submitter of each namespace."""

    def __init__(self, app: Holdfast, store: Store) -> None:
        self._app = app
        self._store = store
        self._read: dict[str, _Read] = {}
        self._of_code: dict[str, Definition] = {}
        self._submitters: dict[tuple[str, str], Submitter] = {}

    async def read(self) -> list[Definition]:
        """Return all schedules as they are now; one that has not changed is the same object."""
        self._read = {each: await self._refreshed(each) for each in await self._namespaces()}
        pauses, crons = self._read.get("", _NOTHING).pauses, self._app.crons
        of_code = {
            name: Definition(
                entry=entry,
                state=name,
                plans=pauses[name].plans if name in pauses else (ALWAYS,),
            )
            for name, entry in crons.items()
        }
        self._of_code = _same(self._of_code, of_code)
        dynamic = [
            definition
            for namespace, each in self._read.items()
            for name, definition in each.dynamic.items()
            if namespace or name not in crons
        ]
        return [*self._of_code.values(), *dynamic]

    @property
    def damaged(self) -> set[str]:
        """The states of the dynamic schedules whose records cannot be read."""
        return {state for each in self._read.values() for state in each.damaged}

    def submitter(self, definition: Definition) -> Submitter:
        """Return the submitter of the namespace and the key of a schedule."""
        name = definition.namespace, definition.owner
        if name not in self._submitters:
            store = self._within(*name)
            # One address must not stop a schedule.
            self._submitters[name] = self._app.submitter(store, screens=False)
        return self._submitters[name]

    async def _namespaces(self) -> list[str]:
        """The namespaces in which a schedule was ever edited."""
        kinds = [kind.partition("@") for kind in await self._store.kinds()]
        return [namespace for kind, _, namespace in kinds if kind == EDITS]

    async def _refreshed(self, namespace: str) -> _Read:
        store, now = self._within(namespace), self._app.clock.monotonic()
        (edits,) = await store.records(EDITS, [ALL])
        version, known = edits.version if edits else 0, self._read.get(namespace, _NOTHING)
        if known.version == version and now - known.at < LONGEST_UNREAD and known is not _NOTHING:
            return known
        damaged: dict[str, str] = {}
        found = await stored(store, StoredSchedule, damaged)
        pauses = await stored(store, StoredPause, damaged)
        for name, error in damaged.items():
            await set_aside(self._store, f"cron schedule {_state(namespace, name)}", error)
        dynamic = {name: _definition(namespace, name, each) for name, each in found.items()}
        unread = frozenset(_state(namespace, name) for name in damaged)
        return _Read(version, now, _same(known.dynamic, dynamic), pauses, unread)

    def _within(self, namespace: str, owner: str = "") -> Store:
        if not namespace and not owner:
            return self._store
        return TenantStore(self._store, namespace, owner=owner)


def _definition(namespace: str, name: str, schedule: StoredSchedule) -> Definition:
    return Definition(
        entry=schedule.entry(name),
        state=_state(namespace, name),
        plans=schedule.plans,
        namespace=namespace,
        owner=schedule.owner,
        is_dynamic=True,
    )


def _state(namespace: str, name: str) -> str:
    return f"@{namespace}/{name}"


def _same(known: Mapping[str, Definition], read: Mapping[str, Definition]) -> dict[str, Definition]:
    """Return what was read, with the known object for each schedule that has not changed."""
    return {name: known[name] if known.get(name) == each else each for name, each in read.items()}
