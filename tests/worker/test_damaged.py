"""Damaged rows and failing services: one is set aside and reported, the rest goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.model.policy import Retention
from holdfast.operations.doctor import examine
from holdfast.operations.quarantine import failing, quarantined
from holdfast.store import Claim, MemoryStore, Search
from holdfast.store.proxy import StoreProxy
from tests.conformance.stores import SCHEMA, Place, postgres, sqlite
from tests.waiting import eventually
from tests.worker.rig import EventLog, ended, working

SQLITE = {
    "options": "UPDATE body SET options = x'7b' WHERE seq IN (SELECT seq FROM job WHERE type = ?)",
    "tags": "UPDATE body SET tags = x'5b' WHERE seq IN (SELECT seq FROM job WHERE type = ?)",
    "failure": "UPDATE job SET failure = x'00' WHERE type = ?",
    "times": "UPDATE job SET created_at = 9223372036854775807 WHERE type = ?",
}
POSTGRES = {
    "options": "UPDATE {}.body SET policy = '[1]' WHERE type = %s",
    "tags": "UPDATE {}.body SET tags = '[1]' WHERE type = %s",
    "failure": "UPDATE {}.job SET failure = '3' WHERE type = %s",
    "times": 'UPDATE {}.body SET policy = \'{{"timeout": "x"}}\' WHERE type = %s',
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with {"sqlite": sqlite, "postgres": postgres}[request.param](request) as place:
        yield place


def _damage(place: Place, what: str) -> None:
    """Write by hand into the rows of the jobs of type ``bad``."""
    if place.file is not None:
        with contextlib.closing(sqlite3.connect(place.file)) as connection, connection:
            assert connection.execute(SQLITE[what], ("bad",)).rowcount == 1
    else:
        with psycopg.connect(place.dsn) as connection:
            assert connection.execute(POSTGRES[what].format(SCHEMA), ("bad",)).rowcount == 1


@pytest.mark.req("R-2")
@pytest.mark.parametrize("what", sorted(SQLITE))
async def test_damaged_row_fails_alone(place: Place, what: str) -> None:
    log, calls = EventLog(), list[str]()
    app = Holdfast(place.url)
    app.task("bad", max_attempts=1)(lambda: calls.append("bad"))
    app.task("good")(lambda: calls.append("good"))
    async with app:
        bad = await app.submit("bad")
        _damage(place, what)
        good = await app.submit("good")
        assert 2 == len((await app.store.find(Search())).jobs)
        explanation = await app.explain(bad.job_id)
    async with working(app, observer=log):
        assert State.COMPLETED is await ended(app, good.job_id)
        assert State.FAILED is await ended(app, bad.job_id)
        (event,) = await log.wait_for("item.quarantined")
        findings = [each for each in await examine(app.store) if each.name == "quarantine"]

    assert "DAMAGED" == explanation.cause
    assert ["good"] == calls
    assert bad.job_id == event["item"]
    assert bad.job_id in findings[0].text


@pytest.mark.req("R-2", "S-6")
async def test_damaged_row_of_a_dead_worker_does_not_keep_the_others_from_recovery(
    place: Place,
) -> None:
    app = Holdfast(place.url)
    app.task("bad", lease=1.0)(lambda: None)
    app.task("good", lease=1.0)(lambda: None)
    async with app:
        await app.submit("bad")
        good = await app.submit("good")
        want = Claim(queues=("default",), limit=2, worker="dead", token="t")
        assert 2 == len(await app.store.claim(want))
        _damage(place, "options")
    async with working(app):
        assert State.COMPLETED is await ended(app, good.job_id)


class BrokenPruning(StoreProxy):
    """A store that raises something unforeseen in one verb."""

    is_broken = True

    async def prune(self, retention: Retention, limit: int) -> int:
        if self.is_broken:
            raise RecursionError("maximum recursion depth exceeded")
        return await super().prune(retention, limit)


@pytest.mark.req("R-2")
async def test_service_that_raises_anything_backs_off_and_is_reported() -> None:
    log = EventLog()
    store = BrokenPruning(MemoryStore())
    app = Holdfast(store=store)
    app.task("work")(lambda: None)
    async with working(app, observer=log):

        async def is_reported() -> bool:
            return bool(await failing(store))

        await eventually(is_reported)
        job = await app.submit("work", delay=0.01)
        assert State.COMPLETED is await ended(app, job.job_id)
        findings = [each for each in await examine(store) if each.name == "services"]
        store.is_broken = False
        await log.wait_for("maintenance.recovered")
        assert [] == await failing(store)

    assert "'pruner'" in findings[0].text
    assert 1 == len(log.all("maintenance.failed"))


class BrokenSwap(StoreProxy):
    """A store that cannot write one job."""

    refused = ""

    async def swap(self, changes):  # type: ignore[no-untyped-def]
        if any(change.before.id == self.refused for change in changes):
            raise ValueError("this job cannot be written")
        return await super().swap(changes)


@pytest.mark.req("R-2", "S-6")
async def test_job_that_cannot_be_written_is_set_aside_and_the_others_recover() -> None:
    store = BrokenSwap(MemoryStore())
    app = Holdfast(store=store)
    app.task("work", lease=0.5)(lambda: None)
    async with working(app, queues=["none"]):
        bad, good = await app.submit("work"), await app.submit("work")
        store.refused = bad.job_id
        want = Claim(queues=("default",), limit=2, worker="dead", token="t")
        assert 2 == len(await store.claim(want))

        async def is_recovered() -> bool:
            return (await app.get(good.job_id)).state is not State.RUNNING

        await eventually(is_recovered)
        reports = await quarantined(store)

    assert [bad.job_id] == [report.name for report in reports]
    assert timedelta(minutes=1) > store.now() - reports[0].at
