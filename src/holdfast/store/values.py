"""The frozen values that store verbs take and return."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from holdfast.errors import Fault
from holdfast.model.job import (
    CancelRequest,
    Encoding,
    Failure,
    FailureCategory,
    Job,
    LogLine,
    Progress,
    State,
    Transition,
)
from holdfast.model.pace import StartPace, default_burst, largest_burst, limit_faults
from holdfast.model.queues import QueueActivity, QueuePause
from holdfast.model.status import EventInfo, EventKind, ProgressInfo, StateTransition
from holdfast.store.findings import Finding, Level, clock_finding


class AddStatus(StrEnum):
    """The outcome for one added job."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    CONFLICT = "CONFLICT"
    MISSING = "MISSING"
    ABORTED = "ABORTED"
    BUSY = "BUSY"


class Added(msgspec.Struct, frozen=True):
    """The answer to one job of ``add``."""

    status: AddStatus
    job_id: str
    """The job for this submission: its own id, or that of the job that holds its key."""
    missing: tuple[str, ...] = ()
    has_dependents: bool = False
    """A dependency had already ended when the job was written: call ``dependents`` now."""
    deleted: bool = False
    """The job that holds the key was deleted; the key holds on until its window ends."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The proof of holding a job: its newest lease token."""

    job_id: str
    token: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's request for jobs."""

    queues: tuple[str, ...]
    limit: int
    worker: str
    token: str
    types: tuple[str, ...] | None = None
    """Only jobs of these types; None for any."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A decided change of one job: written if the stored job is still ``before``."""

    before: Job
    after: Job
    until: datetime | None = None
    """When given, the stored lease must still end then: no heartbeat has renewed it."""


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The answer to one change: written, or the job as it is now (None: deleted)."""

    written: bool
    job: Job | None = None
    has_dependents: bool = False
    """The job ended and others wait for it: call ``dependents`` now."""
    refused: Failure | None = None
    """Why the job cannot complete, for example because of pending children: it fails with this."""


class Renewal(msgspec.Struct, frozen=True):
    """The answer to one renewal."""

    held: bool
    until: datetime | None = None
    cancel: CancelRequest | None = None
    renewed: bool = True


class JobNote(msgspec.Struct, frozen=True, kw_only=True):
    """Progress, checkpoint, log line or new payload of a running job, written under its lease."""

    fence: Fence
    progress: Progress | None = None
    checkpoint: bytes | None = None
    log: LogLine | None = None
    payload: bytes | None = None
    encoding: Encoding = Encoding.JSON
    """The encoding of the payload, which is that of the job."""


class JobExport(msgspec.Struct, frozen=True):
    """Everything a store holds about one job, for moving it to another store."""

    job: Job
    history: tuple[Transition, ...]
    logs: tuple[LogLine, ...] = ()


class HeldKey(msgspec.Struct, frozen=True):
    """A deduplication key whose job was deleted; it holds until its window ends."""

    scope: str
    key: str
    digest: str
    expires_at: datetime
    job_id: str


class KeyPage(msgspec.Struct, frozen=True):
    """Some keys of deleted jobs, and the cursor of the next page; None: there is none."""

    keys: tuple[HeldKey, ...]
    cursor: str | None


class Promoted(msgspec.Struct, frozen=True):
    """How many jobs became ready, and when the next one is due (None: no job has a due time).

    ``has_dependents``: a verdict may be due on jobs that wait for others, see ``dependents``.
    """

    count: int
    next_due: datetime | None
    has_dependents: bool = False


class Dependent(msgspec.Struct, frozen=True):
    """A waiting job and the states of its dependencies, in the order it named them."""

    job: Job
    parents: tuple[tuple[str, State], ...]


class Order(StrEnum):
    """The order in which a search lists jobs."""

    CREATED_ASC = "CREATED_ASC"
    CREATED_DESC = "CREATED_DESC"
    UPDATED_DESC = "UPDATED_DESC"


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Filters (combined with AND), order and page of a job search."""

    types: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    priorities: tuple[int, ...] = ()
    tags: Mapping[str, str] = {}
    correlation_id: str = ""
    id_prefix: str = ""
    """Only jobs whose id begins with this; a store may look at some of the newest jobs only: the
    page has then a cursor."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    order: Order = Order.CREATED_DESC
    cursor: str | None = None
    limit: int = 100
    namespace: str | None = None
    """Only queues of this namespace, as ``acme/...``; empty: without a slash; None: every queue."""
    most_bytes: int | None = None
    """Larger payloads, checkpoints and results are left out: the payload is then empty, the
    others None."""


COUNT_CAP = 10_000
"""Beyond this many matches a total may be a lower bound."""


class Page(msgspec.Struct, frozen=True):
    """One page of a search."""

    jobs: tuple[Job, ...]
    next_cursor: str | None
    total: int
    total_exact: bool = True
    left_out: Mapping[str, int] = {}
    """The bytes of each result that was left out, by the id of its job."""


class FailureSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Filters and page of a search for failures, newest failure first."""

    states: tuple[State, ...] = (State.FAILED, State.DEAD_LETTER)
    categories: tuple[FailureCategory, ...] = ()
    types: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    code: str = ""
    after: datetime | None = None
    before: datetime | None = None
    cursor: str | None = None
    limit: int = 100
    namespace: str | None = None
    most_bytes: int | None = None
    """As in ``Search``."""


class FailurePage(msgspec.Struct, frozen=True):
    """One page of failures, and counts over all that match."""

    jobs: tuple[Job, ...]
    next_cursor: str | None
    total: int
    by_category: Mapping[str, int]
    by_code: Mapping[str, int]
    by_type: Mapping[str, int]


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A transition or the progress of one job."""

    cursor: str
    job_id: str
    type: str
    queue: str
    kind: EventKind
    at: datetime
    transition: Transition | None = None
    progress: Progress | None = None
    result: bytes | None = None
    """Of a job that is deleted when it completes, as a client of BullMQ may require."""

    def info(self) -> EventInfo:
        """Return the event as clients see it."""
        return EventInfo(
            cursor=self.cursor,
            job_id=self.job_id,
            type=self.type,
            queue=self.queue,
            kind=self.kind,
            timestamp=self.at,
            transition=StateTransition.of(self.transition) if self.transition else None,
            progress=ProgressInfo.of(self.progress) if self.progress else None,
        )


class EventPage(msgspec.Struct, frozen=True):
    """Events in order, the cursor to continue from, and whether older ones were deleted before."""

    events: tuple[JobEvent, ...]
    cursor: str
    gap: bool = False


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's settings and how many of its jobs are in which state."""

    name: str
    paused: bool = False
    ageing: timedelta | None = None
    counts: Mapping[State, int] = {}
    pause: QueuePause | None = None
    activity: QueueActivity | None = None
    """Why it is paused, and what happens in it; the operations add both."""
    ready_since: datetime | None = None
    """Since when its oldest ready job has been ready, of the first in line at each priority; None:
    no job is ready."""


class LimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs may run at once, and how many may start per span of time.

    ``rate`` jobs start per span ``per``, evenly spaced. After a pause up to ``burst`` of them start
    at once, so in any span of length ``per`` at most ``rate + burst - 1`` start, by the clock of
    the store (handlers start a moment later). ``burst`` is 1 and a tenth of the rate unless it is
    given: of ``rate=20`` at most 22 start in a second. ``burst=1`` spaces all starts.
    With ``burst=rate`` the jobs of a whole span may start at once.
    """

    concurrency: int | None = None
    rate: int | None = None
    per: timedelta = timedelta(seconds=1)
    burst: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rate, int) and self.burst is None:
            msgspec.structs.force_setattr(self, "burst", default_burst(self.rate))

    def faults(self) -> list[Fault]:
        """Return every rule that the terms break."""
        per = self.per // timedelta(microseconds=1) if isinstance(self.per, timedelta) else 0
        return limit_faults(concurrency=self.concurrency, rate=self.rate, burst=self.burst, per=per)

    @property
    def pace(self) -> StartPace | None:
        """The rate as the stores count it; None without one."""
        if self.rate is None:
            return None
        per = max(1, self.per // timedelta(microseconds=1))
        return StartPace(self.rate, per, min(self.burst or 1, largest_burst(self.rate, per)))


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """A limit and how much of it is used.

    ``started`` counts the starts of the rule's ``burst`` that are used. ``until`` is when the next
    job may start; None while one may start now.
    """

    scope: str
    rule: LimitRule
    running: int = 0
    started: int = 0
    until: datetime | None = None

    @property
    def is_rate_used_up(self) -> bool:
        """Whether the rate lets no job start now."""
        return self.rule.rate is not None and self.started >= (self.rule.burst or 1)


class NamedLock(msgspec.Struct, frozen=True):
    """A name locked by a holder until a time: leadership, or a live worker."""

    name: str
    holder: str
    until: datetime
    data: bytes = b""


class Record(msgspec.Struct, frozen=True):
    """A small value kept beside the jobs, by kind and key: an API key, an audit entry."""

    kind: str
    key: str
    data: bytes
    version: int
    """1 when it is new, one more after every change."""


class RecordWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A request to write a record, or with ``data`` None to delete it."""

    kind: str
    key: str
    data: bytes | None
    version: int | None = None
    """Only while the stored record has this version, 0 for no record; None: always."""


__all__ = [
    "COUNT_CAP",
    "AddStatus",
    "Added",
    "Change",
    "Claim",
    "Dependent",
    "EventKind",
    "EventPage",
    "FailurePage",
    "FailureSearch",
    "Fence",
    "Finding",
    "HeldKey",
    "JobEvent",
    "JobExport",
    "JobNote",
    "KeyPage",
    "Level",
    "LimitRule",
    "LimitState",
    "NamedLock",
    "Order",
    "Page",
    "Promoted",
    "QueueInfo",
    "Record",
    "RecordWrite",
    "Renewal",
    "Search",
    "Swapped",
    "clock_finding",
]
