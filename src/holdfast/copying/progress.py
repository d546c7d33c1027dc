"""Who copies what: notes in both stores that let a copy be resumed, and never be done twice."""

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
CLAIM = timedelta(seconds=10)
"""How long a copy that fell silent keeps another from going on with it."""


class CopyRefusedError(HoldfastError):
    """A copy that would lose or double something; the message says what to do."""


class QueueFlags(msgspec.Struct, frozen=True):
    """A queue's settings before the copy paused it."""

    paused: bool
    ageing: timedelta | None = None


class CopyNote(msgspec.Struct, frozen=True, kw_only=True):
    """How far a copy is; kept in both stores, with the details in the target."""

    id: str
    source: str
    target: str
    started_at: datetime
    finished_at: datetime | None = None
    queues: Mapping[str, QueueFlags] = {}
    cursor: str | None = None
    """Where in the source the next page begins; None at the start and at the end."""
    jobs: int = 0
    opened: bool = False
    """Whether the target's queues were set as the source's had been."""


async def read_note(store: Store, key: str) -> CopyNote | None:
    """Return what a store notes about a copy from or to it."""
    (record,) = await store.records(KIND, [key])
    return None if record is None else msgspec.json.decode(record.data, type=CopyNote)


async def write_note(store: Store, key: str, note: CopyNote) -> None:
    """Note how far a copy is."""
    await store.keep([RecordWrite(kind=KIND, key=key, data=msgspec.json.encode(note))])


async def refuse_workers(store: Store, where: str) -> None:
    """Refuse while somebody works on a store."""
    present = await workers(store)
    if present:
        names = ", ".join(worker.id for worker in present[:5])
        raise CopyRefusedError(
            f"{len(present)} worker(s) run on the {where} ({names}): stop them and try again;"
            " one that crashed is forgotten after 15 s"
        )


async def refuse_running(store: Store) -> None:
    """Refuse while a job runs under a lease that has not lapsed."""
    page = await store.find(Search(states=(State.RUNNING,), limit=1000))
    live = [j for j in page.jobs if j.lease and j.lease.until and j.lease.until > store.now()]
    if live:
        until = max(job.lease.until for job in live if job.lease and job.lease.until)
        raise CopyRefusedError(
            f"{len(live)} job(s) are running, such as {live[0].id}: let them finish,"
            f" or wait until their leases end at {until:%H:%M:%S} UTC"
        )


async def refuse_contents(store: Store) -> None:
    """Refuse a target that holds jobs of its own."""
    page = await store.find(Search(limit=1))
    if page.total:
        raise CopyRefusedError(
            f"the target already holds {page.total} job(s) that no unfinished copy put there:"
            " copy into an empty store"
        )
