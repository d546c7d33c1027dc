"""How many more jobs schedules may submit: they count as unfinished jobs of an API key."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.model.reserved import API_KEYS
from holdfast.operations.owned_jobs import live_jobs
from holdfast.operations.quarantine import set_aside
from holdfast.store import Store


class OwnerTerms(msgspec.Struct, frozen=True):
    """What the record of an API key says about its jobs."""

    live_jobs: int | None = None


_terms = msgspec.json.Decoder(OwnerTerms)


class ScheduleQuota:
    """The room that each key has left, as it was when it was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._room: dict[str, int] = {}
        self._most: dict[str, int] = {}
        self._exceeded: set[str] = set()

    async def read(self, owners: Iterable[str]) -> None:
        """Read how many jobs the schedules of these keys may submit now."""
        wanted = sorted(set(owners) - {""})
        records = await self._store.records(API_KEYS, wanted) if wanted else []
        self._most = {
            record.key: most
            for record in records
            if record is not None and (most := _bound(record.data)) is not None
        }
        self._room = {
            owner: max(0, most - await live_jobs(self._store, owner))
            for owner, most in self._most.items()
        }

    def take(self, owner: str, count: int) -> int:
        """Take room for so many jobs; return for how many there was any."""
        room = self._room.get(owner, count)
        taken = min(room, count)
        if owner in self._room:
            self._room[owner] = room - taken
            if taken < count:
                self._exceeded.add(owner)
        return taken

    async def report(self) -> None:
        """Report the keys without room, once for each however many schedules wait."""
        for owner in sorted(self._exceeded):
            why = f"its {self._most[owner]} unfinished jobs are used up: ticks wait for room"
            await set_aside(self._store, f"schedules of API key {owner}", why)
        self._exceeded.clear()


def _bound(data: bytes) -> int | None:
    """The bound of a key; no job for a key whose record cannot be read."""
    try:
        return _terms.decode(data).live_jobs
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
