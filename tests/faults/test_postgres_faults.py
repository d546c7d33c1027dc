"""The PostgreSQL store while servers die, connections break, clocks are wrong, clients freeze."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
import time_machine

from holdfast.errors import StoreUnavailableError
from holdfast.model import lifecycle
from holdfast.model.job import Event, State
from holdfast.operations.batcher import with_retries
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import AddStatus, Change, Claim, Fence
from holdfast.store.postgres import PostgresSettings, PostgresStore, connection, listener, wake
from holdfast.store.postgres.pool import RETURN_EVERY
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.proxy import Proxy
from tests.servers import Postgres
from tests.store.sessions import borrowed_session, state_of
from tests.waiting import eventually, forever

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from psycopg.rows import TupleRow

    from holdfast.model.job import Job
    from holdfast.store.postgres.connection import PostgresSession

pytestmark = pytest.mark.postgres
SCHEMA = "faults"
SOON = timedelta(seconds=1)


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


@pytest.fixture
async def proxy(store: PostgresStore, postgres_server: Postgres) -> AsyncIterator[Proxy]:
    async with Proxy(_port(postgres_server.dsn)) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy, postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store whose connections all go through the proxy."""
    dsn = postgres_server.dsn.replace(f":{_port(postgres_server.dsn)}/", f":{proxy.port}/")
    async with PostgresStore(PostgresSettings(dsn=dsn, schema=SCHEMA, timeout=SOON)) as store:
        yield store


def _port(dsn: str) -> int:
    return int(psycopg.conninfo.conninfo_to_dict(dsn)["port"])


def _job(store: PostgresStore, label: str, **fields: object) -> Job:
    return make(label, now=store.now(), **fields)


def _want(limit: int = 10, token: str = "t") -> Claim:
    return Claim(queues=("default",), limit=limit, worker="w", token=token)


@pytest.mark.req("S-1", "S-2", "S-9")
async def test_accepted_jobs_survive_the_death_of_the_server(own_server: Postgres) -> None:
    settings = PostgresSettings(dsn=own_server.dsn, schema=SCHEMA, timeout=3 * SOON)
    async with PostgresStore(settings) as store:
        jobs = [_job(store, str(n)) for n in range(50)]
        await store.add(jobs)
        taken = await store.claim(_want(5))

        own_server.kill()
        with pytest.raises(StoreUnavailableError):
            await _get_until_it_fails(store, jobs[0].id)
        own_server.start()

        ids = [job.id for job in jobs]
        found = await with_retries(lambda: store.get(ids), Randomness(), timedelta(seconds=10))
        states = Counter(job.state for job in found if job)
        assert {State.RUNNING: 5, State.SCHEDULED: 45} == states
        now = store.now()
        done = [Change(job, lifecycle.completed(job, None, now=now)) for job in taken]
        assert [True] * 5 == [answer.written for answer in await store.swap(done)]


async def _get_until_it_fails(store: PostgresStore, job_id: str) -> None:
    while True:  # a backend outlives its postmaster by a moment
        await store.get([job_id])


async def test_producer_gets_an_error_in_time_when_the_server_is_down(own_server: Postgres) -> None:
    settings = PostgresSettings(dsn=own_server.dsn, schema=SCHEMA, wait=SOON)
    async with PostgresStore(settings) as store:
        job = _job(store, "a")
        own_server.kill()
        with pytest.raises(StoreUnavailableError):
            await _get_until_it_fails(store, job.id)
        begun = time.monotonic()

        with pytest.raises(StoreUnavailableError, match="Connection refused"):
            await store.add([job])

        assert time.monotonic() - begun < 5  # a second, on a busy machine


@pytest.mark.req("S-9")
async def test_internal_error_of_the_server_is_an_outage(
    store: PostgresStore,
) -> None:
    """A bad page, a missing relation: workers retry, as after a restart."""
    await state_of(store).pool.atomically(_break_holds)

    with pytest.raises(StoreUnavailableError, match="could not read block 7"):
        await store.lock("lead", "me", timedelta(seconds=1))


async def _break_holds(session: PostgresSession) -> None:
    await session.connection.execute(
        f"""
        CREATE FUNCTION {SCHEMA}.broken() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'could not read block 7' USING ERRCODE = 'XX001'; END $$;
        CREATE TRIGGER broken BEFORE INSERT ON {SCHEMA}.hold EXECUTE FUNCTION {SCHEMA}.broken()
        """.encode()
    )


async def test_call_that_finds_every_connection_busy_reports_it(postgres_server: Postgres) -> None:
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1, wait=SOON / 10)
    async with PostgresStore(settings) as store, borrowed_session(store):
        with pytest.raises(StoreUnavailableError, match=r"all connections have been busy .*pool=1"):
            await store.get(["x"])


PROGRAM = """
import asyncio, sys
from holdfast.errors import StoreUnavailableError
from holdfast.store import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            try:
                await store.get(["x"])
            except StoreUnavailableError as error:
                print(error, flush=True)
                if "refused" in str(error):
                    return

asyncio.run(main())
"""


async def test_program_without_logging_has_a_clean_stderr_while_the_server_is_down(
    own_server: Postgres,
) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, f"{own_server.dsn}?wait=1"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert program.stdout is not None
    try:
        await program.stdout.readline()

        own_server.kill()
        out, errors = await asyncio.wait_for(program.communicate(b"go on\n"), 30)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()

    assert b"Connection refused" in out
    assert b"" == errors


async def test_close_ends_a_listener_that_is_being_notified(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    async def notify() -> None:
        async with await psycopg.AsyncConnection.connect(
            postgres_server.dsn, autocommit=True
        ) as connection:
            while True:
                await connection.execute(f"NOTIFY holdfast_{SCHEMA}, '1 default'")

    notifiers = [asyncio.create_task(notify()) for _ in range(2)]
    try:
        async with asyncio.timeout(60):
            for _ in range(100):
                other = wake.Wake(state_of(store).pool, SCHEMA, postgres_server.dsn)
                other.start()
                other.listen()
                await other.listening.wait()
                await other.stop()
    finally:
        for task in notifiers:
            task.cancel()
        await asyncio.wait(notifiers)


@pytest.mark.req("S-12")
@pytest.mark.parametrize("fields", [{}, {"idempotency_key": "k"}], ids=["plain", "with key"])
async def test_submission_cut_after_the_commit_is_repeated_without_a_duplicate(
    store: PostgresStore, behind: PostgresStore, proxy: Proxy, fields: dict[str, object]
) -> None:
    job = _job(behind, "a", **fields)
    await behind.get([job.id])
    proxy.cut_after(b"COMMIT\0" if fields else job.id.encode())

    with pytest.raises(StoreUnavailableError):
        await behind.add([job])
    proxy.heal()
    written_by_the_first = [found is not None for found in await store.get([job.id])]
    (again,) = await behind.add([job])

    assert 1 == proxy.cuts
    assert [True] == written_by_the_first
    assert (AddStatus.ACCEPTED, job.id) == (again.status, again.job_id)
    assert [2] == [len(edges) for edges in await store.history([job.id])]
    assert 1 == len(await store.claim(_want()))


@pytest.mark.req("S-12")
async def test_outcome_cut_after_the_commit_is_recognised_when_repeated(
    store: PostgresStore, behind: PostgresStore, proxy: Proxy
) -> None:
    await store.add([_job(store, "a")])
    (job,) = await behind.claim(_want())
    change = Change(job, lifecycle.completed(job, b'"the answer"', now=behind.now()))
    proxy.cut_after(b"the answer")

    with pytest.raises(StoreUnavailableError):
        await behind.swap([change])
    proxy.heal()
    (again,) = await behind.swap([change])

    assert not again.written
    assert again.job is not None
    assert lifecycle.has_answered(again.job, "t")
    (edges,) = await store.history([job.id])
    assert [Event.COMPLETE] == [edge.event for edge in edges[3:]]


async def test_silent_server_times_out_and_is_used_again_when_it_answers(
    behind: PostgresStore, proxy: Proxy
) -> None:
    await behind.get(["x"])
    proxy.silence()
    begun = time.monotonic()

    with pytest.raises(StoreUnavailableError):
        await behind.get(["x"])

    assert time.monotonic() - begun < 10
    proxy.heal()
    proxy.reset()
    assert [None] == await behind.get(["x"])


async def _slow(store: PostgresStore) -> None:
    async with borrowed_session(store) as session:
        await session.connection.execute(b"SELECT pg_sleep(60)")


async def _backend(store: PostgresStore) -> int:
    async with borrowed_session(store) as session:
        return session.connection.info.backend_pid


async def test_statement_of_a_cancelled_call_is_stopped_and_its_connection_used_again(
    store: PostgresStore,
) -> None:
    await store.get(["x"])
    backend = await _backend(store)
    call = asyncio.create_task(_slow(store))
    await asyncio.sleep(0.1)  # it is on its way to the server

    call.cancel()
    begun = time.monotonic()
    await asyncio.wait([call])

    assert call.cancelled()
    assert time.monotonic() - begun < connection.CANCEL_WITHIN
    assert backend == await _backend(store)
    assert [None] == await store.get(["x"])


async def test_cancelled_call_does_not_wait_for_a_silent_server(
    behind: PostgresStore, proxy: Proxy
) -> None:
    await behind.get(["x"])
    call = asyncio.create_task(_slow(behind))
    await asyncio.sleep(0.1)  # it is on its way to the server
    proxy.silence()

    call.cancel()
    begun = time.monotonic()
    await asyncio.wait([call])

    assert call.cancelled()
    assert time.monotonic() - begun < 2 * connection.CANCEL_WITHIN
    proxy.heal()
    proxy.reset()
    assert [None] == await behind.get(["x"])


async def test_idle_connections_that_were_cut_are_replaced_without_an_error(
    behind: PostgresStore, proxy: Proxy
) -> None:
    await behind.get(["x"])

    proxy.reset()
    await asyncio.sleep(0.05)  # the reset travels through the kernel, not through the event loop

    assert [None] == await behind.get(["x"])


@pytest.mark.req("S-9")
async def test_silently_dead_listener_reconnects(
    store: PostgresStore, behind: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_EVERY", 0.1)
    monkeypatch.setattr(listener, "PROBE_WITHIN", 0.2)
    monkeypatch.setattr(listener, "RECONNECT_AFTER", 0.01)
    listening = state_of(behind).wake.listening
    assert await state_of(behind).wake.is_notified()
    proxy.reset()
    await eventually(lambda: not listening.is_set())
    await asyncio.wait_for(listening.wait(), 10)  # a new connection, with the patched times

    proxy.silence()
    await eventually(lambda: not listening.is_set())
    proxy.heal()
    await asyncio.wait_for(listening.wait(), 10)

    seen = await behind.arrivals(["default"], -1, timedelta(0))
    await store.add([_job(store, "a")])
    assert seen != await behind.arrivals(["default"], seen, timedelta(seconds=10))


async def _claimed(store: PostgresStore) -> list[Job]:
    return await eventually(lambda: store.claim(_want()), every=0.05)


@pytest.mark.req("S-11")
@pytest.mark.parametrize("days", [-1, 1])
async def test_wrong_clock_of_a_worker_changes_nothing(
    store: PostgresStore, postgres_server: Postgres, days: int
) -> None:
    right = store.now()
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)

    with time_machine.travel(right + timedelta(days=days), tick=True):
        async with PostgresStore(settings, clock=SystemClock()) as wrong:
            assert abs(wrong.now() - store.now()) < timedelta(seconds=5)
            await wrong.add([_job(wrong, "now"), _job(wrong, "later", delay=60)])
            (job,) = await wrong.claim(_want())
            assert 0 == (await wrong.promote(10)).count
            assert [] == await wrong.overdue(10)

    assert job.lease is not None
    assert job.lease.until is not None
    assert abs(job.lease.until - right - job.lease_ttl) < timedelta(seconds=30)


@pytest.mark.req("S-6")
async def test_frozen_transaction_of_a_worker_releases_its_jobs(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    job = _job(store, "a")
    await store.add([job])
    locked = asyncio.Event()
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, timeout=SOON)
    ) as frozen:

        async def freeze(session: PostgresSession) -> list[TupleRow]:
            rows = await session.connection.execute(f"SELECT 1 FROM {SCHEMA}.job FOR UPDATE")
            locked.set()
            await forever()
            return await rows.fetchall()

        holding = asyncio.create_task(state_of(frozen).pool.atomically(freeze))
        await locked.wait()

        assert [] == await store.claim(_want())
        taken = await _claimed(store)
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)

    assert [job.id] == [found.id for found in taken]


async def test_events_wait_for_transactions_that_began_before_them(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    start = (await store.events(None, 0, timedelta(0))).cursor
    early, late = _job(store, "early"), _job(store, "late")

    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        await store.add([early], connection=connection)
        await store.add([late])
        before = await store.events(start, 10, timedelta(0))
        await connection.commit()
    after = await store.events(before.cursor, 10, timedelta(seconds=5))

    assert () == before.events
    assert [early.id, early.id, late.id, late.id] == [event.job_id for event in after.events]


async def test_job_of_a_late_transaction_is_found_before_later_ones(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    early, late = _job(store, "early"), [_job(store, f"late{n}") for n in range(2)]

    async with await psycopg.AsyncConnection.connect(postgres_server.dsn) as connection:
        await store.add([early], connection=connection)
        await store.add(late)
        for job in late:
            assert [job.id] == [taken.id for taken in await store.claim(_want(1))]
            await asyncio.sleep(0.3)  # long enough for the claim position to move
        await connection.commit()

    assert [early.id] == [job.id for job in await _claimed(store)]


@pytest.mark.parametrize("turns", range(8))
async def test_cancellation_is_not_lost_when_a_connection_becomes_free(
    postgres_server: Postgres, turns: int
) -> None:
    """Until Python 3.12 ``wait_for`` loses a cancellation that arrives with its result."""
    later = asyncio.Event()

    async def read_and_wait() -> None:
        await store.locks("")
        await later.wait()

    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1)
    ) as store:
        async with borrowed_session(store):
            task = asyncio.create_task(read_and_wait())
            await asyncio.sleep(0.05)  # until it waits for the only connection
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled()
        later.set()


async def test_call_cancelled_while_it_returns_its_connection_loses_none(
    postgres_server: Postgres,
) -> None:
    async with PostgresStore(
        PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA, pool=1, wait=timedelta(seconds=1))
    ) as store:
        await store.locks("")
        state_of(store).pool._used = RETURN_EVERY - 1  # the next call returns its connection
        async with state_of(store).pool._pool._lock:  # the pool is busy
            call = asyncio.create_task(store.locks(""))
            await asyncio.sleep(0.1)  # until it has its result and waits for the pool
            call.cancel()
            await asyncio.wait([call])

        assert [] == await store.locks("")


@pytest.mark.parametrize("milliseconds", range(0, 40, 4))
async def test_cancelled_start_can_be_repeated(
    postgres_server: Postgres, milliseconds: int
) -> None:
    store = PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA))
    task = asyncio.create_task(store.start())
    await asyncio.wait([task], timeout=milliseconds / 1000)
    task.cancel()
    await asyncio.wait([task])

    async with store:
        await store.locks("")


async def test_call_in_progress_finishes_when_the_store_is_closed(store: PostgresStore) -> None:
    begun = asyncio.Event()

    async def linger(session: PostgresSession) -> int:
        begun.set()
        await session.connection.execute(b"SELECT pg_sleep(0.2)")
        return 5

    call = asyncio.create_task(state_of(store).pool.atomically(linger))
    await begun.wait()

    await store.close()

    assert 5 == await call


def test_closed_store_can_be_started_again(postgres_server: Postgres) -> None:
    empty_schema(postgres_server.dsn, SCHEMA)
    store = PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA))

    async def once(label: str) -> None:
        async with store:
            assert await state_of(store).wake.is_notified()
            seen = await store.arrivals(["default"], -1, timedelta(0))
            job = _job(store, label)
            await store.add([job])
            assert seen != await store.arrivals(["default"], seen, timedelta(seconds=10))
            (taken,) = await store.claim(_want(token=label))
            async with store.transaction(
                Fence(taken.id, label), lambda job: lifecycle.completed(job, None, now=store.now())
            ) as connection:
                await connection.execute("SELECT 1")
            (done,) = await store.get([job.id])
            assert done is not None
            assert State.COMPLETED is done.state

    async def twice() -> None:
        await once("a")
        await once("b")

    asyncio.run(twice())
    asyncio.run(once("c"))  # on another loop
