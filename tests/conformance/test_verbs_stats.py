"""``stats`` and ``queues``: counters that are right after every path."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import Event, FailureCategory, State
from holdfast.model.measures import Reading, bucket_of, minute_of
from holdfast.model.policy import Retention
from holdfast.store import Change, Measure, QueueInfo, Search
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import LEASE, MANY, TICK

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


async def assert_tallies_are_exact(hand: Hand) -> None:
    """The counters and the queues equal a count of all jobs."""
    jobs = (await hand.store.find(Search(limit=MANY))).jobs
    counted = Counter((job.queue, job.type, job.priority, job.state) for job in jobs)
    tallies = (await hand.store.stats(SECOND)).tallies
    assert dict(counted) == {(t.queue, t.type, t.priority, t.state): t.count for t in tallies}
    by_queue = Counter((job.queue, job.state) for job in jobs)
    reported = {
        (info.name, state): n
        for info in await hand.store.queues()
        for state, n in info.counts.items()
    }
    assert dict(by_queue) == reported


async def _measured(hand: Hand, measure: Measure, window: timedelta = MINUTE) -> int:
    readings = (await hand.store.stats(window)).readings
    return sum(reading.count for reading in readings if reading.measure is measure)


@pytest.mark.req("A-8")
async def test_tallies_are_exact_after_every_path(hand: Hand) -> None:
    parent = await hand.run("parent")
    await hand.add("waiting", after=[parent], queue="q")
    await hand.add("held", hold=True, priority=0)
    await hand.add("delayed", delay=5, priority=4)
    await hand.complete(await hand.run("done"))
    await hand.fail(await hand.run("retrying", queue="q"))
    await hand.give_back(await hand.run("back"))
    lapsed = await hand.run("lapsed")
    late = await hand.lapse(lapsed)
    await assert_tallies_are_exact(hand)

    failed = await hand.fail(await hand.run("failed"), FailureCategory.PERMANENT)
    await hand.reopen(failed, priority=0)
    hand.clock.advance(5)
    await hand.store.promote(MANY)
    await hand.complete(parent)
    await hand.settle_dependents()
    await hand.cancel(await hand.get(late))
    await assert_tallies_are_exact(hand)

    await hand.drain("default", "q")
    hand.clock.advance(10**8)
    await assert_tallies_are_exact(hand)
    await hand.store.prune(Retention(), MANY)
    await assert_tallies_are_exact(hand)


async def test_measures_are_returned_minute_by_minute(hand: Hand) -> None:
    await hand.complete(await hand.run("first"))
    hand.clock.advance(MINUTE)
    await hand.add("second", queue="q")
    await hand.complete(await hand.run("third"))
    now = minute_of(hand.clock.now())

    found = await hand.store.stats(2 * MINUTE, by_minute=True)
    newest = await hand.store.stats(timedelta(0), by_minute=True)

    submitted = [
        (reading.minute, reading.queue, reading.count)
        for reading in found.readings
        if reading.measure is Measure.SUBMITTED
    ]
    assert [(now - 1, "default", 1), (now, "default", 1), (now, "q", 1)] == submitted
    assert {now} == {reading.minute for reading in newest.readings}
    assert [r.minute for r in found.readings] == sorted(r.minute for r in found.readings)
    summed = (await hand.store.stats(2 * MINUTE)).readings
    assert {0} == {reading.minute for reading in summed}
    assert Counter(_place(r) for r in summed for _ in range(r.count)) == Counter(
        _place(r) for r in found.readings for _ in range(r.count)
    )


@pytest.mark.parametrize("namespace", [None, "", "acme"])
async def test_window_of_measures_may_end_before_now(hand: Hand, namespace: str | None) -> None:
    queue = "acme/q" if namespace else "q"
    first = minute_of(hand.clock.now())
    for name in ("a", "b", "c", "d"):
        await hand.add(name, queue=queue)
        hand.clock.advance(MINUTE)

    async def minutes(begin: int, end: int) -> list[int]:
        window = (begin * MINUTE, end * MINUTE)
        found = (await hand.store.stats(window, namespace, by_minute=True)).readings
        summed = (await hand.store.stats(window, namespace)).readings
        assert len(found) == sum(reading.count for reading in summed)
        return [r.minute - first for r in found if r.measure is Measure.SUBMITTED]

    assert [0, 1, 2, 3] == await minutes(4, 0)
    assert [1, 2] == await minutes(3, 2)
    assert [0] == await minutes(60, 4)
    assert [] == await minutes(2, 3)
    assert [] == await minutes(60, 10)


def _place(reading: Reading) -> tuple[str, str, Measure, int]:
    return reading.queue, reading.type, reading.measure, reading.bucket


@pytest.mark.req("A-8")
async def test_refused_writes_count_nothing(hand: Hand) -> None:
    running = await hand.run("a", idempotency_key="k")
    await hand.give_back(running)
    readings = (await hand.store.stats(MINUTE)).readings

    await hand.try_add(running)
    await hand.try_add(hand.job("twin", type="a", payload=[2], idempotency_key="k"))
    await hand.try_swap(running, DECISIONS["complete"](running, hand.now))

    await assert_tallies_are_exact(hand)
    assert readings == (await hand.store.stats(MINUTE)).readings


@pytest.mark.req("A-8")
async def test_every_move_is_measured_once(hand: Hand) -> None:
    await hand.complete(await hand.run("done"))
    await hand.fail(await hand.run("failed"), FailureCategory.PERMANENT)
    await hand.fail(await hand.run("dead", max_attempts=1))
    await hand.cancel(await hand.add("cancelled"))
    await hand.fail(await hand.run("retrying"))
    await hand.lapse(await hand.run("lapsed"))

    measured = {measure: await _measured(hand, measure) for measure in Measure}

    assert {
        Measure.SUBMITTED: 6,
        Measure.COMPLETED: 1,
        Measure.FAILED: 1,
        Measure.DEAD_LETTER: 1,
        Measure.CANCELLED: 1,
        Measure.RETRIED: 2,
        Measure.WAIT: 5,
        Measure.RUN: 5,
    } == measured


@pytest.mark.req("A-8")
async def test_waiting_and_running_times_fall_into_their_buckets(hand: Hand) -> None:
    job = await hand.add("a", queue="q", priority=1)
    hand.clock.advance(3)
    running = await hand.take(job)
    hand.clock.advance(0.25)
    await hand.complete(running)

    readings = (await hand.store.stats(MINUTE)).readings

    timed = [r for r in readings if r.measure in (Measure.WAIT, Measure.RUN)]
    assert [
        ("q", "a", 1, Measure.RUN, bucket_of(0.25), 1, 0.25),
        ("q", "a", 1, Measure.WAIT, bucket_of(3), 1, 3.0),
    ] == [(r.queue, r.type, r.priority, r.measure, r.bucket, r.count, r.top) for r in timed]


@pytest.mark.req("A-8")
async def test_waiting_counts_from_when_the_job_became_ready(hand: Hand) -> None:
    job = await hand.add("a", delay=100)
    hand.clock.advance(100)
    await hand.store.promote(MANY)
    hand.clock.advance(2)
    await hand.take(job)

    readings = (await hand.store.stats(MINUTE)).readings

    assert [2.0] == [r.top for r in readings if r.measure is Measure.WAIT]


@pytest.mark.req("A-8")
async def test_buckets_of_several_minutes_are_summed_with_their_largest_value(hand: Hand) -> None:
    for _ in range(3):
        running = await hand.take(await hand.add(f"n{hand.now:%M}", type="a"))
        hand.clock.advance(1)
        await hand.complete(running)
        hand.clock.advance(MINUTE)

    readings = (await hand.store.stats(timedelta(hours=1))).readings

    (run,) = [r for r in readings if r.measure is Measure.RUN]
    assert (3, 1.0) == (run.count, run.top)


@pytest.mark.req("A-8")
@pytest.mark.parametrize("pause", [0, 60], ids=["in one minute", "over two"])
async def test_bucket_remembers_its_largest_value_whatever_comes_later(
    hand: Hand, pause: int
) -> None:
    assert bucket_of(1.06) == bucket_of(1.1)
    for seconds in (1.06, 1.1, 1.07):
        running = await hand.run(f"n{seconds}", type="a")
        hand.clock.advance(seconds)
        await hand.complete(running)
        hand.clock.advance(pause)

    readings = (await hand.store.stats(timedelta(hours=1))).readings

    assert [(3, 1.1)] == [(r.count, r.top) for r in readings if r.measure is Measure.RUN]


@pytest.mark.req("A-8")
async def test_window_takes_in_every_minute_it_overlaps(hand: Hand) -> None:
    hand.clock.set(hand.now.replace(second=59))
    await hand.add("a")
    hand.clock.advance(SECOND)

    assert 0 == await _measured(hand, Measure.SUBMITTED, timedelta(0))
    assert 1 == await _measured(hand, Measure.SUBMITTED, TICK)
    hand.clock.advance(MINUTE - TICK)
    assert 1 == await _measured(hand, Measure.SUBMITTED, MINUTE)
    hand.clock.advance(TICK)
    assert 0 == await _measured(hand, Measure.SUBMITTED, MINUTE)


@pytest.mark.req("A-8")
async def test_measures_outlive_their_jobs_but_not_a_week(hand: Hand) -> None:
    job = await hand.cancel(await hand.add("a"))
    await hand.store.delete([job.id])
    week = timedelta(days=7)
    assert 1 == await _measured(hand, Measure.SUBMITTED, week)

    hand.clock.advance(week)
    await hand.store.prune(Retention(), MANY)
    assert 1 == await _measured(hand, Measure.SUBMITTED, 2 * week)
    hand.clock.advance(MINUTE)
    await hand.store.prune(Retention(), MANY)

    assert 0 == await _measured(hand, Measure.SUBMITTED, 2 * week)


@pytest.mark.req("A-8")
async def test_reopened_job_moves_from_one_priority_to_the_other(hand: Hand) -> None:
    failed = await hand.fail(await hand.run("a"), FailureCategory.PERMANENT)

    await hand.reopen(failed, priority=0)

    tallies = (await hand.store.stats(SECOND)).tallies
    assert [(0, State.SCHEDULED, 1)] == [(t.priority, t.state, t.count) for t in tallies]


async def test_queues_with_settings_or_jobs_are_listed_by_name(hand: Hand) -> None:
    await hand.run("a", queue="b")
    await hand.add("c", queue="b")
    await hand.store.configure("c", {"paused": True})
    await hand.store.configure("a", {"ageing": MINUTE})

    assert [
        QueueInfo(name="a", ageing=MINUTE),
        QueueInfo(name="b", counts={State.RUNNING: 1, State.SCHEDULED: 1}, ready_since=hand.now),
        QueueInfo(name="c", paused=True),
    ] == await hand.store.queues()


async def test_queues_report_since_when_their_oldest_ready_job_is_ready(hand: Hand) -> None:
    async def since(queue: str = "q") -> float | None:
        (info,) = [one for one in await hand.store.queues() if one.name == queue]
        return info.ready_since and (info.ready_since - start).total_seconds()

    start = hand.now
    await hand.add("late", queue="q", delay=3)
    hand.clock.advance(1)
    low = await hand.add("low", queue="q", priority=4)
    hand.clock.advance(1)
    urgent = await hand.add("urgent", queue="q", priority=0)
    await hand.add("alone", queue="other")

    assert (1, 2) == (await since(), await since("other"))
    await hand.store.configure("q", {"paused": True})
    assert 1 == await since()
    await hand.store.configure("q", {"paused": False})
    await hand.cancel(low)
    assert 2 == await since()
    hand.clock.advance(2)
    await hand.store.promote(MANY)
    assert 2 == await since()
    await hand.cancel(urgent)
    assert 4 == await since()
    await hand.drain("q")
    assert await since() is None


async def test_aged_and_reprioritised_jobs_count_from_when_they_became_ready(hand: Hand) -> None:
    start = hand.now
    await hand.store.configure("q", {"ageing": SECOND})
    old = await hand.add("old", queue="q", priority=4)
    hand.clock.advance(2)
    await hand.store.promote(MANY)
    new = await hand.add("new", queue="q", priority=2)
    await hand.store.amend([Change(new, replace(new, priority=0, revision=new.revision + 1))])

    assert start == (await hand.store.queues())[0].ready_since
    await hand.cancel(await hand.get(old))
    assert start + 2 * SECOND == (await hand.store.queues())[0].ready_since


async def test_settings_are_changed_one_by_one(hand: Hand) -> None:
    await hand.store.configure("q", {"paused": True, "ageing": MINUTE})

    await hand.store.configure("q", {"paused": False})
    assert [QueueInfo(name="q", ageing=MINUTE)] == await hand.store.queues()
    await hand.store.configure("q", {"ageing": None})
    assert [QueueInfo(name="q")] == await hand.store.queues()


@pytest.mark.req("A-8", "S-6")
async def test_lapse_is_measured_as_a_retry_and_a_run(hand: Hand) -> None:
    running = await hand.run("a")
    hand.clock.advance(LEASE)

    await hand.lapse(running)

    assert 1 == await _measured(hand, Measure.RETRIED)
    readings = (await hand.store.stats(MINUTE)).readings
    assert [30.0] == [r.top for r in readings if r.measure is Measure.RUN]
    (history,) = await hand.store.history([running.id])
    assert Event.LAPSE is history[-1].event


@pytest.mark.req("A-8")
async def test_counters_and_queues_of_a_namespace_are_its_own(hand: Hand) -> None:
    for queue in ("acme/q", "acme/r", "acme.b/q", "acm/q", "q"):
        await hand.complete(await hand.run(queue.replace("/", "-"), queue=queue))
    await hand.store.configure("acme/paused", {"paused": True})
    await hand.store.configure("other/paused", {"paused": True})

    async def seen(namespace: str | None) -> tuple[set[str], set[str], list[str]]:
        stats = await hand.store.stats(MINUTE, namespace)
        minutes = await hand.store.stats(MINUTE, namespace, by_minute=True)
        queues = await hand.store.queues(namespace)
        assert [_place(r) for r in stats.readings] == [_place(r) for r in minutes.readings]
        return (
            {tally.queue for tally in stats.tallies},
            {reading.queue for reading in stats.readings},
            [queue.name for queue in queues],
        )

    own = {"acme/q", "acme/r"}
    assert (own, own, ["acme/paused", "acme/q", "acme/r"]) == await seen("acme")
    assert ({"q"}, {"q"}, ["q"]) == await seen("")
    assert (set(), set(), []) == await seen("nobody")
    everything = await seen(None)
    assert 5 == len(everything[0]) == len(everything[1])
    assert 7 == len(everything[2])
