"""The verbs that read, except searches."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import TypeVar

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import CancelRequest, Job, LogLine, State, Transition
from holdfast.model.measures import Measure, Reading, Stats, Tally
from holdfast.store.damage import readable
from holdfast.store.namespaces import LAST
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import (
    STATES,
    by_key,
    cancel_of,
    event_of,
    log_line,
    read_jobs,
    transition_of,
)
from holdfast.store.sqlite.encode import Key, Row, bounds, id_of, key_of, moment
from holdfast.store.values import EventPage, NamedLock, QueueInfo

T = TypeVar("T")
_NUMBER = itemgetter(1)

_MEASURES = {measure.value: measure for measure in Measure}


def get(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Job | None]:
    """Return jobs by id; see ``Store.get``."""
    seqs = [seq for _, seq in by_key(connection, "seqs_of", [key_of(i) for i in ids])]
    found = {job.id: job for job in read_jobs(connection, seqs)}
    return [found.get(job_id) for job_id in ids]


def cancels(connection: sqlite3.Connection, ids: Sequence[str]) -> list[CancelRequest | None]:
    """Return cancel requests; see ``Store.cancels``."""
    rows = (connection.execute(statement("cancels"), (key_of(i),)).fetchone() for i in ids)
    return [cancel_of(row[0]) if row else None for row in rows]


def ended(connection: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Return which jobs have ended; see ``Store.ended``."""
    query = statement("ended")
    return {i for i in ids if connection.execute(query, (key_of(i),)).fetchone()}


def parents(connection: sqlite3.Connection, job_id: str) -> list[str]:
    """Return the dependencies of a job; see ``Store.parents``."""
    rows = connection.execute(statement("named_parents"), (key_of(job_id),)).fetchall()
    return [id_of(key) for _, key in sorted(rows, key=lambda row: row[0])]


def children(connection: sqlite3.Connection, job_id: str, *, waiting: bool) -> list[str]:
    """Return the jobs that a job spawned, or that wait for it; see ``Store.children``."""
    if waiting:
        rows = connection.execute(statement("followers"), (key_of(job_id),))
        return sorted(id_of(key) for (key,) in rows)
    rows = connection.execute(statement("children"), (key_of(job_id),))
    return [id_of(key) for (key,) in rows]


def history(connection: sqlite3.Connection, ids: Sequence[str]) -> list[list[Transition]]:
    """Return the transitions of each job; see ``Store.history``."""
    return _by_job(connection, "history", ids, transition_of)


def logs(connection: sqlite3.Connection, ids: Sequence[str]) -> list[list[LogLine]]:
    """Return the log lines of jobs; see ``Store.logs``."""
    return _by_job(connection, "logs", ids, log_line)


def _by_job(
    connection: sqlite3.Connection, name: str, ids: Sequence[str], read: Callable[[Row], T]
) -> list[list[T]]:
    """Run a statement whose rows begin with the id of a job and a number, and group the rest."""
    keys = [key_of(job_id) for job_id in ids]
    rows: dict[Key, list[Row]] = {key: [] for key in keys}
    for row in sorted(by_key(connection, name, list(rows)), key=_NUMBER):
        rows[row[0]].append(row[2:])
    found = {key: list(readable(each, read)) for key, each in rows.items()}
    return [found[key] for key in keys]


def locks(connection: sqlite3.Connection, prefix: str, instant: int) -> list[NamedLock]:
    """Return named locks; see ``Store.locks``."""
    rows = connection.execute(statement("locks"), (prefix, instant, prefix + LAST))
    return [NamedLock(name, holder, moment(until), data) for name, holder, until, data in rows]


def stats(
    connection: sqlite3.Connection,
    minutes: tuple[int, int],
    namespace: str | None,
    *,
    by_minute: bool,
) -> Stats:
    """Return the counters; see ``Store.stats``."""
    within, suffix = bounds(namespace), "_within" if namespace else ""
    tallies = tuple(
        Tally(queue, type_, priority, STATES[state], count)
        for queue, type_, priority, state, count in connection.execute(
            statement("stats_tallies"), within
        )
    )
    readings = tuple(
        Reading(queue, type_, priority, _MEASURES[measure], *rest)
        for queue, type_, priority, measure, *rest in connection.execute(
            statement(f"stats_{'minutes' if by_minute else 'readings'}{suffix}"),
            {**within, "first": minutes[0], "last": minutes[1]},
        )
    )
    return Stats(tallies, readings)


def queues(connection: sqlite3.Connection, namespace: str | None) -> list[QueueInfo]:
    """Return every queue; see ``Store.queues``."""
    within = bounds(namespace)
    counts: defaultdict[str, dict[State, int]] = defaultdict(dict)
    for queue, state, count in connection.execute(statement("queue_counts"), within):
        counts[queue][STATES[state]] = count
    settings = {
        name: (bool(paused), None if ageing is None else timedelta(microseconds=ageing))
        for name, paused, ageing in connection.execute(statement("queues"), within)
    }
    found = []
    for name in sorted({*counts, *settings}):
        paused, ageing = settings.get(name, (False, None))
        since = None
        if State.SCHEDULED in counts[name]:
            (since,) = connection.execute(statement("ready_since"), (name,)).fetchone()
        found.append(
            QueueInfo(
                name=name,
                paused=paused,
                ageing=ageing,
                counts=counts[name],
                ready_since=None if since is None else moment(since),
            )
        )
    return found


def events(connection: sqlite3.Connection, after: str | None, limit: int, kept: int) -> EventPage:
    """Return events after a cursor; see ``Store.events``."""
    (newest,) = connection.execute(statement("newest_event")).fetchone()
    if limit == 0:
        return EventPage((), str(newest))
    start = 0 if after is None else _event_number(after)
    oldest = max(0, newest - kept)
    if is_lost := not oldest <= start <= newest:
        start = oldest
    rows = connection.execute(statement("events"), (start, limit))
    page = tuple(readable(rows, event_of))
    cursor = page[-1].cursor if page else str(start)
    return EventPage(page, cursor, gap=is_lost and after is not None)


def _event_number(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ValidationError([Fault("cursor", "INVALID", "must come from an event")])
    return int(cursor)
