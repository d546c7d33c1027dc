"""A task: a registered function that can be submitted as a job, typed like the function."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Coroutine
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)

from holdfast.errors import Fault, JobFailedError, ValidationError
from holdfast.model.job import State
from holdfast.model.payload import PayloadError, encode
from holdfast.model.results import SubmissionResult
from holdfast.model.status import JobStatus
from holdfast.model.submission import Submission, SubmitOptions
from holdfast.model.times import Span
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.tasks.context import JobContext, SyncJobContext
from holdfast.tasks.injecting import InlineCall
from holdfast.tasks.inline import inline_context
from holdfast.tasks.registry import Registry
from holdfast.tasks.signature import Signature, decode_output
from holdfast.tasks.spawning import BoundTask

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class Submitting(Protocol):
    """Submits jobs from coroutines."""

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Submit one job."""
        ...

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended."""
        ...


class SubmittingSync(Protocol):
    """Submits jobs from blocking code."""

    def submit(
        self,
        type_: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> SubmissionResult:
        """Submit one job."""
        ...

    def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended."""
        ...


class TaskApp(Protocol):
    """The part of an app that its tasks use."""

    clock: Clock
    randomness: Randomness
    registry: Registry

    @property
    def operations(self) -> Submitting:
        """The operations of a started app; RuntimeError before it is started."""
        ...

    @property
    def sync(self) -> SubmittingSync:
        """The operations for blocking code."""
        ...


class Task(BoundTask, Generic[P, R_co]):
    """A registered function. Calling it runs it at once; ``submit`` submits a job that does."""

    def __init__(
        self,
        app: TaskApp,
        type_: str,
        function: Callable[..., R_co],
    ) -> None:
        super().__init__(type_)
        self.app = app
        self.function = function
        self._signature = Signature(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the function inline: no queue, no retries, with a new context if it takes one.

        Dependencies are made for the call, except those that the caller gives by name.
        """
        signature = self._signature
        if signature.context is None and not signature.dependencies:
            return self.function(*args, **kwargs)
        context = inline_context(self.type, self.function, self.app.clock, self.app.randomness)
        given: dict[str, Any] = {**signature.name(args), **kwargs}
        if signature.context is not None:
            given[signature.context] = context
        if not signature.dependencies:
            return self.function(**given)
        seams = self.app.registry.seams
        value: R_co = InlineCall(self.function, signature.dependencies, seams, context)(given)
        return value

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> SubmissionResult:
        """Submit a job that calls the function with these arguments."""
        submission = self.submission(*args, **kwargs)
        return await self.app.operations.submit(submission, connection=self._connection)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> SubmissionResult:
        """Submit from blocking code: scripts, threads, web frameworks without a loop."""
        return self.app.sync.submit(
            self.type,
            self._signature.pack(args, kwargs),
            connection=self._connection,
            **self._options,
        )

    @overload
    async def result(
        self: Task[P, Coroutine[Any, Any, T]],
        job: str | SubmissionResult,
        *,
        timeout: Span | None = None,
    ) -> T: ...
    @overload
    async def result(
        self: Task[P, R_co], job: str | SubmissionResult, *, timeout: Span | None = None
    ) -> R_co: ...
    async def result(self, job: str | SubmissionResult, *, timeout: Span | None = None) -> Any:
        """Wait for a job of this task and return what the function returned, as its type.

        JobFailedError when the job ended without a result, TimeoutError when it takes longer.
        """
        ended = await self.app.operations.wait(_id_of(job), timeout=timeout)
        return self._output(ended)

    @overload
    def result_sync(
        self: Task[P, Coroutine[Any, Any, T]],
        job: str | SubmissionResult,
        *,
        timeout: Span | None = None,
    ) -> T: ...
    @overload
    def result_sync(
        self: Task[P, R_co], job: str | SubmissionResult, *, timeout: Span | None = None
    ) -> R_co: ...
    def result_sync(self, job: str | SubmissionResult, *, timeout: Span | None = None) -> Any:
        """Wait for a job of this task in blocking code; see ``result``."""
        return self._output(self.app.sync.wait(_id_of(job), timeout=timeout))

    def _output(self, job: JobStatus) -> Any:
        if job.state is not State.COMPLETED:
            raise JobFailedError(job.job_id, job.state, str(job.failure or ""))
        return decode_output(self.function, job.output)

    def using(
        self, *, connection: object = None, **options: Unpack[SubmitOptions]
    ) -> Task[P, R_co]:
        """Return this task with other options: ``task.using(delay=60).submit(...)``.

        ``connection`` submits inside the caller's own database transaction (PostgreSQL).
        """
        task = copy.copy(self)
        task._options = {**self._options, **options}
        if connection is not None:
            task._connection = connection
        return task

    def submission(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """Return the submission of ``submit``, for ``submit_batch`` and ``chain``."""
        payload = self._signature.pack(args, kwargs)
        return Submission(type=self.type, payload=payload, **self._options)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> object:
        """Return the payload of a submission with these arguments."""
        return self._signature.pack(args, kwargs)

    def must_fit(self, payload: object) -> None:
        """Raise ValidationError for a payload that the function cannot be called with."""
        try:
            why = self._signature.misfit(*encode(payload))
        except PayloadError as error:
            raise ValidationError([error.fault("payload")]) from None
        if why:
            message = f"must fit task {self.type!r}: {why}"
            raise ValidationError([Fault("payload", "INVALID", message)])

    def __repr__(self) -> str:
        return f"<Task {self.type}>"


def _id_of(job: str | SubmissionResult) -> str:
    return job if isinstance(job, str) else job.job_id


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` returns: keeps the function's parameters except its context."""

    @overload
    def __call__(self, function: Task[P, R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncJobContext, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
