"""OpenTelemetry: spans around submissions and attempts, joined by headers, and the metrics.

``app.middleware(OpenTelemetry())``, at module level, so that child processes have it too. Names
and attributes are those of the semantic conventions for messaging. The exporter, the sampler
and the propagator are the program's own; a job that is not sampled costs a few microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import lru_cache
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from holdfast.errors import MissingExtraError
from holdfast.model.job import Job
from holdfast.model.submission import Submission
from holdfast.runtime.version import __version__
from holdfast.tasks.middleware import AttemptCall, AttemptOutcome, Middleware

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
except ImportError:
    raise MissingExtraError("otel", "opentelemetry-api") from None

SYSTEM = "holdfast"
NAME = "holdfast"
MOST_ENDED = 10_000
NO_ERROR = frozenset(
    {
        AttemptOutcome.COMPLETED,
        AttemptOutcome.CANCELLED,
        AttemptOutcome.WAITING,
        AttemptOutcome.RELEASED,
    }
)
"""Outcomes that are no error: the handler returned, or something stopped it on purpose."""
TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
UNSAMPLED = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]").fullmatch
"""The context of a span that was not sampled: the lowest bit of its flags is not set."""

Attributes = Mapping[str, Any]


class OpenTelemetry(Middleware):
    """Traces submissions and attempts, and measures them on request.

    An attempt links to the span that submitted its job, and has a trace of its own. With
    ``parent`` it continues that trace, which is easier to read and ends late. An attempt whose
    submission was not sampled has no span: its link would lead nowhere. ``metrics`` records the
    four metrics of the conventions, which takes some 25 microseconds per job. Without a
    ``tracer_provider`` or a ``meter_provider`` the global ones count.
    """

    def __init__(
        self,
        *,
        parent: bool = False,
        metrics: bool = False,
        tracer_provider: Any = None,
        meter_provider: Any = None,
    ) -> None:
        self._parent = parent
        self._provider = tracer_provider
        self._tracer = trace.get_tracer(NAME, __version__, tracer_provider)
        self._metrics = _MessagingMetrics(meter_provider) if metrics else None
        self._ended: dict[tuple[str, int], SpanContext] = {}
        """The spans of attempts in this process whose outcomes are not written yet."""

    def submitting(self, submission: Submission) -> Submission:
        """Make a span for a submission, and put its context into the job's headers."""
        attributes = _submits(submission.queue, submission.type)
        span = self._tracer.start_span(
            f"submit {submission.queue or submission.type}",
            kind=SpanKind.PRODUCER,
            attributes=attributes,
        )
        if span.is_recording() and submission.correlation_id:
            span.set_attribute("messaging.message.conversation_id", submission.correlation_id)
        headers = dict(submission.headers or {})
        propagate.inject(headers, trace.set_span_in_context(span))
        span.end()
        if self._metrics is not None:
            self._metrics.sent.add(1, attributes)
        return replace(submission, headers=headers) if headers else submission

    def skips(self, headers: Mapping[str, str]) -> bool:
        """Whether an attempt is neither traced nor measured."""
        return self._metrics is None and UNSAMPLED(headers.get("traceparent", "")) is not None

    @contextmanager
    def attempt(self, call: AttemptCall) -> Generator[None, None, None]:
        """Make a span for an attempt, current while the handler runs."""
        attributes, begun = _processes(call.queue, call.type), perf_counter()
        unsampled = UNSAMPLED(call.headers.get("traceparent", "")) is not None
        with nullcontext() if unsampled else self._traced(call, attributes):
            try:
                yield
            finally:
                if self._metrics is not None:
                    self._metrics.measure(call, attributes, perf_counter() - begun)

    @contextmanager
    def _traced(self, call: AttemptCall, attributes: Attributes) -> Generator[None, None, None]:
        within = propagate.extract(dict(call.headers)) if self._parent else None
        link = None if self._parent else _creation(call.headers)
        span = self._tracer.start_span(
            f"process {call.queue}",
            within,
            kind=SpanKind.CONSUMER,
            attributes={**attributes, **_described(call)},
            links=(link,) if link is not None else (),
        )
        token = otel_context.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            otel_context.detach(token)
            if span.is_recording():
                _conclude(span, call)
            span.end()
            if call.runner != "process":
                self._note(call, span)
            else:  # the child may be killed before the exporter's next look
                _flush(self._provider or trace.get_tracer_provider())

    def _note(self, call: AttemptCall, span: Span) -> None:
        if span.get_span_context().trace_flags.sampled:
            self._ended[call.job_id, call.attempt] = span.get_span_context()
            if len(self._ended) > MOST_ENDED:  # nothing is written about a lost lease
                self._ended.pop(next(iter(self._ended)), None)

    def settled(self, jobs: Sequence[Job], began: datetime, ended: datetime) -> None:
        """Make a span for the write of an outcome, inside that of its attempt."""
        if not self._ended:
            return
        for job in jobs:
            attempt = self._ended.pop((job.id, job.attempt), None)
            if attempt is None:
                continue
            span = self._tracer.start_span(
                f"settle {job.queue}",
                trace.set_span_in_context(trace.NonRecordingSpan(attempt), otel_context.Context()),
                kind=SpanKind.CLIENT,
                attributes={**_settles(job.queue, job.type), "messaging.message.id": job.id},
                start_time=_nanoseconds(began),
            )
            span.end(_nanoseconds(ended))


class _MessagingMetrics:
    """The four metrics of the conventions for messaging."""

    def __init__(self, provider: Any) -> None:
        meter = metrics.get_meter(NAME, __version__, provider)
        self.sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs submitted."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts that ended."
        )
        self._waits = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time from submitted to started."
        )
        self._durations = meter.create_histogram(
            "messaging.process.duration", "s", "Time that handlers took."
        )

    def measure(self, call: AttemptCall, attributes: Attributes, seconds: float) -> None:
        """Record an attempt that ended."""
        if call.outcome is not None and call.outcome not in NO_ERROR:
            attributes = {**attributes, "error.type": _error_type(call)}
        self._consumed.add(1, attributes)
        if call.started_at is not None:
            waited = (call.started_at - call.created_at).total_seconds()
            self._waits.record(max(0.0, waited), attributes)
        self._durations.record(seconds, attributes)


@lru_cache(maxsize=1024)
def _submits(queue: str | None, type_: str) -> Attributes:
    return _attributes(queue, type_, "submit", "send")


@lru_cache(maxsize=1024)
def _processes(queue: str, type_: str) -> Attributes:
    return _attributes(queue, type_, "process", "process")


@lru_cache(maxsize=1024)
def _settles(queue: str, type_: str) -> Attributes:
    return _attributes(queue, type_, "settle", "settle")


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def _attributes(queue: str | None, type_: str, name: str, kind: str) -> Attributes:
    # Without a queue of its own, a job gets that of its task, which may be declared elsewhere.
    destination = {"messaging.destination.name": queue} if queue else {}
    return {
        "messaging.system": SYSTEM,
        **destination,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "holdfast.job.type": type_,
    }


def _described(call: AttemptCall) -> Attributes:
    named = {"messaging.message.conversation_id": call.correlation_id}
    return {
        "messaging.message.id": call.job_id,
        "messaging.message.body.size": call.payload_size,
        "messaging.client.id": call.worker,
        "holdfast.attempt": call.attempt,
        **(named if call.correlation_id else {}),
    }


def _creation(headers: Mapping[str, str]) -> Link | None:
    """The span that submitted a job, if its headers name one."""
    found = TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if found is not None:
        trace_id, span_id, flags = (int(part, 16) for part in found.groups())
        context = SpanContext(
            trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags)
        )
    else:  # another propagator than that of W3C
        context = trace.get_current_span(propagate.extract(dict(headers))).get_span_context()
    return Link(context) if context.is_valid else None


def _conclude(span: Span, call: AttemptCall) -> None:
    if call.outcome is None:
        return
    ended: Attributes = {
        "holdfast.outcome": str(call.outcome),
        "holdfast.will_retry": call.will_retry,
    }
    span.set_attributes(ended)
    if call.outcome not in NO_ERROR:
        span.set_attribute("error.type", _error_type(call))
        span.set_status(Status(StatusCode.ERROR, str(call.outcome)))
        if call.exception is not None:
            span.record_exception(call.exception)


def _error_type(call: AttemptCall) -> str:
    if call.outcome is AttemptOutcome.TIMED_OUT:
        return "timeout"
    return type(call.exception).__qualname__ if call.exception is not None else str(call.outcome)


def _flush(provider: object) -> None:
    flush = getattr(provider, "force_flush", None)
    if flush is not None:
        flush(1000)


__all__ = ["OpenTelemetry"]
