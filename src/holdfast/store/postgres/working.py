"""The verbs of workers: claiming, answering, keeping leases and writing down progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

from holdfast.model.job import Job
from holdfast.store.contract import MAX_LOG_LINES
from holdfast.store.postgres.arrays import Blobs, Documents, Moments, Texts
from holdfast.store.postgres.base import WAKING
from holdfast.store.postgres.claim import applies, claim_limited, claim_params
from holdfast.store.postgres.read import Reads
from holdfast.store.postgres.rows import (
    ID,
    NUMBER,
    TURN,
    Row,
    cancel_of,
    claimed_of,
    document,
    places_of,
)
from holdfast.store.postgres.swap import swap_all
from holdfast.store.postgres.transactions import Transactions
from holdfast.store.values import Change, Claim, Fence, JobNote, Renewal, Swapped

NUMBERS_KEPT = 20_000
_WRITTEN = {
    has_dependents: Swapped(written=True, has_dependents=has_dependents)
    for has_dependents in (False, True)
}


class Works(Reads, Transactions):
    """The part of the store that workers need; see ``Store`` for what each verb promises."""

    async def claim(self, want: Claim) -> list[Job]:
        if not want.queues or want.limit < 1:
            return []
        judged = self._clock.judged
        rows: list[Row] = []
        if not self._is_limited(want):
            rows = await self._claim(want, judged)
            if not rows:
                self._rules = {scope for scope, *_ in await self._run("rules", {})}
        if self._is_limited(want):
            rows, self._rules = await self._database.atomically(
                lambda session: claim_limited(session, want, judged)
            )
        self._remember(rows)
        rows.sort(key=itemgetter(TURN))
        return self._seen(claimed_of(rows, want))

    def _remember(self, claimed: Sequence[Row]) -> None:
        if len(self._numbers) > NUMBERS_KEPT:  # jobs that others ended
            self._numbers.clear()
        self._numbers.update(map(itemgetter(ID, NUMBER), claimed))

    def _is_limited(self, want: Claim) -> bool:
        return any(applies(scope, want) for scope in self._rules)

    async def _claim(self, want: Claim, judged: datetime | None) -> list[Row]:
        begun = self._ticks()
        heads = self._heads.start(want.queues, want.types, begun)
        rows = await self._run("claim", claim_params(want, judged, heads=heads))
        rows.sort(key=itemgetter(TURN))
        if heads is None:
            ended = self._ticks()
            self._heads.looked(want.queues, want.types, ended, ended - begun)
        self._heads.saw(places_of(rows), want.types, begun)
        return rows

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        written = await swap_all(self._database, changes, self._numbers)
        for change in changes:
            self._numbers.pop(change.before.id, None)
        self._wake.ring(self._woken(changes, written))
        await self._evict([changes[n] for n in written])
        stale = [c.before.id for n, c in enumerate(changes) if n not in written]
        stored = dict(zip(stale, await self.get(stale), strict=True)) if stale else {}
        return [
            _WRITTEN[written[n]]
            if n in written
            else Swapped(written=False, job=stored[change.before.id])
            for n, change in enumerate(changes)
        ]

    async def extend(self, fences: Sequence[Fence]) -> list[Renewal]:
        unique = list(dict.fromkeys(fences))
        if not unique:
            return []
        rows = await self._run(
            "extend",
            {
                "id": Texts([fence.job_id for fence in unique]),
                "token": Texts([fence.token for fence in unique]),
                "now": self._clock.judged,
            },
        )
        beats = {
            unique[position - 1]: Renewal(True, until, cancel_of(cancel), is_renewed)
            for position, until, cancel, is_renewed in rows
        }
        return [beats.get(fence, Renewal(held=False)) for fence in fences]

    async def note(self, notes: Sequence[JobNote]) -> list[bool]:
        if not notes:
            return []
        rows = await self._run(
            "note",
            {
                "id": Texts([note.fence.job_id for note in notes]),
                "token": Texts([note.fence.token for note in notes]),
                "progress": Documents([document(note.progress) for note in notes]),
                "at": Moments([note.progress.at if note.progress else None for note in notes]),
                "checkpoint": Blobs([note.checkpoint for note in notes]),
                "log": Documents([document(note.log) for note in notes]),
                "kept": MAX_LOG_LINES,
            },
        )
        kept = {position for (position,) in rows}
        return [n in kept for n in range(1, len(notes) + 1)]


def queues_of(jobs: Sequence[Job]) -> set[str]:
    """Return the queues in which these jobs may be worked on, at once or when they are due."""
    return {job.queue for job in jobs if job.state in WAKING}
