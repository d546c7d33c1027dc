"""Schedules as clients see them: in words, with their next instants."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import msgspec

from holdfast.operations.schedule_records import ALWAYS
from holdfast.tasks.plans import upcoming
from holdfast.tasks.schedule import in_words
from holdfast.tasks.schedule_values import (
    PublishedCron,
    ScheduleInfo,
    ScheduleSource,
    StoredPause,
    StoredSchedule,
)

NEXT_RUNS = 3


def dynamic_info(name: str, stored: StoredSchedule, now: datetime) -> ScheduleInfo:
    entry, newest = stored.entry(name), stored.plans[-1]
    queue = stored.options.get("queue")
    return ScheduleInfo(
        name=name,
        source=ScheduleSource.DYNAMIC,
        type=stored.type,
        queue=queue if isinstance(queue, str) else None,
        expression=newest.expression,
        words=in_words(entry),
        tz=newest.tz,
        missed=stored.missed,
        paused=newest.paused,
        next_runs=tuple(islice(upcoming(entry, stored.plans, after=now), NEXT_RUNS)),
        payload=msgspec.json.decode(stored.payload),
        options=stored.options,
        created_at=stored.created_at,
        changed_at=stored.changed_at,
    )


def code_info(
    name: str, declared: PublishedCron, pause: StoredPause | None, now: datetime
) -> ScheduleInfo:
    plans = pause.plans if pause else (ALWAYS,)
    entry, queue = declared.entry(name), declared.options.get("queue")
    return ScheduleInfo(
        name=name,
        source=ScheduleSource.CODE,
        type=declared.type,
        queue=queue if isinstance(queue, str) else None,
        expression=declared.expression,
        words=in_words(entry),
        tz=declared.tz,
        missed=declared.missed,
        paused=plans[-1].paused,
        next_runs=tuple(islice(upcoming(entry, plans, after=now), NEXT_RUNS)),
    )
