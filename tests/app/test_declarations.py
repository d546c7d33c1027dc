"""What workers declare about their tasks and queues reaches every submitter of the store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast import Backoff, BackoffKind, Holdfast, JobContext, Profile, Submission, Worker
from holdfast.encryption import KeyRing
from holdfast.model.job import Job, Priority
from holdfast.model.profiles import LEASE, canonical
from holdfast.model.reserved import QUEUE_PROFILES, TASKS
from holdfast.operations.declarations import FRESH, FRESH_PROFILE
from holdfast.operations.publisher import Publisher
from holdfast.runtime.clock import ManualClock
from holdfast.store import Record, RecordWrite, Store
from holdfast.store.proxy import StoreProxy
from holdfast.store.tenants import TenantStore
from tests.conformance.stores import Place

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=2 * SECOND)


class CountingStore(StoreProxy):
    """Counts the reads of records."""

    reads = 0

    async def records(self, kind: str, keys: Sequence[str]) -> list[Record | None]:
        self.reads += 1
        return await self._inner.records(kind, keys)


async def handler() -> None: ...


async def stored(app: Holdfast, type_: str = "pay", **options: object) -> Job:
    """Submit a job and return it as it is stored."""
    job_id = (await app.submit(type_, **options)).job_id  # type: ignore[arg-type]
    (job,) = await app.store.get([job_id])
    assert job is not None
    return job


async def publish(app: Holdfast, queues: Sequence[str] = ("default",)) -> None:
    """Start a worker, which publishes, and stop it when no job is left."""
    await Worker(app, queues=queues, maintenance=False).run(burst=True)


@pytest.fixture
async def worker(place: Place, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """The app of a worker, which declares a task and the profile of a queue."""
    async with Holdfast(store=place.open(clock), clock=clock, queues={"leased": "lease"}) as app:
        app.task(
            "pay",
            queue="money",
            priority="HIGH",
            max_attempts=1,
            backoff=BACKOFF,
            timeout=3,
            lifetime=600,
            lease=7,
            retry_timeouts=False,
            retry_crashes=False,
        )(handler)
        app.task("plain")(handler)
        yield app


@pytest.mark.req("M-6", "M-7")
async def test_a_submitter_without_the_code_applies_what_the_task_declares(
    app: Holdfast, worker: Holdfast
) -> None:
    await publish(worker)

    job = await stored(app)

    assert ("money", Priority.HIGH, 1, BACKOFF, False) == (
        *(job.queue, job.priority, job.max_attempts, job.backoff, job.retry_timeouts),
    )
    assert not job.retry_crashes
    assert (3 * SECOND, 600 * SECOND, 7 * SECOND) == (job.timeout, job.lifetime, job.lease_ttl)
    with_code = await stored(worker)
    assert with_code == replace(
        job, id=with_code.id, created_at=with_code.created_at, updated_at=with_code.updated_at
    )


async def test_a_submission_overrides_what_the_task_declares(
    app: Holdfast, worker: Holdfast
) -> None:
    await publish(worker)

    job = await stored(app, queue="other", max_attempts=2, timeout=60)

    assert ("other", 2, 3 * SECOND) == (job.queue, job.max_attempts, job.timeout)


async def test_a_type_that_nobody_declares_gets_the_usual_defaults(
    app: Holdfast, worker: Holdfast
) -> None:
    await publish(worker)

    job = await stored(app, "unknown")

    assert ("default", 3, "standard") == (job.queue, job.max_attempts, job.profile)


async def test_the_profile_of_a_queue_is_kept_in_the_store(app: Holdfast, worker: Holdfast) -> None:
    await publish(worker)
    app.register("own", handler)

    for type_ in ("plain", "own", "unknown"):
        job = await stored(app, type_, queue="leased")
        assert ("lease", LEASE.max_attempts, LEASE.lease, LEASE.timeout) == (
            *(job.profile, job.max_attempts, job.lease_ttl, job.timeout),
        )
        assert "Ready" == (await app.get(job.id)).profile_state


async def test_a_profile_of_its_own_making_is_kept_with_all_its_values(
    app: Holdfast, place: Place, clock: ManualClock
) -> None:
    own = Profile(name="own", max_attempts=9, lifetime=99 * SECOND, word=canonical)
    async with Holdfast(store=place.open(clock), clock=clock, queues={"q": own}) as worker:
        await publish(worker)

    job = await stored(app, queue="q")

    assert ("own", 9, 99 * SECOND) == (job.profile, job.max_attempts, job.lifetime)


async def test_the_apps_own_declarations_come_first(app: Holdfast, worker: Holdfast) -> None:
    await publish(worker)
    app.task("pay", max_attempts=5)(handler)

    job = await stored(app)

    assert ("default", 5) == (job.queue, job.max_attempts)


async def test_a_batch_applies_what_tasks_declare(app: Holdfast, worker: Holdfast) -> None:
    await publish(worker)

    result = await app.submit_batch(
        [Submission(type="pay"), Submission(type="x"), Submission(type="x", queue="leased")]
    )

    jobs = await app.store.get([each.job_id for each in result.results])
    assert [("money", 1), ("default", 3), ("leased", 4)] == [
        (job.queue, job.max_attempts) for job in jobs if job
    ]


@pytest.mark.req("M-9")
async def test_a_spawned_job_applies_what_the_task_of_another_worker_declares(
    app: Holdfast, worker: Holdfast
) -> None:
    await publish(worker)

    @app.task("parent")
    async def parent(ctx: JobContext) -> str:
        return await ctx.spawn("pay")

    job = await stored(app, "parent")
    await publish(app)

    child_id = (await app.get(job.id)).output
    (child,) = await app.store.get([str(child_id)])
    assert child is not None
    assert ("money", 1) == (child.queue, child.max_attempts)


async def test_what_was_read_is_used_for_a_few_seconds(
    place: Place, clock: ManualClock, worker: Holdfast
) -> None:
    store = CountingStore(place.open(clock))
    async with Holdfast(store=store, clock=clock) as app:
        assert 3 == (await stored(app)).max_attempts
        await publish(worker)
        before = store.reads
        for _ in range(10):
            assert 3 == (await stored(app)).max_attempts
        assert before == store.reads

        clock.advance(FRESH)

        assert 1 == (await stored(app)).max_attempts
        assert before + 2 == store.reads


async def test_a_task_of_the_app_is_submitted_without_reading(
    place: Place, clock: ManualClock
) -> None:
    store = CountingStore(place.open(clock))
    async with Holdfast(store=store, clock=clock, queues={"q": "lease"}) as app:
        app.task("with_profile", queue="q")(handler)
        app.task("without")(handler)
        for _ in range(3):
            await app.submit("with_profile")
            clock.advance(10 * FRESH_PROFILE)
        assert 0 == store.reads

        for _ in range(3):
            await app.submit("without")
            clock.advance(FRESH_PROFILE / 3)

        assert 1 == store.reads


async def test_a_task_registered_later_is_used_at_once(app: Holdfast) -> None:
    await app.submit("late")

    app.task("late", max_attempts=2)(handler)

    assert 2 == (await stored(app, "late")).max_attempts


async def test_declarations_are_written_only_when_they_change(
    app: Holdfast, worker: Holdfast
) -> None:
    for _ in range(3):
        await publish(worker)

    (task,) = await app.store.records(TASKS, ["pay"])
    (profile,) = await app.store.records(QUEUE_PROFILES, ["leased"])
    assert task is not None
    assert profile is not None
    assert (1, 1) == (task.version, profile.version)


async def test_a_new_version_of_the_code_replaces_what_the_old_one_declared(
    app: Holdfast, worker: Holdfast, place: Place, clock: ManualClock
) -> None:
    await publish(worker)
    clock.advance(1)
    async with Holdfast(store=place.open(clock), clock=clock) as newer:
        newer.task("pay")(handler)
        await publish(newer)

    job = await stored(app)

    assert ("default", 3) == (job.queue, job.max_attempts)


async def test_side_by_side_the_worker_that_started_last_decides(
    app: Holdfast, clock: ManualClock
) -> None:
    store, started = app.store, clock.now()
    old, new = ({"q": LEASE}, {"q": replace(LEASE, max_attempts=8)})
    for worker in ("old", "new"):
        await announced(store, worker, clock)
    await Publisher(store, "old", started).publish_profiles(old)
    await Publisher(store, "new", started + SECOND).publish_profiles(new)

    await Publisher(store, "old", started).publish_profiles(old)

    assert 8 == (await stored(app, queue="q")).max_attempts


async def test_the_declarations_of_a_worker_that_is_gone_are_replaced(
    app: Holdfast, clock: ManualClock
) -> None:
    store, started = app.store, clock.now()
    await announced(store, "stays", clock)
    await Publisher(store, "gone", started + SECOND).publish_profiles({"q": LEASE})

    stays = {"q": replace(LEASE, max_attempts=8)}
    await Publisher(store, "stays", started).publish_profiles(stays)

    assert 8 == (await stored(app, queue="q")).max_attempts


async def announced(store: Store, worker: str, clock: ManualClock) -> None:
    from holdfast.model.workers import WorkerInfo
    from holdfast.operations.workers import announce

    info = WorkerInfo(
        id=worker,
        host="h",
        pid=1,
        queues=("q",),
        types=(),
        slots=1,
        running=0,
        started_at=clock.now(),
    )
    await announce(store, info)


async def test_records_that_cannot_be_read_are_ignored_and_replaced(
    app: Holdfast, worker: Holdfast
) -> None:
    writes = [
        RecordWrite(kind=TASKS, key="pay", data=b"{"),
        RecordWrite(kind=TASKS, key="odd", data=b'{"declared":{"max_attempts":"many"}}'),
        RecordWrite(kind=QUEUE_PROFILES, key="default", data=b"[]"),
    ]
    await app.store.keep(writes)

    assert 3 == (await stored(app, "odd")).max_attempts
    assert 3 == (await stored(app, "pay")).max_attempts
    await publish(worker)
    async with reopened(app) as fresh:
        assert 1 == (await stored(fresh)).max_attempts


@contextlib.asynccontextmanager
async def reopened(app: Holdfast) -> AsyncIterator[Holdfast]:
    """An app that has read nothing yet, over the same store."""
    fresh = Holdfast(store=app.store, clock=app.clock)
    yield await fresh.start()


async def test_declarations_are_readable_without_the_encryption_keys(
    app: Holdfast, place: Place, clock: ManualClock
) -> None:
    keys = KeyRing.parse("k:" + "A" * 43 + "=")
    async with Holdfast(store=place.open(clock), clock=clock, keys=keys) as worker:
        worker.task("pay", max_attempts=1)(handler)
        await publish(worker, ["default", "acme/q"])

    assert 1 == (await stored(app)).max_attempts
    job = await stored_in("acme", app)
    assert ("acme/default", 1) == (job.queue, job.max_attempts)


async def test_a_namespace_gets_what_its_own_workers_declare(
    app: Holdfast, place: Place, clock: ManualClock
) -> None:
    async with Holdfast(
        store=place.open(clock), clock=clock, queues={"acme/leased": "lease"}
    ) as worker:
        worker.task("pay", max_attempts=1, queue="leased")(handler)
        await publish(worker, ["acme/leased"])

    outside, inside = await stored(app), await stored_in("acme", app)
    other = await stored_in("emca", app)

    assert ("default", 3, "standard") == (outside.queue, outside.max_attempts, outside.profile)
    assert ("acme/leased", 1, "lease") == (inside.queue, inside.max_attempts, inside.profile)
    assert ("emca/default", 3, "standard") == (other.queue, other.max_attempts, other.profile)


async def stored_in(namespace: str, app: Holdfast) -> Job:
    """Submit a job in a namespace and return it as it is stored."""
    operations = app.over(TenantStore(app.store, namespace))
    job_id = (await operations.submit(Submission(type="pay"))).job_id
    (job,) = await app.store.get([job_id])
    assert job is not None
    return job


async def test_explain_shows_where_settings_come_from(app: Holdfast, worker: Holdfast) -> None:
    await publish(worker)
    job = await stored(app, lease=9, queue="leased")

    settings = (await app.explain(job.id)).settings

    assert {
        "queue": ("leased", "JOB"),
        "priority": ("HIGH", "TASK"),
        "max_attempts": (1, "TASK"),
        "backoff": ("CONSTANT from 2 s", "TASK"),
        "timeout": (3.0, "TASK"),
        "lifetime": (600.0, "TASK"),
        "lease": (9.0, "JOB"),
        "retry_timeouts": (False, "TASK"),
        "retry_crashes": (False, "TASK"),
    } == {name: (each.value, each.origin) for name, each in settings.values.items()}
    assert "lease" == settings.profile
    assert settings.declared_by


async def test_explain_shows_the_profile_where_no_task_declares_anything(app: Holdfast) -> None:
    job = await stored(app, max_attempts=7)

    settings = (await app.explain(job.id)).settings

    assert None is settings.declared_by
    assert {"max_attempts"} == {n for n, each in settings.values.items() if each.origin == "JOB"}
    assert {"PROFILE"} == {e.origin for n, e in settings.values.items() if n != "max_attempts"}
