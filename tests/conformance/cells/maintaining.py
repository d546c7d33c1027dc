"""Cells of maintenance, settings and limits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.model.policy import Retention
from holdfast.store import LimitRule
from tests.conformance.cells.cell import STRANGER, cell, want
from tests.conformance.cells.submitting import rivals
from tests.conformance.hand import MANY, job_id

if TYPE_CHECKING:
    from tests.conformance.world import World

SECOND = timedelta(seconds=1)


def _promote_cell(limit: int) -> None:
    @cell(f"promote: at most {limit}")
    async def _(world: World) -> object:
        return [await world.store.promote(limit), await world.store.promote(0)]


for _limit in (0, 1, 3, MANY):
    _promote_cell(_limit)


@cell("overdue and dependents: a few at a time")
async def _(world: World) -> object:
    return [
        len(await world.store.overdue(2)),
        len(await world.store.overdue(0)),
        await world.store.dependents(3),
        await world.store.dependents(0),
    ]


def _retention_cell(name: str, retention: Retention, limit: int) -> None:
    @cell(f"prune: {name}")
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


@cell("delete: everything")
async def _(world: World) -> object:
    ids = [*map(job_id, world.submitted), STRANGER, job_id("done.empty")]
    return await world.store.delete(ids)


@cell("delete: everything, then add the keys again")
async def _(world: World) -> object:
    await world.store.delete(list(map(job_id, world.submitted)))
    return await world.store.add(rivals(world, [2]), atomic=False)


@cell("lock: by the holder and by another")
async def _(world: World) -> object:
    store = world.store
    return [
        await store.lock("leader", "w2", SECOND, b"x"),
        await store.lock("leader", "w1", 2 * SECOND, b"y"),
        await store.locks("lead"),
        await store.lock("leader.b", "w3", SECOND),
        await store.lock("leader", "w1", timedelta(0)),
        await store.lock("leader", "w4", SECOND),
        await store.locks("leader"),
        await store.locks("x"),
    ]


@cell("configure: pause, resume, age")
async def _(world: World) -> object:
    store = world.store
    await store.configure("main", {"paused": True})
    await store.configure("paused", {"paused": False})
    await store.configure("aged", {"ageing": None})
    await store.configure("side", {"ageing": SECOND})
    await store.configure("new", {"paused": True})
    return [await store.promote(MANY), await store.claim(want())]


@cell("limit: tighten, loosen and lift")
async def _(world: World) -> object:
    store = world.store
    await store.limit("queue:main", LimitRule(concurrency=2))
    await store.limit("task:ready.side", LimitRule(rate=0, per=SECOND))
    await store.limit("queue:rated", LimitRule(rate=3, per=SECOND, burst=3))
    await store.limit("queue:narrow", None)
    await store.limit("key:keyed.work", LimitRule(concurrency=2))
    return [await store.claim(want()), await store.limits()]


@cell("limit: lifted and set again")
async def _(world: World) -> object:
    for scope in ("queue:rated", "key:keyed.work"):
        await world.store.limit(scope, None)
        await world.store.limit(scope, LimitRule(rate=7, per=SECOND, burst=2))
    return [await world.store.limits(), await world.store.claim(want())]
