"""Who waits for whom.

A submission locks the jobs it depends on, so that none ends unseen. In a caller's transaction,
which may stay open for long, it does not: it leaves ties, which whoever promotes joins later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.model.job import TERMINAL, DependencyKind, Job, State
from holdfast.store.postgres.arrays import Flags, Longs, Texts
from holdfast.store.postgres.connection import Statements
from holdfast.store.postgres.rows import WIDTH, job_of


class Parents(msgspec.Struct, frozen=True):
    """The jobs that others shall wait for: their states, and the numbers of those seen only."""

    states: dict[str, State]
    numbers: dict[str, int] = {}
    outside: set[str] = set()
    """Which of them are not of this transaction, and may go on meanwhile."""


async def lock_parents(session: Statements, jobs: Sequence[Job], ids: Iterable[str]) -> Parents:
    """Lock jobs that others shall wait for, and what was spawned by those FAN_IN is about."""
    states = await _locked(session, "parents_lock", ids)
    roots = _roots(jobs)
    while family := {id_ for _, id_ in await _spawned(session, roots)} - states.keys():
        states |= await _locked(session, "parents_lock", family)
    return Parents(states)


async def see_parents(session: Statements, _: Sequence[Job], ids: Iterable[str]) -> Parents:
    """Look at jobs that others shall wait for; those new in this transaction are inside of it."""
    rows = await seen(session, ids)
    return Parents(
        {id_: State(state) for id_, _, state, *_ in rows},
        {id_: number for id_, number, *_ in rows},
        {id_ for id_, *_, is_new in rows if not is_new},
    )


async def seen(
    session: Statements, ids: Iterable[str]
) -> Sequence[tuple[str, int, str, int, int, bool]]:
    """Return id, number, state, priority and depth of jobs, and whether each is new just now."""
    wanted = sorted(ids)
    return await session.run("parents_see", {"id": Texts(wanted)}) if wanted else []


async def link(session: Statements, fresh: Sequence[Job], states: Mapping[str, State]) -> set[str]:
    """Write who waits for whom; return the jobs for which a dependency had ended."""
    pairs = await _pairs(session, fresh)
    if not pairs:
        return set()
    eager = {job.id for job in fresh if job.dependency_kind is DependencyKind.AFTER_ANY}
    await session.run(
        "link",
        {
            "child": Texts([child for child, _ in pairs]),
            "parent": Texts([parent for _, parent in pairs]),
            "eager": Flags([child in eager for child, _ in pairs]),
        },
    )
    return {child for child, parent in pairs if states.get(parent) in TERMINAL}


async def tie(session: Statements, fresh: Sequence[Job], parents: Parents) -> None:
    """Leave it to others to write for whom these wait, once this transaction has committed."""
    pairs = [(job.id, parent) for job in fresh for parent in job.depends_on]
    ends = {id_: state for id_, state in parents.states.items() if state in TERMINAL}
    await session.run(
        "tie",
        {
            "child": Texts([child for child, _ in pairs]),
            "name": Texts([parent for _, parent in pairs]),
            "parent": Longs([parents.numbers.get(parent) for _, parent in pairs]),
            "seen": Texts([ends.get(parent) for _, parent in pairs]),
        },
    )


async def join(session: Statements, after: int, most: int) -> tuple[bool, int | None]:
    """Write what some ties say, in a transaction of ours, those of jobs up to ``after`` left out.

    Returns whether a verdict may be due soon, and where to go on, if there may be more. Jobs that
    wait for one that somebody is writing right now are left for the next time.
    """
    rows = await session.run("tied", {"after": after, "most": most})
    jobs = [job_of(row[:WIDTH]) for row in rows]
    last = max((row[WIDTH] for row in rows), default=None)
    states, busy = await _free_parents(session, jobs)
    free = [job for job in jobs if busy.isdisjoint(job.depends_on)]
    has_dependents = await link(session, free, states)
    lost = await session.run("untie", {"child": Texts([job.id for job in free])}) if free else []
    return bool(has_dependents or lost or busy), last


async def _free_parents(
    session: Statements, jobs: Sequence[Job]
) -> tuple[dict[str, State], set[str]]:
    """Lock what jobs wait for; return the states, and which ones others have locked.

    A job with a locked one in its family counts as locked where FAN_IN is about it.
    """
    states: dict[str, State] = {}
    busy: set[str] = set()
    roots = _roots(jobs)
    families: Sequence[tuple[str, str]] = []
    wanted = {parent for job in jobs for parent in job.depends_on}
    while wanted:
        there = {id_ for id_, *_ in await seen(session, wanted)}
        states |= await _locked(session, "parents_free", wanted)
        busy |= there - states.keys()
        families = await _spawned(session, roots)
        wanted = {id_ for _, id_ in families} - states.keys() - busy
    return states, busy | {root for root, id_ in families if id_ in busy}


async def _locked(session: Statements, how: str, ids: Iterable[str]) -> dict[str, State]:
    wanted = sorted(ids)
    if not wanted:
        return {}
    rows = await session.run(how, {"id": Texts(wanted)})
    return {id_: State(state) for id_, _, state in rows}


def _roots(jobs: Sequence[Job]) -> set[str]:
    """The jobs of which FAN_IN waits for the whole family."""
    return {p for j in jobs if j.dependency_kind is DependencyKind.FAN_IN for p in j.depends_on}


async def _spawned(session: Statements, roots: Iterable[str]) -> list[tuple[str, str]]:
    wanted = sorted(roots)
    rows = await session.run("spawned", {"id": Texts(wanted)}) if wanted else []
    return [(root, id_) for root, id_ in rows]


async def _pairs(session: Statements, fresh: Sequence[Job]) -> list[tuple[str, str]]:
    fan_in = {job.id for job in fresh if job.dependency_kind is DependencyKind.FAN_IN}
    families = defaultdict(list)
    for root, id_ in await _spawned(session, _roots(fresh)):
        families[root].append(id_)
    waiting = await _waiting_fan_in(session, {job.spawned_by for job in fresh if job.spawned_by})
    pairs: dict[tuple[str, str], None] = {}
    for job in fresh:
        for parent in job.depends_on:
            pairs[job.id, parent] = None
            if job.id in fan_in:
                pairs.update(((job.id, spawned), None) for spawned in families[parent])
        for child in waiting.get(job.spawned_by, ()):
            pairs[child, job.id] = None
            waiting[job.id].append(child)
    return list(pairs)


async def _waiting_fan_in(
    session: Statements, spawners: Iterable[str]
) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    wanted = sorted(spawners)
    if wanted:
        for parent, child in await session.run("fan_in", {"id": Texts(wanted)}):
            found[parent].append(child)
    return found
