"""Writing how jobs went: decide with the lifecycle, swap in groups, decide again when stale."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from holdfast import lifecycle
from holdfast.batcher import Batcher
from holdfast.chance import Chance
from holdfast.errors import StoreUnavailableError
from holdfast.job import Job, State
from holdfast.observe import Observer
from holdfast.releasing import release_dependents
from holdfast.store import Change, Store
from holdfast.submitting import FIRST_PAUSE, LONGEST_PAUSE
from holdfast.worker.custody import Custody, Nobody
from holdfast.worker.execution import (
    Failed,
    Interrupted,
    Interruption,
    Outcome,
    Succeeded,
    timeout_failure,
)
from holdfast.worker.run import Run

Answer = tuple[Run, Outcome]


class Settled(StrEnum):
    """What became of a job's answer."""

    WRITTEN = "WRITTEN"
    REPEATED = "REPEATED"
    STALE = "STALE"


class Settler:
    """Writes outcomes in groups; keeps them while the store is away."""

    def __init__(
        self, store: Store, chance: Chance, observer: Observer, custody: Custody | None = None
    ) -> None:
        self._store = store
        self._chance = chance
        self._observer = observer
        self._custody = custody or Nobody()
        self._batcher: Batcher[Answer, Settled] = Batcher(self._write)

    def settle(self, run: Run, outcome: Outcome) -> asyncio.Future[Settled]:
        """Queue an outcome to be written; it will be, even if nobody waits for it."""
        written = self._batcher.put((run, outcome))
        written.add_done_callback(self._heard)
        return written

    @property
    def unwritten(self) -> int:
        """How many outcomes are not written yet."""
        return self._batcher.unanswered

    async def close(self) -> None:
        """Wait until everything is written."""
        await self._batcher.close()

    def _heard(self, written: asyncio.Future[Settled]) -> None:
        """Tell of an answer that no patience could write; its lease will run out."""
        if not written.cancelled() and (error := written.exception()) is not None:
            self._observer.tell("results.lost", error=repr(error), lost=1)

    async def _write(self, answers: Sequence[Answer]) -> Sequence[Settled]:
        """Write a group; a store that is away is tried again until it is back."""
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._write_now(answers)
            except StoreUnavailableError as error:
                self._observer.tell("store.unavailable", error=str(error), kept=len(answers))
                await asyncio.sleep(pause * (0.5 + self._chance.fraction()))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _write_now(self, answers: Sequence[Answer]) -> Sequence[Settled]:
        settled: list[Settled | None] = [None] * len(answers)
        current = [run.job for run, _ in answers]
        open_ = list(range(len(answers)))
        ripe = False
        while open_:
            now = self._store.now()
            changes = [
                Change(current[i], self._decide(*answers[i], current[i], now)) for i in open_
            ]
            written = await self._store.swap(changes)
            again = []
            for i, change, answer in zip(open_, changes, written, strict=True):
                ripe = ripe or answer.ripe
                if answer.written:
                    settled[i] = Settled.WRITTEN
                    self._tell(answers[i][0], change.after)
                elif (verdict := _standing(answers[i][0], answer.job)) is not None:
                    settled[i] = verdict
                    self._tell_stale(answers[i][0], verdict)
                else:
                    assert answer.job is not None
                    current[i] = answer.job
                    again.append(i)
            open_ = again
        self._custody.settled([run for run, _ in answers])
        if ripe:
            await release_dependents(self._store)
        return [answer for answer in settled if answer is not None]

    def _decide(self, run: Run, outcome: Outcome, job: Job, now: datetime) -> Job:
        if job.state is not State.RUNNING:
            job = lifecycle.resumed(job, now=now)
        match outcome:
            case Succeeded(result):
                return lifecycle.completed(job, result, now=now)
            case Interrupted(Interruption.CANCELLED):
                return lifecycle.cancelled(job, now=now)
            case Interrupted(Interruption.STOPPING):
                return lifecycle.given_back(job, now=now)
            case Interrupted(_):
                failure = timeout_failure(run.timeout)
            case Failed(failure):
                pass
        jitter, custom = self._chance.jitter(), run.handler.options.custom_backoff
        try:
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter, custom=custom)
        except Exception as error:  # noqa: BLE001  # a task's own backoff function
            self._observer.tell(
                "backoff.failed",
                job_id=job.id,
                type=job.type,
                attempt=job.attempt,
                error=str(error),
            )
            return lifecycle.after_failure(job, failure, now=now, jitter=jitter)

    def _tell(self, run: Run, after: Job) -> None:
        self._observer.tell(
            _WORDS.get(after.state, "job.released"),
            job_id=after.id,
            type=after.type,
            queue=after.queue,
            attempt=run.job.attempt,
            seconds=(after.updated_at - run.job.started_at).total_seconds()
            if run.job.started_at
            else None,
            error=after.failure.message if after.failure else None,
            due_at=after.due_at if after.state is State.RETRYING else None,
        )

    def _tell_stale(self, run: Run, verdict: Settled) -> None:
        if verdict is Settled.STALE:
            self._observer.tell(
                "job.stale", job_id=run.job.id, type=run.job.type, attempt=run.job.attempt
            )


_WORDS = {
    State.COMPLETED: "job.completed",
    State.FAILED: "job.failed",
    State.DEAD_LETTER: "job.dead",
    State.CANCELLED: "job.cancelled",
    State.RETRYING: "job.retrying",
}


def _standing(run: Run, job: Job | None) -> Settled | None:
    """Whether an answer that was not written is settled all the same; None: decide again."""
    if job is None:
        return Settled.STALE
    if lifecycle.may_answer(job, run.fence.token):
        return None
    return Settled.REPEATED if lifecycle.has_answered(job, run.fence.token) else Settled.STALE
