"""The links from dependents to the jobs they wait for.

A submission locks the jobs it depends on, so that none ends unseen. In a caller's transaction,
which may stay open for long, it locks none: it writes pending links, which ``promote`` turns into
real ones after the commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from holdfast.model.dependencies import ENDED_SUFFICES
from holdfast.model.job import TERMINAL, DependencyKind, Job, State
from holdfast.store.postgres.arrays import Flags, Longs, Texts
from holdfast.store.postgres.connection import StatementRunner
from holdfast.store.postgres.params import kind_value
from holdfast.store.postgres.rows import WIDTH, job_of


class Parents(msgspec.Struct, frozen=True):
    """The states of jobs that others depend on, and the numbers of those that are not locked."""

    states: dict[str, State]
    numbers: dict[str, int] = {}
    outside: set[str] = set()
    """Those that are not of this transaction: their state may change meanwhile."""


async def lock_parents(
    session: StatementRunner, jobs: Sequence[Job], ids: Iterable[str]
) -> Parents:
    """Lock jobs that others will depend on; with FAN_IN also what they spawned."""
    states = await _locked(session, "parents_lock", ids)
    roots = _roots(jobs)
    while family := {id_ for _, id_ in await _spawned(session, roots)} - states.keys():
        states |= await _locked(session, "parents_lock", family)
    return Parents(states)


async def read_parents(session: StatementRunner, _: Sequence[Job], ids: Iterable[str]) -> Parents:
    """Read jobs that others will depend on, and whether they are of this transaction."""
    rows = await parent_rows(session, ids)
    return Parents(
        {id_: State(state) for id_, _, state, *_ in rows},
        {id_: number for id_, number, *_ in rows},
        {id_ for id_, *_, is_new in rows if not is_new},
    )


async def parent_rows(
    session: StatementRunner, ids: Iterable[str]
) -> Sequence[tuple[str, int, str, int, int, bool]]:
    """Return id, number, state, priority, depth of jobs, and whether each is new here."""
    wanted = sorted(ids)
    return await session.run("parents_read", {"id": Texts(wanted)}) if wanted else []


async def link(
    session: StatementRunner, fresh: Sequence[Job], states: Mapping[str, State]
) -> set[str]:
    """Write links; return the dependents of which a dependency has already ended."""
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


async def wait_again(session: StatementRunner, job: Job, states: Mapping[str, State]) -> bool:
    """Open the dependencies of a retried job again; return whether a verdict may be due."""
    known = replace(job, depends_on=tuple(parent for parent in job.depends_on if parent in states))
    await link(session, [known], states)
    await session.run("pending_remove", {"child": Texts([job.id])})
    eager = job.dependency_kind is DependencyKind.AFTER_ANY
    lenient = job.dependency_kind in ENDED_SUFFICES
    params = {"child": job.id, "eager": eager, "lenient": lenient}
    ((is_due,),) = await session.run("wait_again", params)
    return bool(is_due)


async def children_of(session: StatementRunner, job_id: str) -> set[str]:
    """Return the jobs that a job spawned."""
    return {id_ for (id_,) in await session.run("children", {"id": job_id})}


async def wait_for_children(session: StatementRunner, job: Job) -> bool:
    """Let a job that ran wait for what it spawned; return whether a verdict may be due."""
    await session.run("pending_remove", {"child": Texts([job.id])})
    is_strict = job.dependency_kind not in ENDED_SUFFICES
    params = {"child": job.id, "kind": kind_value(job), "strict": is_strict}
    ((is_due,),) = await session.run("wait_for_children", params)
    return bool(is_due)


async def add_pending(session: StatementRunner, fresh: Sequence[Job], parents: Parents) -> None:
    """Write pending links, to be turned into real ones once this transaction has committed."""
    pairs = [(job.id, parent) for job in fresh for parent in job.depends_on]
    ends = {id_: state for id_, state in parents.states.items() if state in TERMINAL}
    await session.run(
        "pending_add",
        {
            "child": Texts([child for child, _ in pairs]),
            "name": Texts([parent for _, parent in pairs]),
            "parent": Longs([parents.numbers.get(parent) for _, parent in pairs]),
            "seen": Texts([ends.get(parent) for _, parent in pairs]),
        },
    )


async def link_pending(session: StatementRunner, after: int, limit: int) -> tuple[bool, int | None]:
    """Turn some pending links into real ones, of jobs with a number above ``after``.

    Returns whether the verdict on a dependent may be due soon, and the number to continue after,
    if there may be more. Jobs that depend on a locked one keep their pending links.
    """
    rows = await session.run("pending_list", {"after": after, "limit": limit})
    jobs = [job_of(row[:WIDTH]) for row in rows]
    last = max((row[WIDTH] for row in rows), default=None)
    states, busy = await _free_parents(session, jobs)
    free = [job for job in jobs if busy.isdisjoint(job.depends_on)]
    has_dependents = await link(session, free, states)
    ids = Texts([job.id for job in free])
    deleted = await session.run("pending_remove", {"child": ids}) if free else []
    return bool(has_dependents or deleted or busy), last


async def _free_parents(
    session: StatementRunner, jobs: Sequence[Job]
) -> tuple[dict[str, State], set[str]]:
    """Lock what jobs depend on; return the states, and which ones other transactions lock.

    With FAN_IN a job counts as locked when one that it spawned is locked.
    """
    states: dict[str, State] = {}
    busy: set[str] = set()
    roots = _roots(jobs)
    families: Sequence[tuple[str, str]] = []
    wanted = {parent for job in jobs for parent in job.depends_on}
    while wanted:
        existing = {id_ for id_, *_ in await parent_rows(session, wanted)}
        states |= await _locked(session, "parents_try_lock", wanted)
        busy |= existing - states.keys()
        families = await _spawned(session, roots)
        wanted = {id_ for _, id_ in families} - states.keys() - busy
    return states, busy | {root for root, id_ in families if id_ in busy}


async def _locked(session: StatementRunner, name: str, ids: Iterable[str]) -> dict[str, State]:
    wanted = sorted(ids)
    if not wanted:
        return {}
    rows = await session.run(name, {"id": Texts(wanted)})
    return {id_: State(state) for id_, _, state in rows}


def _roots(jobs: Sequence[Job]) -> set[str]:
    """Return the jobs for which, and for all that they spawned, a FAN_IN waits."""
    return {p for j in jobs if j.dependency_kind is DependencyKind.FAN_IN for p in j.depends_on}


async def _spawned(session: StatementRunner, roots: Iterable[str]) -> list[tuple[str, str]]:
    wanted = sorted(roots)
    rows = await session.run("spawned", {"id": Texts(wanted)}) if wanted else []
    return [(root, id_) for root, id_ in rows]


async def _pairs(session: StatementRunner, fresh: Sequence[Job]) -> list[tuple[str, str]]:
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
    session: StatementRunner, spawners: Iterable[str]
) -> defaultdict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    wanted = sorted(spawners)
    if wanted:
        for parent, child in await session.run("fan_in", {"id": Texts(wanted)}):
            found[parent].append(child)
    return found
