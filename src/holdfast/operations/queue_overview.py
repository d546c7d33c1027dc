"""Queues with what happens in them, for overviews: a few reads, however many jobs there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from holdfast.model.job import State
from holdfast.model.measures import minute_of
from holdfast.model.queues import QueueActivity
from holdfast.model.series import NOTHING, SeriesPoint, SeriesSlot
from holdfast.model.workers import WorkerInfo
from holdfast.operations.pauses import with_pauses
from holdfast.operations.series import LEVELS, slots
from holdfast.operations.workers import workers
from holdfast.runtime.pace import Pace
from holdfast.store import LimitState, QueueInfo, Store, Tally

MINUTES = 60
RECENT = 5
"""Minutes over which rates are taken."""


async def queue_overview(store: Store) -> list[QueueInfo]:
    """Return every queue with its settings, counts and activity."""
    queues = await with_pauses(store, await store.queues())
    if not queues:
        return queues
    now = store.now()
    newest = minute_of(now)
    minutes = await slots(store, LEVELS[0], newest - MINUTES, newest)
    alive = [worker for worker in await workers(store) if not worker.draining]
    full = [limit for limit in await store.limits() if is_used_up(limit, now)]
    held = await _held_back(store, full) if full else {}
    pace = Pace()
    serving = await _serving({queue.name for queue in queues}, alive, pace)
    found = []
    for queue in queues:
        await pace.turn()
        workers_of, held_by = serving.get(queue.name, ()), held.get(queue.name, ())
        found.append(replace(queue, activity=_activity(queue, now, minutes, workers_of, held_by)))
    return found


async def _serving(
    names: set[str], alive: Iterable[WorkerInfo], pace: Pace
) -> Mapping[str, Sequence[WorkerInfo]]:
    """Return the workers of each queue: one look at each worker, which may name thousands."""
    found: defaultdict[str, list[WorkerInfo]] = defaultdict(list)
    for worker in alive:
        await pace.turn()
        for name in names.intersection(worker.queues):
            found[name].append(worker)
    return found


def is_used_up(limit: LimitState, now: datetime) -> bool:
    """Whether a limit lets no further job start now."""
    rule = limit.rule
    if rule.concurrency is not None and limit.running >= rule.concurrency:
        return True
    return limit.is_rate_used_up and limit.until is not None and limit.until > now


def _activity(
    queue: QueueInfo,
    now: datetime,
    minutes: Mapping[int, SeriesSlot],
    serving: Sequence[WorkerInfo],
    held_back_by: Iterable[str],
) -> QueueActivity:
    points = {number: slot.queues.get(queue.name, NOTHING) for number, slot in minutes.items()}
    since = queue.ready_since
    newest = minute_of(now)
    recent = [point for number, point in points.items() if number >= newest - RECENT]
    seconds = now.timestamp() - (newest - RECENT) * 60
    return QueueActivity(
        ready=queue.counts.get(State.SCHEDULED, 0),
        running=queue.counts.get(State.RUNNING, 0),
        oldest_ready_seconds=None if since is None else _seconds(now - since),
        workers=len(serving),
        slots=sum(worker.slots for worker in serving),
        submitted=sum(point.submitted for point in points.values()),
        completed=sum(point.completed for point in points.values()),
        failed=sum(point.failed for point in points.values()),
        in_rate=round(sum(point.submitted for point in recent) / seconds, 3),
        out_rate=round(sum(map(_ended, recent)) / seconds, 3),
        held_back_by=tuple(sorted(held_back_by)),
    )


def _seconds(span: timedelta) -> float:
    return max(0.0, span.total_seconds())


def _ended(point: SeriesPoint) -> int:
    return point.completed + point.failed + point.cancelled


async def _held_back(store: Store, full: Sequence[LimitState]) -> Mapping[str, set[str]]:
    """Return which used up limits the ready jobs of each queue are under."""
    ready = [
        tally
        for tally in (await store.stats(timedelta(0))).tallies
        if tally.state is State.SCHEDULED
    ]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for limit in full:
        for tally in ready:
            if _applies(limit.scope, tally):
                found[tally.queue].add(limit.scope)
    return found


def _applies(scope: str, tally: Tally) -> bool:
    kind, _, name = scope.partition(":")
    if kind == "queue":
        return name == tally.queue
    return name == tally.type or (kind == "key" and name.startswith(f"{tally.type}:"))
