"""The audit log: an entry is written before a changing call begins and completed afterwards.

Submissions and the calls of workers are not in it: the job records who submitted it, and its
history records who ran it. Refused calls are in ``refusals``, changes of keys in ``key_changes``.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.api.responses import AuditEntry
from holdfast.http.permissions import Caller
from holdfast.observe.redaction import LONGEST_SECRET, Redaction
from holdfast.store import RecordWrite, Store
from holdfast.store.damage import readable

KIND = "audit"
KEPT = timedelta(days=90)
TRIM_EVERY = 256
"""One entry in so many also deletes old ones."""
MAX_DETAIL = 1024


class Audit:
    """The audit log of one namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def begin(
        self,
        caller: Caller,
        action: str,
        *,
        target: str,
        detail: str,
        client: str,
        request_id: str,
    ) -> AuditEntry:
        """Write the entry of a call that begins."""
        entry = AuditEntry(
            timestamp=self._store.now(),
            request_id=request_id,
            key_id=caller.key_id,
            key_name=caller.name,
            role=caller.role.value,
            namespace=caller.namespace,
            action=action,
            target=target,
            detail=detail,
            client=client,
        )
        await self._keep(entry)
        if int(entry.timestamp.timestamp() * 1_000_000) % TRIM_EVERY == 0:
            await self.trim()
        return entry

    async def end(self, entry: AuditEntry, status: int) -> None:
        """Complete an entry with the status of the response."""
        await self._keep(msgspec.structs.replace(entry, status=status))

    async def page(self, after: str, limit: int) -> tuple[list[AuditEntry], str | None]:
        """Return entries, newest first, and the cursor of the next page."""
        found = await self._store.browse(KIND, after=after, limit=limit, last=True)
        entries = readable(found, lambda record: msgspec.json.decode(record.data, type=AuditEntry))
        return list(entries), found[-1].key if len(found) == limit else None

    async def trim(self) -> None:
        """Delete old entries."""
        oldest = await self._store.browse(KIND, limit=1000)
        limit = (self._store.now() - KEPT).strftime(_SORTABLE)
        old = [record.key for record in oldest if record.key < limit]
        await self._store.keep([RecordWrite(kind=KIND, key=key, data=None) for key in old])

    async def _keep(self, entry: AuditEntry) -> None:
        await self._store.keep([audit_write(entry)])


def detail_of(body: bytes, redaction: Redaction) -> str:
    """Return what an entry keeps of a body: its beginning, no payload, secrets masked."""
    try:
        fields = _FIELDS.decode(body)
    except msgspec.MsgspecError:
        kept = body
    else:
        fields.pop("payload", None)
        kept = msgspec.json.encode(fields)
    text = kept[: 4 * (MAX_DETAIL + LONGEST_SECRET)].decode("utf-8", "replace")
    return redaction.beginning(text.replace("\x00", ""), MAX_DETAIL)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTABLE = "%Y%m%dT%H%M%S.%fZ"


def audit_write(entry: AuditEntry) -> RecordWrite:
    """Return what stores an entry; entries are ordered by their time."""
    key = f"{entry.timestamp.strftime(_SORTABLE)}-{entry.request_id}"
    return RecordWrite(kind=KIND, key=key, data=msgspec.json.encode(entry))
