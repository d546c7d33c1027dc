"""What ``ctx.spawn`` takes, and the keys of spawned jobs, in coroutines and plain functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast import (
    DuplicateError,
    Holdfast,
    JobContext,
    StaleLeaseError,
    Submission,
    SyncJobContext,
    TemporaryError,
    ValidationError,
    Worker,
)
from holdfast.model import lifecycle
from holdfast.model.job import Job
from holdfast.runtime.clock import ManualClock
from holdfast.store import Added, Change, Claim, Fence, MemoryStore
from tests.app.conftest import Drain

Spawn = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of one spawn."""


def spawn(*args: Any, **options: Any) -> Spawn:
    return args, options


class Parent:
    """A task that spawns, in each attempt, and records the answers."""

    def __init__(
        self, app: Holdfast, *spawns: Spawn, attempts: int = 1, sync: bool = False
    ) -> None:
        self.answers: list[str | Exception] = []
        self._spawns = spawns
        self._attempts = attempts
        app.register("parent", self._function if sync else self._coroutine)

    async def _coroutine(self, ctx: JobContext) -> None:
        for args, options in self._spawns:
            try:
                self.answers.append(await ctx.spawn(*args, **options))
            except (ValidationError, DuplicateError) as error:
                self.answers.append(error)
        self._again(ctx)

    def _function(self, ctx: SyncJobContext) -> None:
        for args, options in self._spawns:
            try:
                self.answers.append(ctx.spawn(*args, **options))
            except (ValidationError, DuplicateError) as error:
                self.answers.append(error)
        self._again(ctx)

    def _again(self, ctx: JobContext | SyncJobContext) -> None:
        if ctx.attempt < self._attempts:
            raise TemporaryError("again", retry_after=1)


@pytest.fixture(params=["coroutine", "function"])
def parent(app: Holdfast, request: pytest.FixtureRequest) -> Callable[..., Parent]:
    """Register a parent that is a coroutine, then one that is a plain function."""

    def parent(*spawns: Spawn, attempts: int = 1) -> Parent:
        return Parent(app, *spawns, attempts=attempts, sync=request.param == "function")

    return parent


async def children(app: Holdfast) -> list[Job]:
    """The spawned jobs, oldest first."""
    found = await app.search(types=["child"], order="CREATED_ASC")
    return [job for job in await app.store.get([j.job_id for j in found.jobs]) if job is not None]


@pytest.mark.req("M-9", "A-18")
async def test_a_spawned_job_has_everything_that_it_was_given(
    app: Holdfast, drain: Drain, parent: Callable[..., Parent]
) -> None:
    @app.task("child")
    async def child(number: int) -> None: ...

    low = child.using(priority="LOW", tags={"a": "b"}, max_attempts=7, delay=60)
    parent(
        spawn(low.submission(1)),
        spawn(low, {"number": 2}),
        spawn(low.submission(3), priority="HIGH", tags={"c": "d"}),
        spawn(low, {"number": 4}, priority="HIGH", tags={"c": "d"}),
        spawn("child", {"number": 5}, priority="HIGH", max_attempts=7, tags={"c": "d"}),
        spawn(child, {"number": 6}, priority="LOW", max_attempts=7, tags={"a": "b"}),
        spawn(Submission(type="child", payload={"number": 7}, max_attempts=7, priority="LOW")),
    )

    await app.submit("parent")
    await drain()

    found = {json.loads(job.payload)["number"]: job for job in await children(app)}
    assert set(range(1, 8)) == set(found)
    assert {7} == {job.max_attempts for job in found.values()}
    assert [3, 3, 1, 1, 1, 3, 3] == [found[n].priority for n in range(1, 8)]
    expected = [{"a": "b"}] * 2 + [{"c": "d"}] * 3 + [{"a": "b"}, {}]
    assert expected == [dict(found[n].tags) for n in range(1, 8)]
    assert all(found[n].due_at is not None for n in range(1, 5))


@pytest.mark.req("M-9", "A-18")
async def test_what_cannot_be_spawned_is_an_error_that_names_the_field(
    app: Holdfast, drain: Drain, parent: Callable[..., Parent]
) -> None:
    @app.task("child")
    async def child(number: int) -> None: ...

    made = parent(
        spawn(7),
        spawn(None, {"number": 1}),
        spawn(child.submission),
        spawn(child.submission(1), {"number": 2}),
        spawn(child.using(connection=object()), {"number": 1}),
        spawn("child", {"number": 1}, prioritty="LOW"),
        spawn("child", {"number": 1}, key=""),
        spawn("child", {"number": 1}, key=7),
        spawn("child", {"number": 1}, key="k" * 257),
        spawn("a b", {"number": 1}),
    )

    await app.submit("parent")
    await drain()

    fields = [
        [fault.field for fault in error.faults]
        for error in made.answers
        if isinstance(error, ValidationError)
    ]
    expected = ["task"] * 3 + ["payload", "connection", "prioritty"] + ["key"] * 3 + ["type"]
    assert [[name] for name in expected] == fields
    assert [] == await children(app)


@pytest.mark.req("M-2", "M-9")
async def test_an_idempotency_key_holds_among_spawned_and_submitted_jobs(
    app: Holdfast, drain: Drain, parent: Callable[..., Parent]
) -> None:
    made = parent(
        spawn("child", 1, idempotency_key="mine"),
        spawn("child", 1, idempotency_key="mine"),
        spawn("child", 2, idempotency_key="mine"),
        spawn("child", 1, idempotency_key="yours"),
        spawn("child", 2, idempotency_key="yours", key="k"),
    )
    before = await app.submit("child", 1, idempotency_key="yours")
    await app.submit("parent")
    await drain()

    after = await app.submit("child", 1, idempotency_key="mine")

    first, again, other, held, wrong = made.answers
    assert [first, first] == [again, after.job_id]
    assert before.job_id == held
    assert "DUPLICATE" == after.status
    assert [("mine", first), ("yours", held)] == [
        (error.key, error.existing_job_id)
        for error in (other, wrong)
        if isinstance(error, DuplicateError)
    ]
    assert [before.job_id, first] == [job.id for job in await children(app)]


@pytest.mark.req("M-2", "M-9")
async def test_both_keys_of_a_spawned_job_hold_when_its_spawner_is_retried(
    app: Holdfast, drain: Drain, clock: ManualClock, parent: Callable[..., Parent]
) -> None:
    made = parent(
        spawn("child", 1, key="a", idempotency_key="mine", idempotency_window=0.5),
        spawn("child", 2, key="b", idempotency_key="other"),
        spawn("child", 2, key="c", idempotency_key="other"),
        attempts=2,
    )
    await app.submit("parent")
    await drain()
    clock.advance(1)
    await drain()

    one, two = (job.id for job in await children(app))
    assert [one, two, two] * 2 == made.answers


@pytest.mark.req("M-2", "M-9")
async def test_a_spawn_key_holds_with_and_without_an_idempotency_key(
    app: Holdfast, drain: Drain, parent: Callable[..., Parent]
) -> None:
    made = parent(
        spawn("child", 1, key="a"),
        spawn("child", 1, key="a", idempotency_key="mine"),
        spawn("child", 2, key="b", idempotency_key="mine"),
        spawn("child", 3, key="b"),
    )
    await app.submit("parent")
    await drain()

    one, two = (job.id for job in await children(app))
    assert [one, one, two, two] == made.answers


class CountingStore(MemoryStore):
    """Counts the calls that add jobs, and waits a moment in each."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def add(
        self, jobs: Sequence[Job], *, atomic: bool = True, fence: Fence | None = None
    ) -> list[Added]:
        self.sizes.append(len(jobs))
        await asyncio.sleep(0.001)  # so that others wait meanwhile
        return await super().add(jobs, atomic=atomic, fence=fence)


@pytest.mark.req("M-9", stores=["memory"])
async def test_spawns_that_wait_together_are_written_together() -> None:
    store = CountingStore()
    app = Holdfast(store=store)

    @app.task("parent")
    async def parent(ctx: JobContext) -> list[str]:
        return await asyncio.gather(*(ctx.spawn("child", n, key=str(n % 99)) for n in range(100)))

    async with app:
        job = await app.submit("parent")
        store.sizes.clear()
        await Worker(app, queues=["default"], maintenance=False).run(burst=True)

        spawned = (await app.get(job.job_id)).output

    assert isinstance(spawned, list)
    assert 99 == len(set(spawned))
    assert spawned[0] == spawned[99]
    assert 100 == sum(store.sizes)
    assert 3 >= len(store.sizes)


@pytest.mark.req("M-9", "S-5")
async def test_a_lost_lease_fails_only_the_spawns_under_it(app: Holdfast) -> None:
    for _ in range(2):
        await app.submit("parent")
    held, lost = await app.store.claim(
        Claim(queues=("default",), types=("parent",), limit=2, worker="w", token="t")
    )
    fences = [Fence(job.id, job.lease.token) for job in (held, lost) if job.lease]
    await app.store.swap([Change(lost, lifecycle.given_back(lost, now=app.store.now()))])

    submitter = app.submitter(app.store)

    answers = await asyncio.gather(
        *(
            submitter.spawn(Submission(type="child", payload=n), fences[n % 2], None)
            for n in range(6)
        ),
        return_exceptions=True,
    )

    assert [str, StaleLeaseError] * 3 == [type(answer) for answer in answers]
    assert {held.id} == {job.spawned_by for job in await children(app)}
    assert 3 == len(await children(app))
