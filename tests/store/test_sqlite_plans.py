"""Every statement of the verbs that must not slow down as jobs pile up is answered by an index.

The verbs run for real, their statements are caught, and SQLite is asked how it would run them.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model.job import FailureCategory, State
from holdfast.model.policy import DAY, HOUR, MINUTE, Retention
from holdfast.runtime.clock import ManualClock
from holdfast.store import FailureSearch, LimitRule, Order, RecordWrite, Search
from holdfast.store.sqlite import SQLiteStore, search
from holdfast.store.sqlite.location import Location
from holdfast.store.sqlite.threads import LoopExecutor
from tests.conformance.hand import Hand
from tests.store.sqlite_inside import reader_of, writer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

LARGE = "job|body|journal|tag|edge|log|checkpoint|record"
SCAN = re.compile(rf"SCAN ({LARGE}|child)\b(?! USING (COVERING )?INDEX (job_ripe|job_failed))")
SORT = re.compile(r"USE TEMP B-TREE FOR (ORDER BY|GROUP BY|DISTINCT)")
QUERY = re.compile(r"\s*(SELECT|WITH|UPDATE|DELETE)", re.IGNORECASE)
EVERYTHING = Retention(completed=timedelta(0), failed=timedelta(0))


@pytest.fixture
async def hand(tmp_path: Path) -> AsyncIterator[Hand]:
    """A small file with jobs in every state."""
    clock = ManualClock()
    async with SQLiteStore(
        Location(path=tmp_path / "jobs.db"), clock=clock, executor=LoopExecutor, sockets=False
    ) as store:
        hand = Hand(store, clock)
        parent = await hand.add("parent")
        await hand.add("waits", after=[parent])
        await hand.add("late", delay=60)
        for label in ("good", "bad", "slow"):
            await hand.add(label, tags={"tenant": "a"}, correlation_id="c", limit_key="k")
        jobs = {job.type: job for job in await hand.claim(4)}
        await hand.complete(jobs["good"])
        await hand.complete(jobs["parent"])
        await hand.fail(jobs["bad"], FailureCategory.PERMANENT)
        yield hand


async def _plans(store: SQLiteStore, call: Callable[[], Awaitable[object]]) -> dict[str, list[str]]:
    """Run a verb; return the plan of every statement it ran."""
    caught: list[str] = []
    connections = [each for each in (writer_of(store), reader_of(store)) if each is not None]
    for connection in connections:
        connection.set_trace_callback(caught.append)
    await call()
    for connection in connections:
        connection.set_trace_callback(None)
    return {
        sql: [row[3] for row in connections[0].execute(f"EXPLAIN QUERY PLAN {sql}")]
        for sql in dict.fromkeys(caught)
        if QUERY.match(sql)
    }


def _faults(plans: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [
        (sql, step)
        for sql, steps in plans.items()
        for step in steps
        if SCAN.search(step) or SORT.search(step)
    ]


VERBS: dict[str, Callable[[Hand], Awaitable[object]]] = {
    "kinds": lambda hand: hand.store.kinds(),
    "claim": lambda hand: hand.claim(10),
    "claim by type": lambda hand: hand.claim(10, types=["late", "good"]),
    "promote": lambda hand: hand.store.promote(10),
    "overdue": lambda hand: hand.store.overdue(10),
    "dependents": lambda hand: hand.store.dependents(10),
    "prune": lambda hand: hand.store.prune(EVERYTHING, 10),
    "failures": lambda hand: hand.store.failures(FailureSearch(states=tuple(State))),
    "events": lambda hand: hand.store.events("3", 10, timedelta(0)),
    "get": lambda hand: hand.store.get([hand.job("good").id, "foreign"]),
    "ended": lambda hand: hand.store.ended([hand.job("good").id, "foreign"]),
    "logs": lambda hand: hand.store.logs([hand.job("good").id]),
    "parents": lambda hand: hand.store.parents(hand.job("waits").id),
    "delete": lambda hand: hand.store.delete([hand.job("good").id]),
    "arrivals": lambda hand: hand.store.arrivals(["default"], -1, timedelta(0)),
}
SEARCHES = {
    "everything": Search(),
    "state": Search(states=(State.DELAYED, State.COMPLETED)),
    "type": Search(types=("good", "late")),
    "tag": Search(tags={"tenant": "a"}),
    "correlation": Search(correlation_id="c"),
    "created": Search(created_after=ManualClock().now(), created_before=ManualClock().now() + DAY),
    "created and state": Search(created_before=ManualClock().now(), states=(State.DELAYED,)),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_verb_scans_and_sorts_nothing_that_grows(hand: Hand, verb: str) -> None:
    assert isinstance(hand.store, SQLiteStore)
    hand.clock.advance(3600)

    plans = await _plans(hand.store, lambda: VERBS[verb](hand))

    assert plans
    assert [] == _faults(plans)


async def test_locks_with_a_prefix_are_a_range_of_the_index(hand: Hand) -> None:
    assert isinstance(hand.store, SQLiteStore)

    plans = await _plans(hand.store, lambda: hand.store.locks("mine:"))

    assert [["SEARCH hold USING PRIMARY KEY (name>? AND name<?)"]] == list(plans.values())


async def test_claim_under_limits_scans_and_sorts_nothing_that_grows(hand: Hand) -> None:
    assert isinstance(hand.store, SQLiteStore)
    for scope in ("queue:default", "task:good", "key:slow"):
        await hand.store.limit(scope, LimitRule(concurrency=5, rate=5))
    hand.clock.advance(3600)
    await hand.store.promote(10)

    plans = await _plans(hand.store, lambda: hand.claim(10))

    assert plans
    assert [] == _faults(plans)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("order", [Order.CREATED_ASC, Order.CREATED_DESC])
async def test_search_walks_an_index_in_the_order_asked(
    hand: Hand, name: str, order: Order
) -> None:
    assert isinstance(hand.store, SQLiteStore)
    search = replace(SEARCHES[name], order=order)

    plans = await _plans(hand.store, lambda: hand.store.find(search))

    assert plans
    assert [] == _faults(plans)


@pytest.mark.parametrize("name", ["everything", "state", "type", "tag", "created"])
async def test_search_by_update_walks_the_journal_when_many_match(
    hand: Hand, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(hand.store, SQLiteStore)
    monkeypatch.setattr(search, "COUNT_CAP", 0)
    by_update = replace(SEARCHES[name], order=Order.UPDATED_DESC)

    plans = await _plans(hand.store, lambda: hand.store.find(by_update))

    assert any(
        "SEARCH journal USING INTEGER PRIMARY KEY" in step for p in plans.values() for step in p
    )
    assert [] == _faults(plans)


async def test_search_by_time_reads_only_rows_of_that_time(tmp_path: Path) -> None:
    """An hour's jobs among many are found without passing the others."""
    clock = ManualClock()
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location, clock=clock, executor=LoopExecutor, sockets=False) as store:
        hand = Hand(store, clock)
        for hour in range(5):
            await hand.add_all(*(hand.job(f"{hour} {n}") for n in range(300)))
            clock.advance(3600)
        start = ManualClock().now()
        early = Search(created_after=start, created_before=start + HOUR / 2, limit=1000)
        late = Search(updated_after=start + 4 * HOUR, order=Order.CREATED_ASC, limit=1000)
        steps = _steps(store)

        pages = [await store.find(early), await store.find(late)]

        assert [300, 300] == [page.total for page in pages] == [len(page.jobs) for page in pages]
        assert {"0", "4"} == {job.type.partition(".")[0] for page in pages for job in page.jobs}
        searches = [n for sql, n in steps if sql.startswith(("SELECT job.seq,", "SELECT count(*)"))]
        assert 4 <= len(searches)
        assert max(searches) < 300 * 40  # passing all 1,500 jobs would take more


async def test_search_by_time_finds_what_clocks_wrote_out_of_order(tmp_path: Path) -> None:
    clock = ManualClock()
    location = Location(path=tmp_path / "jobs.db")
    async with SQLiteStore(location, clock=clock, executor=LoopExecutor, sockets=False) as store:
        hand = Hand(store, clock)
        start = clock.now()
        jobs = []
        for n, minutes in enumerate([0, 10, 2, 30, 2, 0, 11]):
            clock.set(start + minutes * MINUTE)
            jobs.append(hand.job(str(n)))
        await store.add(jobs[:4])
        await store.add(jobs[4:])

        found = [
            await store.find(
                Search(created_after=start + low * MINUTE, created_before=start + high * MINUTE)
            )
            for low, high in [(0, 1), (2, 3), (3, 12), (12, 20), (30, 31), (31, 99)]
        ]

        assert ["50", "42", "61", "", "3", ""] == [
            "".join(job.type for job in page.jobs) for page in found
        ]


def _steps(store: SQLiteStore) -> list[tuple[str, int]]:
    """Every statement of a search from now on, with the steps SQLite's machine took for it."""
    connection = reader_of(store)
    assert connection is not None
    steps: list[tuple[str, int]] = []

    def step() -> None:
        sql, taken = steps.pop()
        steps.append((sql, taken + 100))

    connection.set_progress_handler(step, 100)
    connection.set_trace_callback(lambda sql: steps.append((sql, 0)))
    return steps


@pytest.mark.parametrize("last", [False, True])
async def test_page_far_into_the_records_costs_no_more_than_the_first(
    hand: Hand, last: bool
) -> None:
    store = hand.store
    keys = [f"a{number:05}" for number in range(5000)]
    await store.keep([RecordWrite(kind="k", key=key, data=b"") for key in keys])

    async def effort(after: str) -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        for each in (writer_of(store), reader_of(store)):
            if each is not None:
                each.set_progress_handler(count, 10)
        page = await store.browse("k", prefix="a", after=after, limit=50, last=last)
        assert 50 == len(page)
        return steps

    far = keys[500 if last else 4500]
    assert await effort(far) <= 2 * await effort("")


async def test_claim_does_not_pass_the_jobs_that_wait_behind_a_limit(hand: Hand) -> None:
    store, steps = hand.store, 0
    assert isinstance(store, SQLiteStore)
    await store.limit("task:narrow", LimitRule(concurrency=1))
    await hand.add_all(*(hand.job(f"{n}", type="narrow") for n in range(2000)))

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    writer_of(store).set_progress_handler(count, 10)
    claimed = await hand.claim(10)

    assert 1 == len(claimed)
    assert steps < 200  # passing 2,000 jobs would take ten times that


async def test_oldest_ready_job_is_found_by_the_index_of_ready_ones(hand: Hand) -> None:
    assert isinstance(hand.store, SQLiteStore)

    await hand.add("ready")
    plans = await _plans(hand.store, hand.store.queues)

    steps = [step for each in plans.values() for step in each if " job" in step]
    assert steps
    assert all("INDEX job_ready (queue=?" in step for step in steps)


@pytest.mark.parametrize("namespace", [None, "acme"])
async def test_measures_by_the_minute_are_a_range_of_minutes(
    hand: Hand, namespace: str | None
) -> None:
    assert isinstance(hand.store, SQLiteStore)

    plans = await _plans(hand.store, lambda: hand.store.stats(HOUR, namespace, by_minute=True))

    steps = [step for each in plans.values() for step in each if "minute" in step]
    assert steps
    assert [] == [step for step in steps if "SCAN minute" in step]


async def test_beginning_of_an_id_is_a_range_of_the_index(hand: Hand) -> None:
    assert isinstance(hand.store, SQLiteStore)
    prefix = hand.job("good").id[:6]

    plans = await _plans(hand.store, lambda: hand.store.find(Search(id_prefix=prefix)))

    steps = [step for each in plans.values() for step in each if step.startswith("SEARCH job")]
    assert [step for step in steps if "INDEX job_id (id>? AND id<?)" in step]
    assert [] == [step for each in plans.values() for step in each if SCAN.search(step)]
