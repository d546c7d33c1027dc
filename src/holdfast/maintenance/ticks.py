"""Which instants of a schedule are due now, given what the store keeps about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from holdfast.maintenance.definitions import Definition
from holdfast.model.times import Instant, parse_timestamp
from holdfast.tasks.plans import due_of_plans, has_passed, upcoming
from holdfast.tasks.schedule import LATE, MOST_AT_ONCE

PREFIX = "cron:"
NEVER = datetime.max.replace(tzinfo=UTC)


class Repeated(msgspec.Struct, frozen=True):
    """Instants that come again after the clock was set back, and the mark of their new keys."""

    until: Instant
    mark: str


NOT_REPEATED = Repeated(datetime.min.replace(tzinfo=UTC), "")


class Ticks(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a schedule."""

    schedule: Definition
    last: datetime | None
    """The instant up to which it was served; None: it is new."""
    repeated: Repeated
    set_back: bool = False
    """Whether the clock shows less than the last instant."""
    due: list[datetime] = []
    passed: bool = False
    """Whether an instant has passed, due or not."""
    following: datetime = NEVER

    @property
    def is_more(self) -> bool:
        """Whether further instants may be due."""
        return len(self.due) == MOST_AT_ONCE


def ticks_of(schedule: Definition, stored: Mapping[str, bytes], now: datetime) -> Ticks:
    """Return what is due of a schedule, and its next instant; ValueError for a damaged record."""
    entry, plans = schedule.entry, schedule.plans
    last, repeated = _last(schedule, stored), _repeated(schedule, stored)
    if last is not None and last - now > LATE:
        return Ticks(schedule=schedule, last=last, repeated=repeated, set_back=True)
    return Ticks(
        schedule=schedule,
        last=last,
        repeated=repeated,
        due=due_of_plans(entry, plans, last=last, now=now) if last else [],
        passed=last is not None and has_passed(entry, plans, last=last, now=now),
        following=next(upcoming(entry, plans, after=now), NEVER),
    )


def last_name(schedule: Definition) -> str:
    """Return the name under which the last instant is kept."""
    return f"{PREFIX}last:{schedule.state}"


def first_name(schedule: Definition) -> str:
    """Return the name under which the store keeps when a schedule was first seen."""
    return f"{PREFIX}first:{schedule.state}"


def again_name(schedule: Definition) -> str:
    """Return the name under which the instants are kept that come again."""
    return f"{PREFIX}again:{schedule.state}"


def _last(schedule: Definition, stored: Mapping[str, bytes]) -> datetime | None:
    """The instant up to which a schedule was submitted, else when it was first seen."""
    data = stored.get(last_name(schedule), stored.get(first_name(schedule)))
    if data is not None:
        return parse_timestamp(data.decode())
    return schedule.plans[0].since if schedule.is_dynamic else None


def _repeated(schedule: Definition, stored: Mapping[str, bytes]) -> Repeated:
    data = stored.get(again_name(schedule))
    return NOT_REPEATED if data is None else msgspec.json.decode(data, type=Repeated)
