"""Runs a task without a queue: with a context that keeps its writes in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TypeVar

import msgspec

from holdfast.errors import DuplicateError, StaleLeaseError
from holdfast.model.acceptance import accept
from holdfast.model.children import ChildJob
from holdfast.model.job import Job, LogLine, Priority, Progress, State
from holdfast.model.lifecycle import claimed
from holdfast.model.submission import Parent, Submission, SubmitOptions, named_jobs
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.job_view import Signals
from holdfast.tasks.registry import Function, is_coroutine
from holdfast.tasks.scope import run_now
from holdfast.tasks.spawning import given_options
from holdfast.tasks.transactions import no_transaction

T = TypeVar("T")

INLINE = "inline"


class InlineSpawn(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a handler spawned while it ran inline."""

    id: str
    type: str
    payload: object
    key: str | None
    options: SubmitOptions


class InlineChannel:
    """Keeps a handler's writes in memory; spawned jobs are only recorded."""

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self._clock = clock
        self._randomness = randomness
        self.progressed: list[Progress] = []
        self.checkpoints: list[bytes] = []
        self.payloads: list[bytes] = []
        self.lines: list[LogLine] = []
        self.spawned: list[InlineSpawn] = []
        self._keys: dict[tuple[str, str], Job] = {}
        """The children that hold an idempotency key, by type and key."""
        self.given_results: dict[str, bytes | None] = {}
        self.given_children: list[ChildJob] = []

    def now(self) -> datetime:
        return self._clock.now()

    def holds(self) -> bool:
        """Whether the lease is still valid; checked before each write."""
        return True

    async def progress(self, progress: Progress) -> None:
        if self.holds():
            self.progressed.append(progress)

    async def checkpoint(self, data: bytes) -> bool:
        held = self.holds()
        if held:
            self.checkpoints.append(data)
        return held

    async def update_payload(self, data: bytes) -> bool:
        held = self.holds()
        if held:
            self.payloads.append(data)
        return held

    async def log(self, line: LogLine) -> None:
        if self.holds():
            self.lines.append(line)

    async def spawn(self, submission: Submission, key: str | None) -> str:
        """Record a child; its keys hold among the children of this call."""
        if not self.holds():
            raise StaleLeaseError(INLINE)
        for child in self.spawned:
            if key is not None and child.key == key:
                return child.id
        named = dict.fromkeys(named_jobs(submission.depends_on), Parent(Priority.NORMAL, 0))
        job = accept(submission, job_id=self._randomness.uuid(), now=self.now(), parents=named)
        if job.dedupe is not None:
            holder = self._keys.setdefault((job.type, job.dedupe.key), job)
            if holder.dedupe is not None and holder.dedupe.digest != job.dedupe.digest:
                raise DuplicateError(job.dedupe.key, holder.id)
            if holder is not job:
                return holder.id
        self.spawned.append(
            InlineSpawn(
                id=job.id,
                type=job.type,
                payload=submission.payload,
                key=key,
                options=given_options(submission),
            )
        )
        return job.id

    async def spawn_prepared(self, submission: Submission, key: str | None) -> str:
        return await self.spawn(submission, key)

    async def results(self) -> dict[str, bytes | None]:
        return self.given_results

    async def children(self) -> list[ChildJob]:
        waiting = [
            ChildJob(job_id=each.id, type=each.type, state=State.SCHEDULED)
            for each in ([] if self.given_children else self.spawned)
        ]
        return self.given_children or waiting

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        raise no_transaction("needs a job that runs in a worker on postgresql://")


def inline_context(
    type_: str, function: Function, clock: Clock, randomness: Randomness
) -> JobContext | SyncJobContext:
    """Return a context for one call; for a plain function a blocking one."""
    job = inline_job(type_, clock, randomness)
    assert job.started_at is not None
    channel = InlineChannel(clock, randomness)
    context = JobContext(job, job.started_at + job.timeout, Signals(), channel)
    if is_coroutine(function):
        return context

    def call(method: str, *args: object, **kwargs: object) -> object:
        return run_now(getattr(context, method)(*args, **kwargs))

    return SyncJobContext(job, context.deadline, Signals(), call)


def inline_job(type_: str, clock: Clock, randomness: Randomness) -> Job:
    """Return a running job that is in no store."""
    now = clock.now()
    job = accept(Submission(type=type_), job_id=randomness.uuid(), now=now)
    return claimed(job, token=randomness.token(), worker=INLINE, now=now)
