"""Calls a handler inside the middleware of its app, in the handler's own task or thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from holdfast.model.job import Failure, FailureCategory, Job
from holdfast.model.lifecycle import retryable
from holdfast.tasks.depends import Dependency
from holdfast.tasks.injecting import Injector
from holdfast.tasks.job_view import JobView
from holdfast.tasks.middleware import AttemptCall, AttemptOutcome, named
from holdfast.tasks.registry import Handler, RunnerKind
from holdfast.tasks.scope import Scope
from holdfast.worker.outcomes import (
    Failed,
    Interrupted,
    Interruption,
    Mismatched,
    Outcome,
    Succeeded,
    Waiting,
)

Classify = Callable[[BaseException, Mapping[str, str]], Outcome]
"""Returns the outcome for an exception; the map names the middleware that raised it."""
Provide = Callable[[Mapping[str, Dependency]], Awaitable[dict[str, object]]]
"""Returns the values of dependencies."""
Body = Callable[[Provide], Awaitable[Outcome]]
"""Calls the handler."""


class Around:
    """One call of a handler inside its middleware."""

    def __init__(
        self, handler: Handler, job: Job, view: JobView, scope: Scope, classify: Classify
    ) -> None:
        self._handler = handler
        self._job = job
        self._scope = scope
        self._context = view
        self._classify = classify
        self._call = AttemptCall(view, handler.runner)

    async def run(self, body: Body) -> Outcome:
        """Enter the middleware, call the body, leave everything in reverse; return the outcome.

        CancelledError goes through, after the middleware has seen it.
        """
        error: BaseException | None = None
        injector = Injector(self._handler.seams, self._scope, self._context)
        blamed: dict[str, str] = {}
        try:
            for middleware in self._handler.seams.attempts:
                owner = ("middleware", named(middleware))
                blamed = dict([owner])
                await self._scope.enter(middleware.attempt(self._call), owner)
            blamed = {}
            outcome = await body(injector.provide)
            self._note(outcome)
        except BaseException as raised:  # noqa: BLE001  # whatever a handler raises is an outcome
            error = raised
            if injector.current:
                blamed = {"dependency": injector.current}
            outcome = self._noted(error, blamed)
        changed: list[Outcome] = []
        left = await self._scope.leave(
            error, lambda raised, owner: changed.append(self._noted(raised, dict([owner])))
        )
        if isinstance(left, asyncio.CancelledError):
            raise left
        return changed[-1] if changed else outcome

    def _noted(self, error: BaseException, blamed: Mapping[str, str]) -> Outcome:
        """Record on the call what it ends with, and return the outcome."""
        self._call.exception = error
        outcome = self._classify(error, blamed)
        self._note(outcome)
        return outcome

    def _note(self, outcome: Outcome) -> None:
        call, why = self._call, self._call.interruption
        is_kept = isinstance(outcome, Succeeded) and self._handler.runner is RunnerKind.ASYNC
        if why is not None and not is_kept:  # the result of a thread that is left alone is dropped
            outcome = Interrupted(Interruption(why))
        call.outcome = attempt_outcome(self._job, outcome, cancelled=call.is_cancelled())
        call.will_retry = call.outcome in _AGAIN or (
            call.outcome is AttemptOutcome.TIMED_OUT and _has_another(self._job, _TIMEOUT)
        )


def attempt_outcome(job: Job, outcome: Outcome, *, cancelled: bool) -> AttemptOutcome:
    """Return how an attempt ends, by what is known before its outcome is written."""
    match outcome:
        case Succeeded():
            return AttemptOutcome.COMPLETED
        case Waiting():
            return AttemptOutcome.WAITING
        case Mismatched():
            return AttemptOutcome.RELEASED
        case Interrupted(why):
            return _INTERRUPTED[why]
        case Failed(failure):
            return _failed_outcome(job, failure, cancelled=cancelled)


def _failed_outcome(job: Job, failure: Failure, *, cancelled: bool) -> AttemptOutcome:
    if not failure.uses_attempt:
        return AttemptOutcome.RELEASED
    if cancelled:
        return AttemptOutcome.CANCELLED
    return AttemptOutcome.RETRYING if _has_another(job, failure) else AttemptOutcome.FAILED


def _has_another(job: Job, failure: Failure) -> bool:
    return retryable(job, failure) and job.attempt < job.max_attempts


_TIMEOUT = Failure(category=FailureCategory.TIMEOUT, message="")
_AGAIN = (AttemptOutcome.RETRYING, AttemptOutcome.WAITING, AttemptOutcome.RELEASED)
_INTERRUPTED = {
    Interruption.TIMEOUT: AttemptOutcome.TIMED_OUT,
    Interruption.CANCELLED: AttemptOutcome.CANCELLED,
    Interruption.LEASE_LOST: AttemptOutcome.LEASE_LOST,
    Interruption.STOPPING: AttemptOutcome.RELEASED,
    Interruption.QUARANTINED: AttemptOutcome.RELEASED,
}
