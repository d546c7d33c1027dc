"""OpenTelemetry: spans around submissions and attempts, joined by headers, and the metrics.

``app.middleware(OpenTelemetry())``, at module level, so that child processes have it too. Names
and attributes are those of the semantic conventions for messaging. The exporter, the sampler
and the propagator are the program's own; a job that is not sampled costs a few microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from holdfast.errors import MissingExtraError
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

Attributes = Mapping[str, Any]


class OpenTelemetry(Middleware):
    """Traces and measures submissions and attempts.

    An attempt links to the span that submitted its job, and has a trace of its own. With
    ``parent`` it continues that trace, which is easier to read and ends late. Without a
    ``tracer_provider`` or a ``meter_provider`` the global ones count.
    """

    def __init__(
        self, *, parent: bool = False, tracer_provider: Any = None, meter_provider: Any = None
    ) -> None:
        self._parent = parent
        self._provider = tracer_provider
        self._tracer = trace.get_tracer(NAME, __version__, tracer_provider)
        meter = metrics.get_meter(NAME, __version__, meter_provider)
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Jobs submitted."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts started."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Time from ready to started."
        )
        self._processes = meter.create_histogram(
            "messaging.process.duration", "s", "Time that handlers took."
        )

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
        self._sent.add(1, attributes)
        return replace(submission, headers=headers) if headers else submission

    @contextmanager
    def attempt(self, call: AttemptCall) -> Generator[None, None, None]:
        """Make a span for an attempt, current while the handler runs."""
        attributes = _processes(call.queue, call.type)
        within = propagate.extract(dict(call.headers)) if self._parent else None
        span = self._tracer.start_span(
            f"process {call.queue}", within, kind=SpanKind.CONSUMER, attributes=attributes
        )
        if span.is_recording():
            _describe(span, call, linked=not self._parent)
        token = otel_context.attach(trace.set_span_in_context(span))
        self._consumed.add(1, attributes)
        waited = (call.started_at - call.created_at).total_seconds() if call.started_at else 0.0
        self._operations.record(max(0.0, waited), attributes)
        begun = _now()
        try:
            yield
        finally:
            otel_context.detach(token)
            self._end(span, call, attributes, _now() - begun)

    def _end(self, span: Span, call: AttemptCall, attributes: Attributes, seconds: float) -> None:
        outcome = call.outcome
        if outcome in NO_ERROR or outcome is None:
            self._processes.record(seconds, attributes)
        else:
            kind = _error_type(call)
            self._processes.record(seconds, {**attributes, "error.type": kind})
            if span.is_recording():
                span.set_attribute("error.type", kind)
                span.set_status(Status(StatusCode.ERROR, str(outcome)))
                if call.exception is not None:
                    span.record_exception(call.exception)
        if span.is_recording() and outcome is not None:
            span.set_attribute("holdfast.outcome", str(outcome))
            span.set_attribute("holdfast.will_retry", call.will_retry)
        span.end()
        if call.runner == "process":  # the child may be killed before the exporter's next look
            _flush(self._provider or trace.get_tracer_provider())


@lru_cache(maxsize=1024)
def _submits(queue: str | None, type_: str) -> Attributes:
    return _attributes(queue, type_, "submit", "send")


@lru_cache(maxsize=1024)
def _processes(queue: str, type_: str) -> Attributes:
    return _attributes(queue, type_, "process", "process")


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


def _describe(span: Span, call: AttemptCall, *, linked: bool) -> None:
    span.set_attribute("messaging.message.id", call.job_id)
    span.set_attribute("messaging.message.body.size", call.payload_size)
    span.set_attribute("holdfast.attempt", call.attempt)
    span.set_attribute("messaging.client.id", call.worker)
    if call.correlation_id:
        span.set_attribute("messaging.message.conversation_id", call.correlation_id)
    if linked and (creation := _creation(call.headers)) is not None:
        span.add_link(creation.context)


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


def _error_type(call: AttemptCall) -> str:
    if call.outcome is AttemptOutcome.TIMED_OUT:
        return "timeout"
    return type(call.exception).__qualname__ if call.exception is not None else str(call.outcome)


def _flush(provider: object) -> None:
    flush = getattr(provider, "force_flush", None)
    if flush is not None:
        flush(1000)


def _now() -> float:
    from time import perf_counter

    return perf_counter()


__all__ = ["OpenTelemetry"]
