"""Reads and writes schedules in the store.

Each edit also writes the record of edits, in the same call. Its version shows a leader with one
small read whether anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.errors import Fault, NotFoundError, QuotaError, ValidationError
from holdfast.model.job import Encoding
from holdfast.model.payload import PayloadError, encode
from holdfast.model.policy import MEBIBYTE
from holdfast.model.reserved import CRONS, EDITS, PAUSES, SCHEDULES
from holdfast.operations.declarations import contents
from holdfast.store import Record, RecordWrite, Store
from holdfast.store.browsing import every_record
from holdfast.store.damage import described, readable
from holdfast.tasks.plans import MOST_PLANS, Plan, with_plan
from holdfast.tasks.schedule import CronEntry
from holdfast.tasks.schedule_values import PublishedCron, StoredPause, StoredSchedule

T = TypeVar("T", StoredSchedule, StoredPause)

MOST_SCHEDULES = 1000
"""Dynamic schedules of one namespace."""
MOST_BYTES = 8 * MEBIBYTE
"""Bytes of all dynamic schedules of one namespace: each leader keeps them in memory."""
ALL = "all"
"""The key of the record of edits."""
ALWAYS = Plan(since=datetime.fromisoformat("0001-01-01T00:00:00+00:00"))
"""The plan of a schedule of the code that was never paused."""
KINDS: Mapping[type, str] = {StoredSchedule: SCHEDULES, StoredPause: PAUSES}


async def stored(
    store: Store, kind: type[T], damaged: dict[str, str] | None = None
) -> dict[str, T]:
    """Return every dynamic schedule, or the pauses of every schedule of the code, by name.

    ``damaged`` receives the names of those that cannot be read, and why.
    """
    found: dict[str, T] = {}
    for record in await every_record(store, KINDS[kind]):
        try:
            found[record.key] = _decoded(record, kind)
        except ValueError as error:  # whatever a foreign writer wrote: the others are read
            if damaged is not None:
                damaged[record.key] = described(error)
    return found


async def declared_crons(store: Store) -> dict[str, PublishedCron]:
    """Return the schedules of the code that workers published, by name."""
    records = await every_record(store, CRONS)
    return dict(readable(records, lambda record: (record.key, declared_cron(record))))


def declared_cron(record: Record) -> PublishedCron:
    """Return the schedule of the code in a record; ValueError when it is not readable."""
    published = contents(record)
    if published is None:
        raise ValueError("not a schedule")
    return msgspec.json.decode(published.declared, type=PublishedCron)


def cron_declaration(entry: CronEntry) -> bytes:
    """Return what workers publish about a schedule of their code."""
    published = PublishedCron(
        type=entry.type, expression=entry.expression, tz=entry.tz, missed=entry.missed
    )
    try:
        data, encoding = encode(entry.payload)
        if encoding is not Encoding.BYTES:
            options = msgspec.json.decode(msgspec.json.encode(entry.options))
            published = replace(
                published, runnable=True, payload=msgspec.Raw(data), options=options
            )
    except (PayloadError, TypeError, ValueError):
        pass  # it is listed, and runs at its ticks only
    return msgspec.json.encode(published)


async def read(store: Store, kind: type[T], name: str) -> tuple[T | None, int]:
    """Return a record and its version; None when there is none, or when it is damaged."""
    (record,) = await store.records(KINDS[kind], [name])
    if record is None:
        return None, 0
    found = readable([record], lambda record: _decoded(record, kind))
    return next(iter(found), None), record.version


async def code(store: Store, name: str) -> PublishedCron | None:
    """Return the schedule of the code with this name, if workers published one."""
    (record,) = await store.records(CRONS, [name])
    return next(iter(readable([record] if record else [], declared_cron)), None)


async def check_room(store: Store, name: str, schedule: StoredSchedule) -> None:
    """QuotaError when a namespace would have too many dynamic schedules, or too large ones."""
    others = [each for each in await every_record(store, SCHEDULES) if each.key != name]
    count = 1 + len(others)
    size = len(msgspec.json.encode(schedule)) + sum(len(record.data) for record in others)
    if count > MOST_SCHEDULES:
        raise QuotaError("schedules of this namespace", current=count - 1, maximum=MOST_SCHEDULES)
    if size > MOST_BYTES:
        raise QuotaError("bytes of schedules of this namespace", current=size, maximum=MOST_BYTES)


async def write(store: Store, name: str, value: StoredSchedule | StoredPause, version: int) -> bool:
    """Write a record if it still has this version; return whether it had."""
    change = RecordWrite(
        kind=KINDS[type(value)], key=name, data=msgspec.json.encode(value), version=version
    )
    return (await store.keep([change, _edit()]))[0] is not None


async def edit(
    store: Store, name: str, change: Callable[[StoredSchedule], StoredSchedule]
) -> StoredSchedule:
    """Change a dynamic schedule as it is now; NotFoundError when there is none."""
    while True:
        before, version = await read(store, StoredSchedule, name)
        if before is None:
            raise NotFoundError(name, "schedule")
        after = change(before)
        if after == before or await write(store, name, after, version):
            return after


async def pause_code(store: Store, name: str, *, paused: bool) -> None:
    """Pause or resume a schedule of the code."""
    while True:
        before, version = await read(store, StoredPause, name)
        plans = before.plans if before else (ALWAYS,)
        if plans[-1].paused == paused:
            return
        plan = Plan(since=store.now(), paused=paused)
        if await write(store, name, StoredPause(plans=with_plan(plans, plan)), version):
            return


async def remove(store: Store, name: str) -> None:
    """Delete a dynamic schedule; NotFoundError when there is none."""
    gone = RecordWrite(kind=SCHEDULES, key=name, data=None)
    (record,) = await store.records(SCHEDULES, [name])
    if record is None:
        raise NotFoundError(name, "schedule")
    await store.keep([gone, _edit()])


def paused_as(schedule: StoredSchedule, *, paused: bool, now: datetime) -> StoredSchedule:
    """Return a dynamic schedule, paused or resumed."""
    newest = schedule.plans[-1]
    if newest.paused == paused:
        return schedule
    plan = replace(newest, paused=paused, since=now)
    return replace(schedule, plans=with_plan(schedule.plans, plan), changed_at=now)


def must_be_new(is_new: bool, name: str) -> None:
    """ValidationError when a name is taken."""
    if not is_new:
        message = f"{name!r:.130} exists already: change it, or choose another name"
        raise ValidationError([Fault("name", "DUPLICATE", message)])


def _edit() -> RecordWrite:
    return RecordWrite(kind=EDITS, key=ALL, data=b"{}")


def _decoded(record: Record, kind: type[T]) -> T:
    value = msgspec.json.decode(record.data, type=kind)
    if not 1 <= len(value.plans) <= MOST_PLANS:
        raise ValueError(f"a schedule has 1 to {MOST_PLANS} plans, got {len(value.plans)}")
    return value
