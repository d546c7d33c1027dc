"""Submits the jobs of cron schedules: exactly one per schedule and instant.

The job's idempotency key is the instant, so any number of workers may try. The store keeps the
last instant submitted, so that missed ones are known after a pause. The next instant of a schedule
is worked out once: thousands of schedules cost a look next to nothing until one is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import DuplicateError, StoreUnavailableError
from holdfast.maintenance.definitions import Definition, Definitions
from holdfast.maintenance.schedule_quota import ScheduleQuota
from holdfast.maintenance.ticks import (
    NEVER,
    PREFIX,
    Repeated,
    Ticks,
    again_name,
    first_name,
    last_name,
    ticks_of,
)
from holdfast.model.times import format_timestamp
from holdfast.operations.quarantine import set_aside
from holdfast.operations.schedules import submission_of
from holdfast.runtime.pace import Pace
from holdfast.store import Store

LONGEST_WAIT = 1.0
FOR_EVER = timedelta(days=36_500)
KEY_WINDOW = timedelta(days=7)
AT_ONCE = 100
"""Schedules, or instants of one, that are served together: some 20 ms of the loop."""
WITHOUT_ROOM = timedelta(seconds=5)
"""When to look again at a schedule whose key has too many unfinished jobs."""
SET_BACK = timedelta(seconds=1)
"""A clock that shows this much less than before was set: next instants may come earlier."""


class Following(msgspec.Struct, frozen=True):
    """The next instant of a schedule as it is defined now."""

    schedule: Definition
    at: datetime


class CronService:
    """Submits due schedules."""

    name = "cron"

    def __init__(self, app: Holdfast, store: Store) -> None:
        self._app = app
        self._store = store
        self._definitions = Definitions(app, store)
        self._quota = ScheduleQuota(store)
        self._following: dict[str, Following] = {}
        self._latest = datetime.min.replace(tzinfo=UTC)

    async def once(self) -> float:
        # Before the definitions are read: a tick after that may belong to a later edit.
        now = self._store.now()
        definitions = await self._definitions.read()
        self._forget(definitions, now)
        due = [each for each in definitions if self._is_due(each, now)]
        if due:
            stored = {lock.name: lock.data for lock in await self._store.locks(PREFIX)}
            some = [due[start : start + AT_ONCE] for start in range(0, len(due), AT_ONCE)]
            again = [await self._serve(each, stored, now) for each in some]
            await self._forget_deleted(definitions, stored)
            if any(again):
                return 0.0
        following = min((each.at for each in self._following.values()), default=NEVER)
        return min(LONGEST_WAIT, max(0.0, (following - self._store.now()).total_seconds()))

    def _forget(self, definitions: Sequence[Definition], now: datetime) -> None:
        """Forget the next instants of deleted schedules; of all when the clock was set back."""
        if self._latest - now > SET_BACK:
            self._following.clear()
            self._latest = now
        self._latest = max(self._latest, now)
        if len(self._following) > len(definitions):
            known = {each.state for each in definitions}
            self._following = {s: each for s, each in self._following.items() if s in known}

    def _is_due(self, schedule: Definition, now: datetime) -> bool:
        known = self._following.get(schedule.state)
        return known is None or known.schedule is not schedule or known.at <= now

    async def _serve(
        self, schedules: Sequence[Definition], stored: Mapping[str, bytes], now: datetime
    ) -> bool:
        """Serve some schedules; return whether there is more to do for one of them at once."""
        pace, looked = Pace(), list[Ticks]()
        for schedule in schedules:
            await pace.turn()
            self._following.pop(schedule.state, None)
            try:
                looked.append(ticks_of(schedule, stored, now))
            except Exception as error:  # noqa: BLE001  # such as a damaged record
                await self._set_aside(schedule, error)
        await self._quota.read(each.schedule.owner for each in looked if each.due)
        await _together(self._alone(each.schedule, self._carry_out(each, now)) for each in looked)
        await self._quota.report()
        return any(each.set_back or each.is_more for each in looked)

    async def _alone(self, schedule: Definition, work: Coroutine[None, None, None]) -> None:
        """Serve one schedule; its own faults do not stop the others."""
        try:
            await work
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # such as a damaged option
            await self._set_aside(schedule, error)

    async def _set_aside(self, schedule: Definition, error: Exception) -> None:
        """Report a schedule that cannot be served, and look at it again in a while."""
        await set_aside(self._store, f"cron schedule {schedule.state}", error)
        later = self._store.now() + timedelta(seconds=LONGEST_WAIT)
        self._following[schedule.state] = Following(schedule, later)

    async def _carry_out(self, ticks: Ticks, now: datetime) -> None:
        schedule = ticks.schedule
        if ticks.last is None:
            await self._record_first(schedule, now)
        elif ticks.set_back:
            await self._record_set_back(schedule, now, ticks.last, ticks.repeated)
            return
        due = ticks.due[: self._quota.take(schedule.owner, len(ticks.due))]
        for start in range(0, len(due), AT_ONCE):
            some = due[start : start + AT_ONCE]
            await _together(self._submit(schedule, each, ticks.repeated) for each in some)
        if len(due) < len(ticks.due):
            await self._wait_for_room(schedule, due)
            return
        if ticks.is_more:
            await self._record_last(schedule, ticks.due[-1])
            return
        if ticks.passed:
            await self._record_last(schedule, now)
        self._following[schedule.state] = Following(schedule, ticks.following)

    async def _wait_for_room(self, schedule: Definition, served: Sequence[datetime]) -> None:
        """Look again in a while; what is due then is decided as after a time without workers."""
        if served:
            await self._record_last(schedule, served[-1])
        later = self._store.now() + WITHOUT_ROOM
        self._following[schedule.state] = Following(schedule, later)

    async def _submit(self, schedule: Definition, instant: datetime, repeated: Repeated) -> None:
        key = f"cron:{schedule.state}:{format_timestamp(instant)}"
        if instant <= repeated.until:
            key += f":{repeated.mark}"
        window = schedule.entry.options.get("idempotency_window") or KEY_WINDOW
        submission = submission_of(schedule.entry, idempotency_key=key, idempotency_window=window)
        try:
            await self._definitions.submitter(schedule).submit(submission)
        except DuplicateError:  # the tick was served before an edit of the payload
            return

    async def _record_first(self, schedule: Definition, now: datetime) -> None:
        """Record when a schedule was first seen; a later record does not replace it."""
        owner = self._app.randomness.token()  # unique: no later call can overwrite
        await self._store.lock(first_name(schedule), owner, FOR_EVER, _encoded(now))

    async def _record_set_back(
        self, schedule: Definition, now: datetime, last: datetime, repeated: Repeated
    ) -> None:
        """Continue at the time that the clock shows now: the instants since then come again."""
        again = Repeated(max(last, repeated.until), format_timestamp(last))
        data = msgspec.json.encode(again)
        await self._store.lock(again_name(schedule), "cron", FOR_EVER, data)
        await self._record_last(schedule, now)

    async def _record_last(self, schedule: Definition, moment: datetime) -> None:
        await self._store.lock(last_name(schedule), "cron", FOR_EVER, _encoded(moment))

    async def _forget_deleted(
        self, definitions: Sequence[Definition], stored: Mapping[str, bytes]
    ) -> None:
        """Remove what the store keeps about dynamic schedules that were deleted."""
        known = {each.state for each in definitions} | self._definitions.damaged
        for name in stored:
            state = name.removeprefix(PREFIX).partition(":")[2]
            if state.startswith("@") and state not in known:
                await self._store.lock(name, "cron", timedelta(0))


async def _together(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all, so that their jobs are written in few batches; then raise what one of them raised."""
    for failure in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(failure, BaseException):
            raise failure


def _encoded(moment: datetime) -> bytes:
    return format_timestamp(moment).encode()
