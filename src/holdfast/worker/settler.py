"""Writing how jobs ended: outcomes that wait together are decided and written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace

from holdfast.errors import PermanentError, SchemaVersionError, StoreError, StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.children import waiting
from holdfast.model.deadlines import timeout_failure
from holdfast.model.job import Failure, FailureCategory, Job, State
from holdfast.model.versions import awaiting_version, awaits_version
from holdfast.observe import Observer, Outage, Silent
from holdfast.observe.redaction import Redaction
from holdfast.operations.changes import decide_and_swap
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.backoff import GrowingDelay
from holdfast.runtime.host import HOST
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from holdfast.worker.channel import Notes
from holdfast.worker.outcomes import (
    Failed,
    Interrupted,
    Interruption,
    Mismatched,
    Outcome,
    Succeeded,
    Waiting,
)
from holdfast.worker.run import Run
from holdfast.worker.supervisor.protocol import LeaseListener

LARGEST_GROUP = 1000
REFUSALS = 5
"""How often a store may refuse a group before its outcomes are written one by one."""
MOST_REFUSALS = 300
"""How often it may refuse a single outcome before that is given up: some minutes."""
SHORTEST = timedelta(milliseconds=1)
"""For how long a queue is closed at least."""
RELEASE_AFTER = 0.02
"""Seconds to collect jobs that transactions completed before dependents are released for all."""


class Settler:
    """Writes outcomes in groups; keeps them while the store is unavailable.

    ``listener`` is informed which jobs the worker no longer holds, ``on_written`` is called
    after each group.
    """

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        observer: Observer,
        *,
        outage: Outage,
        listener: LeaseListener | None = None,
        on_written: Callable[[], None] | None = None,
        notes: Notes | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self._store = store
        self._randomness = randomness
        self._observer = observer
        self._outage = outage
        self._reports = not isinstance(observer, Silent)
        self._listener = listener
        self._on_written = on_written
        self._notes = notes
        self._redaction = redaction or Redaction.from_environment()
        self._waiting: list[tuple[Run, Outcome]] = []
        self._task: asyncio.Task[None] | None = None
        self._release: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        """Outcomes of groups that failed, each written by itself."""
        self.unwritten = 0
        """How many outcomes are not written yet."""

    def settle(self, run: Run, outcome: Outcome) -> None:
        """Queue an outcome; it is written soon, together with all that wait by then."""
        self._waiting.append((run, outcome))
        self.unwritten += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    def settled_by_transaction(self, run: Run, after: Job, outcome: Outcome) -> None:
        """Report a job that its handler's transaction completed: there is nothing to write."""
        self._report(run, after)
        if ignored := _ignored(outcome, after):
            self._observer.emit(
                "job.afterwards",
                job_id=after.id,
                type=after.type,
                attempt=after.attempt,
                error=ignored,
            )
        self._released([run])
        if self._release is None or self._release.done():
            self._release = asyncio.get_running_loop().create_task(self._release_soon())

    def drop(self, run: Run) -> None:
        """Write nothing about a job whose lease was lost."""
        self._released([run])

    async def close(self) -> None:
        """Wait until everything is written."""
        while left := [
            task for task in (self._task, self._release, *self._alone) if task and not task.done()
        ]:
            await asyncio.wait(left)

    async def write(self, outcomes: Sequence[tuple[Run, Outcome]], *, most: int = REFUSALS) -> None:
        """Write a group; retry while the store is unavailable or refuses.

        A store that refuses may do so because of one outcome: it raises after ``most`` refusals.
        """
        delay: GrowingDelay | None = None
        refused = 0
        while True:
            try:
                await self._write_now(outcomes)
            except SchemaVersionError:
                raise
            except StoreError as error:
                self._outage.failed(error)
                refused += not isinstance(error, StoreUnavailableError)
                if refused >= most:
                    raise
                delay = delay or GrowingDelay(self._randomness)
                await self._outage.pause(delay.next())
            else:
                if self._outage.is_on:
                    self._outage.over()
                return

    async def _drain(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
            try:
                await self.write(group)
            except Exception:  # noqa: BLE001  # one of them is at fault
                loop = asyncio.get_running_loop()
                alone = [loop.create_task(self._write_alone(*one)) for one in group]
                self._alone.update(alone)
                for task in alone:
                    task.add_done_callback(self._alone.discard)
            else:
                self._ended(len(group))

    def _ended(self, count: int) -> None:
        self.unwritten -= count
        if self._on_written is not None:
            self._on_written()

    async def _write_alone(self, run: Run, outcome: Outcome) -> None:
        """Write an outcome of a group that failed, beside the groups that follow."""
        try:
            await self.write([(run, outcome)], most=MOST_REFUSALS)
        except Exception as error:  # noqa: BLE001  # its lease expires, the worker goes on
            self._lost(run, error)
        finally:
            self._ended(1)

    def _lost(self, run: Run, error: Exception) -> None:
        self._observer.emit("results.lost", job_id=run.job.id, error=repr(error), lost=1)
        if run.on_written is not None:
            run.on_written()

    async def _write_now(self, outcomes: Sequence[tuple[Run, Outcome]]) -> None:
        if self._notes is not None and self._notes.pending:  # a settled lease takes no more notes
            await self._notes.written(run.fence for run, _ in outcomes)
        if self._store.capabilities.closes_queues:
            outcomes = [(run, await self._closed(run, outcome)) for run, outcome in outcomes]
        began = self._store.now()
        jobs, has_dependents = await decide_and_swap(
            self._store, [run.job for run, _ in outcomes], partial(self._decide, outcomes)
        )
        for (run, _), (before, after) in zip(outcomes, jobs, strict=True):
            if after is None or after is before:
                self._report_stale(run, after)
            elif self._reports:
                self._report(run, after)
        if seen := [run for run, _ in outcomes if run.handler.seams.middleware.settles]:
            self._show(seen, began)
        self._released([run for run, _ in outcomes])
        if has_dependents:
            await release_dependents(self._store)

    def _show(self, runs: Sequence[Run], began: datetime) -> None:
        """Show middleware what was written; all tasks of a worker have the same."""
        jobs = [run.job for run in runs]
        for middleware in runs[0].handler.seams.middleware.settles:
            try:
                middleware.settled(jobs, began, self._store.now())
            except Exception as error:  # noqa: BLE001  # the outcomes are written
                self._observer.emit("middleware.failed", error=repr(error))

    async def _closed(self, run: Run, outcome: Outcome) -> Outcome:
        """Close the queue of a job that met a rate limit; the job then waits as the next one."""
        if not isinstance(outcome, Failed) or not outcome.failure.closes_queue:
            return outcome
        wanted = min(outcome.failure.retry_after or SHORTEST, run.job.lifetime)
        await self._store.configure(run.job.queue, {"closed_for": max(SHORTEST, wanted)})
        return Failed(replace(outcome.failure, retry_after=None))

    def _decide(
        self, outcomes: Sequence[tuple[Run, Outcome]], i: int, job: Job, now: datetime
    ) -> Job:
        run, outcome = outcomes[i]
        if job is not run.job and not lifecycle.may_answer(job, run.fence.token):
            return job
        as_read = job
        job = lifecycle.held_again(job, now=now)
        if isinstance(outcome, Succeeded):  # nearly always, and quicker than as a pattern
            return lifecycle.completed(job, outcome.result, now=now)
        failure = self._without_failure(run, outcome, job, now)
        if isinstance(failure, Job):
            return failure
        after = self._after_failure(run, failure, job, now)
        return as_read if self._is_left_to_stall(run, failure, job, after) else after

    def _without_failure(
        self,
        run: Run,
        outcome: Failed | Interrupted | Waiting | Mismatched,
        job: Job,
        now: datetime,
    ) -> Job | Failure:
        """Return the job after an outcome that is no failed attempt, else the failure."""
        match outcome:
            case Interrupted(Interruption.CANCELLED):
                return lifecycle.cancelled(job, now=now)
            case Interrupted(why) if why in _GIVEN_BACK:
                return lifecycle.given_back(job, now=now, reason=_GIVEN_BACK[why])
            case Interrupted():
                return timeout_failure(run.timeout, HOST)
            case Waiting(kind):
                return waiting(job, kind, now=now)
            case Mismatched(failure):
                jitter = self._randomness.jitter()
                return awaiting_version(job, failure, now=now, jitter=jitter)
            case Failed(failure):
                return failure

    def _is_left_to_stall(self, run: Run, failure: Failure, job: Job, after: Job) -> bool:
        """Whether nothing is written about a failure, as BullMQ does without its function.

        The job stalls when its lock expires, and stalls rather than attempts limit its runs.
        """
        if not job.backoff.needs_function or run.handler.options.custom_backoff:
            return False
        has_delay = failure.retry_after is not None or not failure.uses_attempt
        if after.state is not State.RETRYING or has_delay:
            return False
        self._observer.emit(
            "backoff.unknown",
            job_id=job.id,
            type=job.type,
            attempt=job.attempt,
            error=str(failure),
        )
        return True

    def _after_failure(self, run: Run, failure: Failure, job: Job, now: datetime) -> Job:
        jitter, custom = self._randomness.jitter(), run.handler.options.custom_backoff
        try:
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter, custom=custom)
        except PermanentError:  # the task's own backoff function says: no more attempts
            final = replace(failure, category=FailureCategory.PERMANENT)
            return lifecycle.after_failure(job, final, now=now)
        except Exception as error:  # noqa: BLE001  # a task's own backoff function
            self._observer.emit(
                "backoff.failed",
                job_id=job.id,
                type=job.type,
                attempt=job.attempt,
                error=repr(error),
            )
            context = {**failure.context, "backoff_error": self._redaction.text(repr(error))}
            failure = replace(failure, context=context)
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter)

    def _released(self, runs: Sequence[Run]) -> None:
        """Inform the listener, and the runs themselves, that the worker holds them no longer."""
        if self._listener is not None:
            self._listener.released(runs)
        for run in runs:
            if run.on_written is not None:
                run.on_written()

    async def _release_soon(self) -> None:
        """Release the dependents of jobs that transactions completed, once for many."""
        await asyncio.sleep(RELEASE_AFTER)
        try:
            await release_dependents(self._store)
        except Exception as error:  # noqa: BLE001  # maintenance finds them later
            self._outage.failed(error)

    def _report(self, run: Run, after: Job) -> None:
        event = _EVENTS.get(after.state, "job.released")
        if after.state is State.RETRYING and awaits_version(after):
            event = "job.mismatched"
        self._observer.emit(
            event,
            job_id=after.id,
            type=after.type,
            queue=after.queue,
            attempt=run.job.attempt,
            seconds=max(0.0, (after.updated_at - run.job.started_at).total_seconds())
            if run.job.started_at
            else None,
            error=str(after.failure) if after.failure else None,
            due_at=after.due_at if after.state is State.RETRYING else None,
            stack_trace=after.failure.stack_trace or None
            if after.failure and after.state in _FAILURES
            else None,
        )

    def _report_stale(self, run: Run, job: Job | None) -> None:
        """Report an outcome that came too late, unless an earlier try wrote this very one."""
        if job is None or not lifecycle.has_answered(job, run.fence.token):
            self._observer.emit(
                "job.stale", job_id=run.job.id, type=run.job.type, attempt=run.job.attempt
            )


def _ignored(outcome: Outcome, after: Job) -> str | None:
    """What the handler did after its job was completed, as a text; None for nothing."""
    match outcome:
        case Failed(failure):
            return str(failure)
        case Interrupted(why):
            return f"the handler was stopped: {why}"
        case Succeeded(result) if result not in (None, after.result):
            return (
                "what the handler returned, or set after its block, is not kept:"
                " call ctx.set_result() before the block ends"
            )
        case Mismatched(failure):
            return str(failure)
        case Waiting():
            return "the job cannot wait for its children any more"
        case Succeeded():
            return None


_GIVEN_BACK = {
    Interruption.STOPPING: "worker is stopping",
    Interruption.QUARANTINED: "to be run alone",
}

_FAILURES = (State.RETRYING, State.FAILED, State.DEAD_LETTER)
_EVENTS = {
    State.COMPLETED: "job.completed",
    State.FAILED: "job.failed",
    State.DEAD_LETTER: "job.dead",
    State.CANCELLED: "job.cancelled",
    State.RETRYING: "job.retrying",
    State.PENDING: "job.waiting",
}
