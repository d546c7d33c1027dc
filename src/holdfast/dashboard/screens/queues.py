"""Queues: how they do, who serves them, what holds them back; pause, resume, ageing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.api.errors import RequestError
from holdfast.api.jobs import visible_page
from holdfast.dashboard.formats import duration, instant, parse_span
from holdfast.dashboard.parts import ListPart, part_of
from holdfast.dashboard.plots import Span
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import Fault, ValidationError
from holdfast.model.job import State
from holdfast.model.queues import QueueActivity
from holdfast.model.reserved import is_internal
from holdfast.model.series import SeriesLine
from holdfast.model.status import JobStatus
from holdfast.model.times import parse_timestamp, shown
from holdfast.model.workers import WorkerInfo
from holdfast.operations.limits import LimitInfo
from holdfast.store import QueueInfo

WEEK = timedelta(days=7)
SAMPLE = 200
"""Ready jobs whose types are counted, the oldest first."""
NEXT = 8
"""Ready jobs that are listed."""
WAITING = (State.DELAYED, State.RETRYING, State.PENDING)
FAILED = (State.FAILED, State.DEAD_LETTER)


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of the list."""

    queue: QueueInfo
    activity: QueueActivity
    waiting: int
    week: tuple[int, ...]
    """Jobs that ended in each hour of a week."""
    wait_p50: float | None
    wait_p99: float | None


class QueuesView(msgspec.Struct, frozen=True, kw_only=True):
    """All queues."""

    queues: tuple[QueueSummary, ...]
    part: ListPart
    find: str
    """What the names of the queues contain."""
    count: int
    ready: int
    """Ready jobs that may start: not those of paused queues."""
    paused_ready: int
    """Ready jobs of paused queues."""
    running: int
    paused: int
    unserved: int
    """Queues with ready jobs that no worker serves."""


class QueuePageView(msgspec.Struct, frozen=True, kw_only=True):
    """All about one queue."""

    queue: QueueInfo
    activity: QueueActivity
    waiting: int
    failed: int
    types: tuple[tuple[str, int], ...]
    """Types of ready jobs, those with most jobs first."""
    sampled: int
    more: bool
    """Whether there are more ready jobs than were counted by type."""
    next_jobs: tuple[JobStatus, ...]
    workers: tuple[WorkerInfo, ...]
    limits: tuple[LimitInfo, ...]
    week: SeriesLine
    span: Span


async def queues(visit: Visit) -> QueuesView:
    """Return every queue, those that need someone first."""
    found = await visit.operations.queues()
    week = await visit.operations.series(time_range=WEEK, breakdown_by=["QUEUE"])
    return await asyncio.to_thread(_ordered, visit, found, week.by_queue or {})


def _ordered(
    visit: Visit, queues: Sequence[QueueInfo], lines: Mapping[str, SeriesLine]
) -> QueuesView:
    """Sum up every queue: ten thousand take 0.1 s, beside the event loop."""
    found = [each for each in queues if not is_internal(each.name)]
    rows = sorted((_summary(each, lines.get(each.name)) for each in found), key=_urgency)
    find = visit.asked("find").strip()
    named = [row for row in rows if find.casefold() in row.queue.name.casefold()]
    shown, part = part_of(visit, named)
    return QueuesView(
        queues=shown,
        part=part,
        find=find,
        count=len(rows),
        ready=sum(row.activity.ready for row in rows if not row.queue.paused),
        paused_ready=sum(row.activity.ready for row in rows if row.queue.paused),
        running=sum(row.activity.running for row in rows),
        paused=sum(row.queue.paused for row in rows),
        unserved=sum(_is_unserved(row) for row in rows),
    )


def _summary(queue: QueueInfo, line: SeriesLine | None) -> QueueSummary:
    activity = queue.activity or QueueActivity()
    ended = () if line is None else map(sum, zip(line.completed, line.failed, strict=True))
    return QueueSummary(
        queue=queue,
        activity=activity,
        waiting=sum(queue.counts.get(state, 0) for state in WAITING),
        week=tuple(ended),
        wait_p50=_latest(line.wait_p50) if line else None,
        wait_p99=_latest(line.wait_p99) if line else None,
    )


def _latest(values: Sequence[float | None]) -> float | None:
    """Return the value of the running hour, or of the one before."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def _urgency(row: QueueSummary) -> tuple[bool, bool, bool, bool, float, str]:
    """Queues that need someone come first, as in the overview."""
    now = row.activity
    paused_with_work = bool(now.ready) and row.queue.paused
    return (
        not _is_unserved(row),
        not paused_with_work,
        not row.queue.paused,
        not now.held_back_by,
        -now.failed,
        row.queue.name,
    )


def _is_unserved(row: QueueSummary) -> bool:
    return bool(row.activity.ready) and not row.activity.workers and not row.queue.paused


async def queue(visit: Visit) -> QueuePageView:
    """Return all about one queue."""
    name, operations = visit.path["queue"], visit.operations
    found = next((each for each in await operations.queues() if each.name == name), None)
    if found is None:
        raise RequestError("NOT_FOUND", f"There is no queue {name[:200]}. A job creates its queue.")
    ready = visible_page(
        await operations.search(
            {"queues": [name], "states": [State.SCHEDULED], "order": "CREATED_ASC", "limit": SAMPLE}
        ),
        traces=visit.caller.traces,
    )
    types = Counter(job.type for job in ready.jobs)
    week = await operations.series(time_range=WEEK, queues=[name])
    activity = found.activity or QueueActivity()
    return QueuePageView(
        queue=found,
        activity=activity,
        waiting=sum(found.counts.get(state, 0) for state in WAITING),
        failed=sum(found.counts.get(state, 0) for state in FAILED),
        types=tuple(types.most_common()),
        sampled=len(ready.jobs),
        more=ready.next_cursor is not None,
        next_jobs=ready.jobs[:NEXT],
        workers=tuple(each for each in await operations.workers() if name in each.queues),
        limits=await _limits(visit, name, set(types) | set(activity.held_back_by)),
        week=(week.by_queue or {}).get(name) or week.total,
        span=Span(week.since, week.step, week.points),
    )


async def _limits(visit: Visit, name: str, types: set[str]) -> tuple[LimitInfo, ...]:
    """Return the limits of the queue, and those of types that wait in it."""
    mine = {f"queue:{name}", *types, *(f"{kind}:{t}" for kind in ("task", "key") for t in types)}
    return tuple(each for each in await visit.operations.limit_states() if each.scope in mine)


async def pause(visit: Visit) -> ActionDone:
    """Pause a queue, with a reason, for a while or until it is resumed."""
    name, until = _name(visit), visit.given("until")
    span = parse_span(until) if until else None
    end = visit.now + span if span else _instant(until) if until else None
    await visit.operations.pause(
        name, reason=visit.given("reason"), until=end, by=visit.caller.name
    )
    how_long = f"until {instant(end)}" if end else "until someone resumes it"
    return ActionDone(message=f"Queue {name} is paused {how_long}. Running jobs go on.")


def _instant(text: str) -> datetime:
    try:
        return parse_timestamp(text)
    except ValueError:
        message = f"must be like 30m, 2h, 1d or 2026-11-20T08:00Z, got {shown(text)}"
        raise ValidationError([Fault("until", "INVALID", message)]) from None


async def resume(visit: Visit) -> ActionDone:
    """Resume a queue."""
    name = _name(visit)
    await visit.operations.resume(name)
    return ActionDone(message=f"Queue {name} runs again.")


async def age(visit: Visit) -> ActionDone:
    """Set how fast ready jobs rise in priority; an empty field turns it off."""
    name, given = _name(visit), visit.given("interval")
    span = parse_span(given) if given else None
    if given and not span:
        message = f"must be like 30s, 15m or 2h, or empty to turn it off, got {shown(given)}"
        raise ValidationError([Fault("interval", "INVALID", message)])
    await visit.operations.set_ageing(name, span)
    if span is None:
        return ActionDone(message=f"Jobs of queue {name} keep their priority while they wait.")
    message = f"Ready jobs of queue {name} rise by one priority every {duration(span)}."
    return ActionDone(message=message)


def _name(visit: Visit) -> str:
    """Return the queue in the path; ValidationError when the store cannot have it."""
    name = visit.path["queue"]
    rule = visit.operations.store.capabilities.queue_rule
    if not rule.fullmatch(name):
        message = f"must match {rule.pattern}, got {shown(name)}"
        raise ValidationError([Fault("queue", "INVALID", message)])
    return name


_QUEUE = "/queues/{queue}"

SCREENS = (
    ScreenRoute(
        path="/queues",
        title="Queues",
        template="queues.html",
        call="listQueues",
        view=queues,
        section="queues",
        reads=8,
    ),
    ScreenRoute(
        path=_QUEUE,
        title="Queue",
        template="queue.html",
        call="listQueues",
        view=queue,
        section="queues",
        reads=14,
    ),
)

ACTIONS = (
    Action(path=f"{_QUEUE}/pause", call="pauseQueue", run=pause),
    Action(path=f"{_QUEUE}/resume", call="resumeQueue", run=resume),
    Action(path=f"{_QUEUE}/ageing", call="setQueueAgeing", run=age),
)
