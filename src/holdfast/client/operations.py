"""The operations over HTTP: the same names, arguments, results and errors as on a store."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from holdfast.api.responses import LogLines, QueueList, WorkerList
from holdfast.api.submissions import BatchBody, SubmissionBody
from holdfast.client.control import RemoteControl
from holdfast.client.errors import error_from
from holdfast.client.events import follow_events
from holdfast.client.oversight import RemoteOversight
from holdfast.client.requests import (
    TypeMisfit,
    encode_body,
    has_own_key,
    job_path,
    no_connection,
    prepared_body,
    query,
    queue_path,
    selection,
    submission_body,
)
from holdfast.client.transport import ConnectionLost, ServiceResponse, Transport
from holdfast.errors import NotFoundError
from holdfast.model.amendment import JobMetadata
from holdfast.model.job import TERMINAL, Priority
from holdfast.model.policy import Limits
from holdfast.model.results import (
    BatchCancellationResult,
    BatchDeletionResult,
    BatchResult,
    BatchRetryResult,
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    FailureDetails,
    FailureSearchResult,
    JobSearchResult,
    ReleaseResult,
    ReleaseStatus,
    RetryResult,
    RetryStatus,
    SubmissionResult,
    SubmissionStatus,
    UpdateResult,
    UpdateStatus,
)
from holdfast.model.statistics import QueueStats
from holdfast.model.status import EventInfo, JobPayload, JobStatus, LogEntry
from holdfast.model.submission import Step, Submission, chained
from holdfast.model.times import Moment, Span, parse_duration
from holdfast.model.workers import WorkerInfo
from holdfast.operations.batcher import with_retries
from holdfast.operations.changes import read_span
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter, JobFilter
from holdfast.operations.interface import OperationsBackend
from holdfast.runtime.randomness import Randomness
from holdfast.store import QueueInfo
from holdfast.tasks.middleware import MiddlewareChain

T = TypeVar("T")
LONGEST_WAIT = 25.0
"""How long one request waits for a job, in seconds; then the next one goes out."""

RESPONSE_TIMEOUT = 60.0
"""How long a response may take, in seconds."""


class RemoteOperations(RemoteControl, RemoteOversight, OperationsBackend):
    """The operations on jobs at a service."""

    def __init__(
        self,
        url: str,
        *,
        randomness: Randomness,
        key: str | None = None,
        misfit: TypeMisfit | None = None,
        middleware: MiddlewareChain | None = None,
    ) -> None:
        key = key or os.environ.get("HOLDFAST_API_KEY", "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._transport = Transport(url.rstrip("/"), headers)
        self._randomness = randomness
        self._misfit = misfit
        self._middleware = middleware or MiddlewareChain()
        self._retry_for = Limits().submission_timeout

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Submit one job."""
        no_connection(connection)
        submission = await self._middleware.prepared(submission)
        has_key = has_own_key(submission.idempotency_key, submission.deduplication)
        body = encode_body(submission_body(submission, add_window=not has_key, misfit=self._misfit))
        headers = {} if has_key else {"idempotency-key": self._randomness.uuid()}
        response = await self._call("POST", "/jobs", body, headers)
        key = submission.idempotency_key or ""
        result = _decode(response, SubmissionBody, key=str(key)).value()
        return result if has_key else _as_accepted(result)

    async def submit_batch(
        self,
        submissions: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit many jobs."""
        no_connection(connection)
        jobs = [await prepared_body(one, self._middleware, self._misfit) for one in submissions]
        body = encode_body({"jobs": jobs, "atomic": atomic})
        headers = {"idempotency-key": self._randomness.uuid()}
        response = await self._call("POST", "/jobs/batch", body, headers)
        batch = _decode(response, BatchBody).value()
        results = [
            result
            if has_own_key(job.get("idempotency_key"), job.get("deduplication"))
            else _as_accepted(result)
            for job, result in zip(jobs, batch.results, strict=True)
        ]
        return replace(batch, results=tuple(results))

    async def chain(
        self, steps: Sequence[Step], *, connection: object = None
    ) -> list[SubmissionResult]:
        """Submit jobs that run one after another, all or none."""
        return list((await self.submit_batch(chained(steps), connection=connection)).results)

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        parameters = query({"include_result": include_result, "include_history": include_history})
        return await self._get(job_path(job_id) + parameters, JobStatus, job_id)

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        loop = asyncio.get_running_loop()
        deadline = None
        if timeout is not None:
            deadline = loop.time() + parse_duration(timeout).total_seconds()
        while True:
            left = LONGEST_WAIT if deadline is None else max(0.0, deadline - loop.time())
            parameters = query({"timeout": timedelta(seconds=min(left, LONGEST_WAIT))})
            path = job_path(job_id, "/wait") + parameters
            job = await self._get(path, JobStatus, job_id)
            if job.state in TERMINAL:
                return job
            if deadline is not None and loop.time() >= deadline:
                raise TimeoutError

    async def search(self, wanted: JobFilter) -> JobSearchResult:
        """Return one page of jobs."""
        response = await self._call("POST", "/jobs/search", encode_body(wanted))
        return _decode(response, JobSearchResult)

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies."""
        window = read_span("time_range", time_range)
        parameters = query({"time_range": window, "breakdown_by": list(breakdown_by)})
        return await self._get(f"/stats{parameters}", QueueStats)

    async def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        parameters = query({"include_all_attempts": include_all_attempts})
        path = job_path(job_id, "/failure") + parameters
        return await self._get(path, FailureDetails, job_id)

    async def failures(self, wanted: FailureFilter) -> FailureSearchResult:
        """Return one page of failed jobs with the number of failures by cause."""
        response = await self._call("POST", "/failures", encode_body(wanted))
        return _decode(response, FailureSearchResult)

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[EventInfo]:
        """Yield events of jobs, from now or after a cursor; ends only without ``follow``."""
        async for event in follow_events(self._transport, after=after, follow=follow):
            yield event

    async def logs(self, job_id: str) -> list[LogEntry]:
        """Return the lines a job's handler logged."""
        return list((await self._get(job_path(job_id, "/logs"), LogLines, job_id)).logs)

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings, counts and activity."""
        return list((await self._get("/queues", QueueList)).queues)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are present now."""
        return list((await self._get("/workers", WorkerList)).workers)

    async def explain(self, job_id: str) -> Explanation:
        """Explain why a job is not running now."""
        return await self._get(job_path(job_id, "/explain"), Explanation, job_id)

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult:
        """Cancel a waiting job; ask a running one to stop, or with ``force`` interrupt it."""
        body = encode_body({"reason": reason, "force": force})
        missing = CancellationResult(job_id=job_id, status=CancellationStatus.NOT_FOUND)
        return await self._change(job_id, "/cancel", body, missing)

    async def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs, by id or by filter; a dry run only counts."""
        body: dict[str, object] = {"reason": reason, "force": force, "dry_run": dry_run}
        body |= selection(job_ids, filter, as_of)
        response = await self._call("POST", "/jobs/cancel", encode_body(body))
        return _decode(response, BatchCancellationResult)

    async def retry_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchRetryResult:
        """Run many FAILED and DEAD_LETTER jobs again."""
        body: dict[str, object] = {"reset_attempts": reset_attempts, "dry_run": dry_run}
        body["delay"] = read_span("delay", delay)
        if priority is not None:
            body["priority"] = priority
        body |= selection(job_ids, filter, as_of)
        response = await self._call("POST", "/jobs/retry", encode_body(body), repeat=False)
        return _decode(response, BatchRetryResult)

    async def delete_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        as_of: Moment | None = None,
        dry_run: bool = False,
    ) -> BatchDeletionResult:
        """Delete many ended jobs."""
        body: dict[str, object] = {"dry_run": dry_run, **selection(job_ids, filter, as_of)}
        response = await self._call("POST", "/jobs/delete", encode_body(body), repeat=False)
        return _decode(response, BatchDeletionResult)

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Run a FAILED or DEAD_LETTER job again."""
        body: dict[str, object] = {"reset_attempts": reset_attempts}
        body["delay"] = read_span("delay", delay)
        if priority is not None:
            body["priority"] = priority
        missing = RetryResult(job_id=job_id, status=RetryStatus.NOT_FOUND)
        return await self._change(job_id, "/retry", encode_body(body), missing, repeat=False)

    async def update(self, job_id: str, **metadata: Unpack[JobMetadata]) -> UpdateResult:
        """Change tags, correlation id, callback address, priority or due time of a job."""
        missing = UpdateResult(job_id=job_id, status=UpdateStatus.NOT_FOUND)
        return await self._change(job_id, "", encode_body(metadata), missing, method="PATCH")

    async def release(self, job_id: str) -> ReleaseResult:
        """Release a job that was submitted with ``hold``."""
        missing = ReleaseResult(job_id=job_id, status=ReleaseStatus.NOT_FOUND)
        return await self._change(job_id, "/release", b"", missing)

    async def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        missing = DeletionResult(job_id=job_id, status=DeletionStatus.NOT_FOUND)
        return await self._change(job_id, "", b"", missing, method="DELETE")

    async def payload(self, job_id: str) -> JobPayload:
        """Return the payload of a job."""
        found = await self._get(job_path(job_id, "/payload"), JobPayload, job_id)
        if found.payload_encoding != "base64":
            return found
        return replace(found, payload=base64.b64decode(str(found.payload)))

    async def set_ageing(self, queue: str, interval: Span | None) -> None:
        """Raise ready jobs of a queue by one level per interval; None turns it off."""
        span = None if interval is None else read_span("interval", interval)
        body = encode_body({"interval": span})
        _decode(await self._call("POST", queue_path(queue, "ageing"), body), dict[str, object])

    async def pause(
        self, queue: str, *, reason: str = "", until: Moment | None = None, by: str = ""
    ) -> None:
        """Pause a queue: none of its jobs start. The service records its caller."""
        await self._change_queue(queue, "pause", reason=reason, until=until)

    async def resume(self, queue: str) -> None:
        """Resume a paused queue."""
        await self._change_queue(queue, "resume")

    async def _change_queue(self, queue: str, action: str, **given: object) -> None:
        body = encode_body({k: v for k, v in given.items() if v})
        response = await self._call("POST", queue_path(queue, action), body)
        _decode(response, dict[str, object])

    async def _change(
        self,
        job_id: str,
        suffix: str,
        body: bytes,
        missing: T,
        *,
        method: str = "POST",
        repeat: bool = True,
    ) -> T:
        try:
            response = await self._call(method, job_path(job_id, suffix), body, repeat=repeat)
            return _decode(response, type(missing), job_id=job_id)
        except NotFoundError:
            return missing

    async def _get(self, path: str, kind: type[T], job_id: str = "") -> T:
        return _decode(await self._call("GET", path), kind, job_id=job_id)

    async def request(
        self, method: str, path: str, kind: type[T], body: bytes = b"", *, subject: str = ""
    ) -> T:
        """Call the service; GET and DELETE are repeated while it is unavailable.

        ``subject`` is the id that a NotFoundError names.
        """
        response = await self._call(method, path, body, repeat=method in ("GET", "DELETE"))
        return _decode(response, kind, job_id=subject)

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeat: bool = True,
    ) -> ServiceResponse:
        """Call the service; repeat while it is unavailable, unless a repeat could do harm."""

        async def once() -> ServiceResponse:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                response = await self._transport.call(method, f"/api/v1{path}", body, headers)
            if response.status == 503 and repeat:
                raise error_from(response)
            return response

        if not repeat:
            try:
                return await once()
            except ConnectionLost as error:
                if error.sent:
                    raise
        return await with_retries(once, self._randomness, self._retry_for)


def _decode(response: ServiceResponse, kind: type[T], *, job_id: str = "", key: str = "") -> T:
    if response.status >= 300:
        raise error_from(response, job_id=job_id, key=key)
    return msgspec.json.decode(response.body, type=kind)


def _as_accepted(result: SubmissionResult) -> SubmissionResult:
    """Report a duplicate of a generated key as accepted: an earlier request stored the job."""
    if result.status is not SubmissionStatus.DUPLICATE:
        return result
    return replace(result, status=SubmissionStatus.ACCEPTED, existing_job_id=None)
