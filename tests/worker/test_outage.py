"""Outages of the store: workers wait, keep their results, and continue."""

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
from holdfast.observe.observer import LONG_OUTAGE
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
from tests.worker.rig import EventLog, ended, until, until_running, working


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
async def test_a_result_is_kept_during_an_outage_and_written_after_it(
    app: Holdfast, store: FaultyStore
) -> None:
    go, ran, events = asyncio.Event(), Counter[str](), EventLog()

    @app.task("work")
    async def work() -> str:
        await go.wait()
        ran["work"] += 1
        return "kept"

    async with working(app, observer=events):
        job = await app.submit("work")
        await until_running(app, job.job_id)
        store.away.add("*")
        go.set()
        await until(lambda: store.refused > 3)
        store.away.clear()
        status = await app.wait(job.job_id, timeout=10)

    assert (State.COMPLETED, "kept", 1) == (status.state, status.output, status.attempt)
    assert 1 == ran["work"]
    assert events.all("store.unavailable")


@pytest.mark.req("S-9", "S-12")
async def test_an_outcome_whose_reply_was_lost_is_not_written_twice(
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
async def test_workers_and_maintenance_recover_by_themselves(
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
async def test_the_end_of_an_outage_is_reported_once(
    app: Holdfast, store: FaultyStore, maintenance: bool
) -> None:
    app.task("work")(_nothing)
    events = EventLog()

    async with working(app, observer=events, maintenance=maintenance):
        await ended(app, (await app.submit("work")).job_id)
        for outage in (1, 2):
            before = len(events.all("store.unavailable"))
            store.away.add("*")
            await events.wait_for("store.unavailable", before + 1)
            refused = store.refused
            await until(lambda refused=refused: store.refused > refused + 1)
            await asyncio.sleep(0.01)  # a shorter outage rounds to nothing
            store.away.clear()
            await events.wait_for("store.available", outage)
        await ended(app, (await app.submit("work")).job_id)

    assert 2 == len(events.all("store.available"))
    assert all(entry["away"] > 0 for entry in events.all("store.available"))  # type: ignore[operator]


async def test_the_end_of_a_wait_does_not_end_an_outage(app: Holdfast, store: FaultyStore) -> None:
    app.task("work")(_nothing)
    events = EventLog()

    async with working(app, observer=events):
        await events.wait_for("maintenance.leading")
        store.away.add("*")  # while the worker waits for work
        await until(lambda: store.refused > 5)  # and every call that was sent before has returned
        before = events.all("store.available")
        await store.inner.add([make("a", now=store.now())])
        refused = store.refused
        await until(lambda: store.refused > refused + 5)
        assert before == events.all("store.available")

        store.away.clear()
        await events.wait_for("store.available")


async def test_maintenance_alone_reports_the_end_of_an_outage(
    app: Holdfast, store: FaultyStore
) -> None:
    events = EventLog()

    async with app:
        maintenance = asyncio.create_task(
            Maintenance(app, "w", ("default",), events, make_worker=delivery_worker).run()
        )
        await events.wait_for("maintenance.leading")
        store.away.add("*")
        await events.wait_for("store.unavailable")
        store.away.clear()
        await events.wait_for("store.available")
        maintenance.cancel()
        await asyncio.wait([maintenance])

    assert 1 == len(events.all("store.available"))


def test_an_outage_is_reported_for_every_new_reason() -> None:
    clock, events = ManualClock(), EventLog()
    outage = Outage(clock, events)

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
    ] == events.entries


@pytest.mark.req("S-9")
async def test_producers_wait_for_the_store(app: Holdfast, store: FaultyStore) -> None:
    async with app:
        store.away.add("add")
        submitting = asyncio.create_task(app.submit("work"))
        await until(lambda: store.refused > 1)
        store.away.clear()

        job = await asyncio.wait_for(submitting, 5)

        assert State.SCHEDULED is (await app.get(job.job_id)).state


async def test_a_worker_waits_for_a_store_that_is_unavailable_at_its_start(
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


async def test_a_claim_whose_reply_was_lost_is_found_by_the_reaper() -> None:
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


async def test_one_outcome_that_cannot_be_written_does_not_delay_the_others(
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
async def test_a_worker_full_of_unwritten_outcomes_continues_once_they_are_written(
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
async def test_a_submission_ends_within_its_timeout_when_the_store_is_silent() -> None:
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
async def test_the_timeout_counts_from_the_submission_not_from_the_first_refusal() -> None:
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
    """Submit while another submission waits."""
    await asyncio.sleep(0.01)  # the other submission goes first
    return await app.submit("work")


async def _nothing() -> None: ...


async def test_a_service_error_is_reported_once_and_retried_ever_later() -> None:
    clock, events = ManualClock(), EventLog()
    errors = ServiceErrors("pruner", MemoryStore(), Randomness(), events, Outage(clock, events))
    denied = StoreError("permission denied for table tie")

    waits = [await errors.failed(denied) for _ in range(12)]
    await errors.over()
    again = await errors.failed(denied)

    assert 5 < sum(waits[-3:]) / 3 < 15
    assert again < 1
    assert [
        ("maintenance.failed", {"service": "pruner", "error": f"StoreError: {denied}"})
    ] * 2 == [each for each in events.entries if each[0] == "maintenance.failed"]


async def test_a_service_retries_soon_after_an_outage() -> None:
    clock, events = ManualClock(), EventLog()
    outage = Outage(clock, events)
    errors = ServiceErrors("pruner", MemoryStore(), Randomness(), events, outage)

    waits = [await errors.failed(StoreUnavailableError("away")) for _ in range(12)]
    outage.failed(StoreUnavailableError("away"))

    assert max(waits) < 0.5
    assert [("store.unavailable", {"error": "away"})] == events.entries


async def test_store_errors_of_several_parts_of_a_worker_are_raised_as_one() -> None:
    app, outage = Holdfast("memory://"), Outage(ManualClock(), Silent())

    async def fail(*errors: Exception) -> None:
        async with opened(app, asyncio.Event(), outage):
            raise ExceptionGroup("", [ExceptionGroup("", errors)])

    with pytest.raises(StoreError, match="first"):
        await fail(StoreError("first"), StoreError("second"))
    with pytest.raises(ExceptionGroup):
        await fail(StoreError("first"), ValueError("of a programmer"))


@pytest.mark.parametrize(("away", "wakes"), [(LONG_OUTAGE / 2, False), (LONG_OUTAGE, True)])
async def test_the_end_of_a_long_outage_wakes_what_waits_for_its_next_try(
    away: float, wakes: bool
) -> None:
    clock, woken = ManualClock(), asyncio.Event()
    outage = Outage(clock, Silent())
    outage.on_over = woken.set
    outage.failed(StoreUnavailableError("away"))
    pause = asyncio.create_task(outage.pause(60))
    await asyncio.sleep(0.01)  # until it waits
    clock.advance(away)
    outage.over()
    await asyncio.wait([pause], timeout=0.1)

    assert wakes == pause.done() == woken.is_set()
    pause.cancel()


def test_texts_that_differ_in_numbers_and_statements_are_one_reason() -> None:
    events = EventLog()
    outage = Outage(ManualClock(), events)
    for text in (
        'relation "job" does not exist at character 15',
        'relation "job" does not exist at character 245',
        'relation "job" does not exist\nLINE 1: SELECT 1 FROM job\n                ^',
        "permission denied",
    ):
        outage.failed(StoreUnavailableError(text))

    reported = [str(entry["error"]) for entry in events.all("store.unavailable")]
    assert ["relation", "permission"] == [text.split()[0] for text in reported]
