"""Ending a job in the transaction in which its handler writes.

The session is the handler's: what our own statements need is set right before them, and only
what goes wrong in our part is told in our words.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta

import psycopg
from psycopg.pq import Escaping

from holdfast.errors import PermanentError, StaleLeaseError, StoreUnavailableError
from holdfast.model.job import Job, State
from holdfast.store.postgres.arrays import Texts, text
from holdfast.store.postgres.base import Base
from holdfast.store.postgres.connection import PostgresSession
from holdfast.store.postgres.errors import AWAY, translated
from holdfast.store.postgres.handler_pool import BorrowedConnection, lent
from holdfast.store.postgres.swap import swap_run
from holdfast.store.values import Change, Fence

IDLE = timedelta(minutes=5)
"""How long a handler's transaction may stay idle: a frozen one must not hold its rows for ever."""

_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL idle_in_transaction_session_timeout = {idle};
SET LOCAL holdfast.lease = '{mark}';
SET LOCAL application_name = {name};
"""
# Nothing here takes a snapshot, so that the handler may still choose another level. Heartbeats
# renew the lease meanwhile: a level above this one cannot lock a job that changed since it began.
_AS_USUAL = b"""
SET LOCAL statement_timeout = 0;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL plan_cache_mode = auto;
"""
"""Behind a pooler the role has what our own sessions need; handlers' queries are others."""


class Transactions(Base):
    """Lends connections to handlers."""

    @contextlib.asynccontextmanager
    async def transaction(
        self, fence: Fence, decide: Callable[[Job], Job], *, blocking: bool = False
    ) -> AsyncIterator[BorrowedConnection]:
        """Lend a connection inside a transaction that ends the job when it commits.

        At the end of the block the job is read and locked under its lease, ``decide`` says how
        it goes on, and that is committed together with whatever the block wrote. When the lease
        is no longer the newest, everything is rolled back and ``StaleLeaseError`` raised. What
        the block raises passes as it is; ``psycopg.Rollback`` ends the block but not the job.

        ``blocking`` lends a connection for plain functions, to be used in another thread. Whoever
        is cancelled inside the block leaves it to that thread, cut off from the server.
        """
        async with self._guests.lend() as session:
            try:
                with translated():
                    await session.script(self._begin(session, fence))
                with lent(session.connection, blocking=blocking) as connection:
                    yield connection
                with translated():
                    woken = await self._settle(session, fence, decide)
                with translated(AWAY):  # the handler's deferred constraints are its own
                    await session.script(b"COMMIT")
            except BaseException as error:
                await _undo(session)
                if blocking and isinstance(error, asyncio.CancelledError):
                    await self._terminate([fence])  # the server goes on with a query till its end
                if isinstance(error, psycopg.Rollback) and error.transaction is None:
                    return
                raise
        self._wake.ring(woken)

    def _begin(self, session: PostgresSession, fence: Fence) -> bytes:
        mark, idle = _mark(fence), int(IDLE.total_seconds() * 1000)
        name = Escaping(session.connection.pgconn).escape_literal(text(f"{mark} {fence.job_id}"))
        begin = _BEGIN.format(idle=idle, mark=mark, name=bytes(name).decode()).encode()
        return begin + _AS_USUAL if self.settings.pgbouncer else begin

    async def _settle(
        self, session: PostgresSession, fence: Fence, decide: Callable[[Job], Job]
    ) -> set[str]:
        limit = str(int(self._database.limit * 1000))
        ((mark, role, *_),) = await session.run("settle", {"limit": limit})
        if mark != _mark(fence):
            raise _ended_by_hand()
        if role != "none":
            await session.script(b"RESET ROLE")
        held = await session.run("holder", {"id": fence.job_id, "token": fence.token})
        if not held:
            raise StaleLeaseError(fence.job_id)
        (before,) = self._jobs(held)
        change = Change(before, decide(before))
        written = await swap_run(session, [(0, change)], self._numbers)
        if not written:
            raise StaleLeaseError(fence.job_id)
        return self._woken([change], written)

    async def _evict(self, changes: Sequence[Change]) -> None:
        """End the transactions of handlers whose jobs were taken back: they hold rows in vain."""
        await self._terminate([_fence(c.before) for c in changes if _is_taken_back(c)])

    async def _terminate(self, fences: Sequence[Fence]) -> None:
        """End transactions. It is tried once: one that is missed ends when it was idle too long."""
        if fences:
            with contextlib.suppress(StoreUnavailableError):
                await self._run("evict", {"mark": Texts([_mark(fence) for fence in fences])})


def _is_taken_back(change: Change) -> bool:
    """Whether a job no longer runs, and not because its holder said so."""
    before, after = change.before, change.after
    if before.state is not State.RUNNING or after.state is State.RUNNING:
        return False
    return after.lease is not None and after.lease.until is not None


def _fence(job: Job) -> Fence:
    assert job.lease is not None
    return Fence(job.id, job.lease.token)


def _mark(fence: Fence) -> str:
    """What a handler's session is called, followed by the job's id for people."""
    lease = hashlib.blake2b(f"{fence.job_id} {fence.token}".encode(), digest_size=8)
    return f"holdfast {lease.hexdigest()}"


def _ended_by_hand() -> PermanentError:
    told = (
        "the transaction was ended by hand, so nothing completed the job: leave COMMIT to the end"
        " of the block, and raise psycopg.Rollback() to undo what it wrote"
    )
    return PermanentError(told, code="TRANSACTION_ENDED")


async def _undo(session: PostgresSession) -> None:
    """Roll back; a connection that cannot is closed, which does the same."""
    try:
        await session.script(b"ROLLBACK")
    except (psycopg.Error, OSError):
        await session.connection.close()
