"""Writing decided changes under their fences, and telling those who wait for an end."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from holdfast.model.job import TERMINAL, State
from holdfast.store.postgres.arrays import Longs, Texts
from holdfast.store.postgres.connection import PostgresSession, Statements
from holdfast.store.postgres.params import complete_params, is_completion, swap_params
from holdfast.store.postgres.pool import Pool
from holdfast.store.values import Change

Numbered = Sequence[tuple[int, Change]]
"""Changes with their places in the call."""

Numbers = MutableMapping[str, int]
"""The numbers of jobs that were claimed here, until they end."""


async def swap_all(database: Pool, changes: Sequence[Change], numbers: Numbers) -> dict[int, bool]:
    """Write what still fits; return the place of each change that was, and whether it is ripe.

    The short way is one statement. When a job ends that others wait for, nothing is written
    that way: a second statement must tell them, in the same transaction.
    """
    runs = _runs(changes)
    plain = [(n, change) for n, change in runs[0] if is_completion(change)]
    if len(runs) > 1 or 0 < len(plain) < len(changes):
        return await database.atomically(lambda session: _swap_in_turn(session, runs, numbers))
    if plain:
        written = await _complete(database, plain, numbers, alone=True)
    else:
        written = await swap(database, runs[0], parents=False) if changes else {}
    if len(written) == len(changes):
        return written
    left = [(n, change) for n, change in runs[0] if n not in written]
    if any(change.after.state in TERMINAL for _, change in left):
        written |= await database.atomically(lambda session: swap(session, left, parents=True))
    return written


def _runs(changes: Sequence[Change]) -> list[list[tuple[int, Change]]]:
    """Changes in their order, cut wherever a job would come a second time."""
    runs: list[list[tuple[int, Change]]] = [[]]
    seen: set[str] = set()
    for n, change in enumerate(changes):
        if change.before.id in seen:
            runs.append([])
            seen.clear()
        seen.add(change.before.id)
        runs[-1].append((n, change))
    return runs


async def _swap_in_turn(
    session: PostgresSession, runs: Sequence[Numbered], numbers: Numbers
) -> dict[int, bool]:
    written: dict[int, bool] = {}
    for changes in runs:
        written |= await swap_run(session, changes, numbers)
    return written


async def swap_run(
    session: PostgresSession, changes: Numbered, numbers: Numbers
) -> dict[int, bool]:
    """Write changes of different jobs inside a transaction: the plain completions first."""
    written: dict[int, bool] = {}
    if plain := [(n, change) for n, change in changes if is_completion(change)]:
        written |= await _complete(session, plain, numbers, alone=False)
    if left := [(n, change) for n, change in changes if n not in written]:
        written |= await swap(session, left, parents=True)
    return written


async def _complete(
    session: Statements, changes: Numbered, numbers: Numbers, *, alone: bool
) -> dict[int, bool]:
    params = {**complete_params([change for _, change in changes], numbers), "alone": alone}
    ((positions,),) = await session.run("complete", params)
    written = changes if positions is None else [changes[place - 1] for place in positions]
    return {n: False for n, _ in written}


async def swap(
    session: Statements, changes: Numbered, *, parents: bool, measured: bool = True
) -> dict[int, bool]:
    """Write changes; return each that was written, and whether others wait for its end."""
    params = swap_params([change for _, change in changes])
    rows = await session.run("swap", {**params, "parents": parents, "measured": measured})
    places = {number: changes[position - 1] for position, number, *_ in rows}
    written = {n: False for n, _ in places.values()}
    ended = {
        number: state for _, number, state, awaited in rows if awaited and State(state) in TERMINAL
    }
    if ended:
        told = {"parent": Longs(list(ended)), "state": Texts(list(ended.values()))}
        for parent, child, is_waiting in await session.run("tell_children", told):
            n, _ = places[parent]
            later, change = places.get(child, (n, None))
            waited = change is not None and later > n and change.before.state is State.PENDING
            written[n] |= is_waiting or waited
    return written
