"""Finds what is wrong with a queue, and what to do about it: in the store and in its jobs.

Only reads. The cost is a few reads, however many jobs have ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from holdfast.encryption.envelope import unwrap
from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.model.job import TERMINAL, Job, State
from holdfast.model.policy import Retention
from holdfast.model.versions import awaits_version
from holdfast.model.workers import WorkerInfo, catch_all_name
from holdfast.operations.clock_reports import clock_findings
from holdfast.operations.quarantine import failing, quarantined
from holdfast.operations.workers import is_led, workers
from holdfast.store import Finding, Level, Order, Search, Store, Tally

TOLERANCE = timedelta(minutes=1)
"""How late the work of maintenance may be before it counts as stuck."""
PRUNING_TOLERANCE = timedelta(days=1)
MOST = 1000
"""Jobs read one by one for each check."""
SHOWN = 20
"""Items set aside that are reported one by one."""
SAMPLE = 100
"""Jobs read completely, with their payloads."""


async def examine(
    store: Store, *, retention: Retention | None = None, key_ids: Sequence[str] = ()
) -> list[Finding]:
    """Return the findings of all checks, the store's own first; ``key_ids`` are the known keys."""
    found = await store.findings()
    try:
        tallies = (await store.stats(timedelta(0))).tallies
        present = await workers(store)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        return [*found, Finding("store", Level.ERROR, f"The store cannot be read: {error}.")]
    live = sum(t.count for t in tallies if t.state not in TERMINAL)
    return [
        *found,
        *await _if_readable("clock", clock_findings(store)),
        _maintenance(led=await is_led(store), live=live),
        *await _if_readable("services", _failing(store)),
        *await _if_readable("quarantine", _set_aside(store)),
        *_leaks(present),
        *await _if_readable("workers", _unserved(store, tallies, present)),
        *await _if_readable("versions", _mismatched(store)),
        *await _if_readable("leases", _overdue(store)),
        *await _if_readable("due", _due(store)),
        *await _if_readable("dependencies", _waiting(store)),
        _dead(tallies),
        *await _if_readable("retention", _unpruned(store, retention or Retention())),
        *await _if_readable("keys", _encrypted(store, key_ids)),
        _counted(tallies),
    ]


async def _if_readable(name: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    """Return what a check finds, or a warning when the store's user may not read for it."""
    try:
        return await check
    except StoreError as error:
        return [Finding(name, Level.WARN, f"This could not be checked: {error}.")]


def _ok(name: str, text: str) -> Finding:
    return Finding(name, Level.OK, text)


def _maintenance(*, led: bool, live: int) -> Finding:
    if led:
        return _ok("maintenance", "A worker leads maintenance.")
    text = "No worker leads maintenance: retries, delays, cron, dependents and expired leases wait."
    if not live:
        return _ok("maintenance", "No worker leads maintenance, and no live job needs it.")
    return Finding("maintenance", Level.WARN, text, "Start a worker: `holdfast worker MODULE:APP`.")


async def _failing(store: Store) -> list[Finding]:
    return [
        Finding(
            "services",
            Level.ERROR,
            f"The maintenance service {report.name!r} fails again and again: {report.error}.",
            "The log of the leading worker shows every error; the service tries again by itself.",
        )
        for report in await failing(store)
    ]


async def _set_aside(store: Store) -> list[Finding]:
    return [
        Finding(
            "quarantine",
            Level.WARN,
            f"{report.name!r} was set aside: {report.error}.",
            "Repair or delete it in the store; the entry disappears a day after it was last met.",
        )
        for report in (await quarantined(store))[:SHOWN]
    ]


def _leaks(present: Sequence[WorkerInfo]) -> list[Finding]:
    return [
        Finding(
            "threads",
            Level.WARN,
            f"Worker {one.id} has {_number(one.leaked_threads, 'thread')} that"
            f" {'does' if one.leaked_threads == 1 else 'do'} not stop.",
            "Run such tasks with `runner='process'`, which can be killed, and restart the worker.",
        )
        for one in present
        if one.leaked_threads
    ]


async def _unserved(
    store: Store, tallies: Sequence[Tally], present: Sequence[WorkerInfo]
) -> list[Finding]:
    """Ready jobs that no worker will claim: none serves queue and type, or the queue is paused."""
    paused = {queue.name for queue in await store.queues() if queue.paused}
    ready: dict[tuple[str, str], int] = {}
    for tally in tallies:
        if tally.state is State.SCHEDULED and tally.count:
            kind = (tally.queue, tally.type)
            ready[kind] = ready.get(kind, 0) + tally.count
    claiming = _served(worker for worker in present if not worker.draining)
    by_any = _served(present)
    unserved = {
        kind: count
        for kind, count in ready.items()
        if kind[0] not in paused and not _is_served(kind, claiming)
    }
    found = [
        (_drained if _is_served(kind, by_any) else _no_worker)(*kind, count)
        for kind, count in sorted(unserved.items())
    ]
    waiting = _by_queue({kind: n for kind, n in ready.items() if kind[0] in paused})
    found += [
        Finding(
            "queue",
            Level.WARN,
            f"Queue {queue!r} is paused with {_number(n, 'ready job')}.",
            f"`holdfast queues resume {queue}`",
            queue=queue,
        )
        for queue, n in sorted(waiting.items())
    ]
    return found or [
        _ok(
            "workers",
            f"{_number(len(present), 'worker')}; every ready job has one that can run it.",
        )
    ]


def _served(workers: Iterable[WorkerInfo]) -> set[tuple[str, str]]:
    return {(queue, type_) for w in workers for queue in w.queues for type_ in w.types}


def _is_served(kind: tuple[str, str], served: set[tuple[str, str]]) -> bool:
    return kind in served or (kind[0], catch_all_name(kind[0])) in served


def _no_worker(queue: str, type_: str, count: int) -> Finding:
    return Finding(
        "workers",
        Level.WARN,
        f"{_number(count, 'ready job')} of type {type_!r} in queue {queue!r}, and no worker for"
        f" {'it' if count == 1 else 'them'}.",
        f"Start one that serves the queue (`-Q {queue}`) and has a handler for the type.",
        queue=queue,
        type=type_,
    )


def _drained(queue: str, type_: str, count: int) -> Finding:
    return Finding(
        "workers",
        Level.WARN,
        f"{count} ready job(s) of type {type_!r} in queue {queue!r}, and every worker for them"
        " drains.",
        "Undrain one (holdfast workers undrain NAME), or start another.",
    )


async def _mismatched(store: Store) -> list[Finding]:
    """Jobs whose payload fits no task of the workers that claimed them."""
    page = await store.find(Search(states=(State.RETRYING,), limit=MOST))
    waiting: dict[str, list[Job]] = {}
    for job in page.jobs:
        if awaits_version(job):
            waiting.setdefault(job.type, []).append(job)
    return [
        Finding(
            "versions",
            Level.WARN,
            f"{_many(jobs)} of type {type_!r} {_verb(jobs, 'wait')} for a worker of another"
            f" version: {jobs[0].failure.message if jobs[0].failure else ''}.",
            "Deploy workers with the code that submitted them, or a version that upgrades them.",
            type=type_,
        )
        for type_, jobs in sorted(waiting.items())
    ]


def _by_queue(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (queue, _), count in counts.items():
        sums[queue] = sums.get(queue, 0) + count
    return sums


async def _overdue(store: Store) -> list[Finding]:
    """Jobs whose lease or lifetime is over and that were not reclaimed or ended."""
    late = store.now() - TOLERANCE
    overdue = await store.overdue(MOST)
    held = [job for job in overdue if job.state is State.RUNNING and job.lease is not None]
    lapsed = [job for job in held if _lease_end(job) <= late]
    expired = [job for job in overdue if job.expires_at <= late]
    found = []
    if lapsed:
        found.append(
            Finding(
                "leases",
                Level.ERROR,
                f"{_many(lapsed)} {_verb(lapsed, 'run')} under a lease that expired over a minute"
                f" ago, such as {lapsed[0].id}: nothing reclaims them.",
                "Start a worker; it reclaims them within seconds.",
            )
        )
    if expired:
        found.append(
            Finding(
                "lifetimes",
                Level.ERROR,
                f"{_many(expired)} {'is' if len(expired) == 1 else 'are'} over a minute past"
                f" {'its' if len(expired) == 1 else 'their'} lifetime, such as {expired[0].id}.",
                "Start a worker; it ends them within seconds.",
            )
        )
    return found or [_ok("leases", "No job is stuck with a dead worker.")]


def _lease_end(job: Job) -> datetime:
    """Return when the lease of a running job expires or expired."""
    assert job.lease is not None
    return job.lease.until or job.updated_at


async def _due(store: Store) -> list[Finding]:
    next_due = (await store.promote(0)).next_due
    if next_due is None or next_due > store.now() - TOLERANCE:
        return [_ok("due", "No job is past its due time.")]
    late = (store.now() - next_due).total_seconds()
    return [
        Finding(
            "due",
            Level.ERROR,
            f"The earliest delayed job or retry is {late:.0f} s past its due time.",
            "Start a worker; maintenance makes due jobs ready.",
        )
    ]


async def _waiting(store: Store) -> list[Finding]:
    """PENDING jobs whose dependencies do not exist, or have ended without releasing them."""
    page = await store.find(Search(states=(State.PENDING,), order=Order.CREATED_ASC, limit=MOST))
    waiting = [job for job in page.jobs if job.depends_on and not job.held]
    named = list({parent for job in waiting for parent in job.depends_on})
    existing = {job.id for job in await store.get(named) if job is not None}
    orphans = [job for job in waiting if not existing.issuperset(job.depends_on)]
    late = store.now() - TOLERANCE
    releasable = [d.job for d in await store.dependents(MOST) if d.job.updated_at <= late]
    found = []
    if orphans:
        found.append(
            Finding(
                "dependencies",
                Level.ERROR,
                f"{_many(orphans)} {_verb(orphans, 'wait')} for jobs that do not exist, such as"
                f" {orphans[0].id}.",
                "Cancel them (`holdfast cancel ID`) and submit them again without the dependency.",
            )
        )
    if releasable and not await is_led(store):
        found.append(
            Finding(
                "dependencies",
                Level.WARN,
                f"{_many(releasable)} {_verb(releasable, 'wait')} although the jobs before"
                " have ended.",
                "Start a worker; maintenance releases them.",
            )
        )
    return found or [
        _ok(
            "dependencies",
            f"{_number(len(waiting), 'job')} {_verb(waiting, 'wait')} for jobs that exist.",
        )
    ]


def _dead(tallies: Sequence[Tally]) -> Finding:
    dead = sum(t.count for t in tallies if t.state is State.DEAD_LETTER)
    if not dead:
        return _ok("dead letters", "No job is in DEAD_LETTER.")
    types = sorted({t.type for t in tallies if t.state is State.DEAD_LETTER and t.count})
    return Finding(
        "dead letters",
        Level.WARN,
        f"{_number(dead, 'job')} used up {'its' if dead == 1 else 'their'} attempts:"
        f" {', '.join(types[:5])}.",
        "See why with `holdfast failures`; `holdfast retry` runs them again.",
    )


async def _unpruned(store: Store, retention: Retention) -> list[Finding]:
    """Ended jobs that are a day past their retention."""
    late = 0
    for state in sorted(TERMINAL):
        kept: timedelta | None = getattr(retention, state.lower())
        if kept is None:
            continue
        page = await store.find(Search(states=(state,), order=Order.CREATED_ASC, limit=SAMPLE))
        limit = store.now() - kept - PRUNING_TOLERANCE
        late += sum(j.finished_at is not None and j.finished_at <= limit for j in page.jobs)
    if not late:
        return [_ok("retention", "Ended jobs are pruned in time.")]
    return [
        Finding(
            "retention",
            Level.WARN,
            f"{late}{'' if late < SAMPLE else ' or more'} ended"
            f" {'job is' if late == 1 else 'jobs are'} a day past the retention.",
            "Start a worker; maintenance prunes. Jobs that live ones depend on are kept.",
        )
    ]


async def _encrypted(store: Store, key_ids: Sequence[str]) -> list[Finding]:
    """Keys of the newest jobs that are not known here."""
    page = await store.find(Search(limit=SAMPLE))
    missing = {found[0] for job in page.jobs if (found := unwrap(job.payload))} - set(key_ids)
    return [
        Finding(
            "keys",
            Level.ERROR,
            f"Jobs are encrypted with key {key_id!r}, which this command does not have.",
            "Workers need it too: set it in `$HOLDFAST_ENCRYPTION_KEYS`.",
        )
        for key_id in sorted(missing)
    ]


def _counted(tallies: Sequence[Tally]) -> Finding:
    live = sum(t.count for t in tallies if t.state not in TERMINAL)
    ended = sum(t.count for t in tallies) - live
    return _ok("jobs", f"{live} live and {ended} ended {'job' if ended == 1 else 'jobs'}.")


def _many(jobs: Sequence[Job]) -> str:
    return _number(len(jobs), "job") if len(jobs) < MOST else f"{len(jobs)} or more jobs"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _verb(jobs: Sequence[Job], plural: str) -> str:
    return f"{plural}s" if len(jobs) == 1 else plural
