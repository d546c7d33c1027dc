"""The store goes away and comes back: workers wait, keep their results, and go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.maintenance import Maintenance
from holdfast.maintenance.leader import ServiceErrors
from holdfast.model.job import Job
from holdfast.model.policy import Limits
from holdfast.observe import Outage, Silent
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Added, Fence, MemoryStore
from holdfast.store.sqlite import SQLiteStore
from holdfast.worker import Worker
from holdfast.worker.startup import opened
from holdfast.worker.worker import delivery_worker
from tests.conformance.hand import make
from tests.waiting import forever
from tests.worker.faulty import FaultyStore
from tests.worker.rig import Ear, ended, until, until_running, working


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStore:
    on_file = request.param == "sqlite"
    return FaultyStore(
        SQLiteStore.from_url(f"sqlite:///{tmp_path}/jobs.db") if on_file else MemoryStore()
    )


@pytest.fixture
def app(store: FaultyStore) -> Holdfast:
    return Holdfast(store=store)  # type: ignore[arg-type]  # it passes every verb on


@pytest.mark.req("S-9")
async def test_a_result_is_kept_while_the_store_is_away_and_written_when_it_is_back(
    app: Holdfast, store: FaultyStore
) -> None:
    go, ran, ear = asyncio.Event(), Counter[str](), Ear()

    @app.task("work")
    async def work() -> str:
        await go.wait()
        ran["work"] += 1
        return "kept"

    async with working(app, ear=ear):
        job = await app.submit("work")
        await until_running(app, job.job_id)
        store.away.add("*")
        go.set()
        await until(lambda: store.refused > 3)
        store.away.clear()
        status = await app.wait(job.job_id, timeout=10)

    assert (State.COMPLETED, "kept", 1) == (status.state, status.output, status.attempt)
    assert 1 == ran["work"]
    assert ear.all("store.unavailable")


@pytest.mark.req("S-9", "S-12")
async def test_an_answer_whose_receipt_was_lost_is_not_written_twice(
    app: Holdfast, store: FaultyStore
) -> None:
    @app.task("work")
    async def work() -> str:
        return "once"

    async with working(app):
        store.forgetful.add("swap")
        job = await app.submit("work")
        assert State.COMPLETED is await ended(app, job.job_id)
        await until(lambda: not store.forgetful)
        other = await app.submit("work")
        assert State.COMPLETED is await ended(app, other.job_id)
        (history,) = await app.store.history([job.job_id])

    assert 1 == sum(edge.to_state is State.COMPLETED for edge in history)


@pytest.mark.req("S-9")
async def test_workers_and_maintenance_go_on_by_themselves(
    app: Holdfast, store: FaultyStore
) -> None:
    @app.task("work")
    async def work() -> None: ...

    async with working(app):
        await ended(app, (await app.submit("work")).job_id)
        store.away.add("*")
        await until(lambda: store.refused > 5)
        store.away.clear()
        job = await app.submit("work", delay=0.1)

        assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.parametrize("maintenance", [False, True])
async def test_a_store_that_is_back_is_told_once(
    app: Holdfast, store: FaultyStore, maintenance: bool
) -> None:
    app.task("work")(_nothing)
    ear = Ear()

    async with working(app, ear=ear, maintenance=maintenance):
        await ended(app, (await app.submit("work")).job_id)
        for outage in (1, 2):
            told = len(ear.all("store.unavailable"))
            store.away.add("*")
            await ear.heard("store.unavailable", told + 1)
            refused = store.refused
            await until(lambda refused=refused: store.refused > refused + 1)
            store.away.clear()
            await ear.heard("store.available", outage)
        await ended(app, (await app.submit("work")).job_id)

    assert 2 == len(ear.all("store.available"))
    assert all(told["away"] > 0 for told in ear.all("store.available"))  # type: ignore[operator]


async def test_an_end_of_waiting_is_no_sign_that_the_store_is_back(
    app: Holdfast, store: FaultyStore
) -> None:
    app.task("work")(_nothing)
    ear = Ear()

    async with working(app, ear=ear):
        await ear.heard("maintenance.leading")
        store.away.add("*")  # while the worker waits for work
        await until(lambda: store.refused > 5)  # and what was under way has been answered
        told = ear.all("store.available")
        await store.inner.add([make("a", now=store.now())])
        refused = store.refused
        await until(lambda: store.refused > refused + 5)
        assert told == ear.all("store.available")

        store.away.clear()
        await ear.heard("store.available")


async def test_a_store_that_is_back_is_told_by_maintenance_alone(
    app: Holdfast, store: FaultyStore
) -> None:
    ear = Ear()

    async with app:
        crew = asyncio.create_task(
            Maintenance(app, "w", ("default",), ear, make_worker=delivery_worker).run()
        )
        await ear.heard("maintenance.leading")
        store.away.add("*")
        await ear.heard("store.unavailable")
        store.away.clear()
        await ear.heard("store.available")
        crew.cancel()
        await asyncio.wait([crew])

    assert 1 == len(ear.all("store.available"))


def test_an_outage_is_told_for_every_new_reason() -> None:
    clock, ear = ManualClock(), Ear()
    outage = Outage(clock, ear)

    outage.over()
    for reason in ("refused", "refused", "starting up"):
        outage.failed(StoreUnavailableError(reason))
        clock.advance(1.5)
    outage.over()
    outage.over()

    assert [
        ("store.unavailable", {"error": "refused"}),
        ("store.unavailable", {"error": "starting up"}),
        ("store.available", {"away": 4.5}),
    ] == ear.told


@pytest.mark.req("S-9")
async def test_producers_wait_for_the_store(app: Holdfast, store: FaultyStore) -> None:
    async with app:
        store.away.add("add")
        submitting = asyncio.create_task(app.submit("work"))
        await until(lambda: store.refused > 1)
        store.away.clear()

        job = await asyncio.wait_for(submitting, 5)

        assert State.SCHEDULED is (await app.get(job.job_id)).state


async def test_a_worker_waits_for_a_store_that_is_away_when_it_starts(
    app: Holdfast, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task("work")
    async def work() -> None: ...

    store.away.add("claim")
    async with working(app):
        job = await app.submit("work")
        await until(lambda: store.refused > 2)
        store.away.clear()

        assert State.COMPLETED is await ended(app, job.job_id)


async def test_a_claim_whose_answer_was_lost_is_found_by_the_reaper() -> None:
    clock = ManualClock()
    store = FaultyStore(MemoryStore(clock))
    app = Holdfast(store=store, clock=clock)  # type: ignore[arg-type]  # it passes every verb on

    @app.task("work", lease=5)
    async def work() -> None: ...

    async with working(app):
        store.forgetful.add("claim")
        job = await app.submit("work")
        await until(lambda: not store.forgetful)
        assert State.RUNNING is (await app.get(job.job_id)).state

        clock.advance(timedelta(seconds=7))

        async with asyncio.timeout(10):
            while (await app.get(job.job_id)).state is not State.COMPLETED:
                clock.advance(0.5)
                await asyncio.sleep(0.05)  # so that the worker sees each step of the clock
        assert 2 == (await app.get(job.job_id)).attempt


async def test_one_answer_that_cannot_be_written_does_not_hold_up_the_others(
    app: Holdfast,
) -> None:
    def broken(attempt: int, first: timedelta, most: timedelta) -> timedelta:
        raise ZeroDivisionError

    @app.task("broken", backoff=broken, max_attempts=2)
    async def fails() -> None:
        raise ValueError("no")

    @app.task("work")
    async def work() -> None: ...

    async with app:
        jobs = [await app.submit("work") for _ in range(3)]
        bad = await app.submit("broken")
        jobs += [await app.submit("work") for _ in range(3)]
        worker = Worker(app, slots=10)
        task = asyncio.create_task(worker.run())
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id, timeout=5)
        assert (await app.get(bad.job_id)).state is not State.RUNNING
        worker.halt()
        await task


@pytest.mark.req("S-9")
async def test_a_worker_full_of_unwritten_answers_goes_on_once_they_are_written(
    app: Holdfast, store: FaultyStore
) -> None:
    @app.task("work")
    async def work() -> None: ...

    async with working(app, slots=1, maintenance=False) as worker:
        job = await app.submit("work")
        assert State.COMPLETED is await ended(app, job.job_id)
        store.away.add("swap")
        for _ in range(2):
            await app.submit("work")
        # What waits to be written is told to nobody.
        await until(lambda: worker._settler.unwritten == 2)
        await asyncio.sleep(0)
        job = await app.submit("work")
        store.away.clear()

        assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.req("M-6")
async def test_a_submission_is_answered_within_its_timeout_though_the_store_is_silent() -> None:
    class Silent(MemoryStore):
        async def add(
            self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
        ) -> list[Added]:
            await forever()

    limits = Limits(submission_timeout=timedelta(milliseconds=100))
    async with Holdfast(store=Silent(), limits=limits) as app:
        app.task("work")(_nothing)
        loop = asyncio.get_running_loop()
        began = loop.time()
        first, second = await asyncio.gather(
            app.submit("work"), _later(app), return_exceptions=True
        )

        assert isinstance(first, StoreUnavailableError)
        assert isinstance(second, StoreUnavailableError)
        assert loop.time() - began < 1


@pytest.mark.req("M-6")
async def test_patience_counts_from_the_submission_and_not_from_the_first_refusal() -> None:
    class Slow(MemoryStore):
        async def add(
            self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
        ) -> list[Added]:
            await asyncio.sleep(0.4)  # a store that refuses late
            raise StoreUnavailableError("away")

    limits = Limits(submission_timeout=timedelta(milliseconds=500))
    async with Holdfast(store=Slow(), limits=limits) as app:
        app.task("work")(_nothing)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(StoreUnavailableError):
            await app.submit("work")

        assert loop.time() - began < 0.8


async def _later(app: Holdfast) -> object:
    """Submit while another submission is on its way."""
    await asyncio.sleep(0.01)  # until the other one is on its way
    return await app.submit("work")


async def _nothing() -> None: ...


async def test_a_service_that_may_not_do_its_work_says_so_once_and_tries_ever_later() -> None:
    clock, ear = ManualClock(), Ear()
    trouble = ServiceErrors("pruner", Randomness(), ear, Outage(clock, ear))
    denied = StoreError("permission denied for table tie")

    waits = [trouble.failed(denied) for _ in range(12)]
    trouble.over()
    again = trouble.failed(denied)

    assert 5 < sum(waits[-3:]) / 3 < 15
    assert again < 1
    assert [("maintenance.failed", {"service": "pruner", "error": str(denied)})] * 2 == ear.told


async def test_a_service_is_back_soon_after_an_outage_of_which_it_tells_as_others_do() -> None:
    clock, ear = ManualClock(), Ear()
    outage = Outage(clock, ear)
    trouble = ServiceErrors("pruner", Randomness(), ear, outage)

    waits = [trouble.failed(StoreUnavailableError("away")) for _ in range(12)]
    outage.failed(StoreUnavailableError("away"))

    assert max(waits) < 0.5
    assert [("store.unavailable", {"error": "away"})] == ear.told


async def test_errors_of_the_store_that_parts_of_a_worker_meet_are_told_as_one() -> None:
    app, outage = Holdfast("memory://"), Outage(ManualClock(), Silent())

    async def fail(*errors: Exception) -> None:
        async with opened(app, asyncio.Event(), outage):
            raise ExceptionGroup("", [ExceptionGroup("", errors)])

    with pytest.raises(StoreError, match="first"):
        await fail(StoreError("first"), StoreError("second"))
    with pytest.raises(ExceptionGroup):
        await fail(StoreError("first"), ValueError("of a programmer"))
