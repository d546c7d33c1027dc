"""The client operations over HTTP: the same names, arguments, results and errors."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.api.failures import FailureBody, FailureSearchBody
from holdfast.api.jobs import JobBody
from holdfast.api.responses import JobSearchResult, LogLines, QueueList, WorkerList
from holdfast.api.submissions import BatchBody, SubmissionBody
from holdfast.client.errors import error_of
from holdfast.client.events import events_of
from holdfast.client.requests import job_path, loose_body, query, submission_body, written
from holdfast.client.transport import ConnectionLost, Response, Transport
from holdfast.errors import Fault, NotFoundError, StoreError, ValidationError
from holdfast.model.job import TERMINAL, LogLine, Priority
from holdfast.model.policy import Limits
from holdfast.model.results import (
    BatchCancellationResult,
    BatchResult,
    CancellationResult,
    CancellationStatus,
    DeletionResult,
    DeletionStatus,
    FailureDetails,
    FailureSearchResult,
    JobStatus,
    ReleaseResult,
    ReleaseStatus,
    RetryResult,
    RetryStatus,
    SearchResult,
    SubmissionResult,
    SubmissionStatus,
)
from holdfast.model.statistics import QueueStats
from holdfast.model.submission import Submission
from holdfast.model.times import Span, parse_duration
from holdfast.model.workers import WorkerInfo
from holdfast.operations.changes import read_span
from holdfast.operations.explain import Explanation
from holdfast.operations.filters import FailureFilter, JobFilter
from holdfast.operations.operations import Operations
from holdfast.operations.submitter import patiently
from holdfast.runtime.clock import Clock
from holdfast.runtime.randomness import Randomness
from holdfast.store import JobEvent, QueueInfo, Store

T = TypeVar("T")
LONGEST_WAIT = 25.0
"""How long one request waits for a job, in seconds; then it is asked again."""

PATIENCE = 60.0
"""How long an answer may take, in seconds."""


class RemoteOperations(Operations):
    """What a client can do with jobs, at a service instead of a store."""

    def __init__(
        self, url: str, *, randomness: Randomness, clock: Clock, key: str | None = None
    ) -> None:
        key = key or os.environ.get("HOLDFAST_API_KEY", "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._transport = Transport(url.rstrip("/"), headers)
        self._randomness = randomness
        self._clock = clock
        self._patience = Limits().submission_timeout

    @property
    def store(self) -> Store:  # type: ignore[override]  # there is none to be set
        """Refused: only the service reaches it."""
        raise StoreError("this needs the store itself: give its URL instead of the service's")

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    # --- submitting ------------------------------------------------------------------------

    async def submit(
        self, submission: Submission, *, connection: object = None
    ) -> SubmissionResult:
        """Submit one job."""
        _no_connection(connection)
        own = submission.idempotency_key is not None
        body = written(submission_body(submission, keyed=not own))
        headers = {} if own else {"idempotency-key": self._randomness.uuid()}
        response = await self._call("POST", "/jobs", body, headers)
        key = submission.idempotency_key or ""
        found = _read(response, SubmissionBody, key=str(key)).value()
        return found if own else _first_time(found)

    async def submit_batch(
        self,
        submissions: Sequence[Submission | Mapping[str, object]],
        *,
        atomic: bool = True,
        connection: object = None,
    ) -> BatchResult:
        """Submit many jobs."""
        _no_connection(connection)
        jobs = [
            submission_body(one, keyed=True)
            if isinstance(one, Submission)
            else loose_body(one, keyed=True)
            for one in submissions
        ]
        body = written({"jobs": jobs, "atomic": atomic})
        headers = {"idempotency-key": self._randomness.uuid()}
        response = await self._call("POST", "/jobs/batch", body, headers)
        found = _read(response, BatchBody).value()
        results = [
            result if job.get("idempotency_key") is not None else _first_time(result)
            for job, result in zip(jobs, found.results, strict=True)
        ]
        return replace(found, results=tuple(results))

    # --- reading ---------------------------------------------------------------------------

    async def get(
        self, job_id: str, *, include_result: bool = True, include_history: bool = False
    ) -> JobStatus:
        """Return a job; NotFoundError when there is none."""
        asked = query({"include_result": include_result, "include_history": include_history})
        return (await self._get(job_path(job_id) + asked, JobBody, job_id)).value()

    async def wait(self, job_id: str, *, timeout: Span | None = None) -> JobStatus:
        """Wait until a job has ended; TimeoutError when that takes longer than ``timeout``."""
        patience = None if timeout is None else parse_duration(timeout).total_seconds()
        loop = asyncio.get_running_loop()
        deadline = None if patience is None else loop.time() + patience
        while True:
            left = LONGEST_WAIT if deadline is None else max(0.0, deadline - loop.time())
            asked = query({"timeout": timedelta(seconds=min(left, LONGEST_WAIT))})
            path = job_path(job_id, "/wait") + asked
            job = (await self._get(path, JobBody, job_id)).value()
            if job.state in TERMINAL:
                return job
            if deadline is not None and loop.time() >= deadline:
                raise TimeoutError

    async def search(self, wanted: JobFilter) -> SearchResult:
        """Return one page of jobs."""
        response = await self._call("POST", "/jobs/search", written(wanted))
        return _read(response, JobSearchResult).value()

    async def stats(
        self, *, time_range: Span = timedelta(hours=1), breakdown_by: Sequence[str] = ()
    ) -> QueueStats:
        """Return counts, rates and latencies."""
        window = read_span("time_range", time_range)
        asked = query({"time_range": window, "breakdown_by": list(breakdown_by)})
        return await self._get(f"/stats{asked}", QueueStats)

    async def failure(self, job_id: str, *, include_all_attempts: bool = True) -> FailureDetails:
        """Return how a job failed, attempt by attempt."""
        asked = query({"include_all_attempts": include_all_attempts})
        path = job_path(job_id, "/failure") + asked
        return (await self._get(path, FailureBody, job_id)).value()

    async def failures(self, wanted: FailureFilter) -> FailureSearchResult:
        """Return one page of failed jobs with what they failed of."""
        return (await self._get(f"/failures{query(wanted)}", FailureSearchBody)).value()

    async def events(
        self, *, after: str | None = None, follow: bool = True
    ) -> AsyncIterator[JobEvent]:
        """Yield what happens to jobs, from now or after a cursor; ends only without ``follow``."""
        async for event in events_of(self._transport, after=after, follow=follow):
            yield event

    async def logs(self, job_id: str) -> list[LogLine]:
        """Return the lines a job's handler logged."""
        return list((await self._get(job_path(job_id, "/logs"), LogLines, job_id)).logs)

    async def queues(self) -> list[QueueInfo]:
        """Return every queue with its settings and counts."""
        return list((await self._get("/queues", QueueList)).queues)

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers that are there now."""
        return list((await self._get("/workers", WorkerList)).workers)

    async def explain(self, job_id: str) -> Explanation:
        """Say why a job is not running now."""
        return await self._get(job_path(job_id, "/explain"), Explanation, job_id)

    # --- changing --------------------------------------------------------------------------

    async def cancel(
        self, job_id: str, *, reason: str = "", force: bool = False
    ) -> CancellationResult:
        """Cancel a job that waits; ask one that runs to stop (``force`` interrupts it)."""
        body = written({"reason": reason, "force": force})
        missing = CancellationResult(job_id=job_id, status=CancellationStatus.NOT_FOUND)
        return await self._change(job_id, "/cancel", body, missing)

    async def cancel_batch(
        self,
        *,
        job_ids: Sequence[str] | None = None,
        filter: JobFilter | None = None,  # noqa: A002  # the word of the API
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> BatchCancellationResult:
        """Cancel many jobs, by id or by filter; a dry run only counts."""
        body: dict[str, object] = {"reason": reason, "force": force, "dry_run": dry_run}
        chosen = {"job_ids": job_ids, "filter": filter}
        body |= {name: value for name, value in chosen.items() if value is not None}
        response = await self._call("POST", "/jobs/cancel", written(body))
        return _read(response, BatchCancellationResult)

    async def retry(
        self,
        job_id: str,
        *,
        reset_attempts: bool = False,
        priority: Priority | str | int | None = None,
        delay: Span = 0,
    ) -> RetryResult:
        """Give a failed job another chance, by an operator's word."""
        body: dict[str, object] = {"reset_attempts": reset_attempts}
        body["delay"] = read_span("delay", delay)
        if priority is not None:
            body["priority"] = priority
        missing = RetryResult(job_id=job_id, status=RetryStatus.NOT_FOUND)
        return await self._change(job_id, "/retry", written(body), missing, repeat=False)

    async def release(self, job_id: str) -> ReleaseResult:
        """Let a held job go."""
        missing = ReleaseResult(job_id=job_id, status=ReleaseStatus.NOT_FOUND)
        return await self._change(job_id, "/release", b"", missing)

    async def delete(self, job_id: str) -> DeletionResult:
        """Delete an ended job that no live job depends on."""
        missing = DeletionResult(job_id=job_id, status=DeletionStatus.NOT_FOUND)
        return await self._change(job_id, "", b"", missing, method="DELETE")

    async def pause(self, queue: str) -> None:
        """Let no more jobs of a queue start."""
        await self._queue(queue, "pause")

    async def resume(self, queue: str) -> None:
        """Let jobs of a queue start again."""
        await self._queue(queue, "resume")

    async def _queue(self, queue: str, what: str) -> None:
        path = job_path(queue, f"/{what}").replace("/jobs/", "/queues/", 1)
        _read(await self._call("POST", path), dict[str, object])

    async def _change(
        self,
        job_id: str,
        what: str,
        body: bytes,
        missing: T,
        *,
        method: str = "POST",
        repeat: bool = True,
    ) -> T:
        try:
            response = await self._call(method, job_path(job_id, what), body, repeat=repeat)
            return _read(response, type(missing), job_id=job_id)
        except NotFoundError:
            return missing

    async def _get(self, path: str, kind: type[T], job_id: str = "") -> T:
        return _read(await self._call("GET", path), kind, job_id=job_id)

    async def ask(
        self, method: str, path: str, kind: type[T], body: bytes = b"", *, named: str = ""
    ) -> T:
        """Call the service; what is only asked is asked again while it is away."""
        response = await self._call(method, path, body, repeat=method in ("GET", "DELETE"))
        return _read(response, kind, job_id=named)

    async def _call(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        repeat: bool = True,
    ) -> Response:
        """Call the service; again while it is away, unless a repeat might do harm."""

        async def once() -> Response:
            async with asyncio.timeout(PATIENCE):
                response = await self._transport.call(method, f"/api/v1{path}", body, headers)
            if response.status == 503 and repeat:
                raise error_of(response)
            return response

        return await self._patiently(once, repeat=repeat)

    async def _patiently(
        self, once: Callable[[], Coroutine[Any, Any, Response]], *, repeat: bool
    ) -> Response:
        if repeat:
            return await patiently(once, self._randomness, self._patience)
        try:
            return await once()
        except ConnectionLost as error:
            if error.sent:
                raise
        return await patiently(once, self._randomness, self._patience)


def _read(response: Response, kind: type[T], *, job_id: str = "", key: str = "") -> T:
    if response.status >= 300:
        raise error_of(response, job_id=job_id, key=key)
    return msgspec.json.decode(response.body, type=kind)


def _first_time(result: SubmissionResult) -> SubmissionResult:
    """A duplicate of our own key is the job itself: the first request got through after all."""
    if result.status is not SubmissionStatus.DUPLICATE:
        return result
    return replace(result, status=SubmissionStatus.ACCEPTED, existing_job_id=None)


def _no_connection(connection: object) -> None:
    if connection is not None:
        told = "needs a store that shares your database: postgresql://"
        raise ValidationError([Fault("connection", "UNSUPPORTED", told)])
