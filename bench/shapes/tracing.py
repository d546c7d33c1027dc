"""What OpenTelemetry costs that samples one trace in a hundred: per job, and per submission."""

from __future__ import annotations

import time
from statistics import median

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from bench.effort import Effort
from bench.shapes.measure import BATCH, drain, in_turns, middle, numbered
from bench.shapes.places import Places
from bench.shapes.rows import Figure, at_most
from holdfast import Holdfast
from holdfast.contrib.otel import OpenTelemetry

SAMPLED = 0.01


def tracing() -> OpenTelemetry:
    """Return middleware that samples one trace in a hundred."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
    return OpenTelemetry(tracer_provider=provider)


async def traced(places: Places, store: str, effort: Effort) -> list[Figure]:
    """Compare jobs that carry a trace context, and a worker that traces, with plain ones."""
    count = effort.pick(20_000, 10_000, 100)
    plain_jobs, jobs = numbered("noop", count), _in_traces(numbered("noop", count))
    plain, known, full = map(
        middle,
        await in_turns(
            effort.pick(5, 3, 1),
            lambda: drain(places, store, "plain", plain_jobs, slots=500),
            lambda: drain(places, store, "plain", jobs, slots=500),
            lambda: drain(places, store, "traced", jobs, slots=500),
        ),
    )
    costs = f"{plain} plain, {known} with headers, {full} traced"
    submits = [await _submits(places, store, effort) for _ in range(effort.pick(5, 3, 1))]
    one, other = (median(each) for each in zip(*submits, strict=True))
    return [
        at_most("processor time of a job / plain", full.cost / plain.cost, 1.15, costs),
        at_most("us more for each submission", other - one, 20.0, f"{one:.0f} and {other:.0f} us"),
    ]


def _in_traces(jobs: list[dict[str, object]]) -> list[dict[str, object]]:
    made = []
    for n, job in enumerate(jobs):
        flags = "01" if n % round(1 / SAMPLED) == 0 else "00"
        made.append({**job, "headers": {"traceparent": f"00-{n + 1:032x}-{n + 1:016x}-{flags}"}})
    return made


async def _submits(places: Places, store: str, effort: Effort) -> tuple[float, float]:
    """Return microseconds of this process for each submission in a batch: plain, and traced."""
    took = []
    for middleware in (None, tracing()):
        app = Holdfast(places.fresh(store))
        if middleware is not None:
            app.middleware(middleware)
        async with app:
            jobs = numbered("noop", BATCH)
            begun = time.process_time()
            for _ in range(effort.pick(10, 5, 1)):
                await app.submit_batch(jobs)
            took.append((time.process_time() - begun) / len(jobs) / effort.pick(10, 5, 1) * 1e6)
    return took[0], took[1]
