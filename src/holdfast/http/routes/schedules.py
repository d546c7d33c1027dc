"""Routes about schedules: list, create, change, pause, resume, run, delete."""

from __future__ import annotations

from typing import cast

import msgspec
from msgspec.structs import replace

from holdfast.http.endpoint import Call, Endpoint
from holdfast.http.fields import Field, flag, integer, text
from holdfast.http.permissions import Permission
from holdfast.http.responses import JsonResponse
from holdfast.model.results import SubmissionResult
from holdfast.model.submission import TYPE_RULE
from holdfast.operations.schedule_inputs import NAME_RULE
from holdfast.operations.schedules import LAST_RUNS, MOST_PAGE
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo

ABOUT_BYTES = 8192
"""Bytes of a schedule on average, at most."""


class ScheduleList(msgspec.Struct, frozen=True):
    """Schedules, by name."""

    schedules: tuple[ScheduleInfo, ...]


class ScheduleRemoval(msgspec.Struct, frozen=True):
    """A schedule that was deleted."""

    name: str
    deleted: bool = True


async def list_schedules(call: Call) -> JsonResponse:
    """Return schedules."""
    found = await call.operations.schedules.list(
        after=str(call.query.get("after", "")),
        limit=cast("int", call.query.get("limit", 100)),
        runs=cast("int", call.query.get("runs", LAST_RUNS)),
    )
    size = len(found) * ABOUT_BYTES  # payloads and options have 8 MiB at most
    return JsonResponse(ScheduleList(tuple(_shown(call, one) for one in found)), size=size)


async def get_schedule(call: Call) -> JsonResponse:
    """Return a schedule."""
    return JsonResponse(_shown(call, await call.operations.schedules.get(call.path["name"])))


async def create_schedule(call: Call) -> JsonResponse:
    """Create a dynamic schedule."""
    fields = dict(call.fields)
    name, type_ = str(fields.pop("name")), str(fields.pop("type"))
    expression = str(fields.pop("expression"))
    made = await call.operations.schedules.create(name, type_, expression, **fields)  # type: ignore[arg-type]  # read by type
    return JsonResponse(made, status=201)


async def change_schedule(call: Call) -> JsonResponse:
    """Change a dynamic schedule."""
    fields = call.fields
    changed = await call.operations.schedules.change(call.path["name"], **fields)  # type: ignore[arg-type]  # read by type
    return JsonResponse(changed)


async def pause_schedule(call: Call) -> JsonResponse:
    """Pause a schedule."""
    return JsonResponse(await call.operations.schedules.pause(call.path["name"]))


async def resume_schedule(call: Call) -> JsonResponse:
    """Resume a schedule."""
    return JsonResponse(await call.operations.schedules.resume(call.path["name"]))


async def run_schedule(call: Call) -> JsonResponse:
    """Submit a job of a schedule now."""
    limits = call.service.key_limits
    async with limits.counting(call.caller):
        await limits.admit_jobs(call.caller, 1)
        submitted = await call.operations.schedules.run(call.path["name"])
    return JsonResponse(submitted, status=202)


async def delete_schedule(call: Call) -> JsonResponse:
    """Delete a dynamic schedule."""
    await call.operations.schedules.delete(call.path["name"])
    return JsonResponse(ScheduleRemoval(call.path["name"]))


def _shown(call: Call, schedule: ScheduleInfo) -> ScheduleInfo:
    """Return a schedule without its payload for callers that see no payloads of jobs."""
    if call.caller.may(Permission.CHANGE):
        return schedule
    return replace(schedule, payload=None)


def _read_object(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


_PATH = "/api/v1/schedules"
_ONE = f"{_PATH}/{{name}}"
_NOT_FOUND = ("NOT_FOUND",)
_TZ = text("tz", minimum=1, description="A time zone such as Europe/Berlin; UTC by default.")
_MISSED = Field(
    name="missed",
    schema={"type": "string", "enum": [each.value for each in MissedRuns]},
    description="What happens to instants that passed while no worker ran.",
)
_PAYLOAD = Field(name="payload", schema={}, raw=True, description="The payload of each job.")
_OPTIONS = Field(
    name="options",
    schema={"type": "object"},
    read=_read_object,
    description="Options of its jobs, as for a submission: queue, priority, timeout, lifetime,"
    " max_attempts, backoff, correlation_id, tags, headers, callback_url, limit_key.",
)


def _expression(*, required: bool) -> Field:
    return text(
        "expression",
        minimum=1,
        required=required,
        description="A cron expression of five fields, or six with seconds.",
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path=_PATH,
        name="listSchedules",
        summary="List schedules with their next and last runs",
        handler=list_schedules,
        permission=Permission.WATCH,
        query=(
            text("after", maximum=512, description="Continue behind this name."),
            integer("limit", 1, MOST_PAGE, default=100),
            integer("runs", 0, LAST_RUNS, default=LAST_RUNS, description="Newest jobs of each."),
        ),
        response=ScheduleList,
    ),
    Endpoint(
        method="POST",
        path=_PATH,
        name="createSchedule",
        summary="Submit jobs at the times of a cron expression",
        description="There is exactly one job per tick, however many workers run.",
        handler=create_schedule,
        permission=Permission.ADMINISTER,
        body_fields=(
            text("name", minimum=1, maximum=128, pattern=f"^{NAME_RULE.pattern}$", required=True),
            text(
                "type",
                minimum=1,
                maximum=128,
                pattern=f"^{TYPE_RULE.pattern}$",
                required=True,
                description="The type of its jobs.",
            ),
            _expression(required=True),
            _TZ,
            _MISSED,
            flag("paused", "Create it paused."),
            _PAYLOAD,
            _OPTIONS,
        ),
        example={
            "name": "report.daily",
            "type": "report.send",
            "expression": "0 7 * * MON-FRI",
            "tz": "Europe/Berlin",
            "payload": {"to": "team@example.org"},
            "options": {"queue": "reports"},
        },
        response=ScheduleInfo,
        status=201,
        audited=True,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        name="getSchedule",
        summary="Get a schedule",
        handler=get_schedule,
        permission=Permission.WATCH,
        response=ScheduleInfo,
        errors=_NOT_FOUND,
    ),
    Endpoint(
        method="PATCH",
        path=_ONE,
        name="changeSchedule",
        summary="Change a dynamic schedule",
        description="Whatever is absent stays. A tick that has passed belongs to the old"
        " definition, later ones to the new one.",
        handler=change_schedule,
        permission=Permission.ADMINISTER,
        body_fields=(_expression(required=False), _TZ, _MISSED, _PAYLOAD, _OPTIONS),
        example={"expression": "30 6 * * MON-FRI"},
        response=ScheduleInfo,
        errors=_NOT_FOUND,
        audited=True,
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        name="deleteSchedule",
        summary="Delete a dynamic schedule; its jobs stay",
        handler=delete_schedule,
        permission=Permission.ADMINISTER,
        response=ScheduleRemoval,
        errors=_NOT_FOUND,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/pause",
        name="pauseSchedule",
        summary="Pause a schedule, also one of the code",
        handler=pause_schedule,
        permission=Permission.OPERATE,
        body_fields=(),
        response=ScheduleInfo,
        errors=_NOT_FOUND,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/resume",
        name="resumeSchedule",
        summary="Resume a schedule",
        description="Instants that passed while it was paused are not made up for.",
        handler=resume_schedule,
        permission=Permission.OPERATE,
        body_fields=(),
        response=ScheduleInfo,
        errors=_NOT_FOUND,
        audited=True,
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/run",
        name="runSchedule",
        summary="Submit a job of a schedule now, beside its ticks",
        handler=run_schedule,
        permission=Permission.OPERATE,
        body_fields=(),
        response=SubmissionResult,
        status=202,
        errors=_NOT_FOUND,
        audited=True,
    ),
)
