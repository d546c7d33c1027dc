"""``limit``: how many may run at once, where, and what is used of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import Priority, State
from holdfast.store import LimitRule, LimitState
from tests.conformance.hand import MANY

if TYPE_CHECKING:
    from tests.conformance.hand import Hand

SECOND = timedelta(seconds=1)
ONE = LimitRule(concurrency=1)


async def _types(hand: Hand, limit: int = MANY, **want: object) -> list[str]:
    return [job.type for job in await hand.claim(limit, **want)]


async def test_queue_runs_no_more_at_once_than_its_limit(hand: Hand) -> None:
    await hand.store.limit("queue:default", LimitRule(concurrency=2))
    await hand.add_all(*(hand.job(f"n{n}") for n in range(4)))

    assert ["n0", "n1"] == await _types(hand)
    assert [] == await _types(hand)


@pytest.mark.parametrize("how", ["complete", "fail", "give_back", "lapse", "expire"])
async def test_job_that_stops_running_makes_room(hand: Hand, how: str) -> None:
    await hand.store.limit("queue:default", ONE)
    await hand.add_all(hand.job("a"), hand.job("b"))
    (running,) = await hand.claim()

    await getattr(hand, how)(running)

    assert ["b"] == await _types(hand)


async def test_job_without_room_under_a_limit_keeps_its_place(hand: Hand) -> None:
    await hand.store.limit("task:narrow", ONE)
    running = await hand.run("running", type="narrow")
    await hand.add("first", type="narrow")
    await hand.add("wide")
    await hand.add("second", type="narrow")

    assert ["wide"] == await _types(hand)
    await hand.complete(running)
    assert [hand.job("first").id] == [job.id for job in await hand.claim()]


@pytest.mark.parametrize("level", [Priority.CRITICAL, Priority.NORMAL])
async def test_jobs_behind_thousands_that_may_not_start_are_claimed_at_once(
    hand: Hand, level: Priority
) -> None:
    await hand.store.limit("task:narrow", ONE)
    await hand.store.limit("key:keyed", ONE)
    narrow = await hand.run("narrow", type="narrow")
    keyed = await hand.run("keyed", type="keyed", limit_key="k")
    kinds = ({"type": "narrow"}, {"type": "keyed", "limit_key": "k"}, {"type": "unknown"})
    waiting = [
        hand.job(f"{n}", **kinds[n % 3], priority=level)  # type: ignore[arg-type]  # a row
        for n in range(3_000)
    ]
    await hand.add_all(*waiting)
    await hand.add_all(hand.job("other", priority=level), hand.job("last", priority=level))
    known = ("narrow", "keyed", "other", "last")

    assert ["other"] == await _types(hand, 1, types=known)
    assert ["last"] == await _types(hand, types=known)
    await hand.complete(keyed)
    await hand.complete(narrow)
    first = await hand.claim(MANY, types=known)
    assert [waiting[0].id, waiting[1].id] == [job.id for job in first]
    assert [waiting[2].id] == [job.id for job in await hand.claim(1, types=("unknown",))]
    assert [] == await _types(hand, types=known)


async def test_job_of_a_higher_priority_is_served_before_those_that_waited_for_a_limit(
    hand: Hand,
) -> None:
    await hand.store.limit("task:narrow", ONE)
    running = await hand.run("running", type="narrow")
    await hand.add_all(*(hand.job(f"n{n}", type="narrow") for n in range(3)))
    assert [] == await hand.claim(MANY)
    urgent = await hand.add("urgent", type="narrow", priority=Priority.HIGH)
    assert [] == await hand.claim(MANY)

    await hand.complete(running)

    assert [urgent.id] == [job.id for job in await hand.claim(MANY)]


async def test_limit_that_is_removed_holds_no_job_back(hand: Hand) -> None:
    await hand.store.limit("key:a", ONE)
    labels = [hand.job(f"{n}", type="a", limit_key="k") for n in range(3)]
    await hand.add_all(*labels)
    assert [labels[0].id] == [job.id for job in await hand.claim(MANY)]

    await hand.store.limit("key:a", None)

    assert [each.id for each in labels[1:]] == [job.id for job in await hand.claim(MANY)]


async def test_cancelled_and_urgent_jobs_keep_the_order_of_those_that_wait_for_a_limit(
    hand: Hand,
) -> None:
    await hand.store.limit("task:a", ONE)
    running = await hand.run("running", type="a")
    first, second, third = [await hand.add(label, type="a") for label in ("1", "2", "3")]
    assert [] == await hand.claim(MANY)
    await hand.cancel(first)
    await hand.add("front", type="a", priority=Priority.CRITICAL)
    assert [] == await hand.claim(MANY)

    served = []
    for _ in range(3):
        await hand.complete(running)
        (running,) = await hand.claim(MANY)
        served.append(running.id)

    assert [hand.job("front").id, second.id, third.id] == served


async def test_task_limit_spans_queues(hand: Hand) -> None:
    await hand.store.limit("task:a", ONE)
    await hand.add("one", type="a", queue="x")
    await hand.add("two", type="a", queue="y")

    assert 1 == len(await hand.claim(MANY, queues=("x", "y")))


async def test_key_limit_holds_for_each_key_by_itself(hand: Hand) -> None:
    await hand.store.limit("key:a", ONE)
    for name, key in [("x1", "x"), ("x2", "x"), ("y1", "y"), ("free1", None), ("free2", None)]:
        await hand.add(name, type="a", limit_key=key)
    await hand.add("other", type="b", limit_key="x")

    taken = [job.payload for job in await hand.claim(MANY)]

    labels = ["x1", "y1", "free1", "free2", "other"]
    assert [f'{{"label":"{label}"}}'.encode() for label in labels] == taken


async def test_job_must_find_room_in_every_scope(hand: Hand) -> None:
    await hand.store.limit("queue:default", LimitRule(concurrency=3))
    await hand.store.limit("task:a", ONE)
    await hand.store.limit("key:b", ONE)
    for label, type_, key in [("1", "a", None), ("2", "a", None), ("3", "b", "k"), ("4", "b", "k")]:
        await hand.add(label, type=type_, limit_key=key)
    await hand.add("5", type="c")
    await hand.add("6", type="c")

    assert ["a", "b", "c"] == await _types(hand)


async def test_rate_of_one_key_leaves_the_others_free(hand: Hand) -> None:
    await hand.store.limit("key:a", LimitRule(rate=1, per=SECOND))
    for label, key in [("x1", "x"), ("x2", "x"), ("y1", "y")]:
        await hand.add(label, type="a", limit_key=key)

    assert 2 == len(await hand.claim(MANY))


async def test_job_refused_by_one_limit_counts_against_none(hand: Hand) -> None:
    await hand.store.limit("queue:default", LimitRule(rate=2, per=SECOND, burst=2))
    await hand.store.limit("task:a", ONE)
    for label in ("a1", "a2", "a3"):
        await hand.add(label, type="a")
    await hand.add("b")

    assert ["a", "b"] == await _types(hand)


async def test_priority_is_kept_under_a_limit(hand: Hand) -> None:
    await hand.store.limit("queue:default", ONE)
    await hand.add("low", priority=Priority.LOW)
    await hand.add("high", priority=Priority.HIGH)

    assert ["high"] == await _types(hand)


async def test_lifted_limit_no_longer_applies(hand: Hand) -> None:
    await hand.store.limit("queue:default", ONE)
    await hand.add_all(hand.job("a"), hand.job("b"))
    await hand.claim(MANY)

    await hand.store.limit("queue:default", None)

    assert ["b"] == await _types(hand)
    assert [] == await hand.store.limits()


async def test_changed_limit_holds_from_the_next_claim_on(hand: Hand) -> None:
    await hand.store.limit("queue:default", LimitRule(concurrency=5))
    await hand.add_all(*(hand.job(f"n{n}") for n in range(4)))
    await hand.claim(2)

    await hand.store.limit("queue:default", LimitRule(concurrency=3))

    assert ["n2"] == await _types(hand)


async def test_running_jobs_from_before_the_limit_count(hand: Hand) -> None:
    await hand.run("a")
    await hand.add("b")

    await hand.store.limit("queue:default", ONE)

    assert [] == await _types(hand)


async def test_limits_report_their_use(hand: Hand) -> None:
    rate = LimitRule(rate=5, per=10 * SECOND, burst=2)
    await hand.store.limit("task:b", ONE)
    await hand.store.limit("key:a", rate)
    await hand.run("one", type="a", limit_key="y")
    await hand.run("more", type="a", limit_key="y")
    done = await hand.run("two", type="a", limit_key="x")
    await hand.run("three", type="b")
    await hand.complete(done)

    next_start = hand.now + 2 * SECOND
    assert [
        LimitState(scope="key:a", rule=rate),
        LimitState(scope="key:a:x", rule=rate, started=1),
        LimitState(scope="key:a:y", rule=rate, running=2, started=2, until=next_start),
        LimitState(scope="task:b", rule=ONE, running=1),
    ] == await hand.store.limits()
    hand.clock.set(next_start)
    assert ["key:a", "key:a:y", "task:b"] == [state.scope for state in await hand.store.limits()]


async def test_unlimited_claims_pass_over_full_ones_in_one_call(hand: Hand) -> None:
    await hand.store.limit("task:a", ONE)
    await hand.add_all(*(hand.job(f"a{n}", type="a") for n in range(30)))
    await hand.add("b")

    taken = await hand.claim(2)

    assert ["a", "b"] == [job.type for job in taken]
    assert {State.RUNNING} == {job.state for job in taken}


async def test_limit_applies_among_many_others(hand: Hand) -> None:
    for n in range(60):
        await hand.store.limit(f"queue:other{n}", LimitRule(concurrency=1))
    await hand.store.limit("task:a", LimitRule(concurrency=1))
    await hand.store.limit("key:b", LimitRule(concurrency=1))
    await hand.add_all(*(hand.job(f"a{n}", type="a") for n in range(3)))
    await hand.add_all(*(hand.job(f"b{n}", type="b", limit_key=f"k{n % 2}") for n in range(4)))

    assert 3 == len(await hand.claim(MANY))
    assert 0 == len(await hand.claim(MANY))
