"""The store contract: everything that must be atomic, and no rules.

Decisions are made in ``lifecycle``; a store writes them under a fence. ``MemoryStore`` is the
reference: another store is right when the conformance suite cannot tell the two apart.
The protocol may change in minor releases until 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, Self

from holdfast.model.job import CancelRequest, Job, LogLine, Transition
from holdfast.model.measures import Stats, StatsWindow
from holdfast.model.policy import Retention
from holdfast.store.capabilities import Capabilities
from holdfast.store.values import (
    Added,
    Change,
    Claim,
    Dependent,
    EventPage,
    FailurePage,
    FailureSearch,
    Fence,
    Finding,
    JobNote,
    LimitRule,
    LimitState,
    NamedLock,
    Page,
    Promoted,
    QueueInfo,
    Record,
    RecordWrite,
    Renewal,
    Search,
    Swapped,
)

MAX_LOG_LINES = 1000
"""Log lines kept per job; older ones are deleted."""

EVENTS_KEPT = 10_000
"""Events kept for subscribers, unless the store was opened with another number."""


class Store(Protocol):
    """Where jobs are kept.

    Rules for every verb:

    *Atomicity.* One call is one transaction: all of it happens or none, no other caller sees
    half of it, and when it returns it is as durable as the store promises. A call that raises
    ``StoreUnavailableError`` may or may not have happened; every verb can be repeated safely.

    *Time.* Due times, leases and lifetimes go by the store's clock, ``now()``: an instant
    counts as reached when it is <= now. Times in jobs are computed from ``now()`` too.

    *Order.* Answers are aligned with the sequence given unless stated otherwise. Returned
    jobs have an empty ``trail``.

    *History.* Every transition in a written job's ``trail`` (and those that ``claim`` and
    ``promote`` make) is appended to the job's history, the event stream, the counters and
    the per-minute measures in the same transaction. History is deleted with its job.

    *Order of service.* A job takes its place in its queue when it becomes SCHEDULED, behind
    the ready jobs of its priority; jobs that become SCHEDULED in one call do so in the order
    given (``promote``: by due time, then by submission).
    """

    @property
    def capabilities(self) -> Capabilities:
        """How this store works, for callers that can make use of it."""
        ...

    @property
    def not_notified_because(self) -> str:
        """Why the store receives no notifications of new work now; empty if it does.

        Also empty when it needs none. Without notifications it polls.
        """
        ...

    def now(self) -> datetime:
        """Return the store's time, as exactly as this process knows it, without a round trip."""
        ...

    async def refresh(self) -> None:
        """Read the store's time again if that is due, because its clock may have been set.

        Callers do so before they decide on times without any other call.
        """
        ...

    async def start(self) -> Self:
        """Connect, check settings and schema (``SchemaVersionError``, ``UnsafeStoreError``)."""
        ...

    async def close(self) -> None:
        """Release everything; safe to call twice and before ``start``, which may follow again."""
        ...

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        """Write new jobs with their history, dependency edges and deduplication keys.

        Per job: ACCEPTED when written, or when this very id was written before (a repeat);
        DUPLICATE when an unexpired key (scope, key) belongs to another job with the same
        digest (``job_id`` names it); CONFLICT when the digest differs; MISSING when a
        dependency does not exist; keys are judged first. A key is free from its end on, also
        if its job was deleted before; without an end it is deleted with its job. Within the
        call a job may depend on an earlier one and collide with its key; a dependency on a
        job that turned out DUPLICATE means the job that holds the key.

        ``atomic``: one CONFLICT or MISSING and nothing is written; the others are ABORTED.
        Not atomic: each job stands alone, but one that depends on a job not written is
        MISSING. BUSY: a transaction that has not ended holds its key, repeat the call
        (where jobs do not stand alone: ``StoreUnavailableError``).

        ``fence``: written only while that lease is the newest on that job and it is RUNNING,
        else ``StaleLeaseError`` and nothing is written. The jobs then count as spawned by
        it: every job waiting FAN_IN for the spawner waits for them too.

        ``has_dependents``: a dependency had already ended. A dependency that ends at the same
        time as this call is noticed by this call or by its ``swap``, or both, never by
        neither. A FAN_IN on a job waits for all that job has spawned so far, transitively.
        """
        ...

    # --- working -------------------------------------------------------------------------

    async def claim(self, want: Claim) -> list[Job]:
        """Take up to ``limit`` ready jobs: SCHEDULED -> RUNNING, as ``lifecycle.claimed``.

        Queues are served in the order given; paused ones are passed over. Within a queue
        lower priority numbers first (after ageing, see ``promote``), then order of service.
        No job is given to two claims, however many run at once. The lease ends at
        ``now() + lease_ttl``; payload and checkpoint are included. Jobs for which a limit
        leaves no room (see ``limit``) are passed over and keep their place.
        """
        ...

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        """Write each ``after`` whose stored job still has the revision of ``before``.

        Where both jobs have a lease, the stored one must have its token as well (so that a
        worker cannot settle a job that was deleted and submitted again); where ``until`` is
        given, the stored lease must still end then. Each change stands alone. One that is not
        written returns the job as stored. Payload, progress, checkpoint, fixed fields stay.

        When a written job is terminal, its state is recorded for all jobs that wait for it in
        the same transaction; ``has_dependents`` is whether there are any.

        A job that leaves a terminal state for PENDING waits for its dependencies again: the end
        of each counts as ``end_on_retry`` returns it for the state it has now, and a FAN_IN waits
        for all that its dependencies have spawned by now. ``has_dependents`` is then whether a
        verdict on the job may be due. A dependency that ends at the same time is noticed.
        From RUNNING to PENDING it waits for its ``children``; ``dependency_kind`` is written, too.
        """
        ...

    async def amend(self, changes: Sequence[Change]) -> list[Swapped]:
        """Write tags, correlation_id, callback_url, priority, due_at, revision of each ``after``.

        Only where the stored job still has the revision of ``before``. Nothing else is written,
        and there is no transition: state, lease and history stay. A ready job is served by its
        new priority; among the jobs of that priority it keeps the place of the time at which
        it became ready. Ageing (see ``promote``) starts from the new priority. A DELAYED or
        RETRYING job becomes ready at its new ``due_at``, with the next ``promote`` if that has
        passed. Each change stands alone. One that is not written returns the job as stored.
        """
        ...

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        """Renew leases: those of RUNNING jobs with this token end ``lease_ttl`` from now.

        An expired lease that has not been taken over is renewed like any other. The answer
        contains the cancel request, if any. Not held: the lease is lost and nothing was
        changed. Held but not ``renewed``: another call is writing the job, repeat soon. The
        revision does not change.
        """
        ...

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        """Write progress, checkpoints, log lines and payloads of RUNNING jobs under their token.

        False: the lease is not the newest and nothing of that note was written. Progress is
        also an event. Log lines beyond the newest ``MAX_LOG_LINES`` are deleted. A payload
        has the job's encoding. The revision does not change.
        """
        ...

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        """Make due jobs ready: DELAYED and RETRYING -> SCHEDULED, as ``lifecycle.due``.

        At most ``limit``, earliest due first. In queues with ageing, ready jobs are also
        lifted by one level for every full interval since they became SCHEDULED; their
        recorded priority stays. Safe to run anywhere, any number at once.
        """
        ...

    async def overdue(self, limit: int) -> list[Job]:
        """Return RUNNING jobs whose lease has ended and live jobs whose lifetime has ended.

        The earliest end comes first. Reads only; the caller decides and swaps. Jobs that other
        clients of the store made or hold are recovered by the rules of those clients, not here.
        """
        ...

    async def dependents(self, limit: int) -> list[Dependent]:
        """Return PENDING jobs, not held, on which a verdict may be due, oldest first.

        That is: no dependency is open, or the kind is AFTER_ANY and one has ended, or it is
        neither that nor AFTER_ALL and one ended other than COMPLETED. This also recovers from a
        crash between the end of a job and its consequences.
        """
        ...

    async def prune(self, retention: Retention, limit: int) -> int:
        """Delete up to ``limit`` ended jobs older than allowed, oldest first; return how many.

        A job that a live job depends on stays, and a key for its window. Expired keys, events
        beyond the number kept and measures older than a week are deleted too.
        """
        ...

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        """Delete ended jobs on which no live job depends; False for any other id. Keys stay."""
        ...

    async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        """Lock a name for ``ttl`` unless another holder's lock has not expired; renew one's own.

        A ``ttl`` of zero releases it. All holders of a name ask for the same ``ttl``: a lock of
        another holder that ends later than ``ttl`` from now dates from before the clock was set
        back, and counts as expired. Used for leadership and to list live workers.
        """
        ...

    async def locks(self, prefix: str) -> list[NamedLock]:
        """Return the unexpired locks whose name has this prefix, by name."""
        ...

    # --- reading -------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        """Return jobs as they are now; None for unknown ids."""
        ...

    async def cancels(self, ids: Sequence[str]) -> list[CancelRequest | None]:
        """Return the cancel requests for these jobs; a cheap read for workers."""
        ...

    async def ended(self, ids: Sequence[str]) -> set[str]:
        """Return which of these jobs have ended; a cheap read for callers that wait."""
        ...

    async def parents(self, job_id: str) -> list[str]:
        """Return every job this one waits or waited for, in the order they were linked.

        The ids it named, then, for FAN_IN, what those spawned, transitively.
        """
        ...

    async def children(self, job_id: str, *, waiting: bool = False) -> list[str]:
        """Return what it spawned, oldest first, then others' children; or who waits(ed), by id."""
        ...

    async def history(self, ids: Sequence[str]) -> list[list[Transition]]:
        """Return every transition of each job, oldest first; empty for unknown ids."""
        ...

    async def logs(self, ids: Sequence[str]) -> list[list[LogLine]]:
        """Return the log lines kept for each job, oldest first; empty for an unknown id."""
        ...

    async def find(self, search: Search) -> Page:
        """Return one page of matching jobs.

        CREATED orders go by submission, UPDATED_DESC by the newest transition. The cursor
        is opaque and stays valid while jobs are added, changed and deleted: a job that does
        not change meanwhile is neither skipped nor repeated. Cursors of another order or
        garbage raise ``ValidationError``. ``total`` is exact when only types, queues,
        states and priorities are filtered, or up to ``COUNT_CAP``; else a lower bound.
        ``created_after``, ``updated_after``: at or after; ``created_before``: before. With a
        ``namespace``, the cost does not depend on what other namespaces have.
        """
        ...

    async def failures(self, search: FailureSearch) -> FailurePage:
        """Return one page of jobs that failed, newest failure first, with aggregations."""
        ...

    async def stats(
        self, window: StatsWindow, namespace: str | None = None, *, by_minute: bool = False
    ) -> Stats:
        """Return the counters, and the measures of the minutes that overlap the window.

        It ends now, or as long ago as the pair says. Their sum, or one by one; of a namespace's
        queues, if given. The cost does not depend on the jobs, nor on other namespaces.
        """
        ...

    async def events(self, after: str | None, limit: int, wait: timedelta) -> EventPage:
        """Return events after a cursor, in the order in which they were written.

        None starts at the oldest kept. Without new events, wait up to ``wait`` for one.
        ``limit`` 0 returns just the cursor of the newest event, to start from now. Events
        of one job are in order. About ``events_kept`` are kept; a cursor behind them, or
        ahead of them all (the store was restored from a copy), resumes at the oldest and
        sets ``gap``. Garbage raises ``ValidationError``.
        """
        ...

    async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
        """Wait for work: return a number that differs from ``seen`` once there may be some.

        It changes when jobs of these queues become ready or get a due time, in this process
        or any other, when a queue is resumed, and when a job stops running while limits are
        set. A caller takes the number, tries to claim, and passes the number back when there
        was no work; so no arrival is missed in between. After ``wait`` it returns anyway.
        A hint: it may change without new work, and it may fail to change when a message is
        lost, so ``wait`` bounds how long work can stay unnoticed.
        """
        ...

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        """Change ``paused`` (bool) and ``ageing`` (timedelta or None); others: ValidationError."""
        ...

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        """Set or lift a limit across all workers.

        ``queue:NAME`` and ``task:TYPE`` limit all jobs of a queue or a type together, ``key:TYPE``
        the jobs of a type for each ``limit_key`` by itself (jobs without one are not limited).
        ``concurrency``: claim takes a job only while fewer are RUNNING in the scope. ``rate`` and
        ``burst``: at most ``rate + burst - 1`` are claimed in any span of length ``per``, evenly
        spaced but for ``burst`` at once after a pause; see ``model.pace``. After the clock was set
        back by more than a period or a minute, the count starts afresh. A claim counts whatever its
        outcome. Every scope must have room.
        """
        ...

    async def limits(self) -> list[LimitState]:
        """Return every limit by scope, with its present use.

        A ``key:TYPE`` rule is followed by one ``key:TYPE:KEY`` entry for each key that has
        jobs RUNNING or has used some of its burst.
        """
        ...

    async def queues(self, namespace: str | None = None) -> list[QueueInfo]:
        """Return every queue that has settings or jobs, by name; of a namespace, if one is given.

        The cost does not depend on the queues of other namespaces.
        """
        ...

    async def findings(self) -> list[Finding]:
        """Report whether the store, as it is set up now, keeps jobs safely.

        Changes nothing. One finding for each check, good or bad; the names depend on the
        engine, and ``durability`` is always among them.
        """
        ...

    # --- small records beside the jobs ------------------------------------------------------

    async def keep(self, writes: Sequence[RecordWrite]) -> list[int | None]:
        """Write or delete small records, as durably as jobs; each stands alone, in order.

        The answer is the record's new version, 0 after a deletion, None when its version was
        not the expected one and nothing was changed. A deleted record starts again at 1.
        Kinds and keys are texts without NUL of at most 512 characters.
        """
        ...

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        """Return records by key; None for unknown keys."""
        ...

    async def kinds(self) -> list[str]:
        """Return the kinds that have records, by code points."""
        ...

    async def browse(
        self, kind: str, *, prefix: str = "", after: str = "", limit: int = 1000, last: bool = False
    ) -> list[Record]:
        """Return records whose key has the prefix, by code points; ``last`` lists backwards.

        ``after`` continues behind a key that was listed before, in the same direction.
        """
        ...
