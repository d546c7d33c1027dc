"""What a worker claims, in which order, and how many at once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import Holdfast, JobContext, LimitRule, State
from holdfast.maintenance.reaper import Reaper
from holdfast.model.job import Job
from holdfast.observe import Silent
from holdfast.operations.workers import workers
from holdfast.runtime.clock import ManualClock
from holdfast.store import (
    Added,
    Capabilities,
    Change,
    Claim,
    Dependent,
    Fence,
    MemoryStore,
    Promoted,
    Swapped,
)
from holdfast.worker import Worker, polling, quarantine
from holdfast.worker.supervisor.lease_guard import held_by
from tests.waiting import eventually
from tests.worker.rig import EventLog, ended, until, until_running, working


class Gate:
    """Admits handlers one by one and counts how many run."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.order: list[object] = []

    async def enter(self, name: object = None) -> None:
        self.order.append(name)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1

    async def full(self, count: int) -> None:
        await until(lambda: self.inside >= count)


@pytest.fixture
def app() -> Holdfast:
    return Holdfast(store=MemoryStore())


def gated(app: Holdfast, type_: str = "gated", **options: object) -> Gate:
    gate = Gate()

    @app.task(type_, **options)  # type: ignore[arg-type]
    async def handler(name: object = None) -> None:
        await gate.enter(name)

    return gate


class Slow(MemoryStore):
    """Writes outcomes slowly."""

    async def swap(self, changes: Sequence[Change]) -> list[Swapped]:
        await asyncio.sleep(0.01)  # a slow store
        return await super().swap(changes)


class Counting(MemoryStore):
    """Records the limit of each claim."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []

    async def claim(self, want: Claim) -> list[Job]:
        self.limits.append(want.limit)
        return await super().claim(want)


class Grouping(Counting):
    """Commits outcomes and the next claim together, according to its flag."""

    capabilities = Capabilities(groups_commits=True)


@pytest.mark.parametrize(("kind", "limits"), [(Counting, [20, 20]), (Grouping, [40])])
async def test_slots_are_filled_by_halves_or_at_once_where_commits_are_grouped(
    kind: type[Counting], limits: list[int]
) -> None:
    store = kind()
    app = Holdfast(store=store)
    gate = gated(app)
    async with app:
        await app.submit_batch([{"type": "gated"}] * 40)
        async with working(app, slots=40):
            await gate.full(40)

    assert limits == store.limits[: len(limits)]


@pytest.mark.req("B-5")
async def test_a_worker_is_named_by_host_process_and_a_random_part(app: Holdfast) -> None:
    async with working(app) as worker:
        (info,) = await _present(app)

    assert re.fullmatch(r".+-\d+-[0-9a-f]{8}", worker.id)
    assert worker.id == info


async def _present(app: Holdfast) -> list[str]:
    return [info.id for info in await eventually(lambda: workers(app.store))]


async def test_a_stopped_worker_is_no_longer_listed(app: Holdfast) -> None:
    async with app:
        async with working(app):
            await _present(app)
        assert [] == await workers(app.store)


async def test_no_more_jobs_run_than_there_are_slots(app: Holdfast) -> None:
    gate = gated(app)
    async with working(app, slots=3):
        jobs = [await app.submit("gated") for _ in range(8)]
        await gate.full(3)
        gate.open.set()
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)

    assert 3 == gate.most


@pytest.mark.req("A-17")
async def test_a_task_runs_at_most_as_often_at_once_as_its_concurrency(app: Holdfast) -> None:
    gate, free = gated(app, concurrency=2), gated(app, "free")
    async with working(app, slots=10):
        jobs = [await app.submit("gated") for _ in range(6)]
        jobs += [await app.submit("free") for _ in range(3)]
        await gate.full(2)
        await free.full(3)
        gate.open.set()
        free.open.set()
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)

    assert 2 == gate.most


@pytest.mark.req("S-14")
async def test_jobs_of_unknown_types_wait(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with working(app):
        unknown = await app.submit("unknown")
        known = await app.submit("gated")
        await ended(app, known.job_id)

        status = await app.get(unknown.job_id)

    assert (State.SCHEDULED, 0) == (status.state, status.attempt)


async def test_queues_are_served_in_the_order_given(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with app:
        for queue in ("low", "high", "low", "high"):
            await app.submit("gated", {"name": queue}, queue=queue)
        await Worker(app, queues=["high", "low"], slots=1).run(burst=True)

    assert ["high", "high", "low", "low"] == gate.order


async def test_weights_share_a_worker_between_queues(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with app:
        for _ in range(200):
            await app.submit("gated", {"name": "heavy"}, queue="heavy")
            await app.submit("gated", {"name": "light"}, queue="light")
        await Worker(app, queues={"heavy": 4.0, "light": 1.0}, slots=1).run(burst=True)

    first = Counter(gate.order[:100])
    assert 60 < first["heavy"] < 95
    assert first["light"] > 5


async def test_a_burst_ends_when_nothing_is_left_to_do(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with app:
        jobs = [await app.submit("gated") for _ in range(50)]
        later = await app.submit("gated", delay=3600)
        after = await app.submit("gated", depends_on=[jobs[-1].job_id])
        await Worker(app, slots=7).run(burst=True)

        states = {(await app.get(job.job_id)).state for job in [*jobs, after]}
        assert {State.COMPLETED} == states
        assert State.DELAYED is (await app.get(later.job_id)).state


async def test_a_paused_queue_is_not_served_until_it_is_resumed(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with working(app, queues=["slow", "default"]):
        await app.pause("slow")
        job = await app.submit("gated", queue="slow")
        await ended(app, (await app.submit("gated")).job_id)
        assert State.SCHEDULED is (await app.get(job.job_id)).state

        await app.resume("slow")

        assert State.COMPLETED is await ended(app, job.job_id, timeout=1.5)


@pytest.mark.req("M-9")
async def test_dependents_are_released_at_once(app: Holdfast) -> None:
    gate = gated(app)
    async with working(app):
        first = await app.submit("gated")
        second = await app.submit("gated", depends_on=[first.job_id])
        await gate.full(1)
        assert State.PENDING is (await app.get(second.job_id)).state

        gate.open.set()

        assert State.COMPLETED is await ended(app, second.job_id, timeout=1.5)


async def test_a_concurrency_limit_holds_across_workers(app: Holdfast) -> None:
    gate = gated(app, limit=LimitRule(concurrency=3))
    async with working(app, slots=5), working(app, slots=5):
        jobs = [await app.submit("gated") for _ in range(9)]
        await gate.full(3)
        gate.open.set()
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)

    assert 3 == gate.most


async def test_a_limit_per_key_holds_for_each_key_by_itself(app: Holdfast) -> None:
    gate = gated(app, key_limit=LimitRule(concurrency=1))
    async with working(app, slots=5), working(app, slots=5):
        jobs = [
            await app.submit("gated", {"name": key}, limit_key=key) for key in ("a", "a", "b", "b")
        ]
        await gate.full(2)
        assert {"a", "b"} == set(gate.order)
        gate.open.set()
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)


async def test_a_rate_limit_holds_across_workers(app: Holdfast) -> None:
    gate = gated(app, limit=LimitRule(rate=3, per=timedelta(seconds=0.5)))
    gate.open.set()
    async with working(app, slots=5), working(app, slots=5):
        jobs = [await app.submit("gated") for _ in range(7)]
        for job in jobs:
            assert State.COMPLETED is await ended(app, job.job_id)
        histories = await app.store.history([job.job_id for job in jobs])

    starts = sorted(edge.at for history in histories for edge in history if edge.event == "claim")
    assert all(b - a >= timedelta(seconds=0.5) / 3 for a, b in pairwise(starts))


async def test_work_is_picked_up_at_once(app: Holdfast) -> None:
    gate = gated(app)
    gate.open.set()
    async with working(app):
        await ended(app, (await app.submit("gated")).job_id)
        job = await app.submit("gated")
        status = await app.wait(job.job_id, timeout=5)

    assert status.started_at is not None
    assert status.started_at - status.created_at < timedelta(seconds=0.5)


async def test_every_event_about_a_job_names_it_and_never_its_payload(app: Holdfast) -> None:
    events = EventLog()

    @app.task("secretive", max_attempts=2, backoff=lambda *_: timedelta(0))
    async def secretive(password: str) -> None:
        raise ValueError("no")

    async with working(app, observer=events):
        job = await app.submit("secretive", {"password": "hunter2"})
        await ended(app, job.job_id)

    lines = [(event, fields) for event, fields in events.entries if event.startswith("job.")]
    assert {"job.started", "job.retrying", "job.dead"} <= {event for event, _ in lines}
    assert all({"job_id", "type", "attempt"} <= fields.keys() for _, fields in lines)
    assert "hunter2" not in repr(events.entries)


async def test_two_workers_never_run_the_same_job(app: Holdfast) -> None:
    ran: Counter[int] = Counter()

    @app.task("count")
    async def count(number: int) -> None:
        ran[number] += 1
        await asyncio.sleep(0)

    async with working(app, slots=5), working(app, slots=5):
        jobs = [await app.submit("count", {"number": i}) for i in range(200)]
        for job in jobs:
            await ended(app, job.job_id)

    assert {1} == set(ran.values())
    assert 200 == len(ran)


async def test_a_job_waits_while_every_slot_is_taken(app: Holdfast) -> None:
    gate = gated(app)
    async with working(app, slots=1):
        first, second = await app.submit("gated"), await app.submit("gated")
        await until_running(app, first.job_id)

        assert State.SCHEDULED is (await app.get(second.job_id)).state
        gate.open.set()
        assert State.COMPLETED is await ended(app, second.job_id)


async def test_a_burst_outlasts_a_store_that_writes_slowly() -> None:
    app = Holdfast(store=Slow())

    @app.task("quick")
    async def quick() -> None: ...

    async with app:
        jobs = [await app.submit("quick") for _ in range(100)]
        await Worker(app, slots=4).run(burst=True)

        assert {State.COMPLETED} == {(await app.get(job.job_id)).state for job in jobs}


async def die_with(app: Holdfast, jobs: int, times: int = 2, after: float = 0.0) -> None:
    """Claim so many jobs and die with all of them, some seconds after they started."""
    reaper = Reaper(app.store, app.randomness, Silent())
    for time in range(times):
        await app.store.promote(jobs)
        want = Claim(queues=("default",), limit=jobs, worker="dead", token=f"t{time}")
        taken = await app.store.claim(want)
        assert jobs == len(taken)
        died_at = app.store.now() + timedelta(seconds=after)
        fences = [Fence(job.id, want.token) for job in taken]
        await reaper.recover(fences, "it was killed", died_at)


@pytest.mark.req("S-10")
@pytest.mark.parametrize(("deaths", "attempts", "most"), [(1, 3, 3), (1, 2, 1), (2, 9, 1)])
async def test_jobs_are_suspects_after_a_second_dead_worker_or_before_the_last_attempt(
    app: Holdfast, deaths: int, attempts: int, most: int
) -> None:
    gate = gated(app, "suspect", max_attempts=attempts)
    async with app:
        jobs = [await app.submit("suspect") for _ in range(3)]
        await die_with(app, 3, deaths)
        async with working(app, slots=10):
            await gate.full(most)
            gate.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)

    assert most == gate.most


@pytest.mark.req("S-10")
async def test_jobs_whose_workers_died_start_one_at_a_time(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    suspects, fresh = gated(app, "suspect"), gated(app, "fresh")
    async with app:
        jobs = [await app.submit("suspect") for _ in range(3)]
        await die_with(app, 3)
        async with working(app, slots=10):
            await app.submit("fresh")
            await app.submit("fresh")
            await fresh.full(2)
            await suspects.full(1)
            suspects.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)
            fresh.open.set()

    assert 1 == suspects.most
    assert 2 == fresh.most


@pytest.mark.req("S-10")
async def test_jobs_of_other_types_do_not_wait_for_suspects(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    suspects, limited = gated(app, "suspect"), gated(app, "limited", concurrency=2)
    app.task("quick")(_nothing)
    limited.open.set()
    async with app:
        jobs = [await app.submit("suspect") for _ in range(5)]
        await die_with(app, 5)
        async with working(app, slots=10):
            await suspects.full(1)
            for type_ in ("quick", "limited", "quick", "limited"):
                other = await app.submit(type_)
                assert State.COMPLETED is await ended(app, other.job_id)
            assert 1 == suspects.most
            suspects.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)

    assert 1 == suspects.most


@pytest.mark.req("S-10")
@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 4)])
async def test_workers_that_die_together_make_no_job_a_suspect(
    workers: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    clock = ManualClock()
    app = Holdfast(store=MemoryStore(clock), clock=clock)
    gate = gated(app, "job", lease=1)
    async with app:
        jobs = [await app.submit("job") for _ in range(4)]
        for time in range(2):
            for name in range(workers):
                token = f"{time}-{name}"
                want = Claim(queues=("default",), limit=4 // workers, worker=str(name), token=token)
                assert 4 // workers == len(await app.store.claim(want))
            clock.advance(60)
            await Reaper(app.store, app.randomness, Silent()).once()
            clock.advance(60)
            await app.store.promote(10)
        async with working(app, slots=10):
            await gate.full(most)
            gate.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)

    assert most == gate.most


@pytest.mark.req("S-10")
async def test_suspects_start_although_other_jobs_fill_every_slot(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 0.05)
    suspects = gated(app, "suspect")
    suspects.open.set()

    @app.task("endless")
    async def endless() -> None:
        await app.submit("endless")

    async with app:
        jobs = [await app.submit("suspect") for _ in range(5)]
        await die_with(app, 5)
        for _ in range(20):
            await app.submit("endless")
        async with working(app, slots=2):
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.req("S-10")
async def test_a_suspect_starts_when_the_others_returned_to_the_queue() -> None:
    app = Holdfast(store=Slow())
    running: list[int] = []

    @app.task("suspect")
    async def suspect() -> None:
        running.append(len(await held_by(app.store, "alive")))

    async with app:
        for _ in range(3):
            await app.submit("suspect")
        await die_with(app, 3)
        await Worker(app, name="alive").run(burst=True)

    assert [1, 1, 1] == running


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    ("attempts", "deaths", "expected"),
    [
        (9, 2, [1, 2, 4, 8]),
        (5, 2, [1, 2, 4, 4, 4]),
        (4, 2, [1, *[2] * 7]),
        (3, 2, [1] * 15),
        (3, 1, [*[2] * 7, 1]),
        (4, 1, [4, 4, 4, 3]),
        (9, 1, [15]),
    ],
)
async def test_groups_of_suspects_double_while_they_survive(
    app: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
    attempts: int,
    deaths: int,
    expected: list[int],
) -> None:
    """Up to two jobs with one attempt left after this one, four with two left, and so on."""
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    monkeypatch.setattr(quarantine, "GROUP_WATCH", 60.0)
    monkeypatch.setattr(quarantine, "LAST_GROUP", 2)
    groups: list[int] = []
    together: list[str] = []

    @app.task("suspect", max_attempts=attempts)
    async def suspect(ctx: JobContext) -> None:
        together.append(ctx.job_id)
        await asyncio.sleep(0)  # the others of the group begin
        if together:
            groups.append(len(together))
            together.clear()

    async with app:
        for _ in range(15):
            await app.submit("suspect")
        await die_with(app, 15, deaths)
        await Worker(app, slots=20).run(burst=True)

    assert expected == groups


@pytest.mark.req("S-10")
async def test_jobs_that_ran_for_a_while_before_their_worker_died_are_no_suspects(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    gate = gated(app, "job", max_attempts=3)
    async with app:
        jobs = [await app.submit("job") for _ in range(50)]
        await die_with(app, 50, after=3.1)
        async with working(app, slots=50):
            await gate.full(50)
            gate.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)


@pytest.mark.req("S-10")
async def test_last_attempts_of_suspects_run_alone_however_many_survive(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 60.0)
    suspects = gated(app, "suspect", max_attempts=3)
    suspects.open.set()
    async with app:
        jobs = [await app.submit("suspect") for _ in range(15)]
        await die_with(app, 15)
        async with working(app, slots=20):
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)

    assert 1 == suspects.most


async def test_a_suspect_that_survives_does_not_delay_the_others(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "FIRST_WATCH", 0.05)
    suspects = gated(app, "suspect", timeout=0.6)
    async with app:
        jobs = [await app.submit("suspect") for _ in range(3)]
        await die_with(app, 3)
        async with working(app, slots=10):
            await suspects.full(3)
            suspects.open.set()
            for job in jobs:
                assert State.COMPLETED is await ended(app, job.job_id)


async def test_a_worker_polls_soon_after_it_had_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute(MemoryStore):
        async def arrivals(self, queues: Sequence[str], seen: int, wait: timedelta) -> int:
            await asyncio.sleep(wait.total_seconds())  # a store that tells of nothing
            return seen

    monkeypatch.setattr(polling, "POLL", timedelta(minutes=1))
    app = Holdfast(store=Mute())
    app.task("work")(_nothing)
    async with app:
        first = await app.submit("work")
        async with working(app):
            assert State.COMPLETED is await ended(app, first.job_id)
            second = await app.submit("work")
            assert State.COMPLETED is await ended(app, second.job_id)


async def test_a_job_that_was_locked_at_the_wake_up_is_claimed_soon() -> None:
    class Locked(MemoryStore):
        """Skips a new job once, as a store does while another transaction locks its row."""

        passes = 0

        async def add(self, jobs: Sequence[Job], **how: Any) -> list[Added]:
            self.passes = 1
            return await super().add(jobs, **how)

        async def claim(self, want: Claim) -> list[Job]:
            if self.passes:
                self.passes -= 1
                return []
            return await super().claim(want)

    app = Holdfast(store=Locked())
    app.task("work")(_nothing)
    async with app, working(app):
        await asyncio.sleep(0.1)  # until it has found nothing and waits
        begun = asyncio.get_running_loop().time()
        job = await app.submit("work")
        assert State.COMPLETED is await ended(app, job.job_id)

    assert polling.POLL.total_seconds() / 2 > asyncio.get_running_loop().time() - begun


async def test_a_burst_waits_for_what_another_promoter_released() -> None:
    class Late(MemoryStore):
        """Finds dependents only after a promotion, which another process may have made."""

        joined = False

        async def promote(self, limit: int) -> Promoted:
            self.joined = True
            return await super().promote(limit)

        async def dependents(self, limit: int) -> list[Dependent]:
            return await super().dependents(limit) if self.joined else []

    app = Holdfast(store=Late())
    app.task("work")(_nothing)
    async with app:
        first = await app.submit("work")
        second = await app.submit("work", depends_on=[first.job_id])
        await Worker(app, maintenance=False).run(burst=True)

        assert State.COMPLETED is (await app.get(second.job_id)).state


async def test_the_poll_delay_grows_with_the_time_without_work() -> None:
    clock, store = ManualClock(), MemoryStore()
    delay = polling.PollDelay(clock)

    assert polling.POLL == await delay.next(store)
    delay.last_work = clock.monotonic()
    assert polling.FIRST_POLL == await delay.next(store)
    clock.advance(timedelta(seconds=4))
    assert timedelta(seconds=1) == await delay.next(store)
    clock.advance(timedelta(minutes=1))
    assert polling.POLL == await delay.next(store)


async def test_a_worker_announces_itself_before_it_claims(app: Holdfast) -> None:
    verbs: list[str] = []

    class Watched(MemoryStore):
        async def claim(self, want: Claim) -> list[Job]:
            verbs.append("claim")
            return await super().claim(want)

        async def lock(self, name: str, holder: str, ttl: timedelta, data: bytes = b"") -> bool:
            await asyncio.sleep(0)
            verbs.append(name.partition(":")[0])
            return await super().lock(name, holder, ttl, data)

    app = Holdfast(store=Watched())
    app.task("work")(_nothing)
    async with app:
        await Worker(app, maintenance=False).run(burst=True)

    assert ["worker", "claim"] == verbs[:2]


async def _nothing() -> None: ...


async def test_a_burst_waits_for_jobs_that_a_rate_limit_holds_back(app: Holdfast) -> None:
    limit = LimitRule(rate=2, per=timedelta(milliseconds=200))
    app.task("work", limit=limit)(_nothing)
    async with app:
        jobs = [await app.submit("work") for _ in range(6)]
        await Worker(app).run(burst=True)

        for job in jobs:
            assert State.COMPLETED is (await app.get(job.job_id)).state


async def test_a_burst_does_not_wait_for_jobs_it_cannot_claim(app: Holdfast) -> None:
    app.task("work")(_nothing)
    async with app:
        await app.submit("foreign")
        await app.pause("default")
        paused = await app.submit("work")
        async with asyncio.timeout(2):
            await Worker(app).run(burst=True)

        assert State.SCHEDULED is (await app.get(paused.job_id)).state
