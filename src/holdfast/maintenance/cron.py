"""Submits the jobs of cron schedules: exactly one per schedule and instant.

The job's idempotency key is the instant, so any number of workers may try. The store keeps the
last instant submitted, so that missed ones are known after a pause. After the clock was set back,
schedules go on at the time it shows: instants that come again are submitted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import StoreUnavailableError
from holdfast.model.submission import Submission
from holdfast.model.times import format_timestamp, parse_timestamp
from holdfast.operations.quarantine import set_aside
from holdfast.store import Store
from holdfast.tasks.schedule import LATE, MOST_AT_ONCE, CronEntry, due_instants, instants

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
        self._submitter = app.submitter(store, screens=False)  # one address stops no schedule

    async def once(self) -> float:
        if not self._app.crons:
            return LONGEST_WAIT
        now = self._store.now()
        stored = {lock.name: lock.data for lock in await self._store.locks(PREFIX)}
        # Together, so that the jobs of one look are written in one batch.
        serving = (self._serve_alone(entry, now, stored) for entry in self._app.crons.values())
        served = await asyncio.gather(*serving, return_exceptions=True)
        for failure in served:
            if isinstance(failure, BaseException):
                raise failure
        return min([LONGEST_WAIT, *(wait for wait in served if isinstance(wait, float))])

    async def _serve_alone(
        self, entry: CronEntry, now: datetime, stored: Mapping[str, bytes]
    ) -> float:
        """Serve one schedule; its own faults do not stop the others."""
        try:
            return await self._serve(entry, now, stored)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # such as a damaged record
            await set_aside(self._store, f"cron schedule {entry.name}", error)
            return LONGEST_WAIT

    async def _serve(self, entry: CronEntry, now: datetime, stored: Mapping[str, bytes]) -> float:
        last, repeated = _last(entry, stored), _repeated(entry, stored)
        if last is None:
            await self._record_first(entry, now)
        elif last - now > LATE:
            await self._record_set_back(entry, now, last, repeated)
            return 0.0
        due = due_instants(entry, last=last, now=now)
        for instant in due:
            await self._submit(entry, instant, repeated)
        if len(due) == MOST_AT_ONCE:  # there may be more
            await self._record_last(entry, due[-1])
            return 0.0
        if last is not None and next(instants(entry, after=last)) <= now:
            await self._record_last(entry, now)
        upcoming = next(instants(entry, after=now))
        return max(0.0, (upcoming - self._store.now()).total_seconds())

    async def _submit(self, entry: CronEntry, instant: datetime, repeated: Repeated) -> None:
        key = f"cron:{entry.name}:{format_timestamp(instant)}"
        if instant <= repeated.until:
            key += f":{repeated.mark}"
        options = {
            "idempotency_window": KEY_WINDOW,
            **entry.options,
            "idempotency_key": key,
            "tags": {**(entry.options.get("tags") or {}), "cron": entry.name},
        }
        submission = Submission(type=entry.type, payload=entry.payload, **options)  # type: ignore[arg-type]
        await self._submitter.submit(submission)

    async def _record_first(self, entry: CronEntry, now: datetime) -> None:
        """Record when a schedule was first seen; a later record does not replace it."""
        owner = self._app.randomness.token()  # unique: no later call can overwrite
        await self._store.lock(_first_name(entry), owner, FOR_EVER, _encoded(now))

    async def _record_set_back(
        self, entry: CronEntry, now: datetime, last: datetime, repeated: Repeated
    ) -> None:
        """Continue at the time that the clock shows now: the instants since then come again."""
        again = Repeated(max(last, repeated.until), format_timestamp(last))
        name = f"{PREFIX}again:{entry.name}"
        await self._store.lock(name, "cron", FOR_EVER, msgspec.json.encode(again))
        await self._record_last(entry, now)

    async def _record_last(self, entry: CronEntry, moment: datetime) -> None:
        await self._store.lock(_last_name(entry), "cron", FOR_EVER, _encoded(moment))


def _last(entry: CronEntry, stored: Mapping[str, bytes]) -> datetime | None:
    """The instant up to which a schedule was submitted, else when it was first seen."""
    data = stored.get(_last_name(entry), stored.get(_first_name(entry)))
    return None if data is None else parse_timestamp(data.decode())


def _repeated(entry: CronEntry, stored: Mapping[str, bytes]) -> Repeated:
    data = stored.get(f"{PREFIX}again:{entry.name}")
    return NOT_REPEATED if data is None else msgspec.json.decode(data, type=Repeated)


def _last_name(entry: CronEntry) -> str:
    return f"{PREFIX}last:{entry.name}"


def _first_name(entry: CronEntry) -> str:
    return f"{PREFIX}first:{entry.name}"


def _encoded(moment: datetime) -> bytes:
    return format_timestamp(moment).encode()
