"""Celery's schedules as cron expressions: ``crontab``, seconds and timedeltas."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from holdfast.contrib.celery.exceptions import UnsupportedError

Field = str | int | Iterable[int]

MINUTE, HOUR, DAY = 60, 3600, 86400


class crontab:  # noqa: N801  # Celery's name
    """When a task runs, as Celery writes it: ``crontab(minute=0, hour="*/3")``."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
    ) -> None:
        fields = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.expression = " ".join(map(_field, fields))

    def __repr__(self) -> str:
        return f"<crontab {self.expression}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, crontab) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)


def schedule(run_every: float | timedelta) -> timedelta:
    """Return an interval, as Celery's ``schedule(run_every=...)`` does."""
    return run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)


def expression_of(when: object) -> str:
    """Return the cron expression of a schedule; UnsupportedError when there is none."""
    match when:
        case crontab():
            return when.expression
        case timedelta():
            return _interval(when.total_seconds())
        case int() | float():
            return _interval(float(when))
        case _:
            raise UnsupportedError(
                f"a schedule of type {type(when).__name__}",
                "use crontab(...), seconds or a timedelta, or app.holdfast.schedules",
            )


def _interval(seconds: float) -> str:
    """An interval that divides a minute, an hour or a day, as ticks of the clock."""
    for unit, size, most in (("{} * * * * *", 1, MINUTE), ("0 {} * * * *", MINUTE, HOUR)):
        count = seconds / size
        if seconds < most and count >= 1 and count.is_integer() and (most // size) % count == 0:
            return unit.format(f"*/{int(count)}")
    hours = seconds / HOUR
    if seconds < DAY and hours >= 1 and hours.is_integer() and 24 % hours == 0:
        return f"0 0 */{int(hours)} * * *"
    if seconds == DAY:
        return "0 0 0 * * *"
    raise UnsupportedError(
        f"an interval of {seconds:g} s",
        "choose one that divides a minute, an hour or a day, or use crontab(...)",
    )


def _field(value: Field) -> str:
    if isinstance(value, str | int):
        return str(value).replace(" ", "")
    return ",".join(map(str, sorted(value)))


__all__ = ["crontab", "schedule"]
