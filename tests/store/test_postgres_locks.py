"""Who waits for whom: statements that lock several jobs, and one that somebody else has locked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import lifecycle
from holdfast.clock import SystemClock
from holdfast.job import Progress
from holdfast.store import Change, Note
from holdfast.store.postgres import PostgresStore, Settings
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


# --- a transaction of the caller's that stays open -------------------------------------------
