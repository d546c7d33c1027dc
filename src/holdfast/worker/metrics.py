"""What a worker measures for Prometheus: attempts, waits, leases, slots, the event loop.

prometheus-client keeps the numbers. Under a supervisor each process writes them to files of one
folder (its multiprocess mode), and the supervisor serves the sums.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from functools import cache
from typing import Any, Protocol

from holdfast.app import Holdfast
from holdfast.errors import MissingExtraError
from holdfast.model.submission import Submission
from holdfast.observe import Observer
from holdfast.observe.logging import from_environment

TICK = 1.0
"""Seconds between two looks at the event loop and the slots."""
MOST_LABELS = 500
"""Pairs of queue and type with series of their own; the others share one."""
OTHER = "other"

WAITS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)
DURATIONS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0)

OUTCOMES = {
    "job.completed": "completed",
    "job.failed": "failed",
    "job.dead": "dead_letter",
    "job.cancelled": "cancelled",
    "job.retrying": "retrying",
    "job.waiting": "waiting",
    "job.released": "released",
}


class MeasuredWorker(Protocol):
    """What a worker shows of itself."""

    @property
    def slots_in_use(self) -> tuple[int, int]:
        """How many slots are in use, and how many there are."""
        ...


class WorkerMetrics:
    """Counts the events of a worker; also middleware, which counts submissions."""

    def __init__(self) -> None:
        self._series = series()
        self._labels: set[tuple[str, str]] = set()
        self._events: dict[str, Callable[[Any], None]] = {
            "job.started": self._started,
            "job.lease_lost": lambda _: self._series.leases_lost.inc(),
            "job.stale": lambda _: self._series.leases_lost.inc(),
            "job.reaped": lambda _: self._series.reaped.inc(),
            "store.unavailable": lambda _: self._series.store_errors.inc(),
            "heartbeat.missed": lambda _: self._series.store_errors.inc(),
        }

    def emit(self, event: str, **fields: object) -> None:
        """Count an event."""
        if outcome := OUTCOMES.get(event):
            self._ended(outcome, fields)
        elif count := self._events.get(event):
            count(fields)

    def submitting(self, submission: Submission) -> Submission:
        """Count a submission of this process."""
        queue, type_ = self._bounded(submission.queue or "default", submission.type)
        self._series.submitted.labels(queue, type_).inc()
        return submission

    async def watch(self, worker: MeasuredWorker) -> None:
        """Look at the loop and the slots until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            expected = loop.time() + TICK
            busy, count = worker.slots_in_use
            self._series.slots.labels("busy").set(busy)
            self._series.slots.labels("free").set(max(0, count - busy))
            self._series.ticked.set_to_current_time()
            await asyncio.sleep(TICK)
            self._series.loop_lag.set(max(0.0, loop.time() - expected))

    def _started(self, fields: Any) -> None:
        queue, type_ = self._bounded(fields["queue"], fields["type"])
        if (waited := fields.get("waited")) is not None:
            self._series.waits.labels(queue, type_).observe(waited)

    def _ended(self, outcome: str, fields: dict[str, Any]) -> None:
        queue, type_ = self._bounded(fields["queue"], fields["type"])
        self._series.attempts.labels(queue, type_, outcome).inc()
        if (seconds := fields.get("seconds")) is not None:
            self._series.durations.labels(queue, type_).observe(seconds)

    def _bounded(self, queue: str, type_: str) -> tuple[str, str]:
        """The labels of a job; those of names beyond the limit are the same."""
        pair = (queue, type_)
        if pair not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                return OTHER, OTHER
            self._labels.add(pair)
        return pair


class MeasuringObserver:
    """Passes every event to the log and to the metrics of this process."""

    def __init__(self, log: Observer) -> None:
        self.metrics = WorkerMetrics()
        self._log = log

    def emit(self, event: str, **fields: object) -> None:
        self._log.emit(event, **{name: value for name, value in fields.items() if name != "waited"})
        self.metrics.emit(event, **fields)


def measuring_observer() -> Observer:
    """Return the observer of a worker process that is measured."""
    return MeasuringObserver(from_environment())


def count_submissions(app: Holdfast, observer: Observer) -> None:
    """Count the submissions of an app, if the observer of its worker measures."""
    if isinstance(observer, MeasuringObserver):
        app.middleware(observer.metrics)


@contextlib.asynccontextmanager
async def measured(observer: Observer, worker: MeasuredWorker) -> AsyncGenerator[None, None]:
    """Watch a worker while the block runs, if its observer measures."""
    if not isinstance(observer, MeasuringObserver):
        yield
        return
    watching = asyncio.create_task(observer.metrics.watch(worker))
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


class WorkerSeries:
    """The series of a process, in the registry of prometheus-client."""

    def __init__(self) -> None:
        try:
            from prometheus_client import Counter, Gauge, Histogram
        except ImportError:
            raise MissingExtraError("metrics", "prometheus-client") from None
        job = ("queue", "type")
        self.attempts = Counter(
            "holdfast_attempts", "Attempts that ended, by outcome.", (*job, "outcome")
        )
        self.durations = Histogram(
            "holdfast_attempt_duration_seconds", "From claimed to settled.", job, buckets=DURATIONS
        )
        self.waits = Histogram(
            "holdfast_queue_wait_seconds", "From ready to claimed.", job, buckets=WAITS
        )
        self.submitted = Counter("holdfast_submitted", "Jobs that this process submitted.", job)
        self.leases_lost = Counter(
            "holdfast_leases_lost", "Leases that ended while their jobs ran here."
        )
        self.reaped = Counter("holdfast_reaped", "Jobs taken back from dead workers.")
        self.store_errors = Counter(
            "holdfast_store_errors", "Failures to reach the store, each reason once per outage."
        )
        self.slots = Gauge(
            "holdfast_slots", "Slots by state.", ("state",), multiprocess_mode="livesum"
        )
        self.loop_lag = Gauge(
            "holdfast_loop_lag_seconds",
            "How late the event loop was at its last look.",
            multiprocess_mode="livemax",
        )
        self.ticked = Gauge(
            "holdfast_worker_ticked_seconds",
            "When the slowest event loop was last seen, in seconds since 1970.",
            multiprocess_mode="livemin",
        )
        self.ticked.set_to_current_time()
        for state in ("busy", "free"):
            self.slots.labels(state).set(0)


@cache
def series() -> WorkerSeries:
    """Return the series of this process, made at the first call."""
    return WorkerSeries()
