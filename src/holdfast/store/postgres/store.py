"""Jobs in PostgreSQL: every verb is one statement, or one short transaction."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Self

from psycopg import AsyncConnection

from holdfast.clock import Clock
from holdfast.errors import StaleLeaseError
from holdfast.job import Job, State
from holdfast.policy import Retention
from holdfast.store._base import MAX_LOG_LINES
from holdfast.store._ledger import minute_of
from holdfast.store._settings import check_settings
from holdfast.store._shapes import (
    Added,
    Beat,
    Change,
    Claim,
    Dependent,
    Dossier,
    Fence,
    LimitRule,
    Note,
    Promoted,
    Swapped,
)
from holdfast.store.postgres.adding import add, add_plain, is_plain
from holdfast.store.postgres.adopting import adopt
from holdfast.store.postgres.arrays import Blobs, Documents, Longs, Moments, Texts
from holdfast.store.postgres.database import translated
from holdfast.store.postgres.enlist import enlist
from holdfast.store.postgres.examining import refuse_unsafe
from holdfast.store.postgres.keeping import Records
from holdfast.store.postgres.limiting import applies, claim_limited, claim_params
from holdfast.store.postgres.migrating import Migrator
from holdfast.store.postgres.reading import Reads
from holdfast.store.postgres.rows import (
    ID,
    NUMBER,
    TURN,
    WIDTH,
    Row,
    cancel_of,
    claimed_of,
    document,
    places_of,
    seconds,
)
from holdfast.store.postgres.session import Session
from holdfast.store.postgres.settings import Settings
from holdfast.store.postgres.swapping import swap_all, swap_run
from holdfast.store.postgres.wake import EVERY_QUEUE

MEASURES_KEPT = timedelta(days=7)
AGED_AT_ONCE = 10_000
SWEPT_AT_ONCE = 1_000
NUMBERS_KEPT = 20_000
_WAKING = frozenset({State.SCHEDULED, State.DELAYED, State.RETRYING})
_WRITTEN = {ripe: Swapped(written=True, ripe=ripe) for ripe in (False, True)}


class PostgresStore(Reads, Records):
    """Jobs in a schema of a PostgreSQL database; see ``Store`` for what each verb promises."""

    LANES = 2  # while the server writes one group of jobs, the next one is read and packed

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Make a store from ``postgresql://...``; see ``Settings`` for its parameters."""
        return cls(Settings.from_url(url), clock=clock)

    async def start(self) -> Self:
        await self._prepare()
        await self._database.open()
        if self._clock.is_stale:
            await self._look_at_clock()
        self._wake.start()
        return self

    async def _prepare(self) -> None:
        async with await self._database.connect(self.settings.dsn) as connection:
            if self.settings.durability != "server":
                await refuse_unsafe(connection)
            migrator = Migrator(connection, self.settings.schema)
            if self.settings.migrate:
                await migrator.up()
            await migrator.check()

    async def close(self) -> None:
        await self._wake.stop()
        await self._database.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- submitting ----------------------------------------------------------------------

    async def add(
        self,
        jobs: Sequence[Job],
        *,
        atomic: bool = True,
        fence: Fence | None = None,
        connection: object = None,
    ) -> list[Added]:
        """Write new jobs, as ``Store.add``; with ``connection`` in the caller's transaction.

        See ``enlist`` for the connections it takes. The jobs exist once that transaction
        commits, and workers are woken then.
        """
        if connection is not None:
            session = enlist(connection, self.settings.schema)
            added = await add(session, jobs, atomic=atomic, fence=fence, now=self.now())
            await session.run("notify", self._wake.notice(_queues(jobs)))
            return added
        if fence is None and is_plain(jobs):
            added = await add_plain(self._database, jobs)
        else:
            added = await self._database.atomically(
                lambda session: add(session, jobs, atomic=atomic, fence=fence, now=self.now())
            )
        self._wake.ring(_queues(jobs))
        return added

    async def adopt(self, dossiers: Sequence[Dossier]) -> list[bool]:
        written = await self._database.atomically(
            lambda session: adopt(session, dossiers, self.now())
        )
        self._ring(_queues([dossier.job for dossier in dossiers]))
        new = dict.fromkeys(written, True)
        return [new.pop(dossier.job.id, False) for dossier in dossiers]

    @contextlib.asynccontextmanager
    async def transaction(
        self, fence: Fence, decide: Callable[[Job], Job]
    ) -> AsyncIterator[AsyncConnection[Row]]:
        """Lend a connection inside a transaction that ends the job when it commits.

        At the end of the block the job is read and locked under its lease, ``decide`` says how
        it goes on, and that is committed together with whatever the block wrote. When the lease
        is no longer the newest, everything is rolled back and ``StaleLeaseError`` raised.
        """
        async with self._database.guest() as session:
            with translated():
                async with session.connection.transaction():
                    yield session.connection
                    change, written = await self._settle(session, fence, decide)
        self._ring(self._woken([change], written))

    async def _settle(
        self, session: Session, fence: Fence, decide: Callable[[Job], Job]
    ) -> tuple[Change, dict[int, bool]]:
        held = await session.run("holder", {"id": fence.job_id, "token": fence.token})
        if not held:
            raise StaleLeaseError(fence.job_id)
        (before,) = self._jobs(held)
        change = Change(before, decide(before))
        written = await swap_run(session, [(0, change)], self._numbers)
        if not written:
            raise StaleLeaseError(fence.job_id)
        return change, written

    # --- working -------------------------------------------------------------------------

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
        self._ring(self._woken(changes, written))
        stale = [c.before.id for n, c in enumerate(changes) if n not in written]
        stored = dict(zip(stale, await self.get(stale), strict=True)) if stale else {}
        return [
            _WRITTEN[written[n]]
            if n in written
            else Swapped(written=False, job=stored[change.before.id])
            for n, change in enumerate(changes)
        ]

    def _woken(self, changes: Sequence[Change], written: Collection[int]) -> set[str]:
        done = [changes[n] for n in written]
        return {
            change.after.queue
            for change in done
            if change.after.state in _WAKING
            or (self._rules and change.before.state is State.RUNNING)
        }

    async def extend(self, fences: Sequence[Fence]) -> list[Beat]:
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
            unique[position - 1]: Beat(held=True, until=until, cancel=cancel_of(cancel))
            for position, until, cancel in rows
        }
        return [beats.get(fence, Beat(held=False)) for fence in fences]

    async def note(self, notes: Sequence[Note]) -> list[bool]:
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

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        judged = self._clock.judged
        rows = await self._run("promote", {"most": limit, "now": judged})
        if self._ageing.is_due:
            aged = self._run("age", {"most": AGED_AT_ONCE, "now": judged})
            if await self._ageing.keep(aged):
                self._heads.forget()
        later = await self._run("next_due", {})
        self._ring({queue for (queue,) in rows})
        await self._fold()
        return Promoted(len(rows), later[0][0] if later else None)

    async def overdue(self, limit: int) -> list[Job]:
        if not limit:
            return []  # and nothing is learned of leases
        begun, now = self._ticks(), self.now()
        since = self._leases.start(begun)
        params = {"most": limit, "leased": since, "now": self._clock.judged}
        rows = sorted(await self._run("overdue", params), key=lambda row: row[-2:])
        jobs = self._jobs(rows)
        ends = [row[-2] for job, row in zip(jobs, rows, strict=True) if job.state is State.RUNNING]
        if len(rows) >= limit:
            ends.append(rows[-1][-2])  # what comes after it was not looked at
        self._leases.looked(min(ends, default=None), now)
        if since is None:
            ended = self._ticks()
            self._leases.looked_at_all(ended, ended - begun)
        return jobs

    async def dependents(self, limit: int) -> list[Dependent]:
        await self._run("sweep_waiting", {"most": SWEPT_AT_ONCE})
        rows = await self._run("dependents", {"most": limit})
        return [
            Dependent(job, tuple(zip(row[WIDTH], map(State, row[WIDTH + 1]), strict=True)))
            for job, row in zip(self._jobs(rows), rows, strict=True)
        ]

    async def prune(self, retention: Retention, limit: int) -> int:
        now = self.now()
        spans = {
            State.COMPLETED: retention.completed,
            State.FAILED: retention.failed,
            State.DEAD_LETTER: retention.dead_letter,
            State.CANCELLED: retention.cancelled,
        }
        rules = [(state, now - span) for state, span in spans.items() if span is not None]
        params = {
            "state": Texts([state for state, _ in rules]),
            "before": Moments([before for _, before in rules]),
            "most": limit,
        }
        deleted = await self._database.atomically(
            lambda session: self._delete(session, "prunable", params)
        )
        await self._run("trim_keys", {"most": limit, "now": self._clock.judged})
        await self._run("trim_events", {"most": limit * 10, "kept": self._events_kept})
        await self._run("trim_readings", {"before": minute_of(now - MEASURES_KEPT)})
        await self._fold(at_once=True)
        return len(deleted)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        params = {"id": Texts(ids)}
        deleted = await self._database.atomically(
            lambda session: self._delete(session, "deletable", params)
        )
        first = {id_: n for n, id_ in reversed(list(enumerate(ids)))}
        return [id_ in deleted and first[id_] == n for n, id_ in enumerate(ids)]

    async def _delete(
        self, session: Session, choice: str, params: Mapping[str, object]
    ) -> set[str]:
        chosen = [number for (number,) in await session.run(choice, params)]
        if not chosen:
            return set()
        rows = await session.run("delete", {"number": Longs(chosen), "kept": self._events_kept})
        return {id_ for (id_,) in rows}

    async def _fold(self, *, at_once: bool = False) -> None:
        if at_once or self._folding.is_due:
            await self._folding.keep(self._run("fold", {}))

    async def hold(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
        params = {
            "name": name,
            "holder": holder,
            "ttl": ttl.total_seconds(),
            "data": data,
            "now": self._clock.judged,
        }
        return bool(await self._run("hold", params))

    async def configure(self, queue: str, settings: Mapping[str, object]) -> None:
        check_settings(settings)
        if not settings:
            return
        ageing = settings.get("ageing")
        params = {
            "queue": queue,
            "paused": settings.get("paused"),
            "set_ageing": "ageing" in settings,
            "ageing": seconds(ageing) if isinstance(ageing, timedelta) else None,
        }
        await self._run("configure", params)
        self._ring({queue})

    async def limit(self, scope: str, rule: LimitRule | None) -> None:
        if rule is None:
            await self._run("rule_lift", {"scope": scope})
        else:
            params = {
                "scope": scope,
                "concurrency": rule.concurrency,
                "rate": rule.rate,
                "per": rule.per.total_seconds(),
            }
            await self._run("rule_set", params)
            self._rules |= {scope}
        self._ring({EVERY_QUEUE})

    def _ring(self, queues: Collection[str]) -> None:
        self._wake.ring(queues)


def _queues(jobs: Sequence[Job]) -> set[str]:
    return {job.queue for job in jobs if job.state in _WAKING}
