"""Cells of ``add``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.model.job import DependencyKind, Job
from holdfast.model.submission import Spawner
from tests.conformance.cells.cell import FENCES, cell
from tests.conformance.hand import job_id, make
from tests.conformance.world import held

if TYPE_CHECKING:
    from tests.conformance.world import World


@cell("add: every job again")
async def _(world: World) -> object:
    return await world.store.add(list(world.submitted.values()))


@cell("add: every job again in one call with itself")
async def _(world: World) -> object:
    jobs = [make(f"twin {n}", now=world.now, idempotency_key=f"twin {n // 2}") for n in range(4)]
    return await world.store.add([jobs[0], jobs[0], jobs[1], jobs[2], jobs[2], jobs[3], jobs[0]])


def rivals(world: World, payload: object = None) -> list[Job]:
    """Make a new job for every key in use, with the same payload unless another is given."""
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


@cell("add: keys in use, same payload")
async def _(world: World) -> object:
    return await world.store.add(rivals(world))


@cell("add: keys in use, other payload")
async def _(world: World) -> object:
    return await world.store.add(rivals(world, [1]))


@cell("add: keys in use, other payload, not atomic")
async def _(world: World) -> object:
    mixed = [*rivals(world, [1])[:2], *rivals(world)[2:], make("fresh", now=world.now)]
    return await world.store.add(mixed, atomic=False)


@cell("add: dependents of duplicates")
async def _(world: World) -> object:
    twins = rivals(world)
    children = [
        make(f"child of {twin.type}", now=world.now, after=[twin, twins[0]]) for twin in twins
    ]
    return await world.store.add([*twins, *children])


def _dependents(world: World, kind: DependencyKind) -> list[Job]:
    """A new dependent of every job."""
    return [
        make(f"new after {label}", now=world.now, after=[job], dependency_type=kind, queue="side")
        for label, job in world.submitted.items()
    ]


def _dependents_of_all(kind: DependencyKind) -> None:
    @cell(f"add: a dependent of every job, {kind}")
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


@cell("add: missing dependency, atomic")
async def _(world: World) -> object:
    return await world.store.add(_broken(world))


@cell("add: missing dependency, not atomic")
async def _(world: World) -> object:
    return await world.store.add(_broken(world), atomic=False)


def _spawn_cell(fence: str) -> None:
    @cell(f"add: spawned by every job, {fence} fence")
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


@cell("add: spawned jobs and those who wait for them, in one call")
async def _(world: World) -> object:
    (spawner,) = await world.store.get([job_id("spawner")])
    assert spawner is not None
    jobs = []
    for n in range(3):
        jobs.append(make(f"spawned {n}", now=world.now, spawner=Spawner(spawner.id, f"s{n}")))
        jobs.append(make(f"waits {n}", now=world.now, after=[spawner], dependency_type="FAN_IN"))
    return await world.store.add(jobs, fence=held(spawner))
