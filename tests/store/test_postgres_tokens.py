"""Which processes new work wakes: as many as there are jobs, among those that can take one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import LimitRule
from holdfast.model import lifecycle
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.model.job import Job
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "tokens"
LISTED = f"""
SELECT count(DISTINCT pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = hashtext('holdfast wake "{SCHEMA}"')::oid
"""
A_MOMENT = 0.2
"""Seconds in which a second notice would have arrived."""
AT_ONCE = timedelta(seconds=5)
NONE = timedelta(0)


@pytest.fixture
async def stores(postgres_server: Postgres) -> AsyncIterator[list[PostgresStore]]:
    """A store that submits, and three more, as if in other processes."""
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(PostgresStore(settings)) for _ in range(4)]


def _want(types: Sequence[str] | None = None, limit: int = 1) -> Claim:
    named = None if types is None else tuple(types)
    return Claim(queues=("default",), limit=limit, worker="w", token="t", types=named)


async def _listed(dsn: str) -> int:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        ((count,),) = await (await connection.execute(LISTED.encode())).fetchall()
        return int(count)


class Waiting:
    """A store that has found no job and waits for one."""

    def __init__(self, store: PostgresStore, seen: int) -> None:
        self.store = store
        self.seen = seen

    async def is_woken(self, within: timedelta = AT_ONCE) -> bool:
        """Whether there may be work for it."""
        return self.seen != await self.store.arrivals(["default"], self.seen, within)

    async def work(self) -> list[Job]:
        """Claim when woken, like a worker with a free slot."""
        while not await self.is_woken():
            pass
        self.seen = await self.store.arrivals(["default"], -1, NONE)
        return await self.store.claim(_want())


@asynccontextmanager
async def _waiting(
    dsn: str, *stores: PostgresStore, types: Sequence[str] | None = None, already: int = 0
) -> AsyncIterator[list[Waiting]]:
    for store in stores:
        assert [] == await store.claim(_want(types))
        assert await state_of(store).wake.is_notified()

    async def all_listed() -> bool:
        return already + len(stores) == await _listed(dsn)

    await eventually(all_listed, within=10, every=0.05)
    await asyncio.sleep(A_MOMENT)  # each is woken once when it is listed
    yield [Waiting(each, await each.arrivals(["default"], -1, NONE)) for each in stores]


async def test_one_job_wakes_one_of_several_processes(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, *others = stores
    async with _waiting(postgres_server.dsn, *others) as waiting:
        working = [asyncio.create_task(each.work()) for each in waiting]

        await submitter.add([make("a", now=submitter.now())])
        await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(A_MOMENT)  # a second one would claim within it

        claimed = [task.result() for task in working if task.done()]
        for task in working:
            task.cancel()
    assert [1] == [len(jobs) for jobs in claimed]


async def test_two_jobs_wake_two_processes(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, *others = stores
    async with _waiting(postgres_server.dsn, *others[:2]) as waiting:
        await submitter.add([make(label, now=submitter.now()) for label in "ab"])

        assert [True, True] == [await each.is_woken() for each in waiting]


async def test_process_without_room_passes_on(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, *others = stores
    async with _waiting(postgres_server.dsn, *others) as (_, _, idle):
        for label in "abcde":  # to one of the two that do not claim, most likely
            await submitter.add([make(label, now=submitter.now())])
            assert 1 == len(await idle.work())


async def _is_listed(dsn: str, count: int) -> bool:
    return count == await _listed(dsn)


async def test_job_of_a_type_that_some_run_reaches_one_that_runs_it(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, *others, able = stores
    dsn = postgres_server.dsn
    async with (
        _waiting(dsn, *others, types=["mail"]),
        _waiting(dsn, able, types=["report"], already=2) as (idle,),
    ):
        for n in range(5):
            await submitter.add([make(f"{n}", now=submitter.now(), type="report")])
            assert ["report"] == [job.type for job in await idle.work()]


async def test_job_that_its_own_process_takes_wakes_no_other(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    own, other, *_ = stores
    dsn = postgres_server.dsn
    async with _waiting(dsn, own) as (first,), _waiting(dsn, other, already=1) as (second,):
        working = asyncio.create_task(first.work())

        await own.add([make("a", now=own.now())])

        assert 1 == len(await working)
        assert not await second.is_woken(timedelta(seconds=A_MOMENT))


async def test_room_that_its_own_process_cannot_use_wakes_another(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    own, other, *_ = stores
    dsn = postgres_server.dsn
    await own.limit("queue:default", LimitRule(concurrency=1))
    await own.add([make(label, now=own.now(), type=label) for label in ("one", "two")])
    (job,) = await own.claim(_want(["one"]))
    async with (
        _waiting(dsn, own, types=["one"]),
        _waiting(dsn, other, types=["two"], already=1) as (second,),
    ):
        await own.swap([Change(job, lifecycle.completed(job, None, now=own.now()))])

        assert await second.is_woken()


async def test_delayed_job_wakes_the_process_that_promotes_and_no_worker(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, worker, leader, _ = stores
    dsn = postgres_server.dsn
    async with _waiting(dsn, worker) as (idle,):
        assert await state_of(leader).wake.is_notified()
        await leader.promote(1)
        await eventually(lambda: _is_listed(dsn, 2), within=5, every=0.02)
        await asyncio.sleep(A_MOMENT)  # it is woken once when it is listed
        promoter = Waiting(leader, await leader.arrivals(["default"], -1, NONE))

        await submitter.add([make("a", now=submitter.now(), delay=timedelta(seconds=3))])

        assert await promoter.is_woken()
        assert not await idle.is_woken(timedelta(seconds=A_MOMENT))


async def test_process_that_died_is_woken_no_more(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, dead, alive, _ = stores
    dsn = postgres_server.dsn
    async with _waiting(dsn, dead, alive) as (_, idle):
        await state_of(dead).wake.stop()  # closes its session, as the end of the process does

        for label in "abcde":
            await submitter.add([make(label, now=submitter.now())])
            assert 1 == len(await idle.work())


async def test_process_that_waits_for_many_queues_takes_one_lock(
    stores: list[PostgresStore], postgres_server: Postgres
) -> None:
    submitter, worker, *_ = stores
    queues = tuple(f"queue{n}" for n in range(100))
    want = Claim(queues=queues, limit=1, worker="w", token="t")
    assert [] == await worker.claim(want)
    assert await state_of(worker).wake.is_notified()
    await eventually(lambda: _is_listed(postgres_server.dsn, 1), within=5, every=0.02)
    await asyncio.sleep(A_MOMENT)  # it is woken once when it is listed
    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        rows = await connection.execute(LISTED.replace("DISTINCT pid", "*").encode())
        assert [(1,)] == await rows.fetchall()
    seen = await worker.arrivals(queues, -1, NONE)

    await submitter.add([make("a", now=submitter.now(), queue="queue77")])

    assert seen != await worker.arrivals(queues, seen, AT_ONCE)
