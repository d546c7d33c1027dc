"""A copy transfers everything from one store to another, once, also when it is killed."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.copying import Copier, CopyRefusedError
from holdfast.copying.progress import FROM, read_note
from holdfast.encryption import KeyRing, encrypted
from holdfast.model.job import State
from holdfast.model.workers import WorkerInfo
from holdfast.operations.workers import announce
from holdfast.runtime.clock import ManualClock
from holdfast.store import AddStatus, Change, LimitRule, MemoryStore, Order, RecordWrite, Search
from tests.conformance.conftest import SERVED
from tests.conformance.decisions import DECISIONS
from tests.conformance.hand import Hand
from tests.conformance.snapshot import differences, snapshot
from tests.conformance.stores import NAMES, PLACES
from tests.conformance.world import LABELS, World
from tests.worker.rig import ended, working

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store import Store
    from tests.conformance.stores import Place

PAIRS = [
    pytest.param((a, b), marks=[SERVED[n] for n in (a, b) if n in SERVED], id=f"{a}-{b}")
    for a, b in itertools.product(NAMES, NAMES)
    if a != b
]
DELETED = 3
"""Deleted jobs whose keys are still held."""
SAME = ("get", "history", "logs", "cancels", "parents", "failures", "overdue", "next due")


class Killed(BaseException):
    """Stands for kill -9 of the copying process."""


class DyingStore(MemoryStore):
    """A store whose process dies at the n-th verb that changes it."""

    writes_left = 10**9

    async def adopt(self, exports: object) -> list[bool]:
        self._count_write()
        return await super().adopt(exports)  # type: ignore[arg-type]

    async def keep(self, writes: object) -> list[int | None]:
        self._count_write()
        return await super().keep(writes)  # type: ignore[arg-type]

    async def configure(self, queue: str, settings: object) -> None:
        self._count_write()
        await super().configure(queue, settings)  # type: ignore[arg-type]

    async def limit(self, scope: str, rule: object) -> None:
        self._count_write()
        await super().limit(scope, rule)  # type: ignore[arg-type]

    def _count_write(self) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise Killed


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Place, Place]]:
    """Two empty stores of different kinds."""
    source, target = request.param
    with PLACES[source](request) as here, PLACES[target](request) as there:
        yield here, there


async def filled(store: Store, clock: ManualClock) -> World:
    """Fill a store with every kind of job and record; all leases have expired."""
    world = World(lambda _: store)
    world.clock = clock
    await world.build()
    await store.keep([RecordWrite(kind="acme/key", key=f"{n:03}", data=b"\x00") for n in range(3)])
    await store.lock("cron:nightly", "cron", timedelta(days=1), b"2026-01-01")
    clock.advance(3600)
    hand = Hand(store, clock)
    for n in range(DELETED):
        gone = await hand.add(f"gone{n}", idempotency_key=f"k{n}", idempotency_window=7200)
        await hand.cancel(gone)
        assert [True] == await store.delete([gone.id])
    return world


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
@pytest.mark.slow
@pytest.mark.req("S-1", "M-3", "M-9", "M-10", "S-15")
async def test_copy_transfers_everything(pair: tuple[Place, Place], clock: ManualClock) -> None:
    here, there = pair
    source, target = await here.open(clock).start(), await there.open(clock).start()
    await filled(source, clock)
    before = await snapshot(source, LABELS)

    report = await Copier(source, target).run()

    after = await snapshot(target, LABELS)
    assert () == report.differences
    assert len(LABELS) == report.jobs == report.adopted
    for part in SAME:
        assert [] == differences(before[part], after[part], part)
    assert before["find"]["CREATED_ASC"] == after["find"]["CREATED_ASC"]
    assert before["queues"] == after["queues"]
    assert _rules(before) == _rules(after)
    assert 3 == len(await target.browse("acme/key"))
    assert DELETED == report.keys
    hand = Hand(target, clock)
    twins = [
        hand.job(f"twin{n}", type=name, payload={"label": name}, idempotency_key=f"k{n}")
        for n in range(DELETED)
        for name in [f"gone{n}"]
    ]
    answers = await target.add(twins)
    assert {(AddStatus.DUPLICATE, True)} == {(a.status, a.deleted) for a in answers}
    clock.advance(7200)
    assert {AddStatus.ACCEPTED} == {answer.status for answer in await target.add(twins)}
    assert [b"2026-01-01"] == [lock.data for lock in await target.locks("cron:")]
    assert {True} == {queue.paused for queue in await source.queues()}
    await source.close()
    await target.close()


async def test_copy_killed_at_any_step_can_be_resumed(clock: ManualClock) -> None:
    source = MemoryStore(clock)
    await filled(source, clock)
    expected = await _copied_jobs(source, clock)
    steps = 0
    for steps in range(200):
        clock.set(ManualClock().now())
        source = MemoryStore(clock)
        await filled(source, clock)
        target = DyingStore(clock)
        target.writes_left = steps
        try:
            await Copier(source, target).run()
        except Killed:
            target.writes_left = 10**9
            clock.advance(60)
            report = await _resumed(source, target)
        else:
            break
        assert report is None or report.ok
        assert expected == await _jobs(target)
        note = await read_note(target, FROM)
        assert note is not None
        assert note.opened
    assert steps > 10


async def _resumed(source: Store, target: Store) -> object:
    """Run again; a copy that was already finished is refused."""
    note = await read_note(target, FROM)
    if note is None or note.finished_at is None:
        return await Copier(source, target).run()
    with pytest.raises(CopyRefusedError, match="was already copied"):
        await Copier(source, target).run()
    return None


async def test_finished_copy_is_refused(clock: ManualClock) -> None:
    source, target = MemoryStore(clock), MemoryStore(clock)
    await filled(source, clock)
    await Copier(source, target).run()

    for other in (target, MemoryStore(clock)):
        with pytest.raises(CopyRefusedError, match="was already copied"):
            await Copier(source, other).run()


async def test_target_with_jobs_of_its_own_is_refused(clock: ManualClock) -> None:
    source, target = MemoryStore(clock), MemoryStore(clock)
    await Hand(target, clock).add("a")

    with pytest.raises(CopyRefusedError, match="already holds 1 job"):
        await Copier(source, target).run()


async def test_stores_with_workers_are_refused(clock: ManualClock) -> None:
    quiet, busy = MemoryStore(clock), MemoryStore(clock)
    info = WorkerInfo(
        id="w7", host="h", pid=1, queues=(), types=(), slots=1, running=0, started_at=clock.now()
    )
    await announce(busy, info)

    for source, target in ((busy, quiet), (quiet, busy)):
        with pytest.raises(CopyRefusedError, match=r"1 worker.*w7.*stop them"):
            await Copier(source, target).run()

    clock.advance(15)
    assert (await Copier(busy, quiet).run()).ok


async def test_source_with_a_running_job_is_refused(clock: ManualClock) -> None:
    source = MemoryStore(clock)
    await Hand(source, clock).run("a")

    with pytest.raises(CopyRefusedError, match=r"1 job\(s\) are running"):
        await Copier(source, MemoryStore(clock)).run()


async def test_two_copies_at_once_are_refused(clock: ManualClock) -> None:
    source, target = MemoryStore(clock), MemoryStore(clock)
    await source.lock("copy", "another", timedelta(seconds=5))

    with pytest.raises(CopyRefusedError, match="another copy is using"):
        await Copier(source, target).run()

    clock.advance(5)
    assert (await Copier(source, target).run()).ok


async def test_change_during_the_copy_is_reported_and_the_target_stays_paused(
    clock: ManualClock,
) -> None:
    source, target = MemoryStore(clock), MemoryStore(clock)
    hand = Hand(source, clock)
    job = await hand.add("a")

    async def cancel_job() -> None:
        (stored,) = await source.get([job.id])
        await source.swap([Change(stored, DECISIONS["cancel"](stored, clock.now()))])

    class InterruptedCopier(Copier):
        async def _differences(self) -> tuple[list[str], int]:
            await cancel_job()
            return await super()._differences()

    report = await InterruptedCopier(source, target).run()

    assert not report.ok
    assert f"job {job.id} differs in history" in report.differences[0]
    assert report.finished_at is None
    assert {True} == {queue.paused for queue in await target.queues()}


async def test_copied_jobs_run_in_their_new_store() -> None:
    first = Holdfast("memory://")
    async with first:
        parent = await first.submit("a", {"n": 1})
        child = await first.submit("b", depends_on=[parent.job_id])
        target = MemoryStore()
        await first.store.limit("task:a", LimitRule(concurrency=1))
        await Copier(first.store, target).run()
    app = Holdfast(store=target)

    @app.task("a")
    async def a(n: int) -> int:
        return n + 1

    @app.task("b")
    async def b() -> None: ...

    async with working(app):
        assert State.COMPLETED is await ended(app, child.job_id)
        assert 2 == (await app.get(parent.job_id)).output


async def test_encrypted_jobs_are_copied_without_their_key() -> None:
    ring = KeyRing.parse(KeyRing.generate("k1"))
    inner, target = MemoryStore(), MemoryStore()
    async with Holdfast(store=inner, keys=ring) as first:
        job = await first.submit("a", {"n": 1})

    await Copier(inner, target).run()

    app = Holdfast(store=target, keys=ring)
    app.task("a")(_payload)
    async with working(app):
        assert {"n": 1} == (await app.wait(job.job_id, timeout=15)).output


async def test_decrypting_view_is_refused() -> None:
    ring = KeyRing.parse(KeyRing.generate("k1"))

    with pytest.raises(CopyRefusedError, match="view of a store"):
        await Copier(MemoryStore(), encrypted(MemoryStore(), ring)).run()


async def _payload(payload: dict[str, int]) -> dict[str, int]:
    return payload


async def _jobs(store: Store) -> list[object]:
    page = await store.find(Search(order=Order.CREATED_ASC, limit=1000))
    histories = await store.history([job.id for job in page.jobs])
    return list(zip(page.jobs, histories, strict=True))


async def _copied_jobs(store: Store, clock: ManualClock) -> list[object]:
    target = MemoryStore(clock)
    assert (await Copier(store, target).run()).ok
    return await _jobs(target)


def _rules(snapshot: dict[str, object]) -> object:
    limits = snapshot["limits"]
    assert isinstance(limits, dict)
    return {scope: state.rule for scope, state in limits.items() if scope.count(":") == 1}
