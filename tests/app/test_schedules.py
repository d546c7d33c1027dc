"""Schedules that are created, edited, paused and run at run time, on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, NotFoundError, QuotaError, ValidationError
from holdfast.maintenance.cron import CronService
from holdfast.operations import schedule_records as module
from holdfast.operations.publisher import Publisher
from holdfast.runtime.clock import ManualClock
from holdfast.store import MemoryStore, Search, Store
from holdfast.store.tenants import TenantStore
from holdfast.tasks.schedule_values import ScheduleSource

if TYPE_CHECKING:
    from collections.abc import Sequence


async def look(services: Sequence[CronService], clock: ManualClock, seconds: int = 60) -> None:
    """Let time pass second by second while services look for ticks."""
    for _ in range(seconds):
        clock.advance(1)
        await asyncio.gather(*(service.once() for service in services))


async def jobs(store: Store, name: str) -> int:
    return (await store.find(Search(tags={"cron": name}))).total


async def test_dynamic_schedule_submits_one_job_per_tick(app: Holdfast, clock: ManualClock) -> None:
    made = await app.schedules.create(
        "tick", "t", "*/10 * * * * *", payload={"n": 1}, options={"queue": "side", "priority": 1}
    )
    services = [CronService(app, app.store) for _ in range(3)]

    await look(services, clock, 60)

    assert (ScheduleSource.DYNAMIC, "Every 10 seconds", 3) == (
        made.source,
        made.words,
        len(made.next_runs),
    )
    assert 6 == await jobs(app.store, "tick")
    found = await app.schedules.get("tick")
    assert 6 == len(found.last_runs)
    assert sorted(found.last_runs, key=lambda run: run.created_at, reverse=True) == list(
        found.last_runs
    )
    job = await app.get(found.last_runs[0].job_id)
    assert ("t", "side", {"cron": "tick"}) == (job.type, job.queue, job.tags)
    assert {"n": 1} == (await app.payload(job.job_id)).payload


async def test_edit_at_the_moment_of_a_tick_neither_loses_nor_repeats_it(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.schedules.create("tick", "t", "*/10 * * * * *", payload=1)
    service = CronService(app, app.store)
    await look([service], clock, 15)
    before = await jobs(app.store, "tick")

    clock.advance(10)  # a tick has passed that no leader has seen
    await app.schedules.change("tick", expression="*/10 * * * * *", payload=2)
    await app.schedules.change("tick", expression="0 0 1 1 *")
    await service.once()
    after = await jobs(app.store, "tick")
    await look([service, CronService(app, app.store)], clock, 60)

    assert (1, 1) == (before, after - before)
    assert after == await jobs(app.store, "tick")


async def test_tick_that_another_leader_served_before_an_edit_is_not_repeated(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.schedules.create("tick", "t", "*/10 * * * * *", payload=1)
    slow, fast = CronService(app, app.store), CronService(app, app.store)
    stale = await slow._definitions.read()  # before the edit
    clock.advance(10)
    await fast.once()
    await app.schedules.change("tick", payload=2)

    # A leader that was frozen after it had read the schedules.
    await slow._serve(stale, {}, app.store.now())
    await slow.once()

    assert 1 == await jobs(app.store, "tick")


async def test_paused_schedule_is_silent_and_resumes_without_making_up(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.schedules.create("tick", "t", "*/10 * * * * *", missed="all")
    service = CronService(app, app.store)
    await look([service], clock, 20)
    paused = await app.schedules.pause("tick")
    await look([service], clock, 60)
    silent = await jobs(app.store, "tick")
    resumed = await app.schedules.resume("tick")
    await look([CronService(app, app.store)], clock, 20)

    assert (True, ()) == (paused.paused, paused.next_runs)
    assert (2, False, 4) == (silent, resumed.paused, await jobs(app.store, "tick"))


async def test_schedule_of_the_code_is_listed_paused_across_restarts_and_run(
    app: Holdfast, clock: ManualClock
) -> None:
    @app.cron("*/10 * * * * *", payload={"n": 7}, queue="side")
    @app.task("t")
    async def task(n: int) -> None: ...

    publisher = Publisher(app.store, "w", app.store.now())
    await publisher.publish_crons(app.crons)
    service = CronService(app, app.store)
    await service.once()
    await look([service], clock, 20)
    paused = await app.schedules.pause("t")
    await look([CronService(app, app.store)], clock, 30)
    silent = await jobs(app.store, "t")
    run = await app.schedules.run("t")
    with pytest.raises(ValidationError, match="schedule of the code"):
        await app.schedules.change("t", expression="0 0 * * *")
    with pytest.raises(ValidationError, match="schedule of the code"):
        await app.schedules.delete("t")
    await app.schedules.resume("t")
    await look([CronService(app, app.store)], clock, 10)

    assert (ScheduleSource.CODE, True, "side") == (paused.source, paused.paused, paused.queue)
    assert (2, 4) == (silent, await jobs(app.store, "t"))
    assert {"n": 7} == (await app.payload(run.job_id)).payload
    await Publisher(app.store, "new", app.store.now()).publish_crons({})
    assert [] == await app.schedules.list()  # its worker is gone, and the code of the new one


async def test_deleted_schedule_submits_nothing_and_its_name_is_free(
    app: Holdfast, clock: ManualClock
) -> None:
    await app.schedules.create("tick", "t", "*/10 * * * * *")
    service = CronService(app, app.store)
    await look([service], clock, 20)
    await app.schedules.delete("tick")
    await look([service], clock, 20)
    gone = await jobs(app.store, "tick")
    with pytest.raises(NotFoundError):
        await app.schedules.get("tick")
    await app.schedules.create("tick", "other", "*/10 * * * * *")
    await look([service], clock, 10)

    assert (2, 3) == (gone, await jobs(app.store, "tick"))


async def test_run_now_submits_beside_the_ticks(app: Holdfast, clock: ManualClock) -> None:
    await app.schedules.create("tick", "t", "0 0 1 1 *", payload=[1], paused=True)

    result = await app.schedules.run("tick")

    (run,) = (await app.schedules.get("tick")).last_runs
    assert result.job_id == run.job_id


async def test_missed_instants_follow_the_policy(app: Holdfast, clock: ManualClock) -> None:
    for missed in ("skip", "one", "all"):
        await app.schedules.create(missed, "t", "0 * * * *", missed=missed)
    service = CronService(app, app.store)
    await service.once()
    clock.advance(5 * 3600 + 300)

    await service.once()

    counts = [await jobs(app.store, missed) for missed in ("skip", "one", "all")]
    assert [0, 1, 5] == counts


async def test_schedules_go_on_after_the_clock_was_set_back() -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    async with Holdfast(store=MemoryStore(clock), clock=clock) as app:
        await app.schedules.create("tick", "t", "*/10 * * * * *")
        service = CronService(app, app.store)
        await look([service], clock, 30)
        clock.advance(-7200)
        await look([service], clock, 30)

        assert 6 == await jobs(app.store, "tick")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"type_": ""}, "type"),
        ({"type_": None}, "type"),
        ({"type_": "holdfast.webhook"}, "type"),
        ({"expression": "every day"}, "expression"),
        ({"expression": "0 0 30 2 *"}, "expression"),
        ({"expression": None}, "expression"),
        ({"tz": "Mars/Base"}, "tz"),
        ({"tz": "../../etc/passwd"}, "tz"),
        ({"missed": "some"}, "missed"),
        ({"payload": b"x"}, "payload"),
        ({"payload": "x" * 70_000}, "payload"),
        ({"payload": object()}, "payload"),
        ({"options": {"priority": "URGENT!"}}, "priority"),
        ({"options": {"idempotency_key": "k"}}, "options.idempotency_key"),
        ({"options": {"queue": "holdfast.webhooks"}}, "queue"),
        ({"options": {"tags": {"holdfast:owner": "x"}}}, "tags"),
    ],
)
async def test_wrong_schedule_is_refused_by_field(change: dict[str, object], field: str) -> None:
    given: dict[str, object] = {"name": "n", "type_": "t", "expression": "* * * * *"}
    async with Holdfast("memory://") as app:
        with pytest.raises(ValidationError) as raised:
            await app.schedules.create(**{**given, **change})  # type: ignore[arg-type]

        assert raised.value.faults[0].field.startswith(field)
        assert [] == await app.schedules.list()


async def test_payload_must_fit_the_task() -> None:
    async with Holdfast("memory://") as app:

        @app.task("t")
        async def task(n: int) -> None: ...

        with pytest.raises(ValidationError) as raised:
            await app.schedules.create("n", "t", "* * * * *", payload={"m": 1})
        assert "payload" == raised.value.faults[0].field


async def test_number_of_schedules_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SCHEDULES", 2)
    async with Holdfast("memory://") as app:
        for name in ("a", "b"):
            await app.schedules.create(name, "t", "* * * * *")
        with pytest.raises(QuotaError):
            await app.schedules.create("c", "t", "* * * * *")
        with pytest.raises(ValidationError, match="exists already"):
            await app.schedules.create("a", "t", "* * * * *")


async def test_names_page_by_page() -> None:
    async with Holdfast("memory://") as app:
        for name in ("b", "a", "c"):
            await app.schedules.create(name, "t", "* * * * *")

        first = await app.schedules.list(limit=2)
        second = await app.schedules.list(limit=2, after=first[-1].name)

        assert ["a", "b", "c"] == [each.name for each in [*first, *second]]


async def test_schedules_of_a_namespace_submit_to_its_queues(
    app: Holdfast, clock: ManualClock
) -> None:
    tenant = app.over(TenantStore(app.store, "acme"))
    await tenant.schedules.create("tick", "t", "*/10 * * * * *")
    await app.schedules.create("tick", "t", "*/30 * * * * *")
    service = CronService(app, app.store)

    await look([service], clock, 30)

    assert [] == await app.over(TenantStore(app.store, "other")).schedules.list()
    (theirs,), (ours,) = await tenant.schedules.list(), await app.schedules.list()
    queues = [job.queue for job in (await app.store.find(Search())).jobs]
    assert {"acme/default": 3, "default": 1} == {name: queues.count(name) for name in set(queues)}
    assert (3, 30) == (len(theirs.last_runs), int(ours.expression.split()[0].removeprefix("*/")))


async def test_edits_reach_a_leader_at_its_next_look(app: Holdfast, clock: ManualClock) -> None:
    service = CronService(app, app.store)
    await service.once()
    await app.schedules.create("tick", "t", "* * * * * *")

    await look([service], clock, 3)

    assert 3 == await jobs(app.store, "tick")
    assert timedelta(0) <= app.store.now() - (await app.schedules.get("tick")).changed_at  # type: ignore[operator]
