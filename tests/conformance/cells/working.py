"""Cells of ``claim``, ``swap``, ``amend``, ``extend`` and ``note``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.model.job import LogLine, Progress
from holdfast.store import Change, JobNote
from tests.conformance.cells.cell import BEFORES, FENCES, cell, changes_of, want
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, TICK, job_id
from tests.conformance.situations import QUEUES
from tests.conformance.world import RULES, held

if TYPE_CHECKING:
    from tests.conformance.world import World


@cell("claim: everything")
async def _(world: World) -> object:
    return await world.store.claim(want())


@cell("claim: one after another, queues backwards")
async def _(world: World) -> object:
    one = want(1, QUEUES[::-1])
    return [await world.store.claim(one) for _ in range(len(world.submitted))]


@cell("claim: three of one queue")
async def _(world: World) -> object:
    return await world.store.claim(want(3, ["main"]))


@cell("claim: some types")
async def _(world: World) -> object:
    return await world.store.claim(want(types=("ready.low", "keyed.work", "ready.lapsed")))


@cell("claim: after promotion")
async def _(world: World) -> object:
    return [await world.store.promote(MANY), await world.store.claim(want())]


@cell("claim: without limits, after promotion")
async def _(world: World) -> object:
    for scope in RULES:
        await world.store.limit(scope, None)
    few = want(4, ["main", "aged", "paused"])
    return [
        await world.store.claim(few),
        await world.store.promote(MANY),
        await world.store.claim(want(types=("delayed", "ready.retried", "keyed.work"))),
        await world.store.claim(want()),
    ]


@cell("swap: a dependency and its dependents in one call")
async def _(world: World) -> object:
    jobs = {job.id: job for job in await world.jobs()}
    names = ["parent", "after", "any", "after.two", "parent.ready", "chain", "after.mixed"]
    chosen = [jobs[job_id(name)] for name in names]
    return await world.store.swap([Change(j, DECISIONS["stop"](j, world.now)) for j in chosen])


def _amend_cell(fields: dict[str, Any], before: str) -> None:
    @cell(f"amend: {', '.join(fields)}, {before} before")
    async def _(world: World) -> object:
        jobs = map(BEFORES[before], await world.jobs())
        return await world.store.amend(
            [Change(job, replace(job, revision=job.revision + 1, **fields)) for job in jobs]
        )


for _before in BEFORES:
    _amend_cell({"priority": 1}, _before)
    _amend_cell({"due_at": datetime(2030, 1, 1, tzinfo=UTC)}, _before)
    _amend_cell({"tags": {"new": "1"}, "correlation_id": "c", "callback_url": "http://x"}, _before)


def _swap_cell(decision: str, before: str) -> None:
    @cell(f"swap: {decision}, {before} before")
    async def _(world: World) -> object:
        return await world.store.swap(changes_of(world, await world.jobs(), decision, before))


for _decision in DECISIONS:
    _swap_cell(_decision, "good")
for _decision in ("complete", "cancel", "answer_late", "reopen", "release"):
    for _before in BEFORES:
        if _before != "good":
            _swap_cell(_decision, _before)


def _until_cell(name: str, shift: timedelta) -> None:
    @cell(f"swap: lapse, {name} end of lease")
    async def _(world: World) -> object:
        changes = changes_of(world, await world.jobs(), "lapse", "good")
        ends = [c.before.lease.until if c.before.lease else None for c in changes]
        changes = [
            replace(c, until=end + shift if end else None)
            for c, end in zip(changes, ends, strict=True)
        ]
        return await world.store.swap(changes)


_until_cell("true", timedelta(0))
_until_cell("older", -TICK)


@cell("swap: until given for jobs without a lease")
async def _(world: World) -> object:
    changes = changes_of(world, await world.jobs(), "cancel", "good")
    return await world.store.swap([replace(c, until=world.now) for c in changes])


@cell("swap: the same job twice in one call")
async def _(world: World) -> object:
    changes = changes_of(world, await world.jobs(), "cancel_by_force", "good")
    return await world.store.swap([c for change in changes for c in (change, change)])


@cell("swap: cannot touch what was fixed at submission")
async def _(world: World) -> object:
    changes = changes_of(world, await world.jobs(), "complete", "good")
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
    @cell(f"extend: {fence} fence")
    async def _(world: World) -> object:
        return await world.store.extend([FENCES[fence](job) for job in await world.jobs()])


def _note_cell(fence: str) -> None:
    @cell(f"note: {fence} fence")
    async def _(world: World) -> object:
        fences = [FENCES[fence](job) for job in await world.jobs()]
        progress = Progress(90, "nearly", world.now)
        line = LogLine(world.now, "warning", "careful", 7, {"a": "b"})
        return [
            await world.store.note([JobNote(fence=f, progress=progress) for f in fences]),
            await world.store.note([JobNote(fence=f, checkpoint=b"", log=line) for f in fences]),
            await world.store.note([JobNote(fence=f, payload=b"[7]") for f in fences]),
        ]


for _fence in FENCES:
    _extend_cell(_fence)
    _note_cell(_fence)


@cell("swap: lapse after a heartbeat came in between")
async def _(world: World) -> object:
    jobs = await world.jobs()
    changes = changes_of(world, jobs, "lapse", "good")
    ends = [c.before.lease.until if c.before.lease else None for c in changes]
    renewals = await world.store.extend([held(job) for job in jobs])
    lapses = [replace(c, until=end) for c, end in zip(changes, ends, strict=True)]
    return [renewals, await world.store.swap(lapses)]
