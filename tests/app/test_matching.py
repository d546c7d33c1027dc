"""Searches and counts by patterns of types, failure codes, workers and beginnings of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, PermanentError, State, ValidationError
from holdfast.observe import Silent
from holdfast.operations import matching
from holdfast.operations.bulk_runner import BulkRunner
from holdfast.store import Claim
from holdfast.store.tenants import TenantStore

if TYPE_CHECKING:
    from holdfast.runtime.clock import ManualClock
    from tests.app.conftest import Drain


@pytest.fixture(autouse=True)
def tasks(app: Holdfast) -> None:
    def fail(code: str) -> None:
        raise PermanentError("no", code=code)

    app.task("email.send")(fail)
    app.task("email.check")(fail)
    app.task("report")(fail)


async def types(app: Holdfast, **wanted: object) -> list[str]:
    found = await app.search(**wanted)  # type: ignore[arg-type]  # given by the test
    return sorted(job.type for job in found.jobs)


async def test_pattern_of_types_finds_those_that_begin_so(app: Holdfast) -> None:
    for type_ in ("email.send", "email.check", "emailer", "report"):
        await app.submit(type_, {"code": "X"})

    assert ["email.check", "email.send"] == await types(app, types=["email.*"])
    assert ["email.check", "email.send", "report"] == await types(app, types=["email.*", "report"])
    assert [] == await types(app, types=["nothing.*"])
    assert 4 == len(await types(app, types=["*"]))
    counts = await app.count(types=["email*"])
    assert ({State.SCHEDULED: 3}, 3, ()) == (counts.by_state, counts.total, counts.at_least)
    cancelled = await app.cancel_batch(filter={"types": ["email.*"]})
    assert 2 == cancelled.cancelled
    tenant = app.over(TenantStore(app.store, "", owner="o", only_own=True))
    with pytest.raises(ValidationError):
        await tenant.search({"types": ["email.*"]})


async def test_failure_code_finds_jobs_page_by_page_within_a_bound(
    app: Holdfast, drain: Drain, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "READ", 2)
    monkeypatch.setattr(matching, "SCANNED", 4)
    for code in ("A", "B", "B", "B", "B", "A"):
        await app.submit("report", {"code": code})
    await drain()
    await app.submit("report", {"code": "A"})

    first = await app.search(code="A", limit=1)
    second = await app.search(code="A", limit=1, cursor=first.next_cursor)
    third = await app.search(code="A", limit=1, cursor=second.next_cursor)
    bounded = await app.count(code="A")
    none = await app.search(code="A", states=["RETRYING"])

    assert [1, 0, 1] == [len(page.jobs) for page in (first, second, third)]
    assert (True, True) == (first.has_more, second.has_more)
    assert ({State.FAILED: 1}, False) == (bounded.by_state, bounded.complete)
    assert [] == list(none.jobs)
    clock.advance(1)
    made = await app.bulk.start("retry", filter={"code": "A"})
    for _ in range(5):
        await BulkRunner(app.store, "one", Silent()).once()
    assert 2 == (await app.bulk.get(made.id)).done


async def test_worker_finds_what_it_runs(app: Holdfast) -> None:
    for _ in range(3):
        await app.submit("report", {"code": "A"})
    for worker in ("web-1", "web-2"):
        claim = Claim(queues=("default",), limit=1, worker=worker, token=worker)
        await app.store.claim(claim)

    assert 1 == len(await types(app, worker="web-1"))
    assert 2 == len(await types(app, worker="web-*"))
    assert 0 == len(await types(app, worker="web"))
    counts = await app.count(worker="web-*")
    assert ({State.RUNNING: 2}, True) == (counts.by_state, counts.complete)


async def test_counts_by_state_are_exact_or_say_that_they_are_not(
    app: Holdfast, drain: Drain
) -> None:
    await app.submit("report", {"code": "A"}, tags={"tenant": "acme"})
    await app.submit("report", {"code": "A"})
    await drain()
    await app.submit("report", {"code": "A"}, tags={"tenant": "acme"}, priority="HIGH")
    (job,) = (await app.search(priorities=["HIGH"])).jobs

    every = await app.count()
    tagged = await app.count(tags={"tenant": "acme"})
    failed = await app.count(tags={"tenant": "acme"}, states=["FAILED"])
    by_id = await app.count(id_prefix=job.job_id[:13])
    urgent = await app.count(priorities=["HIGH"])

    assert {State.SCHEDULED: 1, State.FAILED: 2} == every.by_state
    assert {State.SCHEDULED: 1, State.FAILED: 1} == tagged.by_state
    assert {State.FAILED: 1} == failed.by_state
    assert {State.SCHEDULED: 1} == by_id.by_state == urgent.by_state
    assert (2, (), True) == (tagged.total, tagged.at_least, tagged.complete)
    assert [job.job_id] == [one.job_id for one in (await app.search(id_prefix=job.job_id)).jobs]
    with pytest.raises(ValidationError):
        await app.count(limit=5)
