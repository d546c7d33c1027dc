"""OpenTelemetry: spans, links and metrics with the SDK's own exporters, in every runner."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags, get_current_span

from holdfast import (
    AttemptCall,
    Holdfast,
    JobContext,
    Middleware,
    PermanentError,
    State,
    Worker,
)
from holdfast.contrib.otel import OpenTelemetry
from tests.worker.rig import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from opentelemetry.sdk.trace import ReadableSpan

    from holdfast.model.job import Job


class Telemetry:
    """Providers that keep everything in memory."""

    def __init__(self, **options: Any) -> None:
        self.spans = InMemorySpanExporter()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.metrics = InMemoryMetricReader()
        self.meters = MeterProvider([self.metrics])

    def middleware(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def points(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """The points of each metric: attributes, and the value or how many were recorded."""
        data = self.metrics.get_metrics_data()
        assert data is not None
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", getattr(point, "count", 0)))
                for point in metric.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def _app(telemetry: Telemetry, **options: Any) -> Holdfast:
    app = Holdfast("memory://")
    app.middleware(telemetry.middleware(**options))

    @app.task("parent", queue="q")
    async def parent(ctx: JobContext) -> None:
        await ctx.spawn("child", key="one", queue="q")

    @app.task("child", queue="q")
    def child() -> None:
        assert get_current_span().is_recording()

    @app.task("broken", queue="q", max_attempts=2)
    async def broken() -> None:
        raise PermanentError("no", code="NO")

    return app


async def _ran(app: Holdfast, type_: str, **options: Any) -> str:
    async with app:
        job = await app.submit(type_, **options)
        await Worker(app, queues=["q"]).run(burst=True)
    return job.job_id


async def test_attempt_links_to_its_submission_through_a_spawned_job() -> None:
    telemetry = Telemetry()
    job_id = await _ran(_app(telemetry), "parent", correlation_id="order-7", queue="q")

    submits, processes = telemetry.named("submit q"), telemetry.named("process q")

    assert [SpanKind.PRODUCER] * 2 == [span.kind for span in submits]
    assert [SpanKind.CONSUMER] * 2 == [span.kind for span in processes]
    outer, inner = sorted(processes, key=lambda span: span.start_time or 0)
    links = [[link.context.span_id for link in span.links] for span in (outer, inner)]
    assert [[submits[0].context.span_id], [submits[1].context.span_id]] == links
    assert submits[1].parent is not None
    assert outer.context.span_id == submits[1].parent.span_id  # the child is submitted inside
    attributes = dict(outer.attributes or {})
    assert {
        "messaging.system": "holdfast",
        "messaging.destination.name": "q",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": job_id,
        "messaging.message.conversation_id": "order-7",
        "holdfast.job.type": "parent",
        "holdfast.outcome": "COMPLETED",
    }.items() <= attributes.items()


async def test_write_of_an_outcome_is_a_span_inside_the_attempt() -> None:
    telemetry = Telemetry()
    await _ran(_app(telemetry), "parent", queue="q")

    settles = telemetry.named("settle q")

    parents = {span.context.span_id for span in telemetry.named("process q")}
    assert [SpanKind.CLIENT] * 2 == [span.kind for span in settles]
    assert parents == {span.parent.span_id for span in settles if span.parent}
    assert all((span.end_time or 0) >= (span.start_time or 1) for span in settles)


async def test_middleware_that_fails_after_the_write_is_logged() -> None:
    class Failing(Middleware):
        def attempt(self, call: AttemptCall) -> AbstractContextManager[None]:
            return nullcontext()

        def settled(self, jobs: Sequence[Job], began: datetime, ended: datetime) -> None:
            raise ValueError(f"no {len(jobs)}")

    app, log = Holdfast("memory://"), EventLog()
    app.middleware(Failing())
    app.task("work")(lambda: None)

    async with app:
        job = await app.submit("work")
        await Worker(app, observer=log).run(burst=True)
        status = await app.get(job.job_id)

    assert State.COMPLETED is status.state
    assert ["ValueError('no 1')"] == [each["error"] for each in log.all("middleware.failed")]


async def test_attempt_continues_the_trace_by_option() -> None:
    telemetry = Telemetry()
    await _ran(_app(telemetry, parent=True), "parent", queue="q")

    spans = telemetry.spans.get_finished_spans()

    assert 6 == len(spans)
    assert 1 == len({span.context.trace_id for span in spans})


async def test_failure_is_an_error_with_its_type() -> None:
    telemetry = Telemetry()
    await _ran(_app(telemetry), "broken", queue="q")

    (span,) = telemetry.named("process q")

    assert StatusCode.ERROR is span.status.status_code
    attributes = dict(span.attributes or {})
    assert ("PermanentError", "FAILED") == (
        attributes["error.type"],
        attributes["holdfast.outcome"],
    )
    assert ["exception"] == [event.name for event in span.events]


async def test_four_metrics_of_messaging_are_recorded() -> None:
    telemetry = Telemetry()
    await _ran(_app(telemetry, metrics=True), "broken", queue="q")

    points = telemetry.points()

    assert {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.process.duration",
    } == points.keys()
    assert [1] == [value for _, value in points["messaging.client.sent.messages"]]
    ((attributes, count),) = points["messaging.process.duration"]
    assert (1, "PermanentError", "q") == (
        count,
        attributes["error.type"],
        attributes["messaging.destination.name"],
    )


async def test_job_that_is_not_sampled_is_still_measured() -> None:
    telemetry = Telemetry(sampler=ALWAYS_OFF)
    app = Holdfast("memory://")
    app.middleware(telemetry.middleware(metrics=True))

    @app.task("plain", queue="q")
    def plain() -> None: ...

    await _ran(app, "plain", queue="q")

    assert () == telemetry.spans.get_finished_spans()
    assert [1] == [count for _, count in telemetry.points()["messaging.process.duration"]]


async def test_job_that_is_not_sampled_makes_no_span_and_passes_its_trace_on() -> None:
    telemetry = Telemetry(sampler=ALWAYS_OFF)
    seen: list[dict[str, str]] = []
    app = Holdfast("memory://")
    app.middleware(telemetry.middleware())

    @app.task("plain", queue="q")
    async def plain(ctx: JobContext) -> None:
        seen.append(dict(ctx.headers))

    await _ran(app, "plain", queue="q")

    assert () == telemetry.spans.get_finished_spans()
    assert not int(seen[0]["traceparent"].rpartition("-")[2], 16) & TraceFlags.SAMPLED


PROGRAM = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from holdfast import Holdfast
from holdfast.contrib.otel import OpenTelemetry


class ToFile(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                links = [f"{link.context.span_id:016x}" for link in span.links]
                line = {"name": span.name, "pid": os.getpid(), "links": links}
                line["id"] = f"{span.context.span_id:016x}"
                file.write(json.dumps(line) + "\\n")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
app = Holdfast()
app.middleware(OpenTelemetry())


@app.task("in.thread")
def in_thread() -> None:
    with trace.get_tracer("shop").start_as_current_span("thread"):
        pass


@app.task("in.process", runner="process")
def in_process() -> None:
    with trace.get_tracer("shop").start_as_current_span("process"):
        pass


if __name__ == "__main__":
    for task in (in_thread, in_process):
        task.submit_sync()
"""


@pytest.mark.slow
def test_spans_of_threads_and_child_processes_reach_the_exporter(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(PROGRAM, "utf-8")
    env = {
        **os.environ,
        "HOLDFAST_URL": f"sqlite:///{tmp_path}/jobs.db",
        "SPANS": str(tmp_path / "spans"),
        "PYTHONPATH": str(tmp_path),
    }
    worker = ["-m", "holdfast", "worker", "traced:app", "--burst"]

    for arguments in (["traced.py"], worker):
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=env, check=True, timeout=60)

    lines = (tmp_path / "spans").read_text("utf-8").splitlines()
    spans: list[dict[str, Any]] = [json.loads(line) for line in lines]
    submitted = {span["id"] for span in spans if span["name"].startswith("submit")}
    processed = [span for span in spans if span["name"] == "process default"]
    assert 2 == len(submitted)
    assert submitted == {link for span in processed for link in span["links"]}
    assert 2 == len({span["pid"] for span in processed})
    assert {"thread", "process"} <= {span["name"] for span in spans}
