"""What the screen shows, read through the client operations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.cli.tables import moment, span
from holdfast.model.job import State
from holdfast.model.results import FailureDetails
from holdfast.model.statistics import QueueStats
from holdfast.model.status import JobStatus
from holdfast.store import QueueInfo

WINDOW = timedelta(minutes=1)
MOST = 200
"""The rows of a list that can be scrolled."""
WAITING = (State.PENDING, State.DELAYED, State.RETRYING)


class Listing(msgspec.Struct, frozen=True):
    """A list with its head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Board(msgspec.Struct, frozen=True):
    """Everything on the screen."""

    place: str
    summary: tuple[str, ...]
    lists: tuple[Listing, ...]


async def read_board(app: Holdfast, place: str) -> Board:
    """Read a board; the number of reads does not depend on the number of jobs."""
    stats = await app.stats(time_range=WINDOW)
    queues = await app.queues()
    workers = await app.workers()
    running = await app.search(states=["RUNNING"], limit=MOST)
    failed = await app.failures(limit=20)
    busy = tuple(
        (
            one.id,
            f"{one.running}/{one.slots}",
            ",".join(one.queues),
            moment(one.started_at),
            str(one.leaked_threads or ""),
        )
        for one in workers
    )
    return Board(
        place,
        _summary(stats, len(workers)),
        (
            _queues(queues),
            _running(running.jobs),
            Listing("WORKERS", ("WORKER", "BUSY", "QUEUES", "SINCE", "LEAKED"), busy),
            _failures(failed.failures),
        ),
    )


def _summary(stats: QueueStats, workers: int) -> tuple[str, ...]:
    wait, run = stats.queue_latency, stats.execution_time
    counts = {
        "ready": stats.scheduled,
        "running": stats.running,
        "delayed": stats.delayed,
        "retrying": stats.retrying,
        "pending": stats.pending,
        "workers": workers,
    }
    rates = {
        "submitted": stats.submission_rate,
        "completed": stats.completion_rate,
        "failed": stats.failure_rate,
    }
    return (
        "  ".join(f"{count} {name}" for name, count in counts.items()),
        "  ".join(f"{rate:.1f}/s {name}" for name, rate in rates.items()),
        "  ".join(
            f"{name} p50 {span(time.p50)} p99 {span(time.p99)}"
            for name, time in (("in queue", wait), ("running", run))
        ),
    )


def _queues(queues: Sequence[QueueInfo]) -> Listing:
    rows = tuple(
        (
            queue.name,
            str(queue.counts.get(State.SCHEDULED, 0)),
            str(queue.counts.get(State.RUNNING, 0)),
            str(sum(queue.counts.get(state, 0) for state in WAITING)),
            str(queue.counts.get(State.COMPLETED, 0)),
            str(queue.counts.get(State.FAILED, 0)),
            str(queue.counts.get(State.DEAD_LETTER, 0)),
            "paused" if queue.paused else "",
        )
        for queue in queues
    )
    head = ("QUEUE", "READY", "RUNNING", "WAITING", "DONE", "FAILED", "DEAD", "")
    return Listing("QUEUES", head, rows)


def _running(jobs: Sequence[JobStatus]) -> Listing:
    rows = tuple(
        (
            job.job_id,
            job.type,
            job.queue,
            f"{job.attempt}/{job.max_attempts}",
            moment(job.started_at),
            f"{job.progress.percent} %" if job.progress else "",
            job.worker_id or "",
        )
        for job in jobs
    )
    head = ("JOB", "TYPE", "QUEUE", "ATTEMPT", "STARTED", "PROGRESS", "WORKER")
    return Listing("RUNNING", head, rows)


def _failures(failures: Sequence[FailureDetails]) -> Listing:
    rows = tuple(
        (
            one.job_id,
            one.type,
            one.final_state,
            one.failure.code if one.failure else "",
            one.failure.message if one.failure else "",
        )
        for one in failures
    )
    return Listing("FAILURES", ("JOB", "TYPE", "STATE", "CODE", "MESSAGE"), rows)
