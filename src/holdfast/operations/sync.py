"""The client operations for blocking code: one event loop in a background thread serves all."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar, Unpack

from holdfast.model.job import LogLine, Priority
from holdfast.model.results import (
    BatchCancellationResult,
    BatchResult,
    CancellationResult,
    DeletionResult,
    FailureDetails,
    FailureSearchResult,
    JobStatus,
    ReleaseResult,
    RetryResult,
    SearchResult,
    SubmissionResult,
)
from holdfast.model.statistics import QueueStats
from holdfast.model.submission import Step, Submission, SubmitOptions
from holdfast.model.times import Span
from holdfast.model.workers import WorkerInfo
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter, JobFilter
from holdfast.operations.interface import OperationsBackend
from holdfast.store import JobEvent, QueueInfo
from holdfast.store.connections import blocking
from holdfast.webhooks import Delivery, DeliveryPage, Webhook, WebhookFilters, Webhooks

T = TypeVar("T")
FAREWELL = 2.0
"""How long the end of a program may take for the sake of those who did not close, in seconds."""
Home = tuple[asyncio.AbstractEventLoop, OperationsBackend]
"""Operations and the loop they live on."""


class Opener(Protocol):
    """An app, or a client of a service."""

    @property
    def home(self) -> Home | None:
        """Operations that blocking callers must use, with their loop."""
        ...

    async def open_operations(self) -> OperationsBackend:
        """Open another connection to the same place."""
        ...

    def webhooks_over(self, operations: OperationsBackend) -> Webhooks:
        """Return the webhooks there."""
        ...


class SyncOperations:
    """What ``Holdfast`` offers, blocking; usable from any thread, safe after a fork.

    Opens its own connection to the store at the first call, except when the app is started
    over a store that lives in its process: then it works on the app's loop from other
    threads. ``close`` is optional.
    """

    def __init__(self, app: Opener) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._operations: OperationsBackend | None = None
        self._pid = 0

    def submit(
        self,
        type_: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> SubmissionResult:
        """Submit a job by type name."""
        submission = Submission(type=type_, payload=payload, **options)
        connection = blocking(connection)
        return self._run(lambda does: does.submit(submission, connection=connection))

    def submit_batch(
        self,
        jobs: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit 1 to 1000 jobs."""
        connection = blocking(connection)
        return self._run(lambda does: does.submit_batch(jobs, atomic=atomic, connection=connection))

    def chain(self, *steps: Step, connection: object = None) -> list[SubmissionResult]:
        """Submit jobs that run one after another."""
        connection = blocking(connection)
        return self._run(lambda does: does.chain(steps, connection=connection))

    def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job."""
        return self._run(
            lambda does: does.get(
                job_id, include_result=include_result, include_history=include_history
            )
        )

    def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended."""
        return self._run(lambda does: does.wait(job_id, timeout=timeout))

    def search(self, **wanted: Unpack[JobFilter]) -> SearchResult:
        """Return one page of jobs."""
        return self._run(lambda does: does.search(wanted))

    def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies."""
        return self._run(lambda does: does.stats(time_range=time_range, breakdown_by=breakdown_by))

    def cancel(self, job_id: str, *, reason: str = "", force: bool = False) -> CancellationResult:
        """Cancel a job."""
        return self._run(lambda does: does.cancel(job_id, reason=reason, force=force))

    def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs."""
        return self._run(
            lambda does: does.cancel_batch(
                job_ids=job_ids, filter=filter, reason=reason, force=force, dry_run=dry_run
            )
        )

    def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed."""
        return self._run(
            lambda does: does.failure(job_id, include_all_attempts=include_all_attempts)
        )

    def failures(self, **wanted: Unpack[FailureFilter]) -> FailureSearchResult:
        """Return one page of failed jobs."""
        return self._run(lambda does: does.failures(wanted))

    def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Give a failed job another chance."""
        return self._run(
            lambda does: does.retry(
                job_id, reset_attempts=reset_attempts, priority=priority, delay=delay
            )
        )

    def release(self, job_id: str) -> ReleaseResult:
        """Let a held job go."""
        return self._run(lambda does: does.release(job_id))

    def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job."""
        return self._run(lambda does: does.delete(job_id))

    def events(self, *, after: str | None = None, follow: bool = True) -> Iterator[JobEvent]:
        """Yield what happens to jobs."""
        stream: AsyncIterator[JobEvent] | None = None

        async def following(does: OperationsBackend) -> JobEvent | None:
            nonlocal stream
            stream = stream or does.events(after=after, follow=follow)
            return await anext(stream, None)

        while (event := self._run(following)) is not None:
            yield event

    def logs(self, job_id: str) -> list[LogLine]:
        """Return the lines a job's handler logged."""
        return self._run(lambda does: does.logs(job_id))

    def queues(self) -> list[QueueInfo]:
        """Return every queue."""
        return self._run(lambda does: does.queues())

    def pause(self, queue: str) -> None:
        """Let no more jobs of a queue start."""
        self._run(lambda does: does.pause(queue))

    def resume(self, queue: str) -> None:
        """Let jobs of a queue start again."""
        self._run(lambda does: does.resume(queue))

    def workers(self) -> list[WorkerInfo]:
        """Return the workers that are there now."""
        return self._run(lambda does: does.workers())

    def explain(self, job_id: str) -> Explanation:
        """Say why a job is not running now."""
        return self._run(lambda does: does.explain(job_id))

    @property
    def webhooks(self) -> SyncWebhooks:
        """Addresses that are told of ends: add, list, remove, rotate, deliveries, resend."""
        return SyncWebhooks(self._run, self._app.webhooks_over)

    def close(self) -> None:
        """Let go of the store and the background thread; a later call opens them again."""
        with self._lock:
            loop, operations = self._loop, self._operations
            self._loop = self._operations = None
        if loop is not None and operations is not None and self._pid == os.getpid():
            _call(loop, operations.close())
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    def _run(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T:
        loop, operations = self._app.home or self._open()
        return _call(loop, operate(operations))

    def _open(self) -> Home:
        with self._lock:
            if self._loop is None or self._operations is None or self._pid != os.getpid():
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="holdfast-sync", daemon=True
                )
                self._thread.start()
                self._operations = _call(loop, self._app.open_operations())
                self._loop, self._pid = loop, os.getpid()
                weakref.finalize(self, _part, loop, self._operations, self._pid)
            return self._loop, self._operations


class _Runner(Protocol):
    """Waits for what is to be done with the operations."""

    def __call__(self, operate: Callable[[OperationsBackend], Coroutine[Any, Any, T]]) -> T: ...


class SyncWebhooks:
    """What ``Holdfast.webhooks`` offers, blocking."""

    def __init__(self, run: _Runner, over: Callable[[OperationsBackend], Webhooks]) -> None:
        self._run = run
        self._over = over

    def _on(self, operate: Callable[[Webhooks], Coroutine[Any, Any, T]]) -> T:
        return self._run(lambda does: operate(self._over(does)))

    def add(self, url: str, **filters: Unpack[WebhookFilters]) -> Webhook:
        """Tell an address of ends from now on; the answer holds the secret to verify them with."""
        return self._on(lambda hooks: hooks.add(url, **filters))

    def list(self) -> builtins.list[Webhook]:
        """Return every webhook, oldest first."""
        return self._on(lambda hooks: hooks.list())

    def get(self, webhook_id: str) -> Webhook:
        """Return a webhook."""
        return self._on(lambda hooks: hooks.get(webhook_id))

    def remove(self, webhook_id: str) -> None:
        """Tell an address no more."""
        self._on(lambda hooks: hooks.remove(webhook_id))

    def rotate(self, webhook_id: str, *, keep: int = 1) -> Webhook:
        """Sign with a new secret, too."""
        return self._on(lambda hooks: hooks.rotate(webhook_id, keep=keep))

    def callback_secrets(self, *, rotate: bool = False) -> tuple[str, ...]:
        """Return the secrets that sign what jobs' own callback addresses are told."""
        return self._on(lambda hooks: hooks.callback_secrets(rotate=rotate))

    def deliveries(
        self, webhook_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Return deliveries, newest first."""
        return self._on(lambda hooks: hooks.deliveries(webhook_id, limit=limit, cursor=cursor))

    def resend(self, delivery_id: str) -> Delivery:
        """Send a message again."""
        return self._on(lambda hooks: hooks.resend(delivery_id))


def _part(loop: asyncio.AbstractEventLoop, operations: OperationsBackend, pid: int) -> None:
    """Let go of the store as the interpreter ends, if that takes a moment only."""
    if loop.is_running() and pid == os.getpid():
        closing = asyncio.run_coroutine_threadsafe(operations.close(), loop)
        with contextlib.suppress(Exception):
            closing.result(FAREWELL)


def _call(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    here = None
    with contextlib.suppress(RuntimeError):
        here = asyncio.get_running_loop()
    if here is loop:
        coroutine.close()
        raise RuntimeError("app.sync would block the event loop it needs: await the app's own")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise
