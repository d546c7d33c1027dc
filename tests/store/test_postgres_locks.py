"""Who waits for whom: statements that lock several jobs, and one that somebody else has locked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from msgspec.structs import replace

from holdfast import lifecycle
from holdfast.clock import SystemClock
from holdfast.job import Progress
from holdfast.store import Change, Note
from holdfast.store.postgres import PostgresStore, Settings, session
from holdfast.store.postgres.heads import LEASES_SETTLED
from holdfast.store.postgres.sql import Statement, statement
from tests.conformance.hand import MANY, Hand, fence
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.job import Job
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "locks"
AT_ONCE = 5.0
"""Seconds that nothing here takes unless it waits for a lock, which lasts until the test ends."""

_LOCK = f"""
SELECT FROM {SCHEMA}.job j JOIN {SCHEMA}.body b USING (number) WHERE b.id = %s
FOR NO KEY UPDATE OF j
"""
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
async def hand(postgres_server: Postgres) -> AsyncIterator[Hand]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(Settings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield Hand(store, SystemClock())


@asynccontextmanager
async def _locked(server: Postgres, job: Job) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(server.dsn) as stranger:
        await stranger.execute(_LOCK, (job.id,))
        yield stranger
        await stranger.rollback()


async def _running(hand: Hand) -> tuple[Job, Job]:
    await hand.add_all(hand.job("first"), hand.job("second"))
    first, second = await hand.claim(2)
    return first, second


async def _complete(hand: Hand, jobs: Sequence[Job]) -> None:
    now = hand.store.now()
    await hand.store.swap([Change(job, lifecycle.completed(job, None, now=now)) for job in jobs])


async def _give_back(hand: Hand, jobs: Sequence[Job]) -> None:
    now = hand.store.now()
    await hand.store.swap(
        [Change(job, lifecycle.given_back(job, now=now, reason="stopping")) for job in jobs]
    )


async def _note(hand: Hand, jobs: Sequence[Job]) -> None:
    progress = Progress(5, "", hand.store.now())
    await hand.store.note([Note(fence=fence(job), progress=progress) for job in jobs])


@pytest.mark.parametrize("pages", [0, 1, 5])
@pytest.mark.parametrize("write", [_complete, _give_back, _note])
async def test_jobs_are_locked_in_the_order_of_their_numbers(
    hand: Hand, postgres_server: Postgres, write: Callable[..., Awaitable[None]], pages: int
) -> None:
    for page in range(pages):  # how many there are may change how they are looked for
        await hand.store.add([hand.job(f"{page}.{n}", queue="others") for n in range(MANY)])
    first, second = await _running(hand)
    async with (
        _locked(postgres_server, first) as stranger,
        await psycopg.AsyncConnection.connect(postgres_server.dsn) as other,
    ):
        writing = asyncio.create_task(write(hand, [second, first]))
        async with asyncio.timeout(AT_ONCE):
            while (await (await stranger.execute(_WAITING)).fetchone()) == (0,):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        await other.execute(f"{_LOCK} NOWAIT", (second.id,))
        await other.rollback()

    await writing


async def test_lease_of_a_locked_job_keeps_no_other_from_being_renewed(
    hand: Hand, postgres_server: Postgres
) -> None:
    first, second = await _running(hand)
    assert first.lease
    assert second.lease
    async with _locked(postgres_server, first), asyncio.timeout(AT_ONCE):
        beats = await hand.store.extend([fence(first), fence(second)])

    assert [(True, False), (True, True)] == [(beat.held, beat.renewed) for beat in beats]
    assert first.lease.until == beats[0].until
    assert beats[1].until
    assert second.lease.until < beats[1].until


async def test_overdue_job_that_is_locked_keeps_no_other_from_being_found(
    hand: Hand, postgres_server: Postgres
) -> None:
    await hand.add_all(hand.job("first", lease=1), hand.job("second", lease=1))
    first, second = await hand.claim(2)
    async with _locked(postgres_server, first), asyncio.timeout(AT_ONCE):
        while not (found := await hand.store.overdue(10)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert [second.id] == [job.id for job in found]


# --- a transaction of the caller's that stays open -------------------------------------------


async def test_overdue_job_that_was_locked_is_found_however_short_the_next_look_is(
    hand: Hand, postgres_server: Postgres
) -> None:
    store = hand.store
    job = await hand.run("job", lease=1)
    async with _locked(postgres_server, job):
        while store.now() < job.lease.until + LEASES_SETTLED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert [] == await store.overdue(10)
        store._leases.looked_at_all(store._ticks(), 100.0)
        assert [] == await store.overdue(10)

    assert [job.id] == [found.id for found in await store.overdue(10)]


@pytest.mark.parametrize("how", ["renewed", "answered"])
async def test_lease_that_goes_on_while_others_look_for_its_end_is_not_overdue(
    hand: Hand, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A row is locked as it is by then, which may be later than what was looked at."""

    def slowly(name: str, schema: str) -> Statement:
        sql = statement(name, schema)
        found = b"SELECT late.number, late.since"
        assert name != "overdue" or found in sql.sent
        return replace(sql, sent=sql.sent.replace(found, found + b", pg_sleep(0.5)"))

    monkeypatch.setattr(session, "statement", slowly)
    job = await hand.run("job", lease=1)
    while hand.store.now() < job.lease.until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    looking = asyncio.create_task(hand.store.overdue(10))
    await asyncio.sleep(0.2)

    if how == "renewed":
        await hand.store.extend([fence(job)])
    else:
        await _complete(hand, [job])

    assert [] == await looking
