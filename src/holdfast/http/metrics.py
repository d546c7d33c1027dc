"""Metrics in the text format of Prometheus: jobs of the caller's namespace, and requests.

Labels are queues, states, routes and statuses: bounded sets, never text from a payload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from holdfast.model.job import State
from holdfast.model.statistics import LatencyStats, QueueStats
from holdfast.model.workers import WorkerInfo
from holdfast.operations.operations import Operations
from holdfast.operations.quarantine import failing, quarantined
from holdfast.operations.store_safety import unsafe
from holdfast.store import QueueInfo, Store

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


WINDOW = timedelta(minutes=5)
MAX_QUEUES = 1000
MAX_TYPES = 100
NO_JOBS = dict.fromkeys(State, 0)
"""Every state has a sample in every queue, so that rules and graphs need no exception."""
Sample = tuple[str, float]


class RequestCounts:
    """Counts the requests since the start of this process."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        """(route, status) -> number of requests."""
        self.seconds: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        """Route -> number of requests per bucket of duration."""
        self.sums: defaultdict[str, float] = defaultdict(float)

    def add(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[route, status] += 1
        self.sums[route] += seconds
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1


async def job_metrics(operations: Operations) -> list[str]:
    """Return the lines about jobs and workers."""
    queues = (await operations.queues())[:MAX_QUEUES]
    stats = await operations.stats(time_range=WINDOW, breakdown_by=("TYPE",))
    workers = await operations.workers()
    return [
        *_of_queues(queues),
        *_of_stats(stats),
        *_without_worker(stats, workers),
        *_gauge("holdfast_workers", "Workers that are present.", [("", len(workers))]),
    ]


async def maintenance_metrics(store: Store) -> list[str]:
    """Return the lines about items set aside, services that fail and an unsafe store."""
    aside, services = await quarantined(store), await failing(store)
    return [
        *_gauge(
            "holdfast_quarantined_items",
            "Items that were set aside in the last day.",
            [("", len(aside))],
        ),
        *_gauge(
            "holdfast_maintenance_failing",
            "1 for each maintenance service that fails again and again.",
            [(f'{{service="{escaped(one.name)}"}}', 1) for one in services],
        ),
        *_gauge(
            "holdfast_store_unsafe",
            "1 for each check that fails since the store's settings were changed.",
            [(f'{{check="{escaped(one.name)}"}}', 1) for one in await unsafe(store)],
        ),
    ]


def request_metrics(counts: RequestCounts, subscribers: int) -> list[str]:
    """Return the lines about requests and event streams."""
    return [
        *_of_requests(counts),
        *_gauge("holdfast_event_subscribers", "Open event streams.", [("", subscribers)]),
    ]


def connection_metrics(connections: int, refused: Mapping[str, int]) -> list[str]:
    """Return the lines about connections, and those that were refused by reason."""
    lines = list(_gauge("holdfast_http_connections", "Open connections.", [("", connections)]))
    name = "holdfast_http_refused_total"
    lines += _head(name, "Connections and headers that were refused or closed early.", "counter")
    lines += [f'{name}{{reason="{reason}"}} {count}' for reason, count in sorted(refused.items())]
    return lines


def _of_queues(queues: Iterable[QueueInfo]) -> Iterator[str]:
    found = list(queues)
    yield from _gauge(
        "holdfast_jobs",
        "Jobs by queue and state.",
        [
            (f'{{queue="{escaped(queue.name)}",state="{state}"}}', count)
            for queue in found
            for state, count in sorted({**NO_JOBS, **queue.counts}.items())
        ],
    )
    yield from _gauge(
        "holdfast_oldest_ready_seconds",
        "How long the oldest job that is ready to run waits; 0 when there is none.",
        [
            (f'{{queue="{escaped(queue.name)}"}}', queue.activity.oldest_ready_seconds or 0.0)
            for queue in found
            if queue.activity is not None
        ],
    )
    yield from _gauge(
        "holdfast_queue_paused",
        "1 while no job of the queue may start.",
        [(f'{{queue="{escaped(queue.name)}"}}', int(queue.paused)) for queue in found],
    )


def _without_worker(stats: QueueStats, workers: Iterable[WorkerInfo]) -> Iterator[str]:
    """Ready jobs whose type no worker that is present and not drained has a handler for."""
    known = {type_ for worker in workers if not worker.draining for type_ in worker.types}
    takes_all = any(type_.endswith(":*") for type_ in known)
    waiting = {
        type_: counts.scheduled
        for type_, counts in (stats.by_type or {}).items()
        if counts.scheduled and type_ not in known and not takes_all
    }
    most = sorted(waiting.items(), key=lambda item: -item[1])[:MAX_TYPES]
    yield from _gauge(
        "holdfast_jobs_without_worker",
        "Ready jobs of a type that no worker runs.",
        [(f'{{type="{escaped(type_)}"}}', count) for type_, count in most] or [('{type=""}', 0)],
    )


def _of_stats(stats: QueueStats) -> Iterator[str]:
    rates = {
        "submitted": stats.submission_rate,
        "completed": stats.completion_rate,
        "failed": stats.failure_rate,
    }
    yield from _gauge(
        "holdfast_jobs_per_second",
        "Jobs per second over the last five minutes.",
        [(f'{{what="{what}"}}', rate) for what, rate in rates.items()],
    )
    for name, text, latency in (
        ("queue_latency", "Time from ready to claimed", stats.queue_latency),
        ("execution", "Time from claimed to settled", stats.execution_time),
    ):
        yield from _gauge(
            f"holdfast_{name}_seconds",
            f"{text}, over the last five minutes.",
            list(_quantiles(latency)),
        )


def _quantiles(latency: LatencyStats) -> Iterator[Sample]:
    for quantile, value in (
        ("0.5", latency.p50),
        ("0.9", latency.p90),
        ("0.99", latency.p99),
        ("1", latency.max),
    ):
        if value is not None:
            yield f'{{quantile="{quantile}"}}', value.total_seconds()


def _of_requests(counts: RequestCounts) -> Iterator[str]:
    yield from _head("holdfast_http_requests_total", "Requests served.", "counter")
    for (route, status), count in sorted(counts.requests.items()):
        yield f'holdfast_http_requests_total{{route="{route}",status="{status}"}} {count}'
    name = "holdfast_http_request_seconds"
    yield from _head(name, "Duration of requests.", "histogram")
    for route, buckets in sorted(counts.seconds.items()):
        total = 0
        for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
            total += count
            yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
        yield f'{name}_sum{{route="{route}"}} {counts.sums[route]:.6f}'
        yield f'{name}_count{{route="{route}"}} {total}'


def _gauge(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name, text, "gauge")
    for labels, value in samples:
        yield f"{name}{labels} {value:g}" if isinstance(value, int) else f"{name}{labels} {value}"


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def escaped(text: str) -> str:
    """Return a text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
