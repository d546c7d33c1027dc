"""Middleware: what an app does around each submission and around each attempt.

The first one registered is the outermost: it sees a submission first, and an attempt first and
last. An app without middleware pays one test of a list.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, ValidationError
from holdfast.model.job import Encoding, Job, read_extra
from holdfast.model.submission import Submission
from holdfast.tasks.job_view import JobView

M = TypeVar("M")

AttemptManager = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
"""What ``Middleware.attempt`` returns; the value that it yields is not used."""


class AttemptOutcome(StrEnum):
    """How an attempt ended, as middleware sees it where the handler runs."""

    COMPLETED = "COMPLETED"
    RETRYING = "RETRYING"
    """It failed, and the job has another attempt."""
    FAILED = "FAILED"
    """It failed, and the job has no other attempt: FAILED or DEAD_LETTER."""
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"
    WAITING = "WAITING"
    """The job waits for the jobs it spawned, and then runs again."""
    RELEASED = "RELEASED"
    """The job returns to its queue and uses up no attempt, as when a worker stops."""
    LEASE_LOST = "LEASE_LOST"
    """Another worker may run the job: nothing about this attempt is stored."""


class AttemptCall(JobView):
    """One call of a handler, as middleware sees it."""

    def __init__(self, view: JobView, runner: str) -> None:
        super().__init__(view._job, view._deadline, view._signals)
        self.runner = runner
        """Where the handler runs: async, thread or process."""
        self.exception: BaseException | None = None
        """What the handler raised, once it has ended; None when it returned."""
        self.outcome: AttemptOutcome | None = None
        """How the attempt ends, once the handler has ended; None before."""
        self.will_retry = False
        """Whether the job runs again later, as far as it is known here."""

    @property
    def interruption(self) -> str | None:
        """Why the worker stopped the handler, if it did: TIMEOUT, CANCELLED and others."""
        return self._signals.interruption

    @property
    def retry_count(self) -> int:
        """How many attempts came before this one."""
        return max(0, self._job.attempt - 1)

    @property
    def worker(self) -> str:
        """The id of the worker that runs it."""
        return self._job.lease.worker if self._job.lease else ""

    @property
    def spawned_by(self) -> str:
        """The id of the job that spawned this one; empty when none did."""
        return self._job.spawned_by

    @property
    def priority(self) -> int:
        """The job's priority, 0 is the highest."""
        return self._job.priority

    @property
    def payload_size(self) -> int:
        """The size of the payload in bytes."""
        return len(self._job.payload)

    def payload(self) -> object:
        """Return the payload, decoded at each call: it may be large or confidential."""
        if self._job.encoding is Encoding.BYTES:
            return self._job.payload
        return msgspec.json.decode(self._job.payload)


class Middleware:
    """The base of middleware: override one or both. Any object with these methods works."""

    def submitting(self, submission: Submission) -> Submission | Awaitable[Submission]:
        """Return the submission to store in place of this one; may be a coroutine function.

        It runs in the caller's context before the submission is checked. A ``ValidationError``
        refuses this submission; other exceptions reach the caller unchanged.
        """
        return submission

    def attempt(self, call: AttemptCall) -> AttemptManager:
        """Return a context manager, sync or async, to enter around the handler's call.

        It is entered in the handler's own task, thread or child process. At its exit
        ``call.outcome`` and ``call.exception`` are set. An exception that it raises counts as
        the handler's; one that it suppresses still fails the attempt.
        """
        return nullcontext()

    def settled(self, jobs: Sequence[Job], began: datetime, ended: datetime) -> None:
        """See jobs whose outcomes were just written together, as they were while they ran.

        It is called in the worker's process, after ``attempt`` has ended. What it raises is
        logged.
        """

    def skips(self, headers: Mapping[str, str]) -> bool:
        """Whether ``attempt`` does nothing for a job with these headers.

        A job that all middleware skips runs as if there were none, which saves time.
        """
        return False


class MiddlewareChain:
    """The middleware of an app."""

    def __init__(self) -> None:
        self.submits: list[Any] = []
        """Those that see submissions, the outermost first."""
        self.attempts: list[Any] = []
        """Those that see attempts, the outermost first."""
        self.settles: list[Any] = []
        """Those that see what was written."""
        self._choosers: list[Any] = []
        """Those of them that skip some jobs."""

    def add(self, middleware: object) -> None:
        """Add middleware inside of all others; ValidationError when it is none."""
        submits = _overrides(middleware, "submitting")
        attempts = _overrides(middleware, "attempt")
        if inspect.isclass(middleware) or not (submits or attempts):
            message = f"must be an object with submitting() or attempt(), got {middleware!r:.80}"
            raise ValidationError([Fault("middleware", "INVALID", message)])
        if submits:
            self.submits.append(middleware)
        if attempts:
            self.attempts.append(middleware)
            if _overrides(middleware, "settled"):
                self.settles.append(middleware)
            if _overrides(middleware, "skips"):
                self._choosers.append(middleware)

    def skip(self, job: Job) -> bool:
        """Whether no middleware surrounds an attempt of a job."""
        if len(self._choosers) < len(self.attempts):
            return False
        headers = read_extra(job.extra).headers
        for middleware in self._choosers:  # noqa: SIM110  # a generator takes four times as long
            if not middleware.skips(headers):
                return False
        return True

    async def prepared(
        self, submission: Submission, inherited: Mapping[str, str] | None = None
    ) -> Submission:
        """Return a submission as the middleware returns it; a refusal becomes its faults.

        ``inherited`` are the headers that it takes from the job that spawns it.
        """
        if submission.faults:
            return submission
        if inherited and submission.headers is None:
            submission = replace(submission, headers=inherited)
        try:
            for middleware in self.submits:
                submission = await _submitted(middleware, submission)
        except ValidationError as error:
            refused = Fault("submission", "REFUSED", "is refused by middleware")
            return replace(submission, faults=tuple(error.faults) or (refused,))
        return submission


def named(middleware: object) -> str:
    """Return the name of middleware for messages."""
    return f"{type(middleware).__module__}.{type(middleware).__qualname__}"


async def _submitted(middleware: Any, submission: Submission) -> Submission:
    returned = middleware.submitting(submission)
    if inspect.isawaitable(returned):
        returned = await returned
    if not isinstance(returned, Submission):
        raise TypeError(f"{named(middleware)}.submitting() must return a Submission")
    return returned


def _overrides(middleware: object, name: str) -> bool:
    """Whether an object has a method of its own, not that of ``Middleware``."""
    if not callable(getattr(middleware, name, None)):
        return False
    return getattr(type(middleware), name, None) is not getattr(Middleware, name)
