"""The verbs swap, extend and note: writes under a revision or a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.model.job import TERMINAL, Event, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.sqlite.connection import statement
from holdfast.store.sqlite.decode import by_key, cancel_of, read_jobs
from holdfast.store.sqlite.encode import (
    Row,
    encoded,
    id_of,
    journal_row,
    key_of,
    log_row,
    micros,
    moment,
    moving_part,
    progress_row,
    settled_part,
)
from holdfast.store.sqlite.links import wait_again, wait_for_children
from holdfast.store.sqlite.transaction import Transaction
from holdfast.store.values import Change, Fence, JobNote, Renewal, Swapped

Ending = tuple[Event, State, datetime, str]
"""What the journal rows of jobs that end together have in common."""


def swap(tx: Transaction, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose job is unchanged; see ``Store.swap``."""
    answers: list[Swapped] = []
    for distinct in _rounds(changes):
        answers.extend(_swap(tx, distinct))
    return answers


def _rounds(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Split so that no part contains a job twice: the second change must see the first.

    A job that waits again is a part of its own: it sees what the changes before it made of its
    dependencies.
    """
    part: dict[str, Change] = {}
    for change in changes:
        alone = change.after.state is State.PENDING and _waits_again(change)
        if alone or change.before.id in part:
            yield list(part.values())
            part = {}
        part[change.before.id] = change
        if alone:
            yield [change]
            part = {}
    yield list(part.values())


def _waits_again(change: Change) -> bool:
    """Whether a job that ended waits for its dependencies, or one that ran for its children."""
    before = change.before.state
    return change.after.state is State.PENDING and (before in TERMINAL or before is State.RUNNING)


def _swap(tx: Transaction, changes: list[Change]) -> list[Swapped]:
    """Write changes of distinct jobs.

    Those that end a job which this process claimed are not looked up first: the statement that
    writes them checks whether the job is unchanged.
    """
    ends = {change.before.id for change in changes if _only_settles(change)}
    places = {job_id: tx.claimed_seqs.pop(job_id) for job_id in ends if job_id in tx.claimed_seqs}
    found = _look_up(tx, [change.before.id for change in changes if change.before.id not in places])
    for change in changes:
        row = found.get(change.before.id)
        if row is not None and _matches(row, change):
            places[change.before.id] = row[0]
    matching = [(places[c.before.id], c) for c in changes if c.before.id in places]
    number, writes = tx.number, SwapWrites(tx, matching, ends, found)
    if not writes.settle():
        tx.number = number
        return _swap(tx, changes)
    has_dependents = _record_ends(tx, [(seq, change.after.state) for seq, change in matching])
    writes.finish()
    if len(matching) == 1 and _waits_again(change := matching[0][1]):
        wait = wait_for_children if change.before.state is State.RUNNING else wait_again
        has_dependents = {seq for seq, _ in matching if wait(tx, change.after, seq)}
    if len(matching) == len(changes):
        return [
            _WRITTEN_WITH_DEPENDENTS if seq in has_dependents else _WRITTEN for seq, _ in matching
        ]
    refused = [row[0] for job_id, row in found.items() if job_id not in places]
    now = {job.id: job for job in read_jobs(tx.connection, refused)}
    return [_answer(change.before.id, places, has_dependents, now) for change in changes]


_WRITTEN = Swapped(written=True)
_WRITTEN_WITH_DEPENDENTS = Swapped(written=True, has_dependents=True)


def _answer(
    job_id: str, places: Mapping[str, int], has_dependents: set[int], refused: Mapping[str, Job]
) -> Swapped:
    if job_id not in places:
        return Swapped(written=False, job=refused.get(job_id))
    return _WRITTEN_WITH_DEPENDENTS if places[job_id] in has_dependents else _WRITTEN


def _look_up(tx: Transaction, ids: Sequence[str]) -> dict[str, Row]:
    """Return what changes are checked against, by id."""
    if not ids:
        return {}
    return {id_of(row[0]): row[1:] for row in by_key(tx.connection, "fence", [*map(key_of, ids)])}


def _matches(row: Row, change: Change) -> bool:
    """Whether the stored job is still the one that the change was decided on."""
    _, revision, version, token, until, _ = row
    before, after = change.before, change.after
    leased = version is not None
    if revision != before.revision:
        return False
    if before.lease and after.lease and not (leased and before.lease.token == token):
        return False
    return change.until is None or (leased and until == micros(change.until))


class SwapWrites:
    """The rows to write for the changes of one call, in order."""

    def __init__(
        self,
        tx: Transaction,
        changes: Sequence[tuple[int, Change]],
        ends: set[str],
        found: Mapping[str, Row],
    ) -> None:
        self._tx = tx
        self._whole: list[Row] = []
        self._settled: list[Row] = []
        self._endings: defaultdict[Ending, dict[int, int]] = defaultdict(dict)
        self._journal: list[Row] = []
        self._ended: list[Job] = []
        self._moved: list[Change] = []
        for seq, change in changes:
            if change.before.id in ends:
                self._end(seq, change)
            else:
                self._move(seq, found[change.before.id][5], change)

    def _end(self, seq: int, change: Change) -> None:
        after = change.after
        (edge,) = after.trail
        self._tx.number = number = self._tx.number + 1
        self._endings[edge.event, edge.to_state, edge.at, edge.reason][number] = seq
        self._settled.append((seq, number, *settled_part(change.before, after)))
        self._ended.append(after)

    def _move(self, seq: int, moved: int, change: Change) -> None:
        tx, after = self._tx, change.after
        for edge in after.trail:
            tx.number += 1
            self._journal.append(journal_row(tx.number, seq, moved, edge))
            moved = tx.number
        part = moving_part(after, moved, _lift_at(tx, after))
        self._whole.append((seq, bool(after.trail), *part))
        self._moved.append(change)

    def settle(self) -> bool:
        """Write the plain ends; False, with nothing written, if a job has changed."""
        if not self._settled:
            return True
        execute = self._tx.execute
        execute("SAVEPOINT settle")
        for (event, state, at, reason), places in self._endings.items():
            numbers = msgspec.json.encode(places).decode()
            ending = (numbers, event._value_, state._value_, micros(at), reason)
            execute(statement("journal_ends"), ending)
        written = self._tx.connection.executemany(statement("settle"), self._settled).rowcount
        if written != len(self._settled):
            execute("ROLLBACK TO settle")
        execute("RELEASE settle")
        return written == len(self._settled)

    def finish(self) -> None:
        """Write the other changes, the journal and the counters, and collect wake-ups."""
        tx = self._tx
        tx.many("swap", self._whole)
        tx.journal(self._journal)
        for (_, _, at, _), places in self._endings.items():
            tx.journalled(micros(at), next(iter(places)), next(reversed(places)))
        tx.counters.ended(self._ended)
        for change in self._moved:
            tx.counters.moved(change.before, change.after)
            if change.after.state in WAKING:
                tx.woken.add(change.after.queue)
        stopped = self._ended or any(c.before.state is State.RUNNING for c in self._moved)
        if stopped and tx.limited:
            tx.woken.add(None)


def _only_settles(change: Change) -> bool:
    """Whether a running job ends with only its result: two thirds of the cost to write."""
    before, after = change.before, change.after
    return (
        after.finished_at is not None
        and after.failure is None
        and change.until is None
        and len(after.trail) == 1
        and before.state is State.RUNNING
        and before.lease is not None
        and after.lease is not None
        and before.lease.token == after.lease.token
        and before.attempt == after.attempt
        and before.priority == after.priority
        and before.max_attempts == after.max_attempts
        and before.generation == after.generation
        and before.cancel is after.cancel
        and before.due_at is after.due_at
        and before.started_at is after.started_at
        and before.scheduled_at is after.scheduled_at
        and before.expires_at is after.expires_at
        and before.held is after.held
    )


def _lift_at(tx: Transaction, after: Job) -> int | None:
    """Return when ageing lifts a changed job: at once after a new priority alone."""
    lift = lift_at(tx, after)
    return lift if after.trail or lift is None else AT_ONCE


def _record_ends(tx: Transaction, moving: Sequence[tuple[int, State]]) -> set[int]:
    """Record for waiting jobs how their dependencies ended; return those with waiting jobs.

    A child that an earlier change of the same call moves on is no longer waiting.
    """
    ended = {seq: state._value_ for seq, state in moving if state in TERMINAL}
    if not ended:
        return set()
    order = {seq: place for place, (seq, state) in enumerate(moving) if state is not State.PENDING}
    seqs = msgspec.json.encode(list(ended)).decode()
    waiting = [
        (parent, child)
        for parent, child in tx.execute(statement("waiting_for"), (seqs,)).fetchall()
        if child not in order or order[child] > order[parent]
    ]
    tx.many("edge_ended", [(ended[parent], parent, child) for parent, child in waiting])
    tx.many("update_verdict_due_by_end", [(child, ended[parent]) for parent, child in waiting])
    return {parent for parent, _ in waiting}


WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})
AT_ONCE = 0


def lift_at(tx: Transaction, job: Job) -> int | None:
    """Return when ageing lifts a job that just became ready; None for never."""
    if job.state is not State.SCHEDULED or not tx.ageing or job.scheduled_at is None:
        return None
    interval = tx.ageing.get(job.queue)
    return None if interval is None else micros(job.scheduled_at) + interval


def extend(tx: Transaction, fences: Sequence[Fence]) -> list[Renewal]:
    """Renew leases; see ``Store.extend``."""
    return [_extend(tx, fence) for fence in fences]


def _extend(tx: Transaction, fence: Fence) -> Renewal:
    place = (key_of(fence.job_id), fence.token, tx.instant)
    row = tx.execute(statement("extend"), place).fetchone()
    if row is None:
        return Renewal(held=False)
    until, cancel = row
    return Renewal(held=True, until=moment(until), cancel=cancel_of(cancel))


def note(tx: Transaction, notes: Sequence[JobNote]) -> list[bool]:
    """Write progress, checkpoints, log lines and payloads; see ``Store.note``."""
    return [_note(tx, each) for each in notes]


def _note(tx: Transaction, note: JobNote) -> bool:
    fence = note.fence
    row = tx.execute(statement("held_by"), (key_of(fence.job_id), fence.token)).fetchone()
    if row is None:
        return False
    (seq,) = row
    if note.progress is not None:
        tx.number += 1
        tx.execute(statement("progress"), (seq, encoded(note.progress)))
        tx.journal([progress_row(tx.number, seq, note.progress)])
    if note.checkpoint is not None:
        tx.execute(statement("checkpoint"), (seq, note.checkpoint))
    if note.payload is not None:
        tx.execute(statement("payload"), (seq, note.payload))
    if note.log is not None:
        tx.execute(statement("add_log"), log_row(seq, note.log))
        tx.execute(statement("trim_log"), (seq, MAX_LOG_LINES))
    return True
