"""Failures by group: what fails, since when, how often, why; and its jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from operator import itemgetter

import msgspec

from holdfast.api.errors import RequestError
from holdfast.api.jobs import visible_failure, visible_job
from holdfast.dashboard.formats import iso
from holdfast.dashboard.sentences import FOLLOWED
from holdfast.dashboard.visits import ScreenRoute, Visit
from holdfast.errors import NotFoundError
from holdfast.model.failure_groups import OTHER, FailureGroup, FailureGroups
from holdfast.model.results import FailureDetails
from holdfast.model.status import JobStatus, job_status
from holdfast.operations.matching import find_matching
from holdfast.store import Search

WINDOWS = {
    "1h": ("Last hour", timedelta(hours=1)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
}
LISTED = 20
COUNTED = 1000
"""Jobs of a group that are counted; only the jobs themselves name it."""


class FailuresView(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of a window."""

    window: str
    windows: tuple[tuple[str, str], ...]
    found: FailureGroups
    groups: tuple[tuple[FailureGroup, bool], ...]
    """The groups, and whether each followed from others; such groups come last."""
    failed_now: int
    types: int
    step: str


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """One group: its failure, its course, its jobs."""

    id: str
    type: str
    code: str
    message: str
    group: FailureGroup | None
    window: str
    windows: tuple[tuple[str, str], ...]
    since: datetime
    sample: FailureDetails | None
    jobs: tuple[JobStatus, ...]
    total: int
    exact: bool
    query: str
    recent: int
    """How many of the jobs failed in the window."""
    recent_query: str


def _window(visit: Visit) -> tuple[str, timedelta]:
    name = visit.asked("window", "1h")
    name = name if name in WINDOWS else "1h"
    return name, WINDOWS[name][1]


_CHOICES = tuple((name, label) for name, (label, _) in WINDOWS.items())


async def failures(visit: Visit) -> FailuresView:
    """Return the groups of a window, the largest first."""
    name, span = _window(visit)
    found = await visit.operations.failure_groups(time_range=span)
    return FailuresView(
        window=name,
        windows=_CHOICES,
        found=found,
        groups=tuple(
            sorted(((each, each.code == FOLLOWED) for each in found.groups), key=itemgetter(1))
        ),
        failed_now=sum(found.failed_now.values()),
        types=len({group.type for group in found.groups}),
        step="minute" if found.step <= timedelta(minutes=1) else "hour",
    )


async def group(visit: Visit) -> GroupView:
    """Return one group; NotFoundError when neither failures nor jobs of it are known."""
    id_ = visit.path["group"]
    name, found, entry = await _found(visit, id_)
    same = await find_matching(
        visit.operations.store, Search(limit=COUNTED, most_bytes=0), {"group": id_}
    )
    shown = [job_status(job, with_result=False, as_text=True) for job in same.jobs[:LISTED]]
    jobs = tuple(visible_job(job, traces=visit.caller.traces) for job in shown)
    sample = await _sample(visit, entry, jobs)
    if entry is None and sample is None:
        raise RequestError("NOT_FOUND", f"there is no failure group {id_}")
    failure = sample.failure if sample else None
    return GroupView(
        id=id_,
        type=entry.type if entry else sample.type if sample else "",
        code=entry.code if entry else failure.code if failure else "",
        message=failure.message if failure else entry.message if entry else "",
        group=entry,
        window=name,
        windows=_CHOICES,
        since=found.since,
        sample=sample,
        jobs=jobs,
        total=len(same.jobs),
        exact=same.next_cursor is None,
        query=f"group:{id_}",
        recent=sum(job.updated_at >= found.since for job in same.jobs),
        recent_query=f"group:{id_} changed:{iso(found.since)}",
    )


async def _found(visit: Visit, id_: str) -> tuple[str, FailureGroups, FailureGroup | None]:
    """Find a group in the window that was asked for, else in the longest one."""
    name, span = _window(visit)
    for window, length in ((name, span), ("7d", WINDOWS["7d"][1])):
        found = await visit.operations.failure_groups(time_range=length)
        entry = next((each for each in found.groups if each.group == id_), None)
        if entry is not None:
            return window, found, entry
    return name, found, None


async def _sample(
    visit: Visit, entry: FailureGroup | None, jobs: tuple[JobStatus, ...]
) -> FailureDetails | None:
    """Return how the newest job of the group failed that still exists."""
    if entry is not None and entry.group == OTHER:
        return None
    ids = [job.job_id for job in jobs[:1]]
    if entry is not None:
        ids.insert(0, entry.sample_job_id)
    for job_id in ids:
        try:
            details = await visit.operations.failure(job_id)
        except NotFoundError:
            continue
        if details.failure is not None:
            return visible_failure(details, traces=visit.caller.traces)
    return None


SCREENS = (
    ScreenRoute(
        path="/failures",
        title="Failures",
        template="failures.html",
        call="listFailureGroups",
        view=failures,
        section="failures",
        reads=5,
    ),
    ScreenRoute(
        path="/failures/{group}",
        title="Failure",
        template="failure.html",
        call="listFailureGroups",
        view=group,
        section="failures",
        reads=12,
    ),
)
