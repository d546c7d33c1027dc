"""Writing how jobs went: decide with the lifecycle, swap in groups, decide again when stale."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import Failure, Job, State
from holdfast.observe import Observer, Outage, Silent
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.randomness import Randomness
from holdfast.store import Change, Store
from holdfast.worker.channel import Notes
from holdfast.worker.executor import (
    Failed,
    Interrupted,
    Interruption,
    Outcome,
    Succeeded,
    timeout_failure,
)
from holdfast.worker.run import Run
from holdfast.worker.supervisor.protocol import LeaseListener, NoListener

Answer = tuple[Run, Outcome]


LARGEST_GROUP = 1000
RELEASE_AFTER = 0.02
"""Seconds after a transaction completed its job in which more may do so."""


class Settler:
    """Writes outcomes in groups; keeps them while the store is away."""

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        observer: Observer,
        custody: LeaseListener | None = None,
        after: Callable[[], None] | None = None,
        notes: Notes | None = None,
        *,
        outage: Outage,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._observer = observer
        self._outage = outage
        self._is_heard = not isinstance(observer, Silent)
        self._custody = custody or NoListener()
        self._after = after
        self._notes = notes
        self._waiting: list[Answer] = []
        self._task: asyncio.Task[None] | None = None
        self._release: asyncio.Task[None] | None = None
        self.unwritten = 0
        """How many outcomes are not written yet."""

    def settle(self, run: Run, outcome: Outcome) -> None:
        """Queue an outcome to be written: soon, with all that wait by then."""
        self._waiting.append((run, outcome))
        self.unwritten += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def close(self) -> None:
        """Wait until everything is written."""
        while left := [task for task in (self._task, self._release) if task and not task.done()]:
            await asyncio.wait(left)

    async def _drain(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
            try:
                await self.write(group)
            except Exception as error:  # noqa: BLE001  # the leases run out, the worker goes on
                self._observer.emit("results.lost", error=repr(error), lost=len(group))
            finally:
                self.unwritten -= len(group)
                if self._after is not None:
                    self._after()

    def conclude(self, run: Run, after: Job, outcome: Outcome) -> None:
        """Tell of a job that its handler's transaction completed: nothing is left to write."""
        self._tell(run, after)
        if unheard := _unheard(outcome, after):
            self._observer.emit(
                "job.afterwards",
                job_id=after.id,
                type=after.type,
                attempt=after.attempt,
                error=unheard,
            )
        self._let_go([run])
        if self._release is None or self._release.done():
            self._release = asyncio.get_running_loop().create_task(self._release_soon())

    async def _release_soon(self) -> None:
        """Let go what waited for jobs that their transactions completed, once for many."""
        await asyncio.sleep(RELEASE_AFTER)
        with contextlib.suppress(StoreUnavailableError):  # a sweep finds them later
            await release_dependents(self._store)

    def drop(self, run: Run) -> None:
        """Write nothing about a job that is no longer ours."""
        self._let_go([run])

    def _let_go(self, runs: Sequence[Run]) -> None:
        self._custody.settled(runs)
        for run in runs:
            if run.written is not None:
                run.written()

    async def write(self, answers: Sequence[Answer]) -> None:
        """Write a group; a store that is away is tried again until it is back."""
        pauses = GrowingDelay(self._randomness)
        while True:
            try:
                await self._write_now(answers)
            except StoreUnavailableError as error:
                self._outage.failed(error)
                await asyncio.sleep(pauses.next())
            else:
                self._outage.over()
                return

    async def _write_now(self, answers: Sequence[Answer]) -> None:
        if self._notes is not None:  # an answered lease takes no more notes
            await self._notes.written(run.fence for run, _ in answers)
        open_ = [(run, outcome, run.job) for run, outcome in answers]
        has_dependents = False
        while open_:
            now = self._store.now()
            changes = [
                Change(job, self._decide(run, outcome, job, now)) for run, outcome, job in open_
            ]
            again: list[tuple[Run, Outcome, Job]] = []
            for (run, outcome, _), change, answer in zip(
                open_, changes, await self._store.swap(changes), strict=True
            ):
                has_dependents = has_dependents or answer.has_dependents
                if answer.written:
                    if self._is_heard:
                        self._tell(run, change.after)
                elif answer.job is None or not lifecycle.may_answer(answer.job, run.fence.token):
                    self._tell_refused(run, answer.job)
                else:
                    again.append((run, outcome, answer.job))
            open_ = again
        self._let_go([run for run, _ in answers])
        if has_dependents:
            await release_dependents(self._store)

    def _decide(self, run: Run, outcome: Outcome, job: Job, now: datetime) -> Job:
        job = lifecycle.held_again(job, now=now)
        if isinstance(outcome, Succeeded):  # nearly always, and quicker than as a pattern
            return lifecycle.completed(job, outcome.result, now=now)
        match outcome:
            case Interrupted(Interruption.CANCELLED):
                return lifecycle.cancelled(job, now=now)
            case Interrupted(why) if why in _GIVEN_BACK:
                return lifecycle.given_back(job, now=now, reason=_GIVEN_BACK[why])
            case Interrupted():
                return self._after_failure(run, timeout_failure(run.timeout), job, now)
            case Failed(failure):
                return self._after_failure(run, failure, job, now)

    def _after_failure(self, run: Run, failure: Failure, job: Job, now: datetime) -> Job:
        jitter, custom = self._randomness.jitter(), run.handler.options.custom_backoff
        try:
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter, custom=custom)
        except Exception as error:  # noqa: BLE001  # a task's own backoff function
            self._observer.emit(
                "backoff.failed",
                job_id=job.id,
                type=job.type,
                attempt=job.attempt,
                error=str(error),
            )
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter)

    def _tell(self, run: Run, after: Job) -> None:
        self._observer.emit(
            _WORDS.get(after.state, "job.released"),
            job_id=after.id,
            type=after.type,
            queue=after.queue,
            attempt=run.job.attempt,
            seconds=(after.updated_at - run.job.started_at).total_seconds()
            if run.job.started_at
            else None,
            error=str(after.failure) if after.failure else None,
            due_at=after.due_at if after.state is State.RETRYING else None,
        )

    def _tell_refused(self, run: Run, job: Job | None) -> None:
        """Tell of an answer that came too late, unless it was this very one that came before."""
        if job is None or not lifecycle.has_answered(job, run.fence.token):
            self._observer.emit(
                "job.stale", job_id=run.job.id, type=run.job.type, attempt=run.job.attempt
            )


def _unheard(outcome: Outcome, after: Job) -> str | None:
    """What a handler said after its job was completed, in words."""
    match outcome:
        case Failed(failure):
            return str(failure)
        case Interrupted(why):
            return f"the handler was stopped: {why}"
        case Succeeded(result) if result not in (None, after.result):
            told = "what the handler returned, or set after its block, is not kept"
            return f"{told}: give it with ctx.set_result() before the block ends"
        case Succeeded():
            return None


_GIVEN_BACK = {
    Interruption.STOPPING: "worker is stopping",
    Interruption.QUARANTINED: "to be run alone",
}

_WORDS = {
    State.COMPLETED: "job.completed",
    State.FAILED: "job.failed",
    State.DEAD_LETTER: "job.dead",
    State.CANCELLED: "job.cancelled",
    State.RETRYING: "job.retrying",
}
