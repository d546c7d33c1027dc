"""Writing decided changes under their fences, leases and notes of running jobs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import MutableMapping, Sequence

from holdfast.errors import StoreUnavailableError
from holdfast.model.job import TERMINAL, Job, State
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.postgres.arrays import Blobs, Documents, Longs, Moments, Texts
from holdfast.store.postgres.connection import PostgresSession, StatementRunner
from holdfast.store.postgres.links import (
    children_of,
    lock_parents,
    wait_again,
    wait_for_children,
)
from holdfast.store.postgres.params import complete_params, is_completion, swap_params
from holdfast.store.postgres.pool import Pool
from holdfast.store.postgres.read import get
from holdfast.store.postgres.rows import cancel_of, document
from holdfast.store.postgres.state import StoreState
from holdfast.store.values import Change, Fence, JobNote, Renewal, Swapped

Numbered = Sequence[tuple[int, Change]]
"""Changes with their places in the call."""

Numbers = MutableMapping[str, int]
"""The row numbers of jobs that were claimed here, until they end."""

_WRITTEN = {
    has_dependents: Swapped(written=True, has_dependents=has_dependents)
    for has_dependents in (False, True)
}


async def swap(state: StoreState, changes: Sequence[Change]) -> list[Swapped]:
    """Write changes whose fence still holds; see ``Store.swap``."""
    written = await _write_all(state.pool, changes, state.numbers)
    for change in changes:
        state.numbers.pop(change.before.id, None)
    state.wake.notify(state.woken(changes, written))
    if expired := [_fence(changes[n]) for n in written if _is_taken_back(changes[n])]:
        await terminate(state, expired)
    stale = [c.before.id for n, c in enumerate(changes) if n not in written]
    stored = dict(zip(stale, await get(state, stale), strict=True)) if stale else {}
    return [
        _WRITTEN[written[n]]
        if n in written
        else Swapped(written=False, job=stored[change.before.id])
        for n, change in enumerate(changes)
    ]


async def extend(state: StoreState, fences: Sequence[Fence]) -> list[Renewal]:
    """Renew leases; see ``Store.extend``."""
    unique = list(dict.fromkeys(fences))
    if not unique:
        return []
    rows = await state.run(
        "extend",
        {
            "id": Texts([fence.job_id for fence in unique]),
            "token": Texts([fence.token for fence in unique]),
            "now": state.clock.override,
        },
    )
    renewals = {
        unique[position - 1]: Renewal(True, until, cancel_of(cancel), is_renewed)
        for position, until, cancel, is_renewed in rows
    }
    return [renewals.get(fence, Renewal(held=False)) for fence in fences]


async def note(state: StoreState, notes: Sequence[JobNote]) -> list[bool]:
    """Write progress, checkpoints, log lines and payloads; see ``Store.note``."""
    if not notes:
        return []
    rows = await state.run(
        "note",
        {
            "id": Texts([note.fence.job_id for note in notes]),
            "token": Texts([note.fence.token for note in notes]),
            "progress": Documents([document(note.progress) for note in notes]),
            "at": Moments([note.progress.at if note.progress else None for note in notes]),
            "checkpoint": Blobs([note.checkpoint for note in notes]),
            "log": Documents([document(note.log) for note in notes]),
            "payload": Blobs([note.payload for note in notes]),
            "kept": MAX_LOG_LINES,
        },
    )
    kept = {position for (position,) in rows}
    return [n in kept for n in range(1, len(notes) + 1)]


async def _write_all(pool: Pool, changes: Sequence[Change], numbers: Numbers) -> dict[int, bool]:
    """Write what still fits; return the place of each written change, and has_dependents.

    One statement is the short way. It writes nothing when a job ends that others wait for: a
    second statement must then update them in the same transaction.
    """
    runs = _runs(changes)
    if again := [c.after for c in changes if c.after.state is State.PENDING and _waits_again(c)]:
        return await pool.atomically(lambda session: _write_again(session, runs, numbers, again))
    completions = [(n, change) for n, change in runs[0] if is_completion(change)]
    if len(runs) > 1 or 0 < len(completions) < len(changes):
        return await pool.atomically(lambda session: _write_runs(session, runs, numbers))
    if completions:
        written = await _complete(pool, completions, numbers, alone=True)
    else:
        written = await write(pool, runs[0], parents=False) if changes else {}
    if len(written) == len(changes):
        return written
    left = [(n, change) for n, change in runs[0] if n not in written]
    if any(change.after.state in TERMINAL for _, change in left):
        written |= await pool.atomically(lambda session: write(session, left, parents=True))
    return written


def _runs(changes: Sequence[Change]) -> list[list[tuple[int, Change]]]:
    """Return changes in their order, cut where a job comes a second time.

    A job that waits again is a run of its own: it sees what the changes before it made of its
    dependencies.
    """
    runs: list[list[tuple[int, Change]]] = [[]]
    seen: set[str] = set()
    was_alone = False
    for n, change in enumerate(changes):
        alone = change.after.state is State.PENDING and _waits_again(change)
        if runs[-1] and (alone or was_alone or change.before.id in seen):
            runs.append([])
            seen.clear()
        seen.add(change.before.id)
        runs[-1].append((n, change))
        was_alone = alone
    return runs


def _waits_again(change: Change) -> bool:
    """Whether a job that ended waits for its dependencies, or one that ran for its children."""
    before = change.before.state
    return change.after.state is State.PENDING and (before in TERMINAL or before is State.RUNNING)


async def _write_again(
    session: PostgresSession, runs: Sequence[Numbered], numbers: Numbers, again: Sequence[Job]
) -> dict[int, bool]:
    """Write runs in which jobs wait for their dependencies again, which are locked first.

    The jobs themselves are locked with them, in the order of every statement that locks several.
    """
    ids = {change.before.id for run in runs for _, change in run}
    for change in (change for run in runs for _, change in run):
        if change.before.state is State.RUNNING and _waits_again(change):
            ids |= await children_of(session, change.before.id)
    states = (await lock_parents(session, again, ids.union(*(j.depends_on for j in again)))).states
    written: dict[int, bool] = {}
    for run in runs:
        written |= await write_run(session, run, numbers)
        for n, change in run:
            if n in written and _waits_again(change):
                written[n] = await (
                    wait_for_children(session, change.after)
                    if change.before.state is State.RUNNING
                    else wait_again(session, change.after, states)
                )
    return written


async def _write_runs(
    session: PostgresSession, runs: Sequence[Numbered], numbers: Numbers
) -> dict[int, bool]:
    written: dict[int, bool] = {}
    for changes in runs:
        written |= await write_run(session, changes, numbers)
    return written


async def write_run(
    session: PostgresSession, changes: Numbered, numbers: Numbers
) -> dict[int, bool]:
    """Write changes of different jobs inside a transaction, completions first."""
    written: dict[int, bool] = {}
    if completions := [(n, change) for n, change in changes if is_completion(change)]:
        written |= await _complete(session, completions, numbers, alone=False)
    if left := [(n, change) for n, change in changes if n not in written]:
        written |= await write(session, left, parents=True)
    return written


async def _complete(
    session: StatementRunner, changes: Numbered, numbers: Numbers, *, alone: bool
) -> dict[int, bool]:
    params = {**complete_params([change for _, change in changes], numbers), "alone": alone}
    ((positions,),) = await session.run("complete", params)
    written = changes if positions is None else [changes[place - 1] for place in positions]
    return {n: False for n, _ in written}


async def write(
    session: StatementRunner, changes: Numbered, *, parents: bool, measured: bool = True
) -> dict[int, bool]:
    """Write changes; return the place of each written one, and whether others wait for its end."""
    params = swap_params([change for _, change in changes])
    rows = await session.run("swap", {**params, "parents": parents, "measured": measured})
    places = {number: changes[position - 1] for position, number, *_ in rows}
    written = {n: False for n, _ in places.values()}
    ended = {
        number: state for _, number, state, awaited in rows if awaited and State(state) in TERMINAL
    }
    if ended:
        ends = {"parent": Longs(list(ended)), "state": Texts(list(ended.values()))}
        for parent, child, is_waiting in await session.run("end_edges", ends):
            n, _ = places[parent]
            later, change = places.get(child, (n, None))
            waited = change is not None and later > n and change.before.state is State.PENDING
            written[n] |= is_waiting or waited
    return written


async def terminate(state: StoreState, fences: Sequence[Fence]) -> None:
    """End the transactions of handlers that no longer hold their job: they keep rows locked.

    One attempt only: a session that it misses ends by its idle timeout.
    """
    with contextlib.suppress(StoreUnavailableError):
        await state.run("terminate", {"mark": Texts([lease_mark(fence) for fence in fences])})


def lease_mark(fence: Fence) -> str:
    """Return the name of a handler's session, which the job's id follows for people to read."""
    lease = hashlib.blake2b(f"{fence.job_id} {fence.token}".encode(), digest_size=8)
    return f"holdfast {lease.hexdigest()}"


def _is_taken_back(change: Change) -> bool:
    """Whether a job stops running without a report of its worker."""
    before, after = change.before, change.after
    if before.state is not State.RUNNING or after.state is State.RUNNING:
        return False
    return after.lease is not None and after.lease.until is not None


def _fence(change: Change) -> Fence:
    job = change.before
    assert job.lease is not None
    return Fence(job.id, job.lease.token)
