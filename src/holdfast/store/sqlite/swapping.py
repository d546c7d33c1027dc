"""Writing decided changes under their fence, and renewing and using leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.job import TERMINAL, Job, State
from holdfast.store._shapes import Change, Swapped
from holdfast.store.sqlite.decoding import by_key, read_jobs
from holdfast.store.sqlite.encoding import journal_row, moving_part, settled_part
from holdfast.store.sqlite.moving import AT_ONCE, WAKING, lift_at
from holdfast.store.sqlite.sql import statement
from holdfast.store.sqlite.values import Row, key_of, micros
from holdfast.store.sqlite.writer import Transaction


def swap(tx: Transaction, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose job is still as it was; see ``Store.swap``."""
    answers: list[Swapped] = []
    for distinct in _rounds(changes):
        answers.extend(_swap(tx, distinct))
    return answers


def _rounds(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Split so that no job stands twice in a part: the second must see what the first wrote."""
    part: dict[str, Change] = {}
    for change in changes:
        if change.before.id in part:
            yield list(part.values())
            part = {}
        part[change.before.id] = change
    yield list(part.values())


def _swap(tx: Transaction, changes: list[Change]) -> list[Swapped]:
    keys = [key_of(change.before.id) for change in changes]
    found = {row[0]: row[1:] for row in by_key(tx.connection, "fence", keys)}
    stored = [found.get(key) for key in keys]
    good = [
        (row[0], row[5], change)
        for row, change in zip(stored, changes, strict=True)
        if row is not None and _matches(row, change)
    ]
    ripe = _tell_children(tx, [(seq, change.after.state) for seq, _, change in good])
    _write(tx, good)
    if len(good) == len(changes):
        return [_RIPE if seq in ripe else _WRITTEN for seq, _, _ in good]
    written = {seq for seq, _, _ in good}
    refused = [row[0] for row in stored if row and row[0] not in written]
    now = dict(zip(refused, read_jobs(tx.connection, refused), strict=True))
    return [_answer(row, ripe, now) for row in stored]


_WRITTEN = Swapped(written=True)
_RIPE = Swapped(written=True, ripe=True)


def _answer(row: Row | None, ripe: set[int], refused: Mapping[int, Job]) -> Swapped:
    if row is None:
        return Swapped(written=False)
    if row[0] in refused:
        return Swapped(written=False, job=refused[row[0]])
    return _RIPE if row[0] in ripe else _WRITTEN


def _matches(row: Row, change: Change) -> bool:
    """Whether a change was decided on the job as it is stored."""
    _, revision, version, token, until, _ = row
    before, after = change.before, change.after
    leased = version is not None
    if revision != before.revision:
        return False
    if before.lease and after.lease and not (leased and before.lease.token == token):
        return False
    return change.until is None or (leased and until == micros(change.until))


def _write(tx: Transaction, changes: Sequence[tuple[int, int, Change]]) -> None:
    whole: list[Row] = []
    settled: list[Row] = []
    journal: list[Row] = []
    limited = bool(changes) and tx.limited
    for seq, moved, change in changes:
        before, after = change.before, change.after
        for edge in after.trail:
            tx.number += 1
            journal.append(journal_row(tx.number, seq, moved, edge))
            moved = tx.number  # noqa: PLW2901  # its place is that of its newest transition
        if _only_settles(before, after):
            settled.append((seq, moved, *settled_part(after)))
        else:
            part = moving_part(after, moved, _lift_at(tx, after))
            whole.append((seq, bool(after.trail), *part))
        tx.ledger.moved(before, after)
        if after.state in WAKING:
            tx.woken.add(after.queue)
        elif limited and before.state is State.RUNNING:
            tx.woken.add(None)
    tx.many("swap", whole)
    tx.many("settle", settled)
    tx.journal(journal)


def _only_settles(before: Job, after: Job) -> bool:
    """Whether a running job ends with nothing but its result: two thirds of the cost to write."""
    return (
        after.finished_at is not None
        and after.failure is None
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
    """A new priority without a transition keeps the place but is judged anew."""
    lift = lift_at(tx, after)
    return lift if after.trail or lift is None else AT_ONCE


def _tell_children(tx: Transaction, moving: Sequence[tuple[int, State]]) -> set[int]:
    """Tell those who wait for a job how it ends; return the jobs for which someone waits.

    A child that an earlier change of the same call moves on does not wait any more.
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
    tx.many("ripen_by_end", [(child, ended[parent]) for parent, child in waiting])
    return {parent for parent, _ in waiting}
