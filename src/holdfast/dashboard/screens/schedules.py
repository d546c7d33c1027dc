"""Schedules: when they run, how their last runs ended; run now, pause, create, edit, delete."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.structs import replace

from holdfast.api.errors import RequestError
from holdfast.dashboard.payloads import ShownValue, shown_beside
from holdfast.dashboard.screens.schedule_forms import ACTIONS as FORM_ACTIONS
from holdfast.dashboard.screens.schedule_forms import ScheduleForm, blank_form, form_of
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.errors import NotFoundError
from holdfast.model.job import State
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo, ScheduleSource

LISTED = 50
MISSED = {
    MissedRuns.SKIP: "are skipped",
    MissedRuns.ONE: "run once, late",
    MissedRuns.ALL: "run all, late",
}
FAILED = (State.FAILED, State.DEAD_LETTER)


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule."""

    schedule: ScheduleInfo
    next_runs: tuple[tuple[datetime, str], ...]
    """The next instants, and each in the time zone of the schedule."""
    missed: str
    """What becomes of runs that were missed."""
    is_failing: bool
    """Whether its newest run that ended failed."""

    @property
    def is_dynamic(self) -> bool:
        """Whether it can be edited and deleted."""
        return self.schedule.source is ScheduleSource.DYNAMIC

    @property
    def is_ours(self) -> bool:
        """Whether it can be paused and run: those of BullMQ belong to its clients."""
        return self.schedule.source is not ScheduleSource.BULLMQ


class SchedulesView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules."""

    rows: tuple[ScheduleRow, ...]
    after: str | None
    paused: int
    failing: int
    unserved: int
    next_at: datetime | None


class SchedulePageView(msgspec.Struct, frozen=True, kw_only=True):
    """All about one schedule."""

    row: ScheduleRow
    payload: ShownValue | None
    form: ScheduleForm


async def schedules(visit: Visit) -> SchedulesView:
    """Return the schedules by name."""
    found = await visit.operations.schedules.list(after=visit.asked("after"), limit=LISTED)
    rows = tuple(_row(each) for each in found)
    return SchedulesView(
        rows=rows,
        after=found[-1].name if len(found) == LISTED else None,
        paused=sum(each.paused for each in found),
        failing=sum(row.is_failing for row in rows),
        unserved=sum(not each.served and not each.paused for each in found),
        next_at=min((each.next_runs[0] for each in found if each.next_runs), default=None),
    )


def _row(schedule: ScheduleInfo) -> ScheduleRow:
    ended = next((run.state for run in schedule.last_runs if run.finished_at), None)
    zone = _zone(schedule.tz)
    return ScheduleRow(
        schedule=schedule,
        next_runs=tuple((at, f"{at.astimezone(zone):%a %d %b %H:%M}") for at in schedule.next_runs),
        missed=MISSED[schedule.missed],
        is_failing=ended in FAILED,
    )


def _zone(name: str) -> ZoneInfo:
    """Return a time zone; a machine may not know what another one has stored."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


async def schedule(visit: Visit) -> SchedulePageView:
    """Return all about one schedule."""
    name = visit.path["name"]
    try:
        found = await visit.operations.schedules.get(name)
    except NotFoundError:
        raise RequestError("NOT_FOUND", f"There is no schedule {name[:200]}.") from None
    shows = visit.may("cancelJob") and visit.settings.show_payloads  # as the API decides
    if not shows:
        found = replace(found, payload=None)
    has_payload = shows and found.payload is not None
    redaction = visit.service.app.redaction
    return SchedulePageView(
        row=_row(found),
        payload=await shown_beside(found.payload, redaction) if has_payload else None,
        form=form_of(found),
    )


async def run(visit: Visit) -> ActionDone:
    """Submit a job of a schedule now."""
    name = visit.path["name"]
    try:
        made = await visit.operations.schedules.run(name)
    except NotFoundError:
        return _gone(name)
    return ActionDone(message=f"A job of {name} was submitted.", to=("jobs", made.job_id))


async def pause(visit: Visit) -> ActionDone:
    """Pause a schedule."""
    name = visit.path["name"]
    try:
        await visit.operations.schedules.pause(name)
    except NotFoundError:
        return _gone(name)
    return ActionDone(message=f"Schedule {name} is paused, also across deploys.")


async def resume(visit: Visit) -> ActionDone:
    """Resume a schedule."""
    name = visit.path["name"]
    try:
        await visit.operations.schedules.resume(name)
    except NotFoundError:
        return _gone(name)
    message = f"Schedule {name} runs again. What it missed while paused is not made up for."
    return ActionDone(message=message)


def _gone(name: str) -> ActionDone:
    message = f"Nothing was changed: there is no schedule {name} that can be changed here."
    return ActionDone(message=message, failed=True)


_ONE = "/schedules/{name}"

SCREENS = (
    ScreenRoute(
        path="/schedules",
        title="Schedules",
        template="schedules.html",
        call="listSchedules",
        view=schedules,
        section="schedules",
        reads=20,
    ),
    ScreenRoute(
        path=_ONE,
        title="Schedule",
        template="schedule.html",
        call="getSchedule",
        view=schedule,
        section="schedules",
        reads=5,
    ),
    ScreenRoute(
        path="/new-schedule",
        title="New schedule",
        template="schedule-new.html",
        call="createSchedule",
        view=blank_form,
        section="schedules",
        live=False,
    ),
)

ACTIONS = (
    Action(path=f"{_ONE}/run", call="runSchedule", run=run),
    Action(path=f"{_ONE}/pause", call="pauseSchedule", run=pause),
    Action(path=f"{_ONE}/resume", call="resumeSchedule", run=resume),
    *FORM_ACTIONS,
)
