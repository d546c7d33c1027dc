"""Cells that go through several verbs in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.job import State
from holdfast.store import Change, JobNote
from tests.conformance.cells.cell import cell, changes_of, want
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY
from tests.conformance.world import held

if TYPE_CHECKING:
    from tests.conformance.world import World


@cell("paths: all that runs completes, then what waited for it is judged")
async def _(world: World) -> object:
    answers: list[object] = []
    for _ in range(3):
        answers.append(await world.store.promote(MANY))
        answers.append(await world.store.claim(want()))
        changes = changes_of(world, await world.jobs(), "complete", "good")
        answers.append(await world.store.swap(changes))
        has_dependents = await world.store.dependents(MANY)
        answers.append(has_dependents)
        freed = [Change(d.job, DECISIONS["let_run"](d.job, world.now)) for d in has_dependents]
        answers.append(await world.store.swap(freed))
    return answers


@cell("paths: all that is overdue lapses, then the old holders answer")
async def _(world: World) -> object:
    store = world.store
    before = await world.jobs()
    overdue = [job for job in await store.overdue(MANY) if job.state is State.RUNNING]
    overdue.sort(key=lambda job: job.type)
    lapses = changes_of(world, overdue, "lapse", "good")
    late = changes_of(world, before, "complete", "good")
    return [
        await store.swap(lapses),
        await store.swap(late),
        await store.note([JobNote(fence=held(job), checkpoint=b"late") for job in before]),
        await store.extend([held(job) for job in before]),
        await store.swap(changes_of(world, await world.jobs(), "answer_late", "good")),
    ]


@cell("paths: ended jobs are reopened at another priority and run again")
async def _(world: World) -> object:
    store = world.store
    answers = [await store.swap(changes_of(world, await world.jobs(), "reopen_reset", "good"))]
    answers.append(await store.claim(want(types=("failed", "dead", "dead.expired"))))
    answers.append(await store.swap(changes_of(world, await world.jobs(), "refuse", "good")))
    return answers
