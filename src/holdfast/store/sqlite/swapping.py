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
from holdfast.store.sqlite.values import Row, id_of, key_of, micros
from holdfast.store.sqlite.writer import Transaction

Place = tuple[int, int]
"""The number of a job and that of its newest transition."""


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
    """Write changes of distinct jobs. Those that end a job this process claimed are not looked
    up first: writing them shows whether the job is still the same.
    """
    ends = {change.before.id for change in changes if _only_settles(change)}
    places = {job_id: tx.places.pop(job_id) for job_id in ends if job_id in tx.places}
    found = _look_up(tx, [change.before.id for change in changes if change.before.id not in places])
    for change in changes:
        row = found.get(change.before.id)
        if row is not None and _matches(row, change):
            places[change.before.id] = (row[0], row[5])
    good = [(*places[c.before.id], c) for c in changes if c.before.id in places]
    number, writing = tx.number, Writing(tx, good, ends)
    if not writing.settle():
        tx.number = number
        return _swap(tx, changes)
    ripe = _tell_children(tx, [(seq, change.after.state) for seq, _, change in good])
    writing.finish()
    if len(good) == len(changes):
        return [_RIPE if seq in ripe else _WRITTEN for seq, _, _ in good]
    refused = [row[0] for job_id, row in found.items() if job_id not in places]
    now = {job.id: job for job in read_jobs(tx.connection, refused)}
    return [_answer(change.before.id, places, ripe, now) for change in changes]


_WRITTEN = Swapped(written=True)
_RIPE = Swapped(written=True, ripe=True)


def _answer(
    job_id: str, places: Mapping[str, Place], ripe: set[int], refused: Mapping[str, Job]
) -> Swapped:
    if job_id not in places:
        return Swapped(written=False, job=refused.get(job_id))
    return _RIPE if places[job_id][0] in ripe else _WRITTEN


def _look_up(tx: Transaction, ids: Sequence[str]) -> dict[str, Row]:
    """What changes are checked against, by id."""
    if not ids:
        return {}
    return {id_of(row[0]): row[1:] for row in by_key(tx.connection, "fence", [*map(key_of, ids)])}


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


class Writing:
    """The rows of changes, in the order in which they are written."""

    def __init__(
        self, tx: Transaction, changes: Sequence[tuple[int, int, Change]], ends: set[str]
    ) -> None:
        self._tx = tx
        self._ends = ends
        self._changes = [change for _, _, change in changes]
        self._whole: list[Row] = []
        self._settled: list[Row] = []
        self._journal: list[Row] = []
        for seq, moved, change in changes:
            before, after = change.before, change.after
            for edge in after.trail:
                tx.number += 1
                self._journal.append(journal_row(tx.number, seq, moved, edge))
                moved = tx.number  # noqa: PLW2901  # its place is that of its newest transition
            if before.id in ends:
                self._settled.append((seq, moved, *settled_part(before, after)))
            else:
                part = moving_part(after, moved, _lift_at(tx, after))
                self._whole.append((seq, bool(after.trail), *part))

    def settle(self) -> bool:
        """Write what only settles; False, and nothing is written, if a job was not as it should."""
        if not self._settled:
            return True
        execute = self._tx.execute
        execute("SAVEPOINT settling")
        written = self._tx.connection.executemany(statement("settle"), self._settled).rowcount
        if written != len(self._settled):
            execute("ROLLBACK TO settling")
        execute("RELEASE settling")
        return written == len(self._settled)

    def finish(self) -> None:
        """Write the rest, count what moved, and note who is to be woken."""
        tx = self._tx
        tx.many("swap", self._whole)
        tx.journal(self._journal)
        limited = bool(self._changes) and tx.limited
        tx.ledger.ended(c.after for c in self._changes if c.after.id in self._ends)
        for change in self._changes:
            before, after = change.before, change.after
            if before.id not in self._ends:
                tx.ledger.moved(before, after)
            if after.state in WAKING:
                tx.woken.add(after.queue)
            elif limited and before.state is State.RUNNING:
                tx.woken.add(None)


def _only_settles(change: Change) -> bool:
    """Whether a running job ends with nothing but its result: two thirds of the cost to write."""
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
