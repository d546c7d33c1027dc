"""Why a job is not running: every cause has its sentence and its facts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, LimitRule, TemporaryError, Worker
from holdfast.model import lifecycle
from holdfast.model.workers import WorkerInfo
from holdfast.operations.explain import Cause
from holdfast.operations.workers import LEADERSHIP, announce
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim
from tests.app.conftest import Drain


async def _worker(app: Holdfast, *, queues: tuple[str, ...], types: tuple[str, ...]) -> None:
    """Say that a worker is there."""
    info = WorkerInfo(
        id="w1",
        host="h",
        pid=1,
        queues=queues,
        types=types,
        slots=3,
        running=1,
        started_at=app.clock.now(),
    )
    await announce(app.store, info)


async def _claim(app: Holdfast) -> None:
    await app.store.claim(Claim(queues=("default",), limit=1, worker="w1", token="t"))


async def _lead(app: Holdfast) -> None:
    """Say that a worker leads maintenance."""
    await app.store.hold(LEADERSHIP, "w1", timedelta(hours=1))


async def test_ended(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    await app.cancel(job_id, reason="not needed")

    told = await app.explain(job_id)

    assert Cause.ENDED is told.cause
    assert told.message.startswith("it ended CANCELLED at 2026-01-01T00:00:00Z: not needed")


async def test_running_under_a_lease_and_after_it(app: Holdfast, clock: ManualClock) -> None:
    job_id = (await app.submit("x")).job_id
    await _claim(app)

    running = await app.explain(job_id)
    clock.advance(30)
    await _lead(app)
    silent = await app.explain(job_id)

    assert Cause.RUNNING is running.cause
    assert "worker w1 holds the lease until 2026-01-01T00:00:30Z" in running.message
    assert ("w1", 1) == (running.details["worker"], running.details["attempt"])
    assert Cause.LEASE_EXPIRED is silent.cause
    assert "w1 fell silent" in silent.message
    assert silent.message.endswith("it will be taken back shortly")


async def test_nothing_moves_while_no_worker_leads_maintenance(
    app: Holdfast, clock: ManualClock
) -> None:
    done = (await app.submit("done")).job_id
    await _claim(app)
    child = (await app.submit("child", depends_on=[done])).job_id
    (running,) = await app.store.get([done])
    assert running is not None
    ended = lifecycle.completed(running, None, now=clock.now())
    await app.store.swap([Change(running, ended)])
    silent = (await app.submit("silent")).job_id
    await _claim(app)
    delayed = (await app.submit("delayed", delay=10)).job_id
    clock.advance(40)

    stuck = [await app.explain(job_id) for job_id in (child, silent, delayed)]
    await _lead(app)
    moving = [await app.explain(job_id) for job_id in (child, silent, delayed)]

    assert [Cause.NO_WORKER] * 3 == [told.cause for told in stuck]
    assert all("once a worker is there that leads maintenance" in told.message for told in stuck)
    assert [Cause.DEPENDENCY, Cause.LEASE_EXPIRED, Cause.DELAYED] == [t.cause for t in moving]
    assert "it was due at 2026-01-01T00:00:10Z; it will be made ready shortly" == (
        moving[2].message
    )


async def test_held(app: Holdfast) -> None:
    job_id = (await app.submit("x", hold=True)).job_id

    assert Cause.HELD is (await app.explain(job_id)).cause


async def test_waiting_for_dependencies(app: Holdfast) -> None:
    first, second = [(await app.submit("part")).job_id for _ in range(2)]
    job_id = (await app.submit("whole", depends_on=[first, second])).job_id

    told = await app.explain(job_id)

    assert Cause.DEPENDENCY is told.cause
    assert f"waits for part job {first}, which is SCHEDULED and 1 more" in told.message
    assert {first: "SCHEDULED", second: "SCHEDULED"} == told.details["waiting_for"]


async def test_delayed(app: Holdfast) -> None:
    job_id = (await app.submit("x", delay=90)).job_id

    told = await app.explain(job_id)

    assert (Cause.DELAYED, "it is delayed until 2026-01-01T00:01:30Z") == (told.cause, told.message)


async def test_backing_off(app: Holdfast, drain: Drain) -> None:
    @app.task("x")
    async def x() -> None:
        raise TemporaryError("the bank is closed", retry_after=60)

    job_id = (await x.submit()).job_id
    await drain()

    told = await app.explain(job_id)

    assert Cause.BACKING_OFF is told.cause
    assert "'TemporaryError: the bank is closed' until 2026-01-01T00:01:00Z" in told.message


async def test_paused_queue(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id
    await app.pause("default")

    told = await app.explain(job_id)

    assert (Cause.QUEUE_PAUSED, "queue 'default' is paused") == (told.cause, told.message)


@pytest.mark.req("S-14")
async def test_no_worker_says_which_there_are(app: Holdfast) -> None:
    job_id = (await app.submit("x")).job_id

    nobody = await app.explain(job_id)
    await _worker(app, queues=("mail",), types=("x",))
    elsewhere = await app.explain(job_id)
    await _worker(app, queues=("default",), types=("y", "z"))
    unskilled = await app.explain(job_id)

    assert {Cause.NO_WORKER} == {nobody.cause, elsewhere.cause, unskilled.cause}
    assert "no worker is running" == nobody.message
    assert "no live worker serves queue 'default' (served: mail)" == elsewhere.message
    assert "no live worker of queue 'default' has a handler for 'x' (known: y, z)" == (
        unskilled.message
    )


async def test_limits(app: Holdfast) -> None:
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
    assert "key:x:k started 1 of 1 allowed per 60 s; more from" in rate.message
    assert Cause.RUNNING is (await app.explain(running)).cause


async def test_ready(app: Holdfast) -> None:
    await _worker(app, queues=("default",), types=("x",))
    job_id = (await app.submit("x")).job_id

    told = await app.explain(job_id)

    assert Cause.READY is told.cause
    assert (["w1"], 2) == (told.details["workers"], told.details["free_slots"])


async def test_workers_are_listed_while_they_are_there(app: Holdfast) -> None:
    @app.task("look")
    async def look() -> list[str]:
        while not (present := await app.workers()):  # noqa: ASYNC110  # it is not announced
            await asyncio.sleep(0.01)
        return [worker.id for worker in present]

    worker = Worker(app, maintenance=False, name="me")
    job_id = (await look.submit()).job_id

    await worker.run(burst=True)

    assert ["me"] == (await app.get(job_id)).output
    assert [] == await app.workers()
