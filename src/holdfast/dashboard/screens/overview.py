"""The overview: a row per queue, what happened in the last hour, and what the doctor warns of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

import msgspec

from holdfast.dashboard.findings import ShownFinding, shown_findings
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.http.service import Service
from holdfast.model.job import State
from holdfast.model.queues import QueueActivity, QueuePause
from holdfast.model.reserved import is_internal
from holdfast.model.series import Series, SeriesLine
from holdfast.operations.doctor import examine
from holdfast.store import Finding, Level, QueueInfo

HOUR = timedelta(hours=1)
MOST_QUEUES = 50
"""Rows of the overview; the page of the queues has all of them."""
MOST_FINDINGS = 2
FINDINGS_KEPT = 60.0
"""Seconds until the doctor examines the store again: it reads a few hundred jobs."""
WAITING = (State.DELAYED, State.RETRYING, State.PENDING)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at a glance."""

    name: str
    paused: bool
    pause: QueuePause | None
    activity: QueueActivity
    waiting: int
    """Jobs that wait for their time, for another attempt or for other jobs."""
    failed_now: int
    arrived: tuple[int, ...]
    ended: tuple[int, ...]


class OverviewView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at a glance."""

    queues: tuple[QueueRow, ...]
    """Those that need someone first."""
    count: int
    series: Series
    ready: int
    """Ready jobs that may start: not those of paused queues."""
    paused_ready: int
    """Ready jobs of paused queues."""
    oldest: float | None
    """Since when the oldest of those waits that may start."""
    running: int
    slots: int
    workers: int
    failed: int
    completed: int
    submitted: int
    findings: tuple[ShownFinding, ...]
    more_findings: int
    is_empty: bool


async def overview(visit: Visit) -> OverviewView:
    """Return the state of all queues."""
    operations = visit.operations
    found = await operations.queues()
    series = await operations.series(time_range=HOUR, breakdown_by=["QUEUE"])
    present = await operations.workers()
    rows = await asyncio.to_thread(_rows, found, series.by_queue or {})
    findings = shown_findings(await _findings(visit))
    ages = [row.activity.oldest_ready_seconds for row in rows if not row.paused]
    return OverviewView(
        queues=tuple(rows[:MOST_QUEUES]),
        count=len(rows),
        series=series,
        ready=sum(row.activity.ready for row in rows if not row.paused),
        paused_ready=sum(row.activity.ready for row in rows if row.paused),
        oldest=max((age for age in ages if age is not None), default=None),
        running=sum(row.activity.running for row in rows),
        slots=sum(worker.slots for worker in present),
        workers=len(present),
        failed=sum(series.total.failed),
        completed=sum(series.total.completed),
        submitted=sum(series.total.submitted),
        findings=findings[:MOST_FINDINGS],
        more_findings=sum(each.count for each in findings[MOST_FINDINGS:]),
        is_empty=not any(sum(queue.counts.values()) for queue in found),
    )


def _rows(queues: Sequence[QueueInfo], lines: Mapping[str, SeriesLine]) -> list[QueueRow]:
    """Return a row for each queue, those that need someone first."""
    rows = [_row(queue, lines.get(queue.name)) for queue in queues if not is_internal(queue.name)]
    return sorted(rows, key=_urgency)


def _row(queue: QueueInfo, line: SeriesLine | None) -> QueueRow:
    counts = queue.counts
    ended = [] if line is None else map(sum, zip(line.completed, line.failed, strict=True))
    return QueueRow(
        name=queue.name,
        paused=queue.paused,
        pause=queue.pause,
        activity=queue.activity or QueueActivity(),
        waiting=sum(counts.get(state, 0) for state in WAITING),
        failed_now=counts.get(State.FAILED, 0) + counts.get(State.DEAD_LETTER, 0),
        arrived=line.submitted if line else (),
        ended=tuple(ended),
    )


def _urgency(row: QueueRow) -> tuple[bool, bool, bool, float, bool, str]:
    """Queues that need someone come first: unserved, paused with work, held back, failing."""
    now = row.activity
    return (
        not (now.ready and not now.workers and not row.paused),
        not (now.ready and row.paused),
        not now.held_back_by,
        -now.failed,
        not (now.ready or now.running or now.submitted),
        row.name,
    )


_examined: WeakKeyDictionary[Service, tuple[float, tuple[Finding, ...]]] = WeakKeyDictionary()


async def _findings(visit: Visit) -> tuple[Finding, ...]:
    """Return what the doctor warns of; only for callers who see the whole store."""
    if visit.caller.namespace or visit.caller.only_own:
        return ()
    service = visit.service
    now = service.app.clock.monotonic()
    known = _examined.get(service)
    if known is None or now - known[0] >= FINDINGS_KEPT:
        app = service.app
        found = await examine(app.store, retention=app.retention)
        known = now, _warnings(found)
        _examined[service] = known
    return known[1]


def _warnings(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return what is not fine, errors first, and of each check one before its others."""
    problems = [each for each in found if each.level is not Level.OK]
    seen: Counter[str] = Counter()
    turns = []
    for each in problems:
        turns.append((each.level is not Level.ERROR, seen[each.name]))
        seen[each.name] += 1
    order = sorted(range(len(problems)), key=turns.__getitem__)
    return tuple(problems[at] for at in order)


SCREENS = (
    ScreenRoute(
        path="/overview",
        title="Overview",
        template="overview.html",
        call="listQueues",
        view=overview,
        section="overview",
        reads=12,
    ),
)
