"""What the doctor finds, on every store, and what it advises."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast import Holdfast
from holdfast.encryption import KeyRing, encrypted
from holdfast.maintenance.clock import ClockService, StoreClock
from holdfast.model import lifecycle
from holdfast.model.job import State
from holdfast.model.workers import LEADERSHIP, WorkerInfo
from holdfast.operations.doctor import examine
from holdfast.operations.workers import TERM, announce
from holdfast.runtime.clock import ManualClock
from holdfast.store import Finding, JobExport, Level, MemoryStore
from tests.conformance.conftest import clock, hand, place, store
from tests.conformance.hand import failure, make
from tests.worker.rig import EventLog

if TYPE_CHECKING:
    from holdfast.model.job import Job
    from holdfast.store import Store
    from tests.conformance.hand import Hand

__all__ = ["clock", "hand", "place", "store"]


async def found(store: Store, name: str) -> Finding:
    """The worst finding of a name."""
    order = [Level.ERROR, Level.WARN, Level.OK]
    named = [each for each in await examine(store) if each.name == name]
    assert named, name
    return min(named, key=lambda each: order.index(each.level))


async def test_healthy_store_has_only_findings_of_the_store_itself(hand: Hand) -> None:
    await hand.store.lock(LEADERSHIP, "w1", TERM)
    await announce(hand.store, worker(hand, types=("a",)))
    await hand.add("a", type="a")

    findings = [f for f in await examine(hand.store) if f.level is not Level.OK]

    assert {"durability", "aof", "wake", "clock", "memory"}.issuperset(f.name for f in findings)


@pytest.mark.req("S-6")
async def test_ready_job_whose_workers_are_drained_is_a_warning(hand: Hand) -> None:
    await announce(hand.store, worker(hand, types=("a",), draining=True))
    await hand.add("a", type="a")

    finding = await found(hand.store, "workers")

    assert Level.WARN is finding.level
    assert "1 ready job(s) of type 'a' in queue 'default', and every worker" in finding.text
    await announce(hand.store, worker(hand, id="w2", types=("default:*",)))
    assert Level.OK is (await found(hand.store, "workers")).level


async def test_job_of_a_dead_worker_that_was_not_reclaimed_is_an_error(hand: Hand) -> None:
    job = await hand.run("a")
    hand.clock.advance(60)
    assert Level.OK is (await found(hand.store, "leases")).level

    hand.clock.advance(60)

    finding = await found(hand.store, "leases")
    assert Level.ERROR is finding.level
    assert job.id in finding.text
    assert "Start a worker" in finding.advice


async def test_job_past_its_lifetime_is_an_error(hand: Hand) -> None:
    await hand.add("a", lifetime=10)
    hand.clock.advance(100)

    assert Level.ERROR is (await found(hand.store, "lifetimes")).level


@pytest.mark.req("S-14")
async def test_ready_job_without_a_worker_is_a_warning(hand: Hand) -> None:
    await announce(hand.store, worker(hand, queues=("other",), types=("a",)))
    await hand.add("a", type="a", queue="main")

    finding = await found(hand.store, "workers")

    assert Level.WARN is finding.level
    assert "1 ready job of type 'a' in queue 'main'" in finding.text
    await announce(hand.store, worker(hand, id="w2", queues=("main",), types=("a",)))
    assert Level.OK is (await found(hand.store, "workers")).level


async def test_paused_queue_with_ready_jobs_is_a_warning(hand: Hand) -> None:
    await hand.add("a", queue="main")
    await hand.store.configure("main", {"paused": True})

    finding = await found(hand.store, "queue")

    assert (Level.WARN, "`holdfast queues resume main`") == (finding.level, finding.advice)


async def test_late_retry_is_an_error(hand: Hand) -> None:
    await hand.add("a", delay=10)
    hand.clock.advance(20)
    assert Level.OK is (await found(hand.store, "due")).level

    hand.clock.advance(100)

    assert "110 s past" in (await found(hand.store, "due")).text


@pytest.mark.req("M-9")
async def test_job_that_waits_for_a_missing_job_is_an_error(hand: Hand) -> None:
    parent = make("parent", now=hand.now)
    child = make("child", now=hand.now, after=[parent])
    await hand.store.adopt([JobExport(replace(child, trail=()), child.trail)])

    finding = await found(hand.store, "dependencies")

    assert Level.ERROR is finding.level
    assert child.id in finding.text


async def test_missing_maintenance_matters_while_jobs_live(hand: Hand) -> None:
    assert Level.OK is (await found(hand.store, "maintenance")).level
    await hand.add("a", delay=10)

    assert Level.WARN is (await found(hand.store, "maintenance")).level


async def test_dead_letters_are_counted(hand: Hand) -> None:
    job = await hand.run("a", max_attempts=1)
    dead = await hand.swap(job, _exhausted(hand, job))
    assert State.DEAD_LETTER is dead.state

    assert "1 job used up its attempts: a" in (await found(hand.store, "dead letters")).text


async def test_jobs_that_should_have_been_pruned_are_counted() -> None:
    clock = ManualClock()
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    async with app:
        job = await app.submit("t")
        await app.cancel(job.job_id)
        clock.advance(7 * 86_400)
        assert Level.OK is (await found(app.store, "retention")).level
        clock.advance(2 * 86_400)

        assert Level.WARN is (await found(app.store, "retention")).level


async def test_leaked_threads_are_reported(hand: Hand) -> None:
    await announce(hand.store, worker(hand, leaked_threads=3))

    assert "w1 has 3 threads" in (await found(hand.store, "threads")).text


async def test_jobs_encrypted_with_an_unknown_key_are_an_error() -> None:
    inner = MemoryStore()
    ring = KeyRing.parse(KeyRing.generate("2026-01"))
    async with Holdfast(store=inner, keys=ring) as app:
        await app.submit("t", {"n": 1})

    assert "'2026-01'" in (await found(inner, "keys")).text
    assert [] == [
        f for f in await examine(encrypted(inner, ring), key_ids=ring.ids) if f.name == "keys"
    ]


def worker(hand: Hand, **fields: object) -> WorkerInfo:
    base = WorkerInfo(
        id="w1",
        host="h",
        pid=1,
        queues=("default",),
        types=(),
        slots=1,
        running=0,
        started_at=hand.now,
    )
    return replace(base, **fields)


def _exhausted(hand: Hand, job: Job) -> Job:
    return lifecycle.after_failure(job, failure(), now=hand.now, jitter=0.0)


async def test_clock_that_is_behind_the_newest_change_is_a_warning(hand: Hand) -> None:
    await hand.add("a")
    hand.clock.advance(-timedelta(hours=3))

    texts = [each.text for each in await examine(hand.store) if each.name == "clock"]

    assert "10800 s in the future" in texts[-1]


async def test_change_of_the_clock_is_reported_for_a_day(hand: Hand) -> None:
    watch = StoreClock(hand.store, hand.clock)
    log = EventLog()
    service = ClockService(hand.store, hand.clock, watch, log)
    await service.once()
    hand.clock.shift(timedelta(hours=3))

    for _ in range(3):
        await service.once()
        hand.clock.advance(20)

    assert [{"seconds": 10800.0}] == log.all("store.clock_set")
    texts = [each.text for each in await examine(hand.store) if each.name == "clock"]
    assert "The store's clock was set forward by 10800 s, noticed 60 s ago." == texts[-1]
    hand.clock.advance(timedelta(days=1))
    texts = [each.text for each in await examine(hand.store) if each.name == "clock"]
    assert not any("set forward" in text for text in texts)
