"""Leases are renewed while a job runs, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from holdfast import Holdfast, State
from holdfast.model import lifecycle
from holdfast.model.job import Job
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim, Fence, MemoryStore, Renewal
from holdfast.worker.channel import Notes, WorkerChannel
from holdfast.worker.heartbeat import DEADLINE_MARGIN, Heartbeat
from holdfast.worker.outcomes import Interruption
from holdfast.worker.run import Run
from holdfast.worker.supervisor.lease_guard import LeaseGuard, held_by
from holdfast.worker.supervisor.protocol import ClaimedMessage, Holding, ReleasedMessage, Renewed
from tests.worker.faulty import FaultyStore
from tests.worker.rig import EventLog, ended, until_running, working

LEASE = 30.0


class Ward:
    """One claimed job under a heartbeat, on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FaultyStore(MemoryStore(self.clock))
        self.app = Holdfast(store=self.store, clock=self.clock)  # type: ignore[arg-type]
        self.delivered: list[Callable[[], None]] = []
        self.runs: list[Run] = []
        self.log = EventLog()

        @self.app.task("work", timeout=120, lease=LEASE)
        async def work() -> None: ...

        self.heartbeat = Heartbeat(
            self.store,  # type: ignore[arg-type]
            lambda: list(self.runs),
            self.clock,
            self.log,
            self.deliver,
        )

    def deliver(self, call: Callable[[], None]) -> None:
        self.delivered.append(call)
        call()

    async def claimed(self, token: str = "mine") -> Run:
        await self.app.submit("work")
        (job,) = await self.store.inner.claim(
            Claim(queues=("default",), limit=1, worker="w", token=token)
        )
        notes = Notes(self.store)  # type: ignore[arg-type]
        run = Run(
            job,
            self.app.registry["work"],
            lambda run: WorkerChannel(run, self.store, notes, self.app.submitter(self.store)),  # type: ignore[arg-type]
            self.clock.monotonic(),
        )
        self.runs.append(run)
        return run

    async def stored(self, run: Run) -> Job:
        (job,) = await self.store.inner.get([run.job.id])
        assert job is not None
        return job

    async def left(self, run: Run) -> float:
        job = await self.stored(run)
        assert job.lease is not None
        assert job.lease.until is not None
        return (job.lease.until - self.clock.now()).total_seconds()


@pytest.fixture
async def ward() -> Ward:
    ward = Ward()
    await ward.app.start()
    return ward


@pytest.mark.req("S-7")
async def test_a_lease_is_renewed_after_a_third_of_it(ward: Ward) -> None:
    run = await ward.claimed()
    ward.clock.advance(LEASE / 3 - 0.1)
    await ward.heartbeat.once()
    assert LEASE * 2 / 3 + 0.1 == pytest.approx(await ward.left(run))

    ward.clock.advance(0.1)
    await ward.heartbeat.once()

    assert LEASE == pytest.approx(await ward.left(run))


@pytest.mark.req("S-7")
async def test_renewing_stops_at_the_deadline_so_that_a_hung_worker_holds_nothing_for_ever(
    ward: Ward,
) -> None:
    run = await ward.claimed()
    for _ in range(40):
        ward.clock.advance(10)
        await ward.heartbeat.once()

    assert await ward.left(run) < 0
    assert run.signals.lease_lost


@pytest.mark.req("S-7")
async def test_a_job_outlasts_an_outage_that_is_longer_than_its_lease(ward: Ward) -> None:
    run = await ward.claimed()
    ward.store.away.add("*")
    ward.clock.advance(LEASE + 5)
    await ward.heartbeat.once()
    assert not run.signals.lease_lost

    ward.store.away.clear()
    await ward.heartbeat.once()

    assert run.interruption is None
    assert LEASE == pytest.approx(await ward.left(run))


@pytest.mark.req("S-7")
async def test_a_job_that_was_taken_in_an_outage_is_lost_at_its_end(ward: Ward) -> None:
    run = await ward.claimed()
    ward.store.away.add("*")
    ward.clock.advance(LEASE + 5)
    await ward.heartbeat.once()
    job = await ward.stored(run)
    await ward.store.inner.swap([Change(job, lifecycle.lease_lost(job, now=ward.clock.now()))])
    ward.clock.advance(2)
    await ward.store.inner.promote(1)
    await ward.store.inner.claim(Claim(queues=("default",), limit=1, worker="x", token="theirs"))

    ward.store.away.clear()
    await ward.heartbeat.once()

    assert Interruption.LEASE_LOST is run.interruption


@pytest.mark.req("S-7")
async def test_an_unanswered_heartbeat_ends_a_job_past_its_deadline(ward: Ward) -> None:
    run = await ward.claimed()
    ward.store.away.add("*")
    ward.clock.advance(run.timeout + DEADLINE_MARGIN)
    await ward.heartbeat.once()

    assert Interruption.LEASE_LOST is run.interruption


async def test_missed_heartbeats_are_reported_once_per_reason(ward: Ward) -> None:
    await ward.claimed()
    for _ in range(2):
        ward.store.away.add("*")
        for _ in range(3):
            ward.clock.advance(LEASE / 3)
            await ward.heartbeat.once()
        ward.store.away.clear()
        await ward.heartbeat.once()

    reasons = [fields["error"] for fields in ward.log.all("heartbeat.missed")]
    assert 2 * ["extend: the store is away"] == reasons


@pytest.mark.req("S-7")
async def test_a_lease_that_another_worker_holds_is_lost_at_the_next_heartbeat(ward: Ward) -> None:
    run = await ward.claimed()
    ward.clock.advance(LEASE + 1)
    job = await ward.stored(run)
    await ward.store.inner.swap([Change(job, lifecycle.lease_lost(job, now=ward.clock.now()))])
    ward.clock.advance(2)
    await ward.store.inner.promote(1)
    await ward.store.inner.claim(Claim(queues=("default",), limit=1, worker="x", token="theirs"))

    await ward.heartbeat.once()

    assert run.signals.lease_lost
    assert await ward.left(run) == pytest.approx(LEASE)


@pytest.mark.req("S-7")
async def test_an_expired_lease_that_no_worker_claimed_is_renewed(ward: Ward) -> None:
    run = await ward.claimed()
    ward.clock.advance(LEASE + 5)

    await ward.heartbeat.once()

    assert not run.signals.lease_lost
    assert LEASE == pytest.approx(await ward.left(run))


@pytest.mark.req("A-12")
async def test_a_request_to_cancel_arrives_between_heartbeats(ward: Ward) -> None:
    run = await ward.claimed()
    await ward.app.cancel(run.job.id, reason="enough")
    ward.clock.advance(1)

    delay = await ward.heartbeat.once()

    assert run.signals.cancel is not None
    assert "enough" == run.signals.cancel.reason
    assert run.interruption is None
    assert delay <= 1.0


@pytest.mark.req("A-12")
async def test_force_after_a_request_to_cancel_interrupts(ward: Ward) -> None:
    run = await ward.claimed()
    await ward.app.cancel(run.job.id)
    await ward.heartbeat.once()
    await ward.app.cancel(run.job.id, force=True)

    await ward.heartbeat.once()

    assert Interruption.CANCELLED is run.interruption


@pytest.mark.req("S-11")
async def test_a_worker_whose_own_clock_is_a_day_off_keeps_its_leases() -> None:
    store = MemoryStore()
    wrong = ManualClock()
    app = Holdfast(store=store, clock=wrong)
    go = asyncio.Event()

    @app.task("work", lease=0.6)
    async def work() -> None:
        await go.wait()

    async with working(app):
        job = await app.submit("work")
        await until_running(app, job.job_id)
        before = await app.get(job.job_id)
        wrong.advance(timedelta(days=1))
        go.set()
        assert State.COMPLETED is await ended(app, job.job_id)
        assert 1 == before.attempt


# --- the supervisor's guard ------------------------------------------------------------------


def holding(run: Run) -> Holding:
    return Holding(run.job.id, run.fence.token, LEASE, run.timeout)


@pytest.mark.req("S-7")
async def test_the_guard_renews_only_what_its_worker_did_not(ward: Ward) -> None:
    run = await ward.claimed()
    guard = LeaseGuard(ward.clock)
    guard.update("w", ClaimedMessage([holding(run)]))
    ward.clock.advance(LEASE / 3)
    guard.update("w", Renewed([run.job.id]))
    ward.clock.advance(LEASE / 3)
    await guard.once(ward.store.inner)
    assert LEASE / 3 == pytest.approx(await ward.left(run))

    ward.clock.advance(LEASE / 6)
    await guard.once(ward.store.inner)

    assert LEASE == pytest.approx(await ward.left(run))


def skip_leases(monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    """Have the store skip every lease, as if another transaction had locked the jobs."""

    async def extend(fences: Sequence[Fence]) -> list[Renewal]:
        return [Renewal(held=True, renewed=False) for _ in fences]

    monkeypatch.setattr(store, "extend", extend)


@pytest.mark.req("S-7")
async def test_a_lease_that_was_skipped_is_renewed_next_time(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.runs.append(run := await ward.claimed())
    ward.clock.advance(LEASE / 3)
    with monkeypatch.context() as patched:
        skip_leases(patched, ward.store.inner)
        await ward.heartbeat.once()
    assert not run.signals.lease_lost

    await ward.heartbeat.once()

    assert LEASE == pytest.approx(await ward.left(run))


@pytest.mark.req("S-7")
async def test_the_guard_retries_a_lease_that_was_skipped(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await ward.claimed()
    guard = LeaseGuard(ward.clock)
    guard.update("w", ClaimedMessage([holding(run)]))
    ward.clock.advance(LEASE / 2)
    with monkeypatch.context() as patched:
        skip_leases(patched, ward.store.inner)
        await guard.once(ward.store.inner)

    await guard.once(ward.store.inner)

    assert LEASE == pytest.approx(await ward.left(run))


@pytest.mark.req("S-7")
async def test_the_guard_stops_at_the_deadline_and_when_the_job_is_settled(ward: Ward) -> None:
    run, other = await ward.claimed("a"), await ward.claimed("b")
    guard = LeaseGuard(ward.clock)
    guard.update("w", ClaimedMessage([holding(run), holding(other)]))
    guard.update("w", ReleasedMessage([other.job.id]))
    ward.clock.advance(LEASE / 2)
    await guard.once(ward.store.inner)
    assert LEASE / 2 == pytest.approx(await ward.left(other))
    assert LEASE == pytest.approx(await ward.left(run))

    for _ in range(20):
        ward.clock.advance(LEASE / 2)
        await guard.once(ward.store.inner)

    assert await ward.left(run) < 0


async def test_held_by_returns_the_leases_of_one_worker(ward: Ward) -> None:
    run = await ward.claimed()
    await ward.app.submit("work")
    await ward.store.inner.claim(
        Claim(queues=("default",), limit=1, worker="another", token="theirs")
    )

    assert [Fence(run.job.id, "mine")] == await held_by(ward.store.inner, "w")


@pytest.mark.req("S-7")
async def test_a_lease_counts_from_when_its_claim_was_sent() -> None:
    clock = ManualClock()

    class SlowStore(MemoryStore):
        async def claim(self, want: Claim) -> list[Job]:
            jobs = await super().claim(want)
            clock.advance(20)
            return jobs

    app = Holdfast(store=SlowStore(clock), clock=clock)
    started = asyncio.Event()

    @app.task("work")
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    async with working(app, maintenance=False) as worker:
        await app.submit("work")
        await asyncio.wait_for(started.wait(), 5)
        (run,) = worker._slots.running.values()  # the run of a job is not public

        assert 20 <= clock.monotonic() - run.renewed
