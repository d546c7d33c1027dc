"""Notes in both stores that let a copy be resumed and never be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.job import State
from holdfast.operations.workers import workers
from holdfast.store import RecordWrite, Search, Store

KIND = "copy"
FROM = "from"
TO = "to"
LOCK_TTL = timedelta(seconds=10)
"""How long a copy that makes no progress blocks another one from resuming it."""


class CopyRefusedError(HoldfastError):
    """A copy that could lose or duplicate jobs; the message says what to do."""


class QueueFlags(msgspec.Struct, frozen=True):
    """A queue's settings before the copy paused it."""

    paused: bool
    ageing: timedelta | None = None


class CopyNote(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a copy; kept in both stores, with the details in the target."""

    id: str
    source: str
    target: str
    started_at: datetime
    finished_at: datetime | None = None
    queues: Mapping[str, QueueFlags] = {}
    cursor: str | None = None
    """Where the next page begins in the source; None at the start and at the end."""
    jobs: int = 0
    opened: bool = False
    """Whether the target's queues have the settings that the source's had."""


async def read_note(store: Store, key: str) -> CopyNote | None:
    """Return the note about a copy from or to a store."""
    (record,) = await store.records(KIND, [key])
    return None if record is None else msgspec.json.decode(record.data, type=CopyNote)


async def write_note(store: Store, key: str, note: CopyNote) -> None:
    """Write the progress of a copy."""
    await store.keep([RecordWrite(kind=KIND, key=key, data=msgspec.json.encode(note))])


async def refuse_workers(store: Store, where: str) -> None:
    """Refuse while workers run on a store."""
    present = await workers(store)
    if present:
        names = ", ".join(worker.id for worker in present[:5])
        raise CopyRefusedError(
            f"{len(present)} worker(s) run on the {where} ({names}): stop them and try again;"
            " a crashed one is listed for 15 s"
        )


async def refuse_running(store: Store) -> None:
    """Refuse while a job runs under a lease that has not expired."""
    page = await store.find(Search(states=(State.RUNNING,), limit=1000))
    running = [j for j in page.jobs if j.lease and j.lease.until and j.lease.until > store.now()]
    if running:
        until = max(job.lease.until for job in running if job.lease and job.lease.until)
        raise CopyRefusedError(
            f"{len(running)} job(s) are running, such as {running[0].id}: let them finish,"
            f" or wait until their leases expire at {until:%H:%M:%S} UTC"
        )


async def refuse_contents(store: Store) -> None:
    """Refuse a target that has jobs of its own."""
    page = await store.find(Search(limit=1))
    if page.total:
        raise CopyRefusedError(
            f"the target already holds {page.total} job(s) of its own: copy into an empty store"
        )
