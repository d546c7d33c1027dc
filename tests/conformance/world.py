"""Builds the world of all situations in a store, step by step along their timeline.

Doing so on two stores gives the same jobs; what the stores answered on the way is kept too.
"""

from __future__ import annotations

import functools
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.model.job import Job, LogLine, Progress
from holdfast.model.submission import Spawner
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim, Fence, JobNote, LimitRule, MemoryStore
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import MANY, job_id, make
from tests.conformance.situations import QUEUES, SITUATIONS, SUBMITTED, Situation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store import Store

DEADLINE = datetime(2026, 1, 1, 1, tzinfo=UTC)
PROMOTED = (-150, -60)
"""When due jobs are promoted while the world is built; later ones stay unpromoted."""
LABELS = {job_id(situation.label): situation.label for situation in SITUATIONS}

SETTINGS = {
    "paused": {"paused": True},
    "aged": {"ageing": timedelta(seconds=100)},
    "side": {"paused": True, "ageing": timedelta(hours=1)},
}
RULES = {
    "queue:narrow": LimitRule(concurrency=1),
    "key:keyed.work": LimitRule(concurrency=1, rate=2, per=timedelta(seconds=10), burst=2),
    "queue:rated": LimitRule(rate=2, per=timedelta(seconds=20), burst=2),
    "task:rated.waiting": LimitRule(concurrency=5),
}


class World:
    """One store with every situation in it, at some instant."""

    def __init__(self, open_store: Callable[[ManualClock], Store]) -> None:
        self.clock = ManualClock()
        self.store = open_store(self.clock)
        self.submitted = {situation.label: made(situation.label) for situation in SITUATIONS}
        self.answers: list[object] = []

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def build(self) -> None:
        """Run the whole timeline."""
        self.clock.set(DEADLINE + timedelta(seconds=SUBMITTED))
        for queue, settings in SETTINGS.items():
            await self.store.configure(queue, settings)
        await self.store.configure("side", {"paused": False})
        for scope, rule in RULES.items():
            await self.store.limit(scope, rule)
        times = {s.submitted for s in SITUATIONS} | {at for s in SITUATIONS for at, _ in s.steps}
        for at in sorted(times | set(PROMOTED) | {-20}):
            self.clock.set(DEADLINE + timedelta(seconds=at))
            if at in PROMOTED:
                self.answers.append(await self.store.promote(MANY))
            await self._submit([s for s in SITUATIONS if s.submitted == at])
            for step in dict.fromkeys(name for s in SITUATIONS for t, name in s.steps if t == at):
                await self._step(step, [s for s in SITUATIONS if (at, step) in s.steps])
            if at == -20:
                self.answers.append(
                    await self.store.lock("leader", "w1", timedelta(seconds=20), b"a\x00")
                )

    async def jobs(self) -> list[Job]:
        """Every job as it is now, in order of submission."""
        found = await self.store.get([job_id(situation.label) for situation in SITUATIONS])
        return [job for job in found if job is not None]

    async def _submit(self, submitted: Sequence[Situation]) -> None:
        jobs = [made(situation.label) for situation in submitted]
        self.answers.append(await self.store.add([job for job in jobs if not job.spawned_by]))
        for job in jobs:
            if job.spawned_by:
                (by,) = await self.store.get([job.spawned_by])
                assert by is not None
                self.answers.append(await self.store.add([job], fence=held(by)))

    async def _step(self, name: str, situations: Sequence[Situation]) -> None:
        ids = [job_id(situation.label) for situation in situations]
        if name == "claim":
            await self._claim(situations)
            return
        jobs = [job for job in await self.store.get(ids) if job is not None]
        if name == "extend":
            self.answers.append(await self.store.extend(list(map(held, jobs))))
        elif name == "note":
            self.answers.append(await self.store.note([self._note(job) for job in jobs]))
        else:
            decided = [Change(job, DECISIONS[name](job, self.now)) for job in jobs]
            answer = await self.store.swap(decided)
            assert all(each.written for each in answer), (name, situations)
            self.answers.append(answer)

    async def _claim(self, situations: Sequence[Situation]) -> None:
        """Claim just these jobs; those that share a type are distinguished by their place."""
        types = tuple(s.fields.get("type", s.label) for s in situations)
        token = f"token at {self.now:%H:%M:%S}"
        want = Claim(
            queues=QUEUES, limit=len(types), worker=f"w{len(types)}", token=token, types=types
        )
        taken = await self.store.claim(want)
        assert {job_id(s.label) for s in situations} == {job.id for job in taken}
        self.answers.append(taken)

    def _note(self, job: Job) -> JobNote:
        percent = 0 if job.progress is None else job.progress.percent + 40
        return JobNote(
            fence=held(job),
            progress=Progress(percent, f"at {percent} \u00fc", self.now),
            checkpoint=f"checkpoint {percent}".encode() + b"\x00\xff",
            log=LogLine(self.now, "info", f"line {percent}", job.attempt, {"n": str(percent)}),
        )


def held(job: Job) -> Fence:
    """The newest token of a job that was claimed once."""
    return Fence(job.id, job.lease.token if job.lease else "")


@functools.cache
def made(label: str) -> Job:
    """The job of a situation as it was submitted."""
    situation = next(s for s in SITUATIONS if s.label == label)
    by = situation.spawned_by
    return make(
        label,
        now=DEADLINE + timedelta(seconds=situation.submitted),
        after=[made(parent) for parent in situation.after],
        spawner=Spawner(job_id(by), label) if by else None,
        **situation.fields,
    )


def copied(built: MemoryStore, clock: ManualClock) -> MemoryStore:
    """Another memory store with the same jobs, without building them again."""
    store = MemoryStore(clock)
    ours, theirs = vars(store._tables), vars(built._tables)  # to build thousands takes minutes
    ours.update({name: _copied(value) for name, value in theirs.items()})
    return store


def _copied(value: object) -> object:
    """Copy containers, not what is in them: jobs never change."""
    if isinstance(value, dict):
        fresh = copy(value)
        for key, inner in value.items():
            fresh[key] = _copied(inner)
        return fresh
    return copy(value) if isinstance(value, list | set) else value
