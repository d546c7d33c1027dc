"""Refused calls in the audit log: 401 and 403, counted by key and address.

A flood of them costs a few entries: they are written together, after pauses that grow while it
lasts, and beyond a number of keys and addresses only their total is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat

from msgspec.structs import replace

from holdfast.api.responses import AuditEntry
from holdfast.http.api_keys import ApiKey
from holdfast.http.audit import Audit, audit_write
from holdfast.observe import Observer
from holdfast.store import Store
from holdfast.store.tenants import TenantStore

PAUSES = (1.0, 10.0, 60.0, 600.0, 3600.0)
"""Seconds until the refused calls are written; a pause without any starts again with the first."""
MAX_GROUPS = 20
"""So many keys and addresses have a count of their own in one pause."""
OTHERS = "others"
"""Stands for the remaining addresses."""
ACTIONS = {401: "unauthorized", 403: "forbidden"}
MAX_TEXT = 200


class Refusals:
    """Counts the refused calls of one server and writes them to the audit log."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._observer = observer
        self._pause = pause
        self._groups: dict[tuple[str, ...], AuditEntry] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, status: int, key: ApiKey | None, call: AuditEntry) -> None:
        """Count one refused call; ``key`` is the one that its secret names, right or wrong."""
        namespace = key.namespace if key is not None else ""
        group = (namespace, ACTIONS[status], key.id if key is not None else "", call.client)
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            group, key = ("", ACTIONS[status], "", OTHERS), None
        known = self._groups.get(group)
        if known is not None:
            self._groups[group] = replace(known, count=known.count + 1)
        else:
            self._groups[group] = _entry(call, group, key, status)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_later())

    async def close(self) -> None:
        """Write what is counted."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._write()

    async def _write_later(self) -> None:
        for pause in chain(PAUSES, repeat(PAUSES[-1])):
            await self._pause(pause)
            if not self._groups:
                return
            await self._write()

    async def _write(self) -> None:
        try:
            for group in list(self._groups):
                entry = self._groups.pop(group)
                log = TenantStore(self._store, entry.namespace)
                await log.keep([audit_write(entry)])
                await Audit(log).trim()
        except Exception as error:  # noqa: BLE001  # the others are written after the next pause
            self._observer.emit("audit.failed", error=str(error))


def _entry(call: AuditEntry, group: tuple[str, ...], key: ApiKey | None, status: int) -> AuditEntry:
    namespace, action, key_id, client = group
    return replace(
        call,
        namespace=namespace,
        action=action,
        key_id=key_id,
        key_name=key.name if key is not None else "",
        role=key.role.value if key is not None else "",
        client=client,
        target=call.target[:MAX_TEXT],
        status=status,
    )
