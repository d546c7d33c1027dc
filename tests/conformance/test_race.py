"""Many at once: tasks on a store of one process, else several processes with two stores each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import StaleLeaseError
from holdfast.model import lifecycle
from holdfast.model.job import TERMINAL, Event, State
from holdfast.runtime.clock import SystemClock
from holdfast.store import AddStatus, Change, LimitRule, Search
from holdfast.verify import violations
from tests.conformance.hand import MANY, Hand, fence, job_id
from tests.conformance.racers import ROLES, STORES_EACH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.model.job import Job
    from holdfast.store import Store
    from tests.conformance.stores import Place

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 4
PATIENCE = 60.0

Report = list[list[str]]


class Racers:
    """Processes that race each other, started once for all tests."""

    def __init__(self) -> None:
        self._racers: list[asyncio.subprocess.Process] = []

    async def race(self, place: Place, store: Store, role: str, count: int) -> Report:
        """Run a role in every process at the same time; return all reports."""
        async with asyncio.timeout(PATIENCE):
            if not place.is_shared:
                numbers = range(PROCESSES * STORES_EACH)
                reports = await asyncio.gather(*(ROLES[role](store, n, count) for n in numbers))
                return [line for report in reports for line in report]
            return await self._race_processes(place.url, role, count)

    async def close(self) -> None:
        for racer in self._racers:
            assert racer.stdin is not None
            racer.stdin.close()
        await asyncio.gather(*(racer.wait() for racer in self._racers))

    async def _race_processes(self, url: str, role: str, count: int) -> Report:
        while len(self._racers) < PROCESSES:
            self._racers.append(await _start())
        for number, racer in enumerate(self._racers):
            command = {"url": url, "number": number, "role": role, "count": count}
            _say(racer, json.dumps(command))
        assert ["ready"] * PROCESSES == [await _hear(racer) for racer in self._racers]
        for racer in self._racers:
            _say(racer, "go")
        reports = await asyncio.gather(*map(_hear, self._racers))
        return [line for report in reports for line in json.loads(report)]


async def _start() -> asyncio.subprocess.Process:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.conformance.racers",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        limit=2**24,
    )


def _say(racer: asyncio.subprocess.Process, line: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n".encode())


async def _hear(racer: asyncio.subprocess.Process) -> str:
    assert racer.stdout is not None
    line = (await racer.stdout.readline()).decode().strip()
    assert line, "a racer's process ended"
    return line


@pytest.fixture(scope="session")
async def racers() -> AsyncIterator[Racers]:
    racers = Racers()
    yield racers
    await racers.close()


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """The store under test, on the machine's clock like all racers."""
    store = await place.open(SystemClock()).start()
    yield store
    await store.close()


@pytest.fixture
def hand(store: Store) -> Hand:
    return Hand(store, SystemClock())


async def _add_many(hand: Hand, count: int, **fields: object) -> list[Job]:
    return await hand.add_all(*(hand.job(f"n{n}", **fields) for n in range(count)))


async def _assert_sound(store: Store, ids: list[str]) -> None:
    jobs = await store.get(ids)
    assert None not in jobs
    histories = await store.history(ids)
    for job, history in zip(jobs, histories, strict=True):
        assert job is not None
        assert [] == violations(job, history)


@pytest.mark.req("S-4", "S-1")
async def test_no_job_is_claimed_twice(racers: Racers, place: Place, hand: Hand) -> None:
    jobs = await _add_many(hand, 300)

    taken = await racers.race(place, hand.store, "claim_all", 0)

    assert sorted([job.id, "1"] for job in jobs) == sorted(taken)
    await _assert_sound(hand.store, [job.id for job in jobs])


@pytest.mark.req("M-2")
async def test_of_racing_submissions_with_one_key_exactly_one_is_accepted(
    racers: Racers, place: Place, hand: Hand
) -> None:
    count = 40

    answers = await racers.race(place, hand.store, "submit_keys", count)

    accepted = [id_ for status, id_ in answers if status == AddStatus.ACCEPTED]
    duplicates = [id_ for status, id_ in answers if status == AddStatus.DUPLICATE]
    assert (count, count) == (len(accepted), len(set(accepted)))
    assert set(accepted) == set(duplicates)
    assert PROCESSES * STORES_EACH * count == len(answers) == len(accepted) + len(duplicates)
    assert count == (await hand.store.find(Search())).total


@pytest.mark.req("S-5", "M-3")
async def test_of_racing_changes_exactly_one_is_written(
    racers: Racers, place: Place, hand: Hand
) -> None:
    jobs = await _add_many(hand, 60)

    won = await racers.race(place, hand.store, "cancel_each", len(jobs))

    assert sorted([job.id] for job in jobs) == sorted(won)
    await _assert_sound(hand.store, [job.id for job in jobs])


@pytest.mark.req("M-3")
async def test_due_job_is_promoted_once_however_many_promote(
    racers: Racers, place: Place, hand: Hand
) -> None:
    jobs = await _add_many(hand, 100, delay=0.001)
    await asyncio.sleep(0.002)  # until all are due, by the clock of the machine

    counts = await racers.race(place, hand.store, "promote_all", 0)

    assert 100 == sum(int(count) for (count,) in counts)
    histories = await hand.store.history([job.id for job in jobs])
    assert {1} == {sum(edge.event is Event.DUE for edge in history) for history in histories}


async def test_one_holder_gets_a_lock(racers: Racers, place: Place, hand: Hand) -> None:
    got = await racers.race(place, hand.store, "lock_names", 40)

    assert sorted([f"name {n}"] for n in range(40)) == sorted(got)


@pytest.mark.req("M-9")
async def test_end_of_a_dependency_during_the_submission_of_its_dependent_is_never_missed(
    racers: Racers, place: Place, hand: Hand
) -> None:
    count = 40
    await hand.add_all(*(hand.job(f"parent {n}") for n in range(count)))

    answers = await racers.race(place, hand.store, "end_or_depend", count)

    assert {AddStatus.ACCEPTED} == {status for status, _ in answers}
    await hand.settle_dependents()
    children = await hand.store.get([id_ for _, id_ in answers])
    assert {State.CANCELLED} == {job.state for job in children if job is not None}


@pytest.mark.req("M-9")
async def test_dependent_never_loses_its_dependency_to_a_deletion(
    racers: Racers, place: Place, hand: Hand
) -> None:
    count = 40
    parents = await hand.add_all(*(hand.job(f"parent {n}") for n in range(count)))
    for parent in parents:
        await hand.cancel(parent)

    answers = await racers.race(place, hand.store, "prune_or_depend", count)

    accepted = {int(n) for status, n in answers if status == AddStatus.ACCEPTED}
    there = await hand.store.get([job_id(f"parent {n}") for n in sorted(accepted)])
    assert None not in there


@pytest.mark.req("M-9")
async def test_fan_in_misses_nothing_that_is_spawned_while_it_is_submitted(
    racers: Racers, place: Place, hand: Hand
) -> None:
    spawner = await hand.run("spawner")

    report = await racers.race(place, hand.store, "spawn_or_fan_in", 25)

    await hand.complete(spawner)
    spawned = {id_ for kind, id_ in report if kind == "spawned"}
    waiting = {id_ for kind, id_ in report if kind == "fan in"}
    assert [] == await hand.store.dependents(MANY)
    for job in await hand.store.get(sorted(spawned)):
        assert job is not None
        await hand.cancel(job)
    has_dependents = await hand.store.dependents(MANY)
    assert waiting == {each.job.id for each in has_dependents}
    for each in has_dependents:
        assert spawned | {spawner.id} == {parent for parent, _ in each.parents}


@pytest.mark.req("S-3", "M-4")
async def test_single_claimer_gets_the_jobs_of_each_producer_in_order(
    racers: Racers, place: Place, hand: Hand
) -> None:
    count = 30
    total = count * (PROCESSES * STORES_EACH - 1)

    order = await racers.race(place, hand.store, "produce_in_order", count)
    order += [job.tags["n"].split() for job in await hand.claim(MANY)]

    assert total == len(order)
    for producer in range(1, PROCESSES * STORES_EACH):
        mine = [int(n) for number, n in order if number == str(producer)]
        assert list(range(count)) == mine


async def test_work_submitted_elsewhere_wakes_who_waits_for_it(
    racers: Racers, place: Place, hand: Hand
) -> None:
    seen = await hand.store.arrivals(["default"], -1, timedelta(0))
    seen = await hand.store.arrivals(["default"], seen, timedelta(milliseconds=50))
    events = (await hand.store.events(None, 0, timedelta(0))).cursor
    long = timedelta(seconds=PATIENCE)
    work = asyncio.create_task(hand.store.arrivals(["default"], seen, long))
    news = asyncio.create_task(hand.store.events(events, 1, long))

    await racers.race(place, hand.store, "submit_one", 0)

    async with asyncio.timeout(PATIENCE / 6):
        assert seen != await work
        assert Event.SUBMIT is (await news).events[0].transition.event


@pytest.mark.parametrize(
    "rule",
    [LimitRule(concurrency=5), LimitRule(rate=5, per=timedelta(hours=1), burst=5)],
    ids=["concurrency", "rate"],
)
async def test_limit_holds_however_many_claim(
    racers: Racers, place: Place, hand: Hand, rule: LimitRule
) -> None:
    await hand.store.limit("queue:default", rule)
    await _add_many(hand, 40)

    taken = await racers.race(place, hand.store, "claim_all", 0)

    assert 5 == len(taken)


@pytest.mark.req("S-1", "M-2", "A-8")
async def test_callers_who_share_a_store_do_not_disturb_each_other(hand: Hand) -> None:
    """Also where a store writes for many callers in one transaction and some calls fail."""
    stale = await hand.run("spawner")
    await hand.complete(stale)
    lonely = [hand.job(f"n{n}") for n in range(40)]
    twins = [hand.job(f"t{n}", type="t", payload=1, idempotency_key=f"k{n % 8}") for n in range(40)]
    zombies = [hand.spawned(f"z{n}", stale) for n in range(20)]
    calls = [hand.store.add([job]) for job in (*lonely, *twins)]
    calls += [hand.store.add([job], fence=fence(stale)) for job in zombies]
    calls += [hand.claim(2, types=[f"n{n}" for n in range(40)]) for _ in range(10)]

    answers = await asyncio.gather(*calls, return_exceptions=True)

    statuses = Counter(answer[0].status for answer in answers[:80] if isinstance(answer, list))
    assert {AddStatus.ACCEPTED: 48, AddStatus.DUPLICATE: 32} == statuses
    assert {StaleLeaseError} == {type(answer) for answer in answers[80:100]}
    taken = [job.id for answer in answers[100:] if isinstance(answer, list) for job in answer]
    assert len(taken) == len(set(taken))
    jobs = (await hand.store.find(Search(limit=MANY))).jobs
    await _assert_sound(hand.store, [job.id for job in jobs])
    counted = Counter((job.type, job.state) for job in jobs)
    tallies = (await hand.store.stats(timedelta(seconds=1))).tallies
    assert dict(counted) == {(tally.type, tally.state): tally.count for tally in tallies}


@pytest.mark.req("A-16", "M-9")
@pytest.mark.parametrize("kind", ["AFTER", "AFTER_ALL"])
async def test_end_of_a_dependency_is_never_missed_by_a_job_that_is_retried_meanwhile(
    hand: Hand, kind: str
) -> None:
    parents = await _add_many(hand, 20)
    children = await hand.add_all(
        *(
            hand.job(f"child {n}", after=[parent], dependency_type=kind)
            for n, parent in enumerate(parents)
        )
    )
    failed = [await hand.expire(child) for child in children]
    running = await hand.claim(20)
    ends = [Change(job, lifecycle.completed(job, b"null", now=hand.now)) for job in running]
    again = [Change(job, lifecycle.reopened(job, now=hand.now)) for job in failed]

    together = [change for pair in zip(ends, again, strict=True) for change in pair]
    answers = await asyncio.gather(*(hand.store.swap([change]) for change in together))

    assert [True] * 40 == [answer.written for (answer,) in answers]
    assert sorted(job.type for job in children) == sorted(await hand.settle_dependents())


@pytest.mark.slow
@pytest.mark.req("S-1", "S-4", "S-5", "S-6", "S-10", "S-15", "L-6")
async def test_storm_loses_nothing_and_every_record_is_sound(
    racers: Racers, place: Place, hand: Hand
) -> None:
    fields = {"lease": 0.15, "max_attempts": 4, "backoff": {"initial_delay": 0}}
    jobs = await _add_many(hand, 80, **fields)
    children = await hand.add_all(
        *(
            hand.job(f"child {n}", after=[job], dependency_type=kind, **fields)
            for n, (job, kind) in enumerate(
                zip(jobs[:20], ["AFTER", "AFTER_ANY"] * 10, strict=True)
            )
        )
    )
    ids = [job.id for job in (*jobs, *children)]

    report = await racers.race(place, hand.store, "storm", 0)

    claims = Counter((line[1], line[2]) for line in report if line[0] == "claim")
    assert [] == [claim for claim, n in claims.items() if n > 1]
    await _assert_sound(hand.store, ids)
    assert {True} == {job.state in TERMINAL for job in await hand.get_all(*jobs, *children)}
    await _assert_no_zombie_wrote(hand, report)
    happened = Counter(line[0] for line in report)
    for must in ("lapse", "stale", "renewed", "COMPLETED written", "RETRYING written"):
        assert happened[must], f"{must} never happened: {happened}"


async def _assert_no_zombie_wrote(hand: Hand, report: Report) -> None:
    """A late answer was written only where its claim was the newest."""
    late = [(line[1], line[2]) for line in report if line[0] == "late"]
    for id_, version in late:
        (history,) = await hand.store.history([id_])
        ends = [edge for edge in history if edge.event is Event.COMPLETE]
        assert [int(version)] == [edge.lease_version for edge in ends]
