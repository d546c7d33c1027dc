"""Submits the jobs of cron schedules: exactly one per schedule and instant.

The job's idempotency key is the instant, so any number of workers may try. The store keeps the
last instant submitted, so that missed ones are known after a pause. After the clock was set back,
schedules go on at the time it shows: instants that come again are submitted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import DuplicateError, StoreUnavailableError
from holdfast.maintenance.definitions import Definition, Definitions
from holdfast.model.times import format_timestamp, parse_timestamp
from holdfast.operations.quarantine import set_aside
from holdfast.operations.schedules import submission_of
from holdfast.store import Store
from holdfast.tasks.plans import due_of_plans, has_passed, upcoming
from holdfast.tasks.schedule import LATE, MOST_AT_ONCE

PREFIX = "cron:"
LONGEST_WAIT = 1.0
FOR_EVER = timedelta(days=36_500)
KEY_WINDOW = timedelta(days=7)


class Repeated(msgspec.Struct, frozen=True):
    """Instants that come again after the clock was set back, and the mark of their new keys."""

    until: datetime
    mark: str


NOT_REPEATED = Repeated(datetime.min.replace(tzinfo=UTC), "")


class CronService:
    """Submits due schedules."""

    name = "cron"

    def __init__(self, app: Holdfast, store: Store) -> None:
        self._app = app
        self._store = store
        self._definitions = Definitions(app, store)

    async def once(self) -> float:
        # Before the definitions are read: a tick after that may belong to a later edit.
        now = self._store.now()
        definitions = await self._definitions.read()
        if not definitions:
            return LONGEST_WAIT
        stored = {lock.name: lock.data for lock in await self._store.locks(PREFIX)}
        # Together, so that the jobs of one look are written in one batch.
        serving = (self._serve_alone(each, now, stored) for each in definitions)
        served = await asyncio.gather(*serving, return_exceptions=True)
        for failure in served:
            if isinstance(failure, BaseException):
                raise failure
        await self._forget_deleted(definitions, stored)
        return min([LONGEST_WAIT, *(wait for wait in served if isinstance(wait, float))])

    async def _serve_alone(
        self, schedule: Definition, now: datetime, stored: Mapping[str, bytes]
    ) -> float:
        """Serve one schedule; its own faults do not stop the others."""
        try:
            return await self._serve(schedule, now, stored)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # such as a damaged record
            await set_aside(self._store, f"cron schedule {schedule.state}", error)
            return LONGEST_WAIT

    async def _serve(
        self, schedule: Definition, now: datetime, stored: Mapping[str, bytes]
    ) -> float:
        entry, plans = schedule.entry, schedule.plans
        last, repeated = _last(schedule, stored), _repeated(schedule, stored)
        if last is None:
            await self._record_first(schedule, now)
            last = now
        elif last - now > LATE:
            await self._record_set_back(schedule, now, last, repeated)
            return 0.0
        due = due_of_plans(entry, plans, last=last, now=now)
        for instant in due:
            await self._submit(schedule, instant, repeated)
        if len(due) == MOST_AT_ONCE:  # there may be more
            await self._record_last(schedule, due[-1])
            return 0.0
        if has_passed(entry, plans, last=last, now=now):
            await self._record_last(schedule, now)
        following = next(upcoming(entry, plans, after=now), None)
        if following is None:
            return LONGEST_WAIT
        return max(0.0, (following - self._store.now()).total_seconds())

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
        await self._store.lock(_first_name(schedule), owner, FOR_EVER, _encoded(now))

    async def _record_set_back(
        self, schedule: Definition, now: datetime, last: datetime, repeated: Repeated
    ) -> None:
        """Continue at the time that the clock shows now: the instants since then come again."""
        again = Repeated(max(last, repeated.until), format_timestamp(last))
        name = f"{PREFIX}again:{schedule.state}"
        await self._store.lock(name, "cron", FOR_EVER, msgspec.json.encode(again))
        await self._record_last(schedule, now)

    async def _record_last(self, schedule: Definition, moment: datetime) -> None:
        await self._store.lock(_last_name(schedule), "cron", FOR_EVER, _encoded(moment))

    async def _forget_deleted(
        self, definitions: Sequence[Definition], stored: Mapping[str, bytes]
    ) -> None:
        """Remove what the store keeps about dynamic schedules that were deleted."""
        known = {each.state for each in definitions}
        for name in stored:
            state = name.removeprefix(PREFIX).partition(":")[2]
            if state.startswith("@") and state not in known:
                await self._store.lock(name, "cron", timedelta(0))


def _last(schedule: Definition, stored: Mapping[str, bytes]) -> datetime | None:
    """The instant up to which a schedule was submitted, else when it was first seen."""
    data = stored.get(_last_name(schedule), stored.get(_first_name(schedule)))
    if data is not None:
        return parse_timestamp(data.decode())
    return schedule.plans[0].since if schedule.is_dynamic else None


def _repeated(schedule: Definition, stored: Mapping[str, bytes]) -> Repeated:
    data = stored.get(f"{PREFIX}again:{schedule.state}")
    return NOT_REPEATED if data is None else msgspec.json.decode(data, type=Repeated)


def _last_name(schedule: Definition) -> str:
    return f"{PREFIX}last:{schedule.state}"


def _first_name(schedule: Definition) -> str:
    return f"{PREFIX}first:{schedule.state}"


def _encoded(moment: datetime) -> bytes:
    return format_timestamp(moment).encode()
