"""The forms that create, edit and delete dynamic schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.dashboard.masking import not_json
from holdfast.dashboard.visits import MOST_PAYLOAD, PAYLOAD_FORM, Action, ActionDone, Visit
from holdfast.errors import Fault, NotFoundError, ValidationError
from holdfast.tasks.schedule import MissedRuns
from holdfast.tasks.schedule_values import ScheduleInfo

EXAMPLES = (
    ("0 7 * * MON-FRI", "at 7:00 on workdays"),
    ("*/15 * * * *", "every 15 minutes"),
    ("0 0 1 * *", "at midnight on the first of each month"),
)


class ScheduleForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the form of a schedule contains."""

    name: str = ""
    type: str = ""
    expression: str = ""
    tz: str = "UTC"
    missed: str = MissedRuns.ONE.value
    queue: str = ""
    payload: str = ""
    choices: tuple[tuple[str, str], ...] = (
        (MissedRuns.ONE.value, "run once, late"),
        (MissedRuns.SKIP.value, "skip them"),
        (MissedRuns.ALL.value, "run all of them, late"),
    )
    examples: tuple[tuple[str, str], ...] = EXAMPLES


async def blank_form(visit: Visit) -> ScheduleForm:
    """Return a new form."""
    return ScheduleForm()


def form_of(schedule: ScheduleInfo) -> ScheduleForm:
    """Return the form that edits a schedule."""
    payload = "" if schedule.payload is None else _pretty(schedule.payload)
    return ScheduleForm(
        name=schedule.name,
        type=schedule.type,
        expression=schedule.expression,
        tz=schedule.tz,
        missed=schedule.missed.value,
        queue=str(schedule.options.get("queue", "")),
        payload=payload,
    )


def _pretty(payload: object) -> str:
    """Return a payload for the form: indented, or in one line when the form would not take it."""
    data = msgspec.json.encode(payload)
    text = msgspec.json.format(data, indent=2)
    return (text if len(text) <= MOST_PAYLOAD else data).decode()


async def create(visit: Visit) -> ActionDone:
    """Create a schedule."""
    name = visit.given("name")
    await visit.operations.schedules.create(
        name,
        visit.given("type"),
        visit.given("expression"),
        tz=visit.given("tz") or "UTC",
        payload=_payload(visit),
        missed=visit.given("missed") or MissedRuns.ONE,
        paused=visit.given("paused") == "1",
        options=_options(visit, {}),
    )
    return ActionDone(message=f"Schedule {name} is created.", to=("schedules", name))


async def edit(visit: Visit) -> ActionDone:
    """Change a dynamic schedule."""
    name, schedules = visit.path["name"], visit.operations.schedules
    try:
        before = await schedules.get(name)
        await schedules.change(
            name,
            expression=visit.given("expression") or None,
            tz=visit.given("tz") or None,
            missed=visit.given("missed") or None,
            payload=_payload(visit),
            options=_options(visit, before.options),
        )
    except NotFoundError:
        message = f"Nothing was changed: there is no schedule {name}."
        return ActionDone(message=message, failed=True, to=("schedules",))
    return ActionDone(message=f"Schedule {name} is changed.")


async def delete(visit: Visit) -> ActionDone:
    """Delete a dynamic schedule; its jobs stay."""
    name = visit.path["name"]
    try:
        await visit.operations.schedules.delete(name)
    except NotFoundError:
        message = f"Nothing was changed: there is no schedule {name}."
        return ActionDone(message=message, failed=True, to=("schedules",))
    message = f"Schedule {name} is deleted. The jobs that it made stay."
    return ActionDone(message=message, to=("schedules",))


def _payload(visit: Visit) -> Any:
    given = visit.given("payload")
    if not given:
        return None
    if len(given.encode()) > MOST_PAYLOAD:
        raise ValidationError([Fault("payload", "INVALID", f"may have {MOST_PAYLOAD} bytes")])
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValidationError([not_json(given, str(error))]) from None


def _options(visit: Visit, before: Mapping[str, object]) -> dict[str, object]:
    """Return the options with the queue of the form; the others stay."""
    kept = {name: value for name, value in before.items() if name != "queue"}
    queue = visit.given("queue")
    return {**kept, "queue": queue} if queue else kept


_ONE = "/schedules/{name}"

ACTIONS = (
    Action(path="/new-schedule/create", call="createSchedule", run=create, most_bytes=PAYLOAD_FORM),
    Action(path=f"{_ONE}/edit", call="changeSchedule", run=edit, most_bytes=PAYLOAD_FORM),
    Action(path=f"{_ONE}/delete", call="deleteSchedule", run=delete),
)
