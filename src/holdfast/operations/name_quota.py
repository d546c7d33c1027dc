"""Limits on how many names of queues, job types and tags a namespace uses.

Stores list and count by these names, and keep them after the jobs are gone. So the names of a
namespace are kept in one record, which is written under its version: the count is exact, however
many servers run. A name that this process knows costs nothing; a new one costs a read and a write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.errors import QuotaError
from holdfast.model.job import Job
from holdfast.model.policy import ServiceLimits
from holdfast.model.reserved import NAMES, RESERVED
from holdfast.runtime.clock import Clock
from holdfast.store import RecordWrite, Store

KEY = "all"
READ_INTERVAL = 5.0
"""Seconds between two reads of the names that producers beside the service use."""

_LIMITED = {
    "queues": "queue names of this namespace (service.queues_per_namespace)",
    "types": "type names of this namespace (service.types_per_namespace)",
    "tags": "tag names of this namespace (service.tags_per_namespace)",
}


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names of queues, job types and tags."""

    queues: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(**{each: getattr(self, each) | getattr(other, each) for each in _LIMITED})

    def __ge__(self, other: Names) -> bool:
        """Whether these are all names of the other."""
        return all(getattr(self, each) >= getattr(other, each) for each in _LIMITED)


def names_of(jobs: Sequence[Job]) -> Names:
    """Return the names that jobs use."""
    return Names(
        queues=frozenset(job.queue for job in jobs),
        types=frozenset(job.type for job in jobs),
        tags=frozenset(tag for job in jobs for tag in job.tags if not tag.startswith(RESERVED)),
    )


class NameQuota:
    """Admits names of one namespace, or raises QuotaError."""

    def __init__(self, store: Store, limits: ServiceLimits, clock: Clock) -> None:
        self._store = store
        self._limits = {each: getattr(limits, f"{each}_per_namespace") for each in _LIMITED}
        self._clock = clock
        self._known = Names()
        self._in_use = Names()
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    def knows(self, job: Job) -> bool:
        """Whether a job without tags has only known names: then ``admit`` is not needed."""
        return job.queue in self._known.queues and job.type in self._known.types

    async def admit(self, names: Names) -> None:
        """Add new names, all or none; known ones are always admitted."""
        if self._known >= names:
            return
        async with self._turn:
            while not self._known >= names:
                await self._add(names)

    async def _add(self, names: Names) -> None:
        """Read the record and write it with the names, unless another server wrote meanwhile."""
        (record,) = await self._store.records(NAMES, [KEY])
        kept = None if record is None else _read(record.data)
        self._known = await self._names_in_use() if kept is None else kept
        if not self._known >= names and self._excess(names):
            self._known |= await self._names_in_use()
            if (error := self._excess(names)) is not None:
                raise error
        wanted = self._known | names
        if wanted == kept:
            return
        write = RecordWrite(
            kind=NAMES,
            key=KEY,
            data=msgspec.json.encode(wanted, order="deterministic"),
            version=0 if record is None else record.version,
        )
        if (await self._store.keep([write]))[0] is not None:
            self._known = wanted

    def _excess(self, names: Names) -> QuotaError | None:
        for each, limit in _LIMITED.items():
            known, maximum = getattr(self._known, each), self._limits[each]
            new = getattr(names, each) - known
            if new and len(known) + len(new) > maximum:
                return QuotaError(limit, current=len(known), maximum=maximum)
        return None

    async def _names_in_use(self) -> Names:
        """Names that the store has already: of earlier versions, and of trusted producers."""
        if self._clock.monotonic() - self._read_at >= READ_INTERVAL:
            queues = await self._store.queues()
            tallies = (await self._store.stats(timedelta(0))).tallies
            self._in_use = Names(
                queues=frozenset(queue.name for queue in queues),
                types=frozenset(tally.type for tally in tallies),
            )
            self._read_at = self._clock.monotonic()
        return self._in_use


def _read(data: bytes) -> Names | None:
    try:
        return msgspec.json.decode(data, type=Names)
    except msgspec.DecodeError:
        return None
