"""The workflow around a job: what it depends on, what it spawned, and what waits for them.

Jobs of one type, in one queue, with the same parents become one node with counts. Of such jobs only
some are asked what follows them, so that a fan-out of a thousand costs a few reads.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

import msgspec
from msgspec.structs import replace

from holdfast.errors import NotFoundError
from holdfast.model.job import Job, State
from holdfast.model.policy import MEBIBYTE
from holdfast.store import Store

MOST_JOBS = 2000
"""Jobs that one graph reads."""
MOST_LINKS = 20_000
"""Dependencies of all jobs of a graph: a thousand jobs may have a thousand each."""
FIRST_READ = 8
MOST_READ = 500
READ_BYTES = 4 * MEBIBYTE
"""Bytes of jobs that are read at a time, by those before."""
LINK_BYTES = 100
FOLLOWED = 20
"""Jobs of one kind that are asked what follows them."""
SHOWN_IDS = 100
"""Ids that one node names."""


class EdgeKind(StrEnum):
    """Why there is an edge."""

    DEPENDS = "depends"
    SPAWNED = "spawned"


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are alike: one, or many siblings."""

    id: str
    """The id of the first of its jobs."""
    type: str
    queue: str
    count: int
    states: Mapping[State, int]
    job_ids: tuple[str, ...]
    """The ids of the first hundred."""
    current: bool = False
    """Whether the job that was asked for is among them."""


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """From a node to one that follows it."""

    source: str
    target: str
    kind: EdgeKind


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow of a job; nodes in an order in which they can run."""

    job_id: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    jobs: int
    truncated: bool = False
    """Whether there are more jobs than a graph reads."""


async def graph(store: Store, job_id: str, *, collapse: bool = True) -> JobGraph:
    """Return the workflow around a job; NotFoundError when there is no such job."""
    jobs, truncated = await _collected(store, job_id)
    if job_id not in jobs:
        raise NotFoundError(job_id)
    ordered = _ordered(jobs)
    groups = _grouped(ordered, jobs) if collapse else {job.id: job.id for job in ordered}
    members: defaultdict[str, list[Job]] = defaultdict(list)
    for job in ordered:
        members[groups[job.id]].append(job)
    nodes = tuple(_node(each, job_id) for each in members.values())
    edges = {
        (groups[parent], groups[job.id], kind)
        for job in ordered
        for parent, kind in _parents(job, jobs)
        if groups[parent] != groups[job.id]
    }
    return JobGraph(
        job_id=job_id,
        nodes=nodes,
        edges=tuple(GraphEdge(source=s, target=t, kind=k) for s, t, k in sorted(edges)),
        jobs=len(jobs),
        truncated=truncated,
    )


async def _collected(store: Store, job_id: str) -> tuple[dict[str, Job], bool]:
    """Read the jobs around one, nearest first."""
    jobs: dict[str, Job] = {}
    reading, asked = _Reading(store), Counter[object]()
    wanted, seen = [job_id], {job_id}
    while wanted:
        room = MOST_JOBS - len(jobs)
        found = await reading.read(wanted[:room])
        jobs |= {job.id: job for job in found}
        if len(wanted) >= room or reading.links >= MOST_LINKS:
            return jobs, True
        nearby: dict[str, None] = {}
        for job in found:
            nearby |= dict.fromkeys(filter(None, (*job.depends_on, job.spawned_by)))
        followed = _some_of_each_kind(found, asked)
        for ids in await asyncio.gather(*(_following(store, job.id) for job in followed)):
            nearby |= dict.fromkeys(ids)
        wanted = [each for each in nearby if each not in seen]
        seen.update(wanted)
    return jobs, False


class _Reading:
    """Reads jobs without keeping their contents, some megabytes at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._step = FIRST_READ
        self.links = 0
        """Dependencies of the jobs that were read."""

    async def read(self, ids: Sequence[str]) -> list[Job]:
        """Return jobs until they have too many dependencies."""
        found: list[Job] = []
        at = 0
        while at < len(ids) and self.links < MOST_LINKS:
            some = ids[at : at + self._step]
            jobs = [job for job in await self._store.get(some) if job is not None]
            self._adapt(len(some), sum(map(_size, jobs)))
            found += (self._counted(job) for job in jobs if self.links < MOST_LINKS)
            at += len(some)
        return found

    def _adapt(self, count: int, size: int) -> None:
        """Read fewer at a time when these were large, more when they were many and small."""
        if size > READ_BYTES:
            self._step = max(1, count * READ_BYTES // size)
        elif count == self._step:
            self._step = min(MOST_READ, 2 * self._step)

    def _counted(self, job: Job) -> Job:
        self.links += len(job.depends_on)
        return replace(job, payload=b"", result=None, checkpoint=None)


def _size(job: Job) -> int:
    contents = len(job.payload) + len(job.result or b"") + len(job.checkpoint or b"")
    return contents + LINK_BYTES * len(job.depends_on)


def _some_of_each_kind(jobs: Iterable[Job], asked: Counter[object]) -> list[Job]:
    chosen = []
    for job in jobs:
        kind = (job.type, job.queue, job.depends_on, job.spawned_by)
        asked[kind] += 1
        if asked[kind] <= FOLLOWED:
            chosen.append(job)
    return chosen


async def _following(store: Store, job_id: str) -> list[str]:
    return [*await store.children(job_id), *await store.children(job_id, waiting=True)]


def _parents(job: Job, jobs: Mapping[str, Job]) -> list[tuple[str, EdgeKind]]:
    named = [(parent, EdgeKind.DEPENDS) for parent in job.depends_on if parent in jobs]
    if job.spawned_by in jobs:
        named.append((job.spawned_by, EdgeKind.SPAWNED))
    return named


def _ordered(jobs: Mapping[str, Job]) -> list[Job]:
    """Parents first; foreign writers may have linked jobs in a circle."""
    known = {each.id: {parent for parent, _ in _parents(each, jobs)} for each in jobs.values()}
    try:
        return [jobs[each] for each in TopologicalSorter(known).static_order()]
    except CycleError:
        return sorted(jobs.values(), key=lambda job: (job.created_at, job.id))


def _grouped(ordered: Sequence[Job], jobs: Mapping[str, Job]) -> dict[str, str]:
    """The node of each job: that of the first one with its type, queue and parents' nodes."""
    groups: dict[str, str] = {}
    first: dict[object, str] = {}
    for job in ordered:
        parents = frozenset((groups.get(p, p), kind) for p, kind in _parents(job, jobs))
        kind = (job.type, job.queue, parents)
        groups[job.id] = first.setdefault(kind, job.id)
    return groups


def _node(jobs: Sequence[Job], current: str) -> GraphNode:
    return GraphNode(
        id=jobs[0].id,
        type=jobs[0].type,
        queue=jobs[0].queue,
        count=len(jobs),
        states=dict(Counter(job.state for job in jobs)),
        job_ids=tuple(job.id for job in jobs[:SHOWN_IDS]),
        current=any(job.id == current for job in jobs),
    )
