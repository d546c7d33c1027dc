"""``events`` and ``arrivals``: the event stream, and waking waiters for work."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import ValidationError
from holdfast.model.job import Event, Progress
from holdfast.model.policy import Retention
from holdfast.store import EventKind, LimitRule
from holdfast.store.contract import EVENTS_KEPT
from tests.conformance.hand import MANY
from tests.conformance.snapshot import NO_WAIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from holdfast.store import EventPage
    from tests.conformance.hand import Hand

PATIENCE = timedelta(seconds=10)
"""Longer than anything here takes; only a broken store waits it out."""
NOBODY_ELSE = 0.05


def _told(page: EventPage) -> list[tuple[str, Event | None]]:
    return [(e.type, e.transition.event if e.transition else None) for e in page.events]


@pytest.mark.req("S-15")
async def test_every_transition_is_an_event_in_the_order_it_was_written(hand: Hand) -> None:
    a = await hand.run("a")
    await hand.add("b", delay=5)
    await hand.note(a, progress=Progress(5, "", hand.now))
    await hand.complete(a)

    page = await hand.store.events(None, MANY, NO_WAIT)

    assert [
        ("a", Event.SUBMIT),
        ("a", Event.ENQUEUE),
        ("a", Event.CLAIM),
        ("b", Event.SUBMIT),
        ("b", Event.DELAY),
        ("a", None),
        ("a", Event.COMPLETE),
    ] == _told(page)
    assert not page.gap


@pytest.mark.req("S-15")
async def test_event_contains_the_transition_of_the_history(hand: Hand) -> None:
    running = await hand.run("a", queue="q")

    page = await hand.store.events(None, MANY, NO_WAIT)

    (history,) = await hand.store.history([running.id])
    assert history == [event.transition for event in page.events]
    assert {("q", running.id, EventKind.TRANSITION, hand.now)} == {
        (e.queue, e.job_id, e.kind, e.at) for e in page.events
    }


@pytest.mark.parametrize("at_once", [1, 3, 4])
async def test_events_resume_after_a_cursor_without_loss_or_repeat(
    hand: Hand, at_once: int
) -> None:
    await hand.add_all(*(hand.job(f"n{n}") for n in range(3)))
    whole = await hand.store.events(None, MANY, NO_WAIT)

    seen: list[str] = []
    cursor: str | None = None
    while (page := await hand.store.events(cursor, at_once, NO_WAIT)).events:
        seen += [event.cursor for event in page.events]
        assert page.events[-1].cursor == page.cursor
        cursor = page.cursor

    assert [event.cursor for event in whole.events] == seen
    assert cursor == page.cursor


async def test_limit_of_nothing_returns_the_newest_cursor(hand: Hand) -> None:
    await hand.add("a")

    start = await hand.store.events(None, 0, PATIENCE)
    await hand.add("b")

    assert () == start.events
    page = await hand.store.events(start.cursor, MANY, NO_WAIT)
    assert [("b", Event.SUBMIT), ("b", Event.ENQUEUE)] == _told(page)


async def test_cursor_of_an_empty_store_is_good_for_what_follows(hand: Hand) -> None:
    newest = await hand.store.events(None, 0, NO_WAIT)
    oldest = await hand.store.events(None, MANY, NO_WAIT)
    await hand.add("a")

    for cursor in (newest.cursor, oldest.cursor):
        page = await hand.store.events(cursor, MANY, NO_WAIT)
        assert (2, False) == (len(page.events), page.gap)


async def test_events_waits_for_a_new_event(hand: Hand) -> None:
    start = (await hand.store.events(None, 0, NO_WAIT)).cursor
    waiting = asyncio.create_task(hand.store.events(start, MANY, PATIENCE))
    done, _ = await asyncio.wait([waiting], timeout=NOBODY_ELSE)
    assert not done

    await hand.add("a")

    page = await asyncio.wait_for(waiting, PATIENCE.total_seconds() / 2)
    assert ("a", Event.SUBMIT) == _told(page)[0]


async def test_events_return_empty_when_the_wait_is_over(hand: Hand) -> None:
    start = (await hand.store.events(None, 0, NO_WAIT)).cursor

    page = await hand.store.events(start, MANY, timedelta(milliseconds=20))

    assert ((), start) == (page.events, page.cursor)


async def test_cursor_ahead_of_all_events_resumes_at_the_oldest_with_a_gap(hand: Hand) -> None:
    await hand.add("a")
    newest = (await hand.store.events(None, 0, NO_WAIT)).cursor
    ahead = re.sub(r"\d+", lambda digits: str(int(digits[0]) + 1_000_000), newest)

    page = await hand.store.events(ahead, MANY, NO_WAIT)

    assert [("a", Event.SUBMIT), ("a", Event.ENQUEUE)] == _told(page)
    assert (True, newest) == (page.gap, page.cursor)


@pytest.mark.parametrize("garbage", ["", "x", "-1", "1.5.2.9", "\u0661", "9" * 99, "é"])
async def test_garbage_is_no_event_cursor(hand: Hand, garbage: str) -> None:
    with pytest.raises(ValidationError):
        await hand.store.events(garbage, MANY, NO_WAIT)


async def test_refused_writes_are_no_events(hand: Hand) -> None:
    running = await hand.run("a", idempotency_key="k")
    start = (await hand.store.events(None, 0, NO_WAIT)).cursor

    await hand.try_add(running)
    await hand.try_add(hand.job("twin", type="a", payload=[2], idempotency_key="k"))
    await hand.claim()

    assert () == (await hand.store.events(start, MANY, NO_WAIT)).events


# --- arrivals -------------------------------------------------------------------------------


async def _ring(hand: Hand, queue: str, act: Callable[[], Awaitable[object]]) -> bool:
    """Whether a waiter for work in a queue is woken by an action."""
    seen = await hand.store.arrivals([queue], -1, NO_WAIT)
    seen = await hand.store.arrivals([queue], seen, timedelta(milliseconds=20))
    waiting = asyncio.create_task(hand.store.arrivals([queue], seen, PATIENCE))
    await asyncio.sleep(0)
    await act()
    try:
        async with asyncio.timeout(PATIENCE.total_seconds() / 2):
            return seen != await waiting
    except TimeoutError:
        return False


async def test_submission_wakes_who_waits_for_work(hand: Hand) -> None:
    assert await _ring(hand, "q", lambda: hand.add("a", queue="q"))


async def test_delayed_submission_wakes_who_must_know_the_next_due_time(hand: Hand) -> None:
    assert await _ring(hand, "q", lambda: hand.add("a", queue="q", delay=5))


async def test_promotion_wakes_who_waits_for_work(hand: Hand) -> None:
    await hand.add("a", queue="q", delay=5)
    hand.clock.advance(5)

    assert await _ring(hand, "q", lambda: hand.store.promote(MANY))


async def test_retry_and_return_wake_who_waits_for_work(hand: Hand) -> None:
    a, b = await hand.run("a", queue="q"), await hand.run("b", queue="q")

    assert await _ring(hand, "q", lambda: hand.fail(a))
    assert await _ring(hand, "q", lambda: hand.give_back(b))


async def test_resumed_queue_wakes_who_waits_for_work(hand: Hand) -> None:
    await hand.store.configure("q", {"paused": True})

    assert await _ring(hand, "q", lambda: hand.store.configure("q", {"paused": False}))


async def test_end_of_a_job_wakes_who_waits_for_room_under_a_limit(hand: Hand) -> None:
    await hand.store.limit("queue:q", LimitRule(concurrency=1))
    running = await hand.run("a", queue="q")

    assert await _ring(hand, "q", lambda: hand.complete(running))


async def test_work_that_arrives_between_the_claim_and_the_wait_is_not_missed(hand: Hand) -> None:
    seen = await hand.store.arrivals(["q"], -1, NO_WAIT)
    assert [] == await hand.claim(queues=("q",))
    await hand.add("a", queue="q")

    async with asyncio.timeout(PATIENCE.total_seconds() / 2):
        moved = await hand.store.arrivals(["q"], seen, PATIENCE)

    assert seen != moved
    assert 1 == len(await hand.claim(queues=("q",)))


async def test_arrivals_returns_after_its_wait_when_nothing_comes(hand: Hand) -> None:
    seen = await hand.store.arrivals(["q"], -1, NO_WAIT)
    seen = await hand.store.arrivals(["q"], seen, timedelta(milliseconds=20))

    async with asyncio.timeout(PATIENCE.total_seconds() / 2):
        await hand.store.arrivals(["q"], seen, timedelta(milliseconds=20))


async def test_everyone_who_waits_is_woken(hand: Hand) -> None:
    seen = await hand.store.arrivals(["q"], -1, NO_WAIT)
    waiting = [
        asyncio.create_task(hand.store.arrivals(["q", "other"], seen, PATIENCE)) for _ in range(3)
    ]
    await asyncio.sleep(0)

    await hand.add("a", queue="q")

    async with asyncio.timeout(PATIENCE.total_seconds() / 2):
        assert seen not in await asyncio.gather(*waiting)


@pytest.mark.slow
async def test_events_beyond_the_number_kept_are_deleted_and_leave_a_gap(
    hand: Hand,
) -> None:
    first = (await hand.store.events(None, 0, NO_WAIT)).cursor
    for start in range(0, EVENTS_KEPT, MANY):
        await hand.add_all(*(hand.job(f"n{n}") for n in range(start // 2, (start + MANY) // 2)))
    late = (await hand.store.events(None, 0, NO_WAIT)).cursor
    await hand.add_all(*(hand.job(f"more{n}") for n in range(500)))
    await hand.store.prune(Retention(), MANY)

    oldest = await hand.store.events(None, 20 * MANY, NO_WAIT)
    behind = await hand.store.events(first, 1, NO_WAIT)
    within = await hand.store.events(late, 20 * MANY, NO_WAIT)

    assert EVENTS_KEPT <= len(oldest.events) <= EVENTS_KEPT * 1.05
    assert (True, oldest.events[0]) == (behind.gap, behind.events[0])
    assert (False, 1000) == (within.gap, len(within.events))
    assert not oldest.gap
