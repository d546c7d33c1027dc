"""Why a job is not running: every cause has its sentence and its facts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, LimitRule, TemporaryError, Worker
from holdfast.model import lifecycle
from holdfast.model.workers import LEADERSHIP, WorkerInfo
from holdfast.operations.dependents import release_dependents
from holdfast.operations.explain import Cause
from holdfast.operations.workers import TERM, announce
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim
from tests.app.conftest import Drain
from tests.waiting import eventually


async def _worker(
    app: Holdfast,
    *,
    queues: tuple[str, ...],
    types: tuple[str, ...],
    name: str = "w1",
    draining: bool = False,
) -> None:
    """Announce a worker."""
    info = WorkerInfo(
        id=name,
        host="h",
        pid=1,
        queues=queues,
        types=types,
        slots=3,
        running=1,
        started_at=app.clock.now(),
        draining=draining,
    )
    await announce(app.store, info)


async def _claim(app: Holdfast) -> None:
    await app.store.claim(Claim(queues=("default",), limit=1, worker="w1", token="t"))


async def _lead(app: Holdfast) -> None:
    """Let a worker lead maintenance."""
    await app.store.lock(LEADERSHIP, "w1", TERM)


async def test_ended_job_is_explained_by_its_end(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    await app.cancel(job_id, reason="not needed")

    explanation = await app.explain(job_id)

    assert Cause.ENDED is explanation.cause
    assert explanation.message.startswith("it ended CANCELLED at 2026-01-01T00:00:00Z: not needed")


async def test_running_job_is_explained_by_its_lease_before_and_after_it_expires(
    app: Holdfast, clock: ManualClock
) -> None:
    job_id = (await app.submit("x")).job_id
    await _claim(app)

    running = await app.explain(job_id)
    clock.advance(15)
    await _lead(app)
    expired = await app.explain(job_id)

    assert Cause.RUNNING is running.cause
    assert "worker w1 holds the lease until 2026-01-01T00:00:15Z" in running.message
    assert ("w1", 1) == (running.details["worker"], running.details["attempt"])
    assert Cause.LEASE_EXPIRED is expired.cause
    assert "its lease expired at 2026-01-01T00:00:15Z in worker w1" in expired.message
    assert expired.message.endswith("it will be reclaimed shortly")


@pytest.mark.parametrize(
    ("reason", "force", "words"),
    [
        ("wrong file", False, "was asked at {} to stop (wrong file), and has not reached a check"),
        ("", False, "was asked at {} to stop, and has not reached a checkpoint yet: worker w1 hol"),
        ("", True, "its worker was asked at {} to interrupt it, and has not yet: worker w1 holds"),
    ],
)
async def test_running_job_that_was_asked_to_stop_says_so(
    app: Holdfast, clock: ManualClock, reason: str, *, force: bool, words: str
) -> None:
    job_id = (await app.submit("x")).job_id
    await _claim(app)
    clock.advance(2)

    await app.cancel(job_id, reason=reason, force=force)
    explanation = await app.explain(job_id)

    assert Cause.RUNNING is explanation.cause
    assert words.format("2026-01-01T00:00:02Z") in explanation.message
    assert "2026-01-01T00:00:02Z" == explanation.details["cancel_at"]


async def test_jobs_that_need_maintenance_are_explained_by_its_absence(
    app: Holdfast, clock: ManualClock
) -> None:
    done = (await app.submit("done")).job_id
    await _claim(app)
    child = (await app.submit("child", depends_on=[done])).job_id
    (running,) = await app.store.get([done])
    assert running is not None
    ended = lifecycle.completed(running, None, now=clock.now())
    await app.store.swap([Change(running, ended)])
    expired = (await app.submit("lapsed")).job_id
    await _claim(app)
    delayed = (await app.submit("delayed", delay=10)).job_id
    clock.advance(40)

    stuck = [await app.explain(job_id) for job_id in (child, expired, delayed)]
    await _lead(app)
    moving = [await app.explain(job_id) for job_id in (child, expired, delayed)]

    assert [Cause.NO_WORKER] * 3 == [explanation.cause for explanation in stuck]
    assert all(
        "when a worker leads maintenance: none is running" in explanation.message
        for explanation in stuck
    )
    assert [Cause.DEPENDENCY, Cause.LEASE_EXPIRED, Cause.DELAYED] == [t.cause for t in moving]
    assert "it was due at 2026-01-01T00:00:10Z; it will be made ready shortly" == (
        moving[2].message
    )


async def test_moment_without_a_leader_is_not_explained_by_the_absence_of_workers(
    app: Holdfast, clock: ManualClock
) -> None:
    job_id = (await app.submit("delayed", delay=10)).job_id
    await _lead(app)
    await _worker(app, queues=("default",), types=("delayed",))
    clock.advance(11)  # the term of the leader is over, its announcement holds

    explanation = await app.explain(job_id)

    assert Cause.DELAYED is explanation.cause
    assert explanation.message.endswith("leads maintenance: none does at this moment")


async def test_held_job_is_explained(app: Holdfast) -> None:
    job_id = (await app.submit("x", hold=True)).job_id

    assert Cause.HELD is (await app.explain(job_id)).cause


async def test_pending_job_is_explained_by_its_dependencies(app: Holdfast) -> None:
    first, second = [(await app.submit("part")).job_id for _ in range(2)]
    job_id = (await app.submit("whole", depends_on=[first, second])).job_id

    explanation = await app.explain(job_id)

    assert Cause.DEPENDENCY is explanation.cause
    assert f"waits for part job {first}, which is SCHEDULED and 1 more" in explanation.message
    assert {first: "SCHEDULED", second: "SCHEDULED"} == explanation.details["waiting_for"]


@pytest.mark.req("A-16")
async def test_retried_job_is_explained_by_the_dependency_that_was_not_retried(
    app: Holdfast,
) -> None:
    first = (await app.submit("part", lifetime=1)).job_id
    job_id = (await app.submit("whole", depends_on=[first])).job_id
    await _fail(app, first)

    await app.retry(job_id)
    explanation = await app.explain(job_id)

    assert Cause.DEPENDENCY is explanation.cause
    assert (
        f"it waits for part job {first}, which is DEAD_LETTER: retry that job, or cancel this one"
        == explanation.message
    )


async def _fail(app: Holdfast, job_id: str) -> None:
    (job,) = await app.store.get([job_id])
    assert job is not None
    await app.store.swap([Change(job, lifecycle.lifetime_over(job, now=app.store.now()))])
    await release_dependents(app.store)


async def test_delayed_job_waits_for_its_time(app: Holdfast) -> None:
    job_id = (await app.submit("x", delay=90)).job_id

    explanation = await app.explain(job_id)

    assert (Cause.DELAYED, "it waits for its time, due at 2026-01-01T00:01:30Z") == (
        explanation.cause,
        explanation.message,
    )


async def test_retrying_job_waits_for_its_next_attempt(app: Holdfast, drain: Drain) -> None:
    @app.task("x")
    async def x() -> None:
        raise TemporaryError("the bank is closed", retry_after=60)

    job_id = (await x.submit()).job_id
    await drain()

    explanation = await app.explain(job_id)

    assert Cause.BACKING_OFF is explanation.cause
    assert (
        "it waits for its next attempt after 'TemporaryError: the bank is closed', due at"
        in explanation.message
    )


async def test_paused_queue_is_named(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    until = "2026-01-02T00:00:00Z"
    await app.pause("default", reason="the mail server moves", until=until, by="Ada")
    found = await app.explain(job_id)
    await app.pause("default")
    plain = await app.explain(job_id)

    paused, since = "queue 'default' is paused", "since 2026-01-01T00:00:00Z"
    assert Cause.QUEUE_PAUSED is found.cause
    assert f"{paused} by Ada {since} until {until}: the mail server moves" == found.message
    assert f"{paused} {since}" == plain.message


@pytest.mark.req("S-14")
async def test_missing_worker_is_explained_by_those_that_are_alive(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id

    none = await app.explain(job_id)
    await _worker(app, queues=("mail",), types=("x",))
    elsewhere = await app.explain(job_id)
    await _worker(app, queues=("default",), types=("y", "z"))
    incapable = await app.explain(job_id)

    assert {Cause.NO_WORKER} == {none.cause, elsewhere.cause, incapable.cause}
    assert "no worker is running" == none.message
    assert "no live worker serves queue 'default' (served: mail)" == elsewhere.message
    assert "no live worker of queue 'default' has a handler for 'x' (known: y, z)" == (
        incapable.message
    )


async def test_exhausted_limit_is_named(app: Holdfast) -> None:
    await _worker(app, queues=("default",), types=("x",))
    await app.store.limit("task:x", LimitRule(concurrency=1))
    await app.store.limit("key:x", LimitRule(rate=1, per=timedelta(minutes=1)))
    running = (await app.submit("x", limit_key="k")).job_id
    await _claim(app)
    concurrency = await app.explain((await app.submit("x")).job_id)

    await app.store.limit("task:x", None)
    rate = await app.explain((await app.submit("x", limit_key="k")).job_id)

    assert {Cause.LIMIT_REACHED} == {concurrency.cause, rate.cause}
    assert "task:x already runs 1 of 1 allowed at once" == concurrency.message
    assert "key:x:k lets 1 start per 60 s, 1 at once; the next from" in rate.message
    assert Cause.RUNNING is (await app.explain(running)).cause


async def test_scheduled_job_is_ready_to_run(app: Holdfast) -> None:
    await _worker(app, queues=("default",), types=("x",))
    job_id = (await app.submit("x")).job_id

    explanation = await app.explain(job_id)

    assert Cause.READY is explanation.cause
    assert "it is ready to run: 1 worker(s) can claim it, 2 slot(s) were free" == (
        explanation.message
    )
    assert (["w1"], 2) == (explanation.details["workers"], explanation.details["free_slots"])


async def test_workers_are_listed_while_they_are_alive(app: Holdfast) -> None:
    @app.task("list")
    async def list_workers() -> list[str]:
        return [worker.id for worker in await eventually(app.workers)]

    worker = Worker(app, maintenance=False, name="me")
    job_id = (await list_workers.submit()).job_id

    await worker.run(burst=True)

    assert ["me"] == (await app.get(job_id)).output
    assert [] == await app.workers()


async def test_drained_workers_do_not_count(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    await _worker(app, queues=("default",), types=("x",), draining=True)

    one = await app.explain(job_id)
    await _worker(app, queues=("default",), types=("x",), name="w2", draining=True)
    all_ = await app.explain(job_id)
    await _worker(app, queues=("default",), types=("x",), name="w3")
    free = await app.explain(job_id)

    assert [Cause.NO_WORKER, Cause.NO_WORKER, Cause.READY] == [one.cause, all_.cause, free.cause]
    assert one.message.startswith("the worker that serves it drains, and so claims no jobs")
    assert "holdfast workers undrain w1" in one.message
    assert all_.message.startswith("all 2 workers that serve it drain, and so claim no jobs")
    assert "1 worker(s) can claim it, 2 slot(s)" in free.message
