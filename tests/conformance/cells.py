"""What the matrix does to the world of all situations: every verb, with every kind of fence.

A cell acts on a world and returns what the store answered; errors count as answers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import HoldfastError, IllegalTransitionError
from holdfast.form import Spawner
from holdfast.job import DependencyKind, Job, LogLine, Progress, State
from holdfast.policy import Retention
from holdfast.store import Change, Claim, Fence, LimitRule, Note
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, TICK, job_id, make
from tests.conformance.situations import QUEUES
from tests.conformance.world import RULES, held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.conformance.world import World

    Cell = Callable[[World], Awaitable[object]]

STRANGER = job_id("nobody")
SECOND = timedelta(seconds=1)
CELLS: dict[str, Cell] = {}


def _cell(name: str) -> Callable[[Cell], Cell]:
    def keep(cell: Cell) -> Cell:
        assert name not in CELLS
        CELLS[name] = cell
        return cell

    return keep


# --- fences ---------------------------------------------------------------------------------

FENCES: dict[str, Callable[[Job], Fence]] = {
    "good": held,
    "stale": lambda job: Fence(job.id, "token at 00:56:40"),
    "empty": lambda job: Fence(job.id, ""),
    "missing": lambda job: Fence(STRANGER, held(job).token),
}


def _forged(job: Job) -> Job:
    return replace(job, lease=replace(job.lease, token="forged")) if job.lease else job


BEFORES: dict[str, Callable[[Job], Job]] = {
    "good": lambda job: job,
    "stale": lambda job: replace(job, revision=job.revision - 1),
    "ahead": lambda job: replace(job, revision=job.revision + 1),
    "forged": _forged,
    "missing": lambda job: replace(job, id=STRANGER),
}


# --- submitting -----------------------------------------------------------------------------


@_cell("add: every job again")
async def _(world: World) -> object:
    return await world.store.add(list(world.submitted.values()))


@_cell("add: every job again in one call with itself")
async def _(world: World) -> object:
    jobs = [make(f"twin {n}", now=world.now, idempotency_key=f"twin {n // 2}") for n in range(4)]
    return await world.store.add([jobs[0], jobs[0], jobs[1], jobs[2], jobs[2], jobs[3], jobs[0]])


def _rivals(world: World, payload: object = None) -> list[Job]:
    """A new job for every key in use, with the same payload unless another is given."""
    return [
        make(
            f"rival of {label}",
            now=world.now,
            type=job.type,
            payload={"label": label} if payload is None else payload,
            idempotency_key=job.idempotency_key,
        )
        for label, job in world.submitted.items()
        if job.idempotency_key
    ]


@_cell("add: keys in use, same payload")
async def _(world: World) -> object:
    return await world.store.add(_rivals(world))


@_cell("add: keys in use, other payload")
async def _(world: World) -> object:
    return await world.store.add(_rivals(world, [1]))


@_cell("add: keys in use, other payload, not atomic")
async def _(world: World) -> object:
    mixed = [*_rivals(world, [1])[:2], *_rivals(world)[2:], make("fresh", now=world.now)]
    return await world.store.add(mixed, atomic=False)


@_cell("add: dependents of duplicates")
async def _(world: World) -> object:
    rivals = _rivals(world)
    children = [
        make(f"child of {rival.type}", now=world.now, after=[rival, rivals[0]]) for rival in rivals
    ]
    return await world.store.add([*rivals, *children])


def _dependents(world: World, kind: DependencyKind) -> list[Job]:
    """A new dependent of every job."""
    return [
        make(f"new after {label}", now=world.now, after=[job], dependency_type=kind, queue="side")
        for label, job in world.submitted.items()
    ]


def _dependents_of_all(kind: DependencyKind) -> None:
    @_cell(f"add: a dependent of every job, {kind}")
    async def _(world: World) -> object:
        return await world.store.add(_dependents(world, kind))


for _kind in DependencyKind:
    if _kind is not DependencyKind.FAN_OUT:
        _dependents_of_all(_kind)


def _broken(world: World) -> list[Job]:
    gone = make("gone", now=world.now)
    orphan = make("orphan", now=world.now, after=[gone, world.submitted["done"]])
    grandchild = make("grandchild", now=world.now, after=[orphan])
    return [make("fine", now=world.now), orphan, grandchild, world.submitted["ready"]]


@_cell("add: missing dependency, atomic")
async def _(world: World) -> object:
    return await world.store.add(_broken(world))


@_cell("add: missing dependency, not atomic")
async def _(world: World) -> object:
    return await world.store.add(_broken(world), atomic=False)


def _spawn_cell(fence: str) -> None:
    @_cell(f"add: spawned by every job, {fence} fence")
    async def _(world: World) -> object:
        answers: list[object] = []
        for job in await world.jobs():
            new = make(f"child of {job.id}", now=world.now, spawner=Spawner(job.id, "k"))
            try:
                answers.append(await world.store.add([new], fence=FENCES[fence](job)))
            except HoldfastError as error:
                answers.append(repr(error))
        return answers


for _fence in FENCES:
    _spawn_cell(_fence)


@_cell("add: spawned jobs and those who wait for them, in one call")
async def _(world: World) -> object:
    (spawner,) = await world.store.get([job_id("spawner")])
    assert spawner is not None
    jobs = []
    for n in range(3):
        jobs.append(make(f"spawned {n}", now=world.now, spawner=Spawner(spawner.id, f"s{n}")))
        jobs.append(make(f"waits {n}", now=world.now, after=[spawner], dependency_type="FAN_IN"))
    return await world.store.add(jobs, fence=held(spawner))


@_cell("swap: a dependency and its dependents in one call")
async def _(world: World) -> object:
    jobs = {job.id: job for job in await world.jobs()}
    names = ["parent", "after", "any", "after.two", "parent.ready", "chain", "after.mixed"]
    chosen = [jobs[job_id(name)] for name in names]
    return await world.store.swap([Change(j, DECISIONS["stop"](j, world.now)) for j in chosen])


# --- working --------------------------------------------------------------------------------


def _want(
    limit: int = MANY,
    queues: Sequence[str] = QUEUES,
    types: tuple[str, ...] | None = None,
) -> Claim:
    return Claim(queues=tuple(queues), limit=limit, worker="wx", token="tx", types=types)


@_cell("claim: everything")
async def _(world: World) -> object:
    return await world.store.claim(_want())


@_cell("claim: one after another, queues backwards")
async def _(world: World) -> object:
    want = _want(1, QUEUES[::-1])
    return [await world.store.claim(want) for _ in range(len(world.submitted))]


@_cell("claim: three of one queue")
async def _(world: World) -> object:
    return await world.store.claim(_want(3, ["main"]))


@_cell("claim: some types")
async def _(world: World) -> object:
    return await world.store.claim(_want(types=("ready.low", "keyed.work", "ready.lapsed")))


@_cell("claim: after promotion")
async def _(world: World) -> object:
    return [await world.store.promote(MANY), await world.store.claim(_want())]


@_cell("claim: without limits, after promotion")
async def _(world: World) -> object:
    for scope in RULES:
        await world.store.limit(scope, None)
    few = _want(4, ["main", "aged", "paused"])
    return [
        await world.store.claim(few),
        await world.store.promote(MANY),
        await world.store.claim(_want(types=("delayed", "ready.retried", "keyed.work"))),
        await world.store.claim(_want()),
    ]


def _changes(world: World, jobs: Sequence[Job], decision: str, before: str) -> list[Change]:
    """Every change of this kind that the lifecycle allows, decided on a true or false job."""
    changes = []
    for job in map(BEFORES[before], jobs):
        try:
            changes.append(Change(job, DECISIONS[decision](job, world.now)))
        except IllegalTransitionError:
            continue
    return changes


def _swap_cell(decision: str, before: str) -> None:
    @_cell(f"swap: {decision}, {before} before")
    async def _(world: World) -> object:
        return await world.store.swap(_changes(world, await world.jobs(), decision, before))


for _decision in DECISIONS:
    _swap_cell(_decision, "good")
for _decision in ("complete", "cancel", "answer_late", "reopen", "release"):
    for _before in BEFORES:
        if _before != "good":
            _swap_cell(_decision, _before)


def _until_cell(name: str, shift: timedelta) -> None:
    @_cell(f"swap: lapse, {name} end of lease")
    async def _(world: World) -> object:
        changes = _changes(world, await world.jobs(), "lapse", "good")
        ends = [c.before.lease.until if c.before.lease else None for c in changes]
        told = [
            replace(c, until=end + shift if end else None)
            for c, end in zip(changes, ends, strict=True)
        ]
        return await world.store.swap(told)


_until_cell("true", timedelta(0))
_until_cell("older", -TICK)


@_cell("swap: until given for jobs without a lease")
async def _(world: World) -> object:
    changes = _changes(world, await world.jobs(), "cancel", "good")
    return await world.store.swap([replace(c, until=world.now) for c in changes])


@_cell("swap: the same job twice in one call")
async def _(world: World) -> object:
    changes = _changes(world, await world.jobs(), "cancel_by_force", "good")
    return await world.store.swap([c for change in changes for c in (change, change)])


@_cell("swap: cannot touch what was fixed at submission")
async def _(world: World) -> object:
    changes = _changes(world, await world.jobs(), "complete", "good")
    forged = [
        replace(
            c,
            after=replace(
                c.after, payload=b"other", checkpoint=b"other", progress=None, depends_on=()
            ),
        )
        for c in changes
    ]
    return await world.store.swap(forged)


def _extend_cell(fence: str) -> None:
    @_cell(f"extend: {fence} fence")
    async def _(world: World) -> object:
        return await world.store.extend([FENCES[fence](job) for job in await world.jobs()])


def _note_cell(fence: str) -> None:
    @_cell(f"note: {fence} fence")
    async def _(world: World) -> object:
        fences = [FENCES[fence](job) for job in await world.jobs()]
        progress = Progress(90, "nearly", world.now)
        line = LogLine(world.now, "warning", "careful", 7, {"a": "b"})
        return [
            await world.store.note([Note(fence=f, progress=progress) for f in fences]),
            await world.store.note([Note(fence=f, checkpoint=b"", log=line) for f in fences]),
        ]


for _fence in FENCES:
    _extend_cell(_fence)
    _note_cell(_fence)


@_cell("swap: lapse after a heartbeat came in between")
async def _(world: World) -> object:
    jobs = await world.jobs()
    changes = _changes(world, jobs, "lapse", "good")
    ends = [c.before.lease.until if c.before.lease else None for c in changes]
    beats = await world.store.extend([held(job) for job in jobs])
    lapses = [replace(c, until=end) for c, end in zip(changes, ends, strict=True)]
    return [beats, await world.store.swap(lapses)]


# --- maintenance ----------------------------------------------------------------------------


def _promote_cell(limit: int) -> None:
    @_cell(f"promote: at most {limit}")
    async def _(world: World) -> object:
        return [await world.store.promote(limit), await world.store.promote(0)]


for _limit in (0, 1, 3, MANY):
    _promote_cell(_limit)


@_cell("overdue and dependents: a few at a time")
async def _(world: World) -> object:
    return [
        len(await world.store.overdue(2)),
        len(await world.store.overdue(0)),
        await world.store.dependents(3),
        await world.store.dependents(0),
    ]


def _retention_cell(name: str, retention: Retention, limit: int) -> None:
    @_cell(f"prune: {name}")
    async def _(world: World) -> object:
        return [await world.store.prune(retention, limit), await world.store.prune(retention, 1)]


_AGE = 100 * SECOND
_retention_cell("after 100 s", Retention(**dict.fromkeys(Retention.__struct_fields__, _AGE)), MANY)
_retention_cell("never", Retention(**dict.fromkeys(Retention.__struct_fields__)), MANY)
_retention_cell(
    "at once, three",
    Retention(**dict.fromkeys(Retention.__struct_fields__, timedelta(0))),
    3,
)
_retention_cell("only dead", Retention(completed=None, dead_letter=_AGE, cancelled=_AGE), MANY)


@_cell("delete: everything")
async def _(world: World) -> object:
    ids = [*map(job_id, world.submitted), STRANGER, job_id("done.empty")]
    return await world.store.delete(ids)


@_cell("delete: everything, then add the keys again")
async def _(world: World) -> object:
    await world.store.delete(list(map(job_id, world.submitted)))
    return await world.store.add(_rivals(world, [2]), atomic=False)


@_cell("hold: by the holder and by another")
async def _(world: World) -> object:
    store = world.store
    return [
        await store.hold("leader", "w2", SECOND, b"x"),
        await store.hold("leader", "w1", 2 * SECOND, b"y"),
        await store.holds("lead"),
        await store.hold("leader.b", "w3", SECOND),
        await store.hold("leader", "w1", timedelta(0)),
        await store.hold("leader", "w4", SECOND),
        await store.holds("leader"),
        await store.holds("x"),
    ]


@_cell("configure: pause, resume, age")
async def _(world: World) -> object:
    store = world.store
    await store.configure("main", {"paused": True})
    await store.configure("paused", {"paused": False})
    await store.configure("aged", {"ageing": None})
    await store.configure("side", {"ageing": SECOND})
    await store.configure("new", {"paused": True})
    return [await store.promote(MANY), await store.claim(_want())]


@_cell("limit: tighten, loosen and lift")
async def _(world: World) -> object:
    store = world.store
    await store.limit("queue:main", LimitRule(concurrency=2))
    await store.limit("task:ready.side", LimitRule(rate=0, per=SECOND))
    await store.limit("queue:rated", LimitRule(rate=3, per=SECOND))
    await store.limit("queue:narrow", None)
    await store.limit("key:keyed.work", LimitRule(concurrency=2))
    return [await store.claim(_want()), await store.limits()]


@_cell("limit: lifted and set again")
async def _(world: World) -> object:
    for scope in ("queue:rated", "key:keyed.work"):
        await world.store.limit(scope, None)
        await world.store.limit(scope, LimitRule(rate=2, per=SECOND))
    return [await world.store.limits(), await world.store.claim(_want())]


# --- whole paths ----------------------------------------------------------------------------


@_cell("paths: all that runs completes, then what waited for it is judged")
async def _(world: World) -> object:
    answers: list[object] = []
    for _ in range(3):
        answers.append(await world.store.promote(MANY))
        answers.append(await world.store.claim(_want()))
        changes = _changes(world, await world.jobs(), "complete", "good")
        answers.append(await world.store.swap(changes))
        ripe = await world.store.dependents(MANY)
        answers.append(ripe)
        freed = [Change(d.job, DECISIONS["let_run"](d.job, world.now)) for d in ripe]
        answers.append(await world.store.swap(freed))
    return answers


@_cell("paths: all that is overdue lapses, then the old holders answer")
async def _(world: World) -> object:
    store = world.store
    before = await world.jobs()
    overdue = [job for job in await store.overdue(MANY) if job.state is State.RUNNING]
    overdue.sort(key=lambda job: job.type)
    lapses = _changes(world, overdue, "lapse", "good")
    late = _changes(world, before, "complete", "good")
    return [
        await store.swap(lapses),
        await store.swap(late),
        await store.note([Note(fence=held(job), checkpoint=b"late") for job in before]),
        await store.extend([held(job) for job in before]),
        await store.swap(_changes(world, await world.jobs(), "answer_late", "good")),
    ]


@_cell("paths: ended jobs are reopened at another priority and run again")
async def _(world: World) -> object:
    store = world.store
    answers = [await store.swap(_changes(world, await world.jobs(), "reopen_reset", "good"))]
    answers.append(await store.claim(_want(types=("failed", "dead", "dead.expired"))))
    answers.append(await store.swap(_changes(world, await world.jobs(), "refuse", "good")))
    return answers
