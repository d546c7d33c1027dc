"""Sums up the measures of each minute, ten minutes and hour when it is over, for time series."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from holdfast.model.measures import Reading, minute_of
from holdfast.model.reserved import SERIES, SERIES_ALL
from holdfast.model.series import slot_of
from holdfast.operations.series import LEVELS, SeriesLevel, slot_key, slot_number
from holdfast.store import Record, RecordWrite, Store
from holdfast.store.damage import readable
from holdfast.store.namespaces import DIVIDER, namespace_of

EVERY = 15.0
SETTLING = timedelta(seconds=90)
"""How long after its end a step is summed up: late writes of its jobs have arrived by then."""
ROUND = 180
"""Minutes that one round reads, so that a week without a leader is caught up in small pieces."""
SOON = 0.5
PAGE = 200


class Summariser:
    """Writes the records that ``operations.series`` reads."""

    name = "summariser"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: dict[int, int] = {}

    async def once(self) -> float:
        now = self._store.now()
        due = {level: start for level in LEVELS if (start := await self._due(level, now))}
        if not due:
            return EVERY
        first = min(start * level.minutes for level, start in due.items())
        readings = await self._read(first, now)
        ends = {level: min(_complete(level, now), _last(level, first)) for level in due}
        writes: list[RecordWrite] = []
        for level, start in due.items():
            writes += _writes(level, readings, start, ends[level])
        for place in range(0, len(writes), PAGE):
            await self._store.keep(writes[place : place + PAGE])
        for level, end in ends.items():
            self._done[level.minutes] = max(end, self._done[level.minutes])
            await self._prune(level, now)
        return EVERY if all(end == _complete(level, now) for level, end in ends.items()) else SOON

    async def _read(self, first: int, now: datetime) -> Sequence[Reading]:
        """Return the measures of the minutes of one round."""
        begin = timedelta(seconds=now.timestamp() - first * 60)
        end = max(timedelta(0), begin - timedelta(minutes=ROUND - 1))
        return (await self._store.stats((begin, end), by_minute=True)).readings

    async def _due(self, level: SeriesLevel, now: datetime) -> int:
        """Return the first step that is to be summed up; 0: there is none."""
        done = self._done.get(level.minutes)
        if done is None:
            done = self._done[level.minutes] = await self._newest(level, now)
        oldest = minute_of(now - level.reach) // level.minutes
        start = max(done + 1, oldest)
        return start if start <= _complete(level, now) else 0

    async def _newest(self, level: SeriesLevel, now: datetime) -> int:
        """Return the newest step that was written; one of the future is not complete."""
        newest, ahead = 0, slot_key(level, _complete(level, now) + 1)
        for kind in await self._kinds():
            found: list[Record] = await self._store.browse(
                kind, prefix=level.prefix, after=ahead, limit=1, last=True
            )
            newest = max([newest, *readable(found, slot_number)])
        return newest

    async def _prune(self, level: SeriesLevel, now: datetime) -> None:
        """Delete the steps that no range reaches any more."""
        oldest = slot_key(level, minute_of(now - level.reach) // level.minutes - 1)
        for kind in await self._kinds():
            found = await self._store.browse(kind, prefix=level.prefix, limit=PAGE)
            old = [record.key for record in found if record.key < oldest]
            if old:
                await self._store.keep([RecordWrite(kind=kind, key=key, data=None) for key in old])

    async def _kinds(self) -> list[str]:
        kinds = await self._store.kinds()
        return [kind for kind in kinds if kind.partition("@")[0] in (SERIES, SERIES_ALL)]


def _complete(level: SeriesLevel, now: datetime) -> int:
    """Return the newest step that has ended and settled."""
    return minute_of(now - SETTLING) // level.minutes - 1


def _last(level: SeriesLevel, first: int) -> int:
    """Return the last step that a round from this minute on reads to its end."""
    return (first + ROUND) // level.minutes - 1


def _writes(
    level: SeriesLevel, readings: Sequence[Reading], first: int, last: int
) -> list[RecordWrite]:
    places: defaultdict[tuple[int, str], list[Reading]] = defaultdict(list)
    named = set[int]()
    for reading in readings:
        number = reading.minute // level.minutes
        if not first <= number <= last:
            continue
        namespace = namespace_of(reading.queue)
        kind = f"{SERIES}@{namespace}" if namespace else SERIES
        own = reading.queue.removeprefix(f"{namespace}{DIVIDER}") if namespace else reading.queue
        places[number, kind].append(replace(reading, queue=own))
        places[number, SERIES_ALL].append(reading)
        if namespace:
            named.add(number)
    return [
        RecordWrite(kind=kind, key=slot_key(level, number), data=_encoded(found))
        for (number, kind), found in places.items()
        if kind != SERIES_ALL or number in named
    ]


def _encoded(readings: Sequence[Reading]) -> bytes:
    return msgspec.json.encode(slot_of(readings))
