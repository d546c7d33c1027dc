"""Jobs in PostgreSQL: every verb is one statement, or one short transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Self

from holdfast.errors import StoreError
from holdfast.model.job import Job, State
from holdfast.model.measures import minute_of
from holdfast.model.policy import Retention
from holdfast.model.submission import Parent
from holdfast.runtime.clock import Clock
from holdfast.store.contract import check_settings
from holdfast.store.postgres.add import add, add_each, add_plain, adopt, is_plain
from holdfast.store.postgres.arrays import Longs, Moments, Texts
from holdfast.store.postgres.caller import enlist
from holdfast.store.postgres.connection import PostgresSession, Statements
from holdfast.store.postgres.links import join, seen
from holdfast.store.postgres.records import Records
from holdfast.store.postgres.rows import WIDTH, seconds
from holdfast.store.postgres.schema import Upgrades
from holdfast.store.postgres.settings import PostgresSettings
from holdfast.store.postgres.wake import EVERY_QUEUE
from holdfast.store.postgres.working import Works, queues_of
from holdfast.store.values import (
    Added,
    Dependent,
    Fence,
    JobExport,
    LimitRule,
    Promoted,
)

MEASURES_KEPT = timedelta(days=7)
AGED_AT_ONCE = 10_000
FOLDED_AT_ONCE = 20_000
SWEPT_AT_ONCE = 1_000
JOINED_AT_ONCE = 1_000
TRIMMED_AT_ONCE = 5_000


class PostgresStore(Works, Records, Upgrades):
    """Jobs in a schema of a PostgreSQL database; see ``Store`` for what each verb promises."""

    LANES = 2  # while the server writes one group of jobs, the next one is read and packed

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """Make a store from ``postgresql://...``; see ``PostgresSettings`` for its parameters."""
        return cls(PostgresSettings.from_url(url), clock=clock)

    async def start(self) -> Self:
        await self._prepare()
        await self._database.open()
        await self._look_at_clock()
        if self._restoring is not None:
            await asyncio.wait([self._restoring])
        self._wake.start()
        return self

    async def close(self) -> None:
        await self._wake.stop()
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        await self._guests.close()
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
            await self._announce(session, jobs)
            return await add(
                session, jobs, atomic=atomic, fence=fence, now=self.now(), is_ours=False
            )
        if fence is None and is_plain(jobs):
            added = await add_plain(self._database, jobs)
            self._wake.ring(queues_of(jobs))
            return added
        if fence is None and not atomic:
            added = await add_each(self._database, jobs, self.now())
        else:
            added = await self._database.atomically(
                lambda session: add(session, jobs, atomic=atomic, fence=fence, now=self.now())
            )
        # Also for those that wait for others: claims passed over these while they were locked.
        self._wake.ring({job.queue for job in jobs})
        return added

    async def _announce(self, session: Statements, jobs: Sequence[Job]) -> None:
        """Let workers be woken when the caller's transaction commits, if it is about our jobs."""
        notice = self._wake.notice({job.queue for job in jobs})
        for _, *there in await session.run("notify", notice):
            if isinstance(there[0], bytes):
                raise StoreError("connection must have the client encoding UTF8")
            if there != self._place:
                await self._look_at_clock()  # another server may have taken over
            if there[0] != self._place[0]:
                told = f"connection leads to the database {there[0]!r}, the store is in"
                raise StoreError(f"{told} {self._place[0]!r}")
            if there != self._place:
                raise StoreError("connection leads to another server than that of the store")

    async def lineage(self, ids: Sequence[str], connection: object) -> dict[str, Parent]:
        rows = await seen(enlist(connection, self.settings.schema), ids)
        return {id_: Parent(priority, depth) for id_, _, _, priority, depth, _ in rows}

    async def adopt(self, dossiers: Sequence[JobExport]) -> list[bool]:
        written = await self._database.atomically(
            lambda session: adopt(session, dossiers, self.now())
        )
        self._wake.ring(queues_of([dossier.job for dossier in dossiers]))
        new = dict.fromkeys(written, True)
        return [new.pop(dossier.job.id, False) for dossier in dossiers]

    @property
    def not_notified_because(self) -> str:
        return "" if self._wake.listening.is_set() else self._wake.trouble

    # --- maintenance ---------------------------------------------------------------------

    async def promote(self, limit: int) -> Promoted:
        judged = self._clock.judged
        rows = await self._run("promote", {"most": limit, "now": judged})
        if self._ageing.is_due:
            aged = self._run("age", {"most": AGED_AT_ONCE, "now": judged})
            if await self._ageing.keep(aged):
                self._heads.forget()
        ((later, is_tied),) = await self._run("next_due", {})
        self._wake.ring({queue for (queue,) in rows})
        await self._fold()
        has_dependents = await self._join() if limit and is_tied else False
        return Promoted(len(rows), later, has_dependents)

    async def _join(self) -> bool:
        """Join jobs to what they are tied to; whether a verdict may be due soon."""
        found: list[bool] = []
        after: int | None = 0
        while after is not None:
            some = partial(join, after=after, most=JOINED_AT_ONCE)
            has_dependents, after = await self._database.atomically(some)
            found.append(has_dependents)
        return len(found) == 1 or any(found)  # none at all: another one is joining them right now

    async def overdue(self, limit: int) -> list[Job]:
        if not limit:
            return []  # and nothing is learned of leases
        begun, now = self._ticks(), self.now()
        since = self._leases.start(begun)
        params = {"most": limit, "leased": since, "now": self._clock.judged}
        rows = sorted(await self._run("overdue", params), key=lambda row: row[-2:])
        jobs = self._jobs([row for row in rows if row[0] is not None])
        live = {job.id for job in jobs if job.state is not State.RUNNING}
        ends = [row[-2] for row in rows if row[0] not in live]
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
        await self._trim("trim_expired")
        await self._trim("trim_events")
        await self._run("trim_readings", {"before": minute_of(now - MEASURES_KEPT)})
        await self._fold(at_once=True)
        return len(deleted)

    async def _trim(self, name: str) -> None:
        """Forget what is over: as much as there is, but not all in one statement."""
        most = count = TRIMMED_AT_ONCE
        while count == most:
            params = {"most": most, "now": self._clock.judged, "kept": self._events_kept}
            ((count,),) = await self._run(name, params)

    async def delete(self, ids: Sequence[str]) -> list[bool]:
        params = {"id": Texts(ids)}
        deleted = await self._database.atomically(
            lambda session: self._delete(session, "deletable", params)
        )
        first = {id_: n for n, id_ in reversed(list(enumerate(ids)))}
        return [id_ in deleted and first[id_] == n for n, id_ in enumerate(ids)]

    async def _delete(
        self, session: PostgresSession, choice: str, params: Mapping[str, object]
    ) -> set[str]:
        chosen = [number for (number,) in await session.run(choice, params)]
        if not chosen:
            return set()
        rows = await session.run("delete", {"number": Longs(chosen), "kept": self._events_kept})
        return {id_ for (id_,) in rows}

    async def _fold(self, *, at_once: bool = False) -> None:
        if at_once or self._folding.is_due:
            ((count,),) = await self._folding.keep(self._run("fold", {"most": FOLDED_AT_ONCE}))
            if count == FOLDED_AT_ONCE:
                self._folding.hurry()

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
        self._wake.ring({queue})

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
        self._wake.ring({EVERY_QUEUE})
