"""The client operations for blocking code. Written by scripts/generate_sync.py."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Unpack

from holdfast.model.amendment import JobMetadata
from holdfast.model.failure_groups import FailureGroups
from holdfast.model.job import Priority, State
from holdfast.model.results import (
    BatchCancellationResult,
    BatchDeletionResult,
    BatchResult,
    BatchRetryResult,
    CancellationResult,
    DeletionResult,
    FailureDetails,
    FailureSearchResult,
    JobCounts,
    JobSearchResult,
    ReleaseResult,
    RetryResult,
    SubmissionResult,
    UpdateResult,
)
from holdfast.model.series import Series
from holdfast.model.statistics import QueueStats
from holdfast.model.status import EventInfo, JobPayload, JobStatus, LogEntry
from holdfast.model.submission import Step, Submission, SubmitOptions
from holdfast.model.times import Moment, Span
from holdfast.model.workers import WorkerInfo
from holdfast.operations.background import Background, Home
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter, JobFilter
from holdfast.operations.sync_control import SyncControl
from holdfast.store import QueueInfo
from holdfast.store.connections import blocking
from holdfast.webhooks.registry import SECRETS_KEPT, Webhooks
from holdfast.webhooks.values import ENDS, Delivery, DeliveryPage, Webhook


class SyncOperations(SyncControl):
    """What ``Holdfast`` offers, blocking; usable from any thread, safe after a fork.

    Opens its own connection to the store at the first call, except when the app is started
    over a store that lives in its process: then it works on the app's loop from other
    threads. ``close`` is optional.
    """

    @property
    def webhooks(self) -> SyncWebhooks:
        """Addresses to notify when jobs end: add, list, remove, rotate, deliveries, resend."""
        return SyncWebhooks(self._run, self._app.webhooks_over)

    def submit(
        self,
        type_: str,
        payload: object = None,
        *,
        connection: object = None,
        **options: Unpack[SubmitOptions],
    ) -> SubmissionResult:
        """Submit a job by type name."""
        connection = blocking(connection)
        submission = Submission(type=type_, payload=payload, **options)
        return self._submit(submission, connection)

    def submit_batch(
        self,
        jobs: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit 1 to 1000 jobs, which may depend on each other by ``ref``."""
        connection = blocking(connection)
        return self._run(
            lambda operations: operations.submit_batch(jobs, atomic=atomic, connection=connection)
        )

    def chain(self, *steps: Step, connection: object = None) -> list[SubmissionResult]:
        """Submit jobs that run one after another; a list is a step whose jobs run in parallel."""
        connection = blocking(connection)
        return self._run(lambda operations: operations.chain(steps, connection=connection))

    def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        return self._run(
            lambda operations: operations.get(
                job_id, include_result=include_result, include_history=include_history
            )
        )

    def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        return self._run(lambda operations: operations.wait(job_id, timeout=timeout))

    def search(self, **wanted: Unpack[JobFilter]) -> JobSearchResult:
        """Return one page of jobs that match all filters."""
        return self._run(lambda operations: operations.search(wanted))

    def count(self, **wanted: Unpack[JobFilter]) -> JobCounts:
        """Return how many jobs match all filters, by state: exact, or up to a bound."""
        return self._run(lambda operations: operations.count(wanted))

    def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies; ``breakdown_by`` QUEUE, TYPE, PRIORITY, STATE."""
        return self._run(
            lambda operations: operations.stats(time_range=time_range, breakdown_by=breakdown_by)
        )

    def cancel(self, job_id: str, *, reason: str = "", force: bool = False) -> CancellationResult:
        """Cancel a waiting job; request a running one to stop, with ``force`` interrupt it."""
        return self._run(lambda operations: operations.cancel(job_id, reason=reason, force=force))

    def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,
        reason: str = "",
        force: bool = False,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs, by ids or by filter; a dry run only counts."""
        return self._run(
            lambda operations: operations.cancel_batch(
                job_ids=job_ids,
                filter=filter,
                reason=reason,
                force=force,
                as_of=as_of,
                dry_run=dry_run,
            )
        )

    def retry_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchRetryResult:
        """Run many FAILED and DEAD_LETTER jobs again, by ids or by filter; others are skipped."""
        return self._run(
            lambda operations: operations.retry_batch(
                job_ids=job_ids,
                filter=filter,
                reset_attempts=reset_attempts,
                priority=priority,
                delay=delay,
                as_of=as_of,
                dry_run=dry_run,
            )
        )

    def delete_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchDeletionResult:
        """Delete many ended jobs, by ids or by filter; others are skipped."""
        return self._run(
            lambda operations: operations.delete_batch(
                job_ids=job_ids, filter=filter, as_of=as_of, dry_run=dry_run
            )
        )

    def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        return self._run(
            lambda operations: operations.failure(job_id, include_all_attempts=include_all_attempts)
        )

    def failures(self, **wanted: Unpack[FailureFilter]) -> FailureSearchResult:
        """Return one page of failed jobs, with counts over all that match."""
        return self._run(lambda operations: operations.failures(wanted))

    def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Run a FAILED or DEAD_LETTER job again."""
        return self._run(
            lambda operations: operations.retry(
                job_id, reset_attempts=reset_attempts, priority=priority, delay=delay
            )
        )

    def update(self, job_id: str, **metadata: Unpack[JobMetadata]) -> UpdateResult:
        """Change a job's metadata, all that is given or nothing."""
        return self._run(lambda operations: operations.update(job_id, **metadata))

    def release(self, job_id: str) -> ReleaseResult:
        """Release a job that was submitted with ``hold=True``."""
        return self._run(lambda operations: operations.release(job_id))

    def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        return self._run(lambda operations: operations.delete(job_id))

    def events(self, *, after: str | None = None, follow: bool = True) -> Iterator[EventInfo]:
        """Yield the events of jobs, from now on or after an event's cursor."""
        return self._iterate(lambda operations: operations.events(after=after, follow=follow))

    def logs(self, job_id: str) -> list[LogEntry]:
        """Return the lines a job's handler logged."""
        return self._run(lambda operations: operations.logs(job_id))

    def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings, counts and what happens in it."""
        return self._run(lambda operations: operations.queues())

    def payload(self, job_id: str) -> JobPayload:
        """Return the payload that a job was submitted with; NotFoundError when there is no job."""
        return self._run(lambda operations: operations.payload(job_id))

    def set_ageing(self, queue: str, interval: Span | None) -> None:
        """Raise the ready jobs of a queue by one priority level per interval; None: not at all."""
        self._run(lambda operations: operations.set_ageing(queue, interval))

    def pause(
        self, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
    ) -> None:
        """Stop the jobs of a queue from starting; running ones finish."""
        self._run(lambda operations: operations.pause(queue, reason=reason, until=until, by=by))

    def resume(self, queue: str) -> None:
        """Let the jobs of a paused queue start again."""
        self._run(lambda operations: operations.resume(queue))

    def workers(self) -> list[WorkerInfo]:
        """Return the workers that are alive."""
        return self._run(lambda operations: operations.workers())

    def explain(self, job_id: str) -> Explanation:
        """Explain why a job is not running now."""
        return self._run(lambda operations: operations.explain(job_id))

    def failure_groups(self, *, time_range: Span = timedelta(hours=1)) -> FailureGroups:
        """Return the failures of the last hour, or of up to 7 days, in groups."""
        return self._run(lambda operations: operations.failure_groups(time_range=time_range))

    def series(
        self,
        *,
        time_range: Span = timedelta(hours=1),
        step: Span | None = None,
        queues: Sequence[str] = (),
        types: Sequence[str] = (),
        breakdown_by: Sequence[str] = (),
    ) -> Series:
        """Return counts and percentiles of the last hour, or of up to 7 days, step by step."""
        return self._run(
            lambda operations: operations.series(
                time_range=time_range,
                step=step,
                queues=queues,
                types=types,
                breakdown_by=breakdown_by,
            )
        )


class SyncWebhooks(Background[Webhooks]):
    """What ``Holdfast.webhooks`` offers, blocking."""

    def add(
        self,
        url: str,
        *,
        states: Sequence[State | str] = ENDS,
        types: Sequence[str] = (),
        queues: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
        include_result: bool = False,
        description: str = "",
        secret: str | None = None,
    ) -> Webhook:
        """Send ends to an address from now on; the result holds the secret that signs them."""
        return self._run(
            lambda part: part.add(
                url,
                states=states,
                types=types,
                queues=queues,
                tags=tags,
                include_result=include_result,
                description=description,
                secret=secret,
            )
        )

    def list(self) -> builtins.list[Webhook]:
        """Return every webhook, oldest first."""
        return self._run(lambda part: part.list())

    def get(self, webhook_id: str) -> Webhook:
        """Return a webhook; NotFoundError when there is none."""
        return self._run(lambda part: part.get(webhook_id))

    def remove(self, webhook_id: str) -> None:
        """Remove a webhook; its pending deliveries fail."""
        self._run(lambda part: part.remove(webhook_id))

    def rotate(
        self, webhook_id: str, *, secret: str | None = None, keep: int = SECRETS_KEPT - 1
    ) -> Webhook:
        """Sign with a new secret as well; ``keep`` of the older ones stay valid."""
        return self._run(lambda part: part.rotate(webhook_id, secret=secret, keep=keep))

    def switch(self, webhook_id: str, *, enabled: bool) -> Webhook:
        """Disable a webhook, or enable it again."""
        return self._run(lambda part: part.switch(webhook_id, enabled=enabled))

    def callback_secrets(self, *, rotate: bool = False) -> tuple[str, ...]:
        """Return the secrets that sign messages to jobs' own callback addresses."""
        return self._run(lambda part: part.callback_secrets(rotate=rotate))

    def deliveries(
        self, webhook_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> DeliveryPage:
        """Return deliveries, newest first, of one webhook (``callback`` included) or of all."""
        return self._run(lambda part: part.deliveries(webhook_id, limit=limit, cursor=cursor))

    def delivery(self, delivery_id: str) -> Delivery:
        """Return one delivery; NotFoundError when there is none."""
        return self._run(lambda part: part.delivery(delivery_id))

    def resend(self, delivery_id: str) -> Delivery:
        """Send a message again, at once, under the same message id."""
        return self._run(lambda part: part.resend(delivery_id))


__all__ = ["Home", "SyncOperations", "SyncWebhooks"]
