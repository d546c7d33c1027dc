"""The context of a running job writes to the store through this: in groups, under its lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from msgspec.structs import replace

from holdfast.errors import PermanentError
from holdfast.model import lifecycle
from holdfast.model.children import ChildJob, child_job
from holdfast.model.job import Job, LogLine, Progress, read_extra
from holdfast.model.submission import Submission
from holdfast.observe.redaction import Redaction
from holdfast.operations.batcher import Batcher
from holdfast.operations.submitter import Submitter
from holdfast.store import Fence, JobNote, Store, TransactionalStore
from holdfast.tasks.transactions import no_transaction
from holdfast.worker.run import Run


class Notes:
    """Progress, checkpoints, log lines and payloads of all running jobs, written in groups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batcher: Batcher[JobNote, bool] = Batcher(self._write)
        self.pending: dict[Fence, asyncio.Future[bool]] = {}
        """The newest note of each job that is not written yet and that no caller awaits."""

    async def keep(self, note: JobNote) -> bool:
        """Write a note; return whether the lease is still held."""
        return await self._batcher.put(note)

    def post(self, note: JobNote) -> None:
        """Write a note soon, without waiting; an unavailable store may lose it."""
        self.pending[note.fence] = answer = self._batcher.put(note)
        answer.add_done_callback(lambda answer: self._posted(note.fence, answer))

    async def written(self, fences: Iterable[Fence]) -> None:
        """Wait until no note of these jobs is pending."""
        waiting = [self.pending[fence] for fence in fences if fence in self.pending]
        if waiting:
            await asyncio.wait(waiting)

    async def close(self) -> None:
        """Write what is left."""
        await self._batcher.close()

    async def _write(self, notes: Sequence[JobNote]) -> Sequence[bool]:
        return await self._store.note(_newest_progress_only(notes))

    def _posted(self, fence: Fence, answer: asyncio.Future[bool]) -> None:
        """Retrieve the exception of a failed note, so that asyncio does not log it."""
        if self.pending.get(fence) is answer:
            del self.pending[fence]
        if not answer.cancelled():
            answer.exception()


def _newest_progress_only(notes: Sequence[JobNote]) -> list[JobNote]:
    """Keep only the newest progress of a job that reports faster than the store writes."""
    last = {note.fence: i for i, note in enumerate(notes) if note.progress is not None}
    return [
        note if note.progress is None or last[note.fence] == i else replace(note, progress=None)
        for i, note in enumerate(notes)
    ]


class WorkerChannel:
    """The channel of one running job."""

    def __init__(
        self,
        run: Run,
        store: Store,
        notes: Notes,
        submitter: Submitter,
        redaction: Redaction | None = None,
    ) -> None:
        self._run = run
        self._redaction = redaction or Redaction()
        self._store = store
        self._notes = notes
        self._submitter = submitter

    def now(self) -> datetime:
        return self._store.now()

    async def progress(self, progress: Progress) -> None:
        self._must_be_open()
        masked = self._redaction.progress(progress)
        self._notes.post(JobNote(fence=self._run.fence, progress=masked))

    async def checkpoint(self, data: bytes) -> bool:
        self._must_be_open()
        note = JobNote(fence=self._run.fence, checkpoint=data)
        return await self._submitter.persist(lambda: self._notes.keep(note))

    async def update_payload(self, data: bytes) -> bool:
        self._must_be_open()
        job = self._submitter.fitting(replace(self._run.job, payload=data))
        note = JobNote(fence=self._run.fence, payload=data, encoding=job.encoding)
        return await self._submitter.persist(lambda: self._notes.keep(note))

    async def log(self, line: LogLine) -> None:
        self._must_be_open()
        self._notes.post(JobNote(fence=self._run.fence, log=self._redaction.line(line)))

    async def spawn(self, submission: Submission, key: str | None) -> str:
        middleware = self._run.handler.seams.middleware
        if middleware.submits:
            inherited = read_extra(self._run.job.extra).headers
            submission = await middleware.prepared(submission, inherited)
        return await self.spawn_prepared(submission, key)

    async def spawn_prepared(self, submission: Submission, key: str | None) -> str:
        """Submit a child that the middleware has seen already."""
        self._must_be_open()
        extra = self._run.job.extra
        return await self._submitter.spawn(submission, self._run.fence, key, extra=extra)

    async def results(self) -> dict[str, bytes | None]:
        store, persist = self._store, self._submitter.persist
        parents = await persist(lambda: store.parents(self._run.job.id))
        jobs = await persist(lambda: store.get(parents))
        return {job.id: job.result for job in jobs if job is not None}

    async def children(self) -> list[ChildJob]:
        store, persist = self._store, self._submitter.persist
        ids = await persist(lambda: store.children(self._run.job.id))
        jobs = await persist(lambda: store.get(ids))
        return [child_job(job) for job in jobs if job is not None]

    def transaction(
        self, result: Callable[[], bytes | None], *, blocking: bool = False
    ) -> AbstractAsyncContextManager[object]:
        store = self._store
        if store.capabilities.completes_in_transaction and isinstance(store, TransactionalStore):
            return self._completing(store, result, blocking=blocking)
        raise no_transaction("needs a worker whose store shares your database: postgresql://")

    @contextlib.asynccontextmanager
    async def _completing(
        self, store: TransactionalStore, result: Callable[[], bytes | None], *, blocking: bool
    ) -> AsyncGenerator[object, None]:
        """Open the transaction that completes the job; the handler may write in it, once."""
        run, decided = self._run, list[Job]()

        def decide(job: Job) -> Job:
            decided.append(lifecycle.completed(job, result(), now=self._store.now()))
            return decided[0]

        self._must_be_open()
        if run.in_transaction:
            raise no_transaction("is open already: write inside the open block")
        run.in_transaction = True
        try:
            async with store.transaction(run.fence, decide, blocking=blocking) as connection:
                yield connection
                await self._notes.written([run.fence])  # an ended job takes no notes
                run.completing = True
            if run.completing:  # it was not rolled back on request
                run.completed = decided[0]
        finally:
            run.in_transaction = False
            run.completing = run.completed is not None

    def _must_be_open(self) -> None:
        if self._run.completed is not None:
            message = f"job {self._run.job.id} was completed by its transaction: nothing can follow"
            raise PermanentError(message, code="JOB_COMPLETED")
