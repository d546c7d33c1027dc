"""Which calls wait for a lock: statements that lock several jobs, and jobs locked by others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import DependencyKind, FailureCategory, Progress, State
from holdfast.model.policy import Retention
from holdfast.model.submission import Parent
from holdfast.operations.dependents import release_dependents
from holdfast.runtime.clock import SystemClock
from holdfast.store import AddStatus, Change, JobNote
from holdfast.store.postgres import PostgresSettings, PostgresStore, add, connection, maintain
from holdfast.store.postgres.claim_position import LEASES_SETTLED
from holdfast.store.postgres.links import add_pending
from holdfast.store.postgres.statements import Statement, statement
from tests.conformance.hand import MANY, Hand, failure, fence
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from holdfast.model.job import Job
    from holdfast.store import Promoted
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "locks"
FATAL = failure(FailureCategory.PERMANENT)
AT_ONCE = 5.0
"""Seconds that only a call takes that waits for a lock, which lasts until the test ends."""

_LOCK = f"""
SELECT FROM {SCHEMA}.job j JOIN {SCHEMA}.body b USING (number) WHERE b.id = %s
FOR NO KEY UPDATE OF j
"""
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
async def hand(postgres_server: Postgres) -> AsyncIterator[Hand]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield Hand(store, SystemClock())


@asynccontextmanager
async def _locked(server: Postgres, job: Job) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(server.dsn) as other_session:
        await other_session.execute(_LOCK, (job.id,))
        yield other_session
        await other_session.rollback()


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
    await hand.store.note([JobNote(fence=fence(job), progress=progress) for job in jobs])


@pytest.mark.parametrize("pages", [0, 1, 5])
@pytest.mark.parametrize("write", [_complete, _give_back, _note])
async def test_jobs_are_locked_in_the_order_of_their_numbers(
    hand: Hand, postgres_server: Postgres, write: Callable[..., Awaitable[None]], pages: int
) -> None:
    for page in range(pages):  # their number may change the plan
        await hand.store.add([hand.job(f"{page}.{n}", queue="others") for n in range(MANY)])
    first, second = await _running(hand)
    async with (
        _locked(postgres_server, first) as other_session,
        await psycopg.AsyncConnection.connect(postgres_server.dsn) as other,
    ):
        writing = asyncio.create_task(write(hand, [second, first]))

        async def a_session_waits() -> bool:
            return await (await other_session.execute(_WAITING)).fetchone() != (0,)

        await eventually(a_session_waits, within=AT_ONCE)

        await other.execute(f"{_LOCK} NOWAIT", (second.id,))
        await other.rollback()

    await writing


async def test_locked_job_does_not_block_the_renewal_of_other_leases(
    hand: Hand, postgres_server: Postgres
) -> None:
    first, second = await _running(hand)
    assert first.lease
    assert second.lease
    async with _locked(postgres_server, first), asyncio.timeout(AT_ONCE):
        renewals = await hand.store.extend([fence(first), fence(second)])

    assert [(True, False), (True, True)] == [
        (renewal.held, renewal.renewed) for renewal in renewals
    ]
    assert first.lease.until == renewals[0].until
    assert renewals[1].until
    assert second.lease.until < renewals[1].until


async def test_locked_overdue_job_does_not_hide_the_others(
    hand: Hand, postgres_server: Postgres
) -> None:
    await hand.add_all(hand.job("first", lease=1), hand.job("second", lease=1))
    first, second = await hand.claim(2)
    async with _locked(postgres_server, first):
        found = await eventually(lambda: hand.store.overdue(10), within=AT_ONCE, every=0.05)

    assert [second.id] == [job.id for job in found]


# --- a transaction of the caller's that stays open -------------------------------------------


@asynccontextmanager
async def _open(
    server: Postgres, isolation: psycopg.IsolationLevel = psycopg.IsolationLevel.READ_COMMITTED
) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
        await connection.set_isolation_level(isolation)
        await connection.execute("SELECT 1")
        yield connection


async def _ended(hand: Hand, job: Job, *, well: bool = True) -> None:
    now = hand.store.now()
    after = (
        lifecycle.completed(job, None, now=now)
        if well
        else lifecycle.after_failure(job, FATAL, now=now, jitter=0.0)
    )
    (answer,) = await hand.store.swap([Change(job, after)])
    assert answer.written


async def _settled(hand: Hand) -> Promoted:
    """Promote and release dependents, as maintenance does."""
    promoted = await hand.store.promote(MANY)
    await release_dependents(hand.store)
    return promoted


async def test_duplicate_in_an_open_transaction_blocks_no_other_call(
    hand: Hand, postgres_server: Postgres
) -> None:
    first = await hand.run("job", idempotency_key="k")
    twin = hand.job("twin", type="job", payload={"label": "job"}, idempotency_key="k")
    async with _open(postgres_server) as connection, asyncio.timeout(AT_ONCE):
        (added,) = await hand.store.add([twin], connection=connection)

        (again,) = await hand.store.add([twin])
        renewals = await hand.store.extend([fence(first)])
        await _ended(hand, first)

    assert [(AddStatus.DUPLICATE, first.id)] * 2 == [(a.status, a.job_id) for a in (added, again)]
    assert [True] == [renewal.renewed for renewal in renewals]


@pytest.mark.parametrize("well", [True, False])
async def test_job_with_dependents_in_an_open_transaction_can_end(
    hand: Hand, postgres_server: Postgres, *, well: bool
) -> None:
    parent = await hand.run("parent")
    child = hand.job("child", after=[parent])
    async with _open(postgres_server) as connection:
        await hand.store.add([child], connection=connection)
        async with asyncio.timeout(AT_ONCE):
            assert [True] == [r.renewed for r in await hand.store.extend([fence(parent)])]
            await _ended(hand, parent, well=well)
            assert not (await _settled(hand)).has_dependents
        await connection.commit()

    assert [parent.id] == await hand.store.parents(child.id)
    assert (await _settled(hand)).has_dependents

    (stored,) = await hand.store.get([child.id])
    assert stored is not None
    assert (State.SCHEDULED if well else State.FAILED) is stored.state
    assert [parent.id] == await hand.store.parents(child.id)
    assert not (await _settled(hand)).has_dependents


async def test_job_of_a_transaction_waits_for_a_dependency_that_ends_later(
    hand: Hand, postgres_server: Postgres
) -> None:
    assert await state_of(hand.store).wake.is_notified()
    parent = await hand.run("parent")
    child = hand.job("child", after=[parent], queue="other")
    seen = await hand.store.arrivals(["other"], -1, timedelta(0))
    async with _open(postgres_server) as connection:
        await hand.store.add([child], connection=connection)
        await connection.commit()
    assert seen != await hand.store.arrivals(["other"], seen, timedelta(seconds=10))
    assert not (await _settled(hand)).has_dependents

    await _ended(hand, parent)

    assert [child.id] == [dependent.job.id for dependent in await hand.store.dependents(MANY)]


async def test_rolled_back_dependency_leaves_no_rows(hand: Hand, postgres_server: Postgres) -> None:
    parent = await hand.run("parent")
    async with _open(postgres_server) as connection:
        await hand.store.add([hand.job("child", after=[parent])], connection=connection)
        await connection.rollback()

    assert not (await _settled(hand)).has_dependents
    await _ended(hand, parent)
    assert [True] == await hand.store.delete([parent.id])


async def test_job_depends_on_one_submitted_earlier_in_the_same_transaction(
    hand: Hand, postgres_server: Postgres
) -> None:
    parent = hand.job("parent")
    child = hand.job("child", after=[parent])
    async with _open(postgres_server) as connection:
        await hand.store.add([parent], connection=connection)
        inherited = await hand.store.lineage([parent.id], connection)
        await hand.store.add([child], connection=connection)
        await connection.commit()

    assert {parent.id: Parent(parent.priority, parent.depth)} == inherited
    assert [parent.id] == await hand.store.parents(child.id)
    assert not (await _settled(hand)).has_dependents
    (running,) = await hand.claim()
    await _ended(hand, running)
    assert [child.id] == [dependent.job.id for dependent in await hand.store.dependents(MANY)]


@pytest.mark.parametrize("when", ["before", "meanwhile", "meanwhile, long ago"])
async def test_job_whose_dependency_was_deleted_before_the_commit_is_released(
    hand: Hand, postgres_server: Postgres, when: str
) -> None:
    """The journal has its end; without that row the dependency counts as cancelled."""
    store = hand.store
    parent = await hand.run("parent")
    if when == "before":
        await _ended(hand, parent)
    child = hand.job("child", after=[parent])
    async with _open(postgres_server) as connection:
        await store.add([child], connection=connection)
        if when != "before":
            await _ended(hand, parent)
        if "long ago" in when:
            state_of(store).events_kept = 0
        assert [True] == await store.delete([parent.id])
        await connection.commit()

    assert (await _settled(hand)).has_dependents

    (stored,) = await store.get([child.id])
    assert stored is not None
    assert (State.CANCELLED if "long ago" in when else State.SCHEDULED) is stored.state
    assert [parent.id] == await store.parents(child.id)


async def _submitted_in_a_transaction(hand: Hand, server: Postgres, *children: Job) -> None:
    """Submit jobs in a transaction and commit it, without promoting."""
    async with _open(server) as connection:
        await hand.store.add(children, connection=connection)
        await connection.commit()


async def test_dependency_deleted_during_a_submission_still_counts(
    hand: Hand, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await hand.run("parent")
    await _ended(hand, parent, well=False)

    async def late(*given: object) -> None:
        assert [True] == await hand.store.delete([parent.id])
        await add_pending(*given)

    monkeypatch.setattr(add, "add_pending", late)
    await _submitted_in_a_transaction(
        hand, postgres_server, child := hand.job("child", after=[parent])
    )
    await _settled(hand)

    (stored,) = await hand.store.get([child.id])
    assert stored is not None
    assert State.FAILED is stored.state


async def test_dependency_with_a_pending_link_is_not_deleted(
    hand: Hand, postgres_server: Postgres
) -> None:
    parent, other = await _running(hand)
    await _submitted_in_a_transaction(hand, postgres_server, hand.job("child", after=[parent]))
    await _ended(hand, parent)
    await _ended(hand, other)
    at_once = Retention(completed=timedelta(0))

    assert [False] == await hand.store.delete([parent.id])
    assert [1, 0] == [await hand.store.prune(at_once, 1) for _ in range(2)]
    await _settled(hand)
    (child,) = await hand.claim()
    await _ended(hand, child)
    assert 2 == await hand.store.prune(at_once, 10)


async def test_job_deleted_with_a_pending_link_leaves_no_rows(
    hand: Hand, postgres_server: Postgres
) -> None:
    parent = await hand.run("parent")
    await _submitted_in_a_transaction(
        hand, postgres_server, child := hand.job("child", after=[parent])
    )
    (child,) = await hand.get_all(child)
    await hand.swap(child, lifecycle.cancelled(child, now=hand.store.now()))

    assert [True] == await hand.store.delete([child.id])

    async with _open(postgres_server) as connection:
        cursor = await connection.execute(f"SELECT count(*) FROM {SCHEMA}.tie".encode())
        assert (0,) == await cursor.fetchone()


@pytest.mark.parametrize("kind", [DependencyKind.AFTER, DependencyKind.FAN_IN])
async def test_locked_dependency_does_not_block_linking_or_promoting_others(
    hand: Hand, postgres_server: Postgres, kind: DependencyKind
) -> None:
    first, second = await _running(hand)
    spawned = await hand.spawn("spawned", first)
    busy = hand.job("busy", after=[first], dependency_type=kind)
    free = hand.job("free", after=[second])
    await _submitted_in_a_transaction(hand, postgres_server, busy, free)
    await _ended(hand, second)
    locked = spawned if kind is DependencyKind.FAN_IN else first

    async with _locked(postgres_server, locked), asyncio.timeout(AT_ONCE):
        assert (await _settled(hand)).has_dependents

    assert [State.PENDING, State.SCHEDULED] == [job.state for job in await hand.get_all(busy, free)]
    await _ended(hand, first)
    assert not (await hand.store.dependents(MANY))
    assert (await _settled(hand)).has_dependents


async def test_jobs_that_cannot_be_linked_do_not_block_later_ones(
    hand: Hand, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "LINK_BATCH", 2)
    first, second = await _running(hand)
    busy = [hand.job(f"busy {n}", after=[first]) for n in range(5)]
    free = hand.job("free", after=[second])
    await _submitted_in_a_transaction(hand, postgres_server, *busy, free)
    await _ended(hand, second)

    async with _locked(postgres_server, first):
        await _settled(hand)

    assert [State.SCHEDULED] == [job.state for job in await hand.get_all(free)]


async def test_promote_reports_that_pending_links_remain(
    hand: Hand, postgres_server: Postgres
) -> None:
    first, _ = await _running(hand)
    await _submitted_in_a_transaction(hand, postgres_server, hand.job("child", after=[first]))
    lock_all = f"SELECT FROM {SCHEMA}.tie FOR UPDATE"

    async with _locked(postgres_server, first) as other_session:
        assert (await hand.store.promote(MANY)).has_dependents
        await other_session.rollback()
        await other_session.execute(lock_all.encode())
        assert (await hand.store.promote(MANY)).has_dependents

    assert not (await hand.store.promote(MANY)).has_dependents


async def test_promote_with_limit_zero_links_nothing(hand: Hand, postgres_server: Postgres) -> None:
    first, _ = await _running(hand)
    await _submitted_in_a_transaction(hand, postgres_server, hand.job("child", after=[first]))
    await _ended(hand, first)

    assert not (await hand.store.promote(0)).has_dependents

    assert (await _settled(hand)).has_dependents


@pytest.mark.parametrize("isolation", psycopg.IsolationLevel)
async def test_fan_in_of_a_transaction_waits_for_what_is_spawned_before_its_commit(
    hand: Hand, postgres_server: Postgres, isolation: psycopg.IsolationLevel
) -> None:
    parent = await hand.run("parent")
    child = hand.job("child", after=[parent], dependency_type=DependencyKind.FAN_IN)
    async with _open(postgres_server, isolation) as connection:
        spawned = await hand.spawn("spawned", parent)
        await hand.store.add([child], connection=connection)
        await _ended(hand, parent)
        await connection.commit()

    await _settled(hand)

    assert [parent.id, spawned.id] == await hand.store.parents(child.id)
    (stored,) = await hand.store.get([child.id])
    assert stored is not None
    assert State.PENDING is stored.state


async def test_overdue_job_that_was_locked_is_found_by_the_next_short_scan(
    hand: Hand, postgres_server: Postgres
) -> None:
    store = hand.store
    job = await hand.run("job", lease=1)
    async with _locked(postgres_server, job):
        await eventually(lambda: store.now() >= job.lease.until + LEASES_SETTLED)
        assert [] == await store.overdue(10)
        state_of(store).leases.record_full_scan(state_of(store).ticks(), 100.0)
        assert [] == await store.overdue(10)

    assert [job.id] == [found.id for found in await store.overdue(10)]


@pytest.mark.parametrize("how", ["renewed", "completed"])
async def test_lease_renewed_during_the_scan_is_not_overdue(
    hand: Hand, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A row is read again when it is locked, which may be later than when it was found."""

    def slowly(name: str, schema: str) -> Statement:
        sql = statement(name, schema)
        found = b"SELECT late.number, late.since"
        assert name != "overdue" or found in sql.sent
        return replace(sql, sent=sql.sent.replace(found, found + b", pg_sleep(0.5)"))

    monkeypatch.setattr(connection, "statement", slowly)
    job = await hand.run("job", lease=1)
    await eventually(lambda: hand.store.now() >= job.lease.until)
    scanning = asyncio.create_task(hand.store.overdue(10))
    await asyncio.sleep(0.2)  # in the middle of the half second that the statement takes

    if how == "renewed":
        await hand.store.extend([fence(job)])
    else:
        await _complete(hand, [job])

    assert [] == await scanning


async def test_claims_that_skipped_a_locked_dependency_are_woken(
    hand: Hand,
) -> None:
    parent = await hand.add("parent")
    seen, now = -2, -1
    while seen != now:  # until every earlier notice has arrived
        seen, now = now, await hand.store.arrivals(["default"], now, timedelta(seconds=0.2))

    await hand.add("child", after=[parent])  # it locks its parent for a moment

    assert seen != await hand.store.arrivals(["default"], seen, timedelta(seconds=1))


async def test_submission_waits_longer_for_a_dependency_than_for_a_key(
    hand: Hand, postgres_server: Postgres
) -> None:
    parent = await hand.run("parent")
    child = hand.job("child", after=[parent], idempotency_key="k")
    async with _locked(postgres_server, parent):
        add = asyncio.create_task(hand.store.add([child]))
        done, _ = await asyncio.wait([add], timeout=0.3)
        assert not done

    assert [AddStatus.ACCEPTED] == [added.status for added in await add]
