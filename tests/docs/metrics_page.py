"""Writes docs/reference-metrics.md from the registries: every name, type, labels and meaning."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator

from holdfast import Holdfast
from holdfast.http import metrics
from holdfast.operations.operations import Operations
from holdfast.worker.metrics import OUTCOMES, series
from tests.architecture import tree

PAGE = tree.ROOT / "docs" / "reference-metrics.md"
HEAD = """# Metrics

[Metrics, probes and scaling](metrics.md) shows how to turn them on.
`python -m tests.docs.reference` generates this page from the registries of the worker and of the
service. `deploy/prometheus` has alert rules and `deploy/grafana` a dashboard for them.
"""
WORKER = f"""
## Of workers

`holdfast worker --probe HOST:PORT` serves them under `/metrics`, as sums over its processes.

- `outcome` is one of {", ".join(sorted(OUTCOMES.values()))}.
- `state` of slots is busy or free.
- At most 500 pairs of queue and type have series of their own; the others share `other`.
- Metrics that your handlers define with prometheus-client appear on the same page.
"""
SERVICE = """
## Of the service

`GET /metrics` of `holdfast serve`, for the namespace of the key. Every state of every queue has a
sample, zeros too. At most 1000 queues and 100 types are listed.
"""
OTEL = """
## Of OpenTelemetry

`OpenTelemetry(metrics=True)` records the four metrics of the conventions for messaging, see
[traces](logging.md#traces).

| name | type | meaning |
| --- | --- | --- |
| `messaging.client.sent.messages` | counter | jobs submitted |
| `messaging.client.consumed.messages` | counter | attempts that ended |
| `messaging.client.operation.duration` | histogram, s | time from submitted to started |
| `messaging.process.duration` | histogram, s | time that handlers took |
"""
LABELS = {
    "holdfast_jobs": "queue, state",
    "holdfast_oldest_ready_seconds": "queue",
    "holdfast_queue_paused": "queue",
    "holdfast_jobs_per_second": "what: submitted, completed, failed",
    "holdfast_queue_latency_seconds": "quantile: 0.5, 0.9, 0.99, 1",
    "holdfast_execution_seconds": "quantile: 0.5, 0.9, 0.99, 1",
    "holdfast_jobs_without_worker": "type",
    "holdfast_maintenance_failing": "service",
    "holdfast_store_unsafe": "check",
    "holdfast_http_requests_total": "route, status",
    "holdfast_http_request_seconds": "route",
    "holdfast_http_refused_total": "reason",
}
"""The labels of the service's metrics; a scrape shows them only where there are samples."""
KINDS = {"counter": "_total", "gauge": "", "histogram": ""}
TABLE = "\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"


def render() -> str:
    """Return the page."""
    worker = "\n".join(map(_row, of_workers()))
    service = "\n".join(map(_row, of_service()))
    return f"{HEAD}{WORKER}{TABLE}{worker}\n{SERVICE}{TABLE}{service}\n{OTEL}"


def of_workers() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of each series of a worker."""
    for kept in vars(series()).values():
        found = next(iter(kept.collect()))
        labels = ", ".join(kept._labelnames)  # the registry has no other way
        yield found.name + KINDS[found.type], found.type, labels, found.documentation


def of_service() -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of each metric of the service."""
    page = "\n".join(asyncio.run(_scraped()))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE))
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        yield name, kind, LABELS.get(name, ""), helps[name]


async def _scraped() -> list[str]:
    async with Holdfast("memory://") as app:
        await app.submit("documented", {})
        assert isinstance(app.operations, Operations)  # those of a store, not of a service
        counts = metrics.RequestCounts()
        counts.add("/api/v1/jobs", 201, 0.01)
        return [
            *await metrics.job_metrics(app.operations),
            *await metrics.maintenance_metrics(app.store),
            *metrics.request_metrics(counts, 1),
            *metrics.connection_metrics(1, {"full": 1}),
        ]


def samples(lines: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each sample and the names of its labels."""
    for line in lines:
        if found := re.match(r"(holdfast_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", line):
            yield found[1], set(re.findall(r'(\w+)="', found[2] or "")) - {"le"}


def scraped() -> list[str]:
    """Return a page of the service with at least one job and one request."""
    return asyncio.run(_scraped())


def _row(row: tuple[str, str, str, str]) -> str:
    name, *rest = row
    return f"| `{name}` | {' | '.join(rest)} |".replace("|  |", "| |")
