"""Sentry: errors of jobs with their context, and traces from the submission to the handler.

``app.middleware(Sentry())`` at module level, after ``sentry_sdk.init(...)``. Final failures are
reported; what ends a handler on purpose is not. Payloads are sent only on request.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from holdfast.errors import MissingExtraError
from holdfast.model.submission import Submission
from holdfast.tasks.middleware import AttemptCall, AttemptOutcome, Middleware

try:
    import sentry_sdk
    from sentry_sdk.crons import MonitorStatus, capture_checkin
except ImportError:
    raise MissingExtraError("sentry", "sentry-sdk") from None

FINAL = frozenset({AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT})
FAILURES = FINAL | {AttemptOutcome.RETRYING}
DEFAULT_QUEUE = "default"


class Sentry(Middleware):
    """Reports failures to Sentry and continues traces.

    ``every_failure`` also reports attempts that are retried. ``payloads`` sends the payload of
    a failed job along. ``monitors`` maps job types to the slugs of Sentry's cron monitors.
    """

    def __init__(
        self,
        *,
        every_failure: bool = False,
        payloads: bool = False,
        monitors: Mapping[str, str] | None = None,
    ) -> None:
        self._reported = FAILURES if every_failure else FINAL
        self._payloads = payloads
        self._monitors = dict(monitors or {})

    def submitting(self, submission: Submission) -> Submission:
        """Make a span for a submission, and put its trace into the job's headers."""
        if not sentry_sdk.is_initialized():
            return submission
        queue = submission.queue or DEFAULT_QUEUE
        with sentry_sdk.start_span(op="queue.publish", name=submission.type) as span:
            span.set_data("messaging.system", "holdfast")
            span.set_data("messaging.destination.name", queue)
            headers = dict(submission.headers or {})
            headers.update(sentry_sdk.get_current_scope().iter_trace_propagation_headers())
        return replace(submission, headers=headers)

    @contextmanager
    def attempt(self, call: AttemptCall) -> Generator[None, None, None]:
        """Run an attempt in a scope and a transaction of its own."""
        if not sentry_sdk.is_initialized():
            yield
            return
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, call)
            transaction = sentry_sdk.continue_trace(
                dict(call.headers), op="queue.process", name=call.type, source="task"
            )
            with sentry_sdk.start_transaction(transaction) as running:
                _measure(running, call)
                check_in = self._check_in(call)
                try:
                    yield
                finally:
                    self._end(scope, running, call)
                    self._check_out(call, check_in)
        if call.runner == "process":  # the child may be killed before the next look
            sentry_sdk.flush(timeout=2)

    def _end(self, scope: Any, running: Any, call: AttemptCall) -> None:
        failed = call.outcome in FAILURES
        running.set_status("internal_error" if failed else "ok")
        if call.outcome not in self._reported or call.exception is None:
            return
        if self._payloads:
            scope.set_context("payload", {"payload": call.payload()})
        scope.set_tag("holdfast.outcome", str(call.outcome))
        sentry_sdk.capture_exception(call.exception)

    def _check_in(self, call: AttemptCall) -> str | None:
        slug = self._monitors.get(call.type)
        return capture_checkin(slug, status=MonitorStatus.IN_PROGRESS) if slug else None

    def _check_out(self, call: AttemptCall, check_in: str | None) -> None:
        if check_in is not None and call.outcome is not AttemptOutcome.WAITING:
            status = MonitorStatus.ERROR if call.outcome in FAILURES else MonitorStatus.OK
            capture_checkin(self._monitors[call.type], check_in, status=status)


def _describe(scope: Any, call: AttemptCall) -> None:
    scope.set_transaction_name(call.type, source="task")
    scope.set_tag("holdfast.type", call.type)
    scope.set_tag("holdfast.queue", call.queue)
    scope.set_context(
        "job",
        {
            "id": call.job_id,
            "attempt": call.attempt,
            "max_attempts": call.max_attempts,
            "worker": call.worker,
            "correlation_id": call.correlation_id,
        },
    )


def _measure(running: Any, call: AttemptCall) -> None:
    running.set_data("messaging.system", "holdfast")
    running.set_data("messaging.message.id", call.job_id)
    running.set_data("messaging.destination.name", call.queue)
    running.set_data("messaging.message.retry.count", call.retry_count)
    running.set_data("messaging.message.body.size", call.payload_size)
    if call.started_at is not None:
        waited = (call.started_at - call.created_at).total_seconds() * 1000
        running.set_data("messaging.message.receive.latency", max(0.0, waited))


__all__ = ["Sentry"]
