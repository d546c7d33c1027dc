"""Metrics as Prometheus reads them: the tenant's own jobs, and the service's own requests.

Labels are queues, states, routes and statuses: bounded sets, nothing out of a payload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import timedelta

from holdfast.http.endpoint import Call
from holdfast.model.statistics import LatencyStats, QueueStats
from holdfast.runtime.clock import Clock
from holdfast.store import QueueInfo

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counting:
    """Counters since the start of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started_at = clock.now()
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        """(route, status) -> how many"""
        self.seconds: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        """Route -> how many took as long as each bucket."""
        self.sums: defaultdict[str, float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one request that was answered."""
        self.requests[route, status] += 1
        self.sums[route] += seconds
        self.seconds[route][bisect_left(BUCKETS, seconds)] += 1


WINDOW = timedelta(minutes=5)
MOST_QUEUES = 1000
Sample = tuple[str, float]


async def exposition(call: Call) -> bytes:
    """Return the text a scrape gets."""
    queues = (await call.operations.queues())[:MOST_QUEUES]
    stats = await call.operations.stats(time_range=WINDOW)
    workers = await call.operations.workers()
    lines = [
        *_of_queues(queues),
        *_of_stats(stats),
        *_gauge("holdfast_workers", "Workers that are there.", [("", len(workers))]),
    ]
    if not call.caller.namespace:
        lines += _of_requests(call.service.counting)
        lines += _gauge(
            "holdfast_event_subscribers",
            "Open event streams.",
            [("", call.service.tail.listeners)],
        )
    return ("\n".join(lines) + "\n").encode()


def _of_queues(queues: Iterable[QueueInfo]) -> Iterator[str]:
    found = list(queues)
    yield from _gauge(
        "holdfast_jobs",
        "Jobs by queue and state.",
        [
            (f'{{queue="{escaped(queue.name)}",state="{state}"}}', count)
            for queue in found
            for state, count in sorted(queue.counts.items())
        ],
    )
    yield from _gauge(
        "holdfast_queue_paused",
        "1 while no job of the queue may start.",
        [(f'{{queue="{escaped(queue.name)}"}}', int(queue.paused)) for queue in found],
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
    for name, told, latency in (
        ("queue_latency", "Time from ready to claimed", stats.queue_latency),
        ("execution", "Time from claimed to answered", stats.execution_time),
    ):
        yield from _gauge(
            f"holdfast_{name}_seconds",
            f"{told}, over the last five minutes.",
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


def _of_requests(counting: Counting) -> Iterator[str]:
    yield from _head("holdfast_http_requests_total", "Requests answered.", "counter")
    for (route, status), count in sorted(counting.requests.items()):
        yield f'holdfast_http_requests_total{{route="{route}",status="{status}"}} {count}'
    name = "holdfast_http_request_seconds"
    yield from _head(name, "How long requests took.", "histogram")
    for route, counts in sorted(counting.seconds.items()):
        total = 0
        for top, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{route="{route}",le="{top}"}} {total}'
        yield f'{name}_sum{{route="{route}"}} {counting.sums[route]:.6f}'
        yield f'{name}_count{{route="{route}"}} {total}'


def _gauge(name: str, told: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _head(name, told, "gauge")
    for labels, value in samples:
        yield f"{name}{labels} {value:g}" if isinstance(value, int) else f"{name}{labels} {value}"


def _head(name: str, told: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} {kind}"


def escaped(text: str) -> str:
    """Return a text as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
