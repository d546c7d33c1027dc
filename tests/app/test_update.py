"""``app.update``: metadata that changes after submission, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.errors import ValidationError
from holdfast.model.job import State
from holdfast.model.reserved import CALLBACKS
from holdfast.model.results import UpdateStatus

if TYPE_CHECKING:
    from tests.app.conftest import Drain

pytestmark = pytest.mark.req("M-13")
URL = "https://8.8.8.8/done"


async def test_metadata_of_a_waiting_job_changes(app: Holdfast) -> None:
    job_id = (await app.submit("a", tags={"old": "1"}, headers={"trace": "t"})).job_id

    result = await app.update(
        job_id, tags={"new": "1"}, correlation_id="c", priority="HIGH", callback_url=""
    )

    assert (UpdateStatus.UPDATED, State.SCHEDULED) == (result.status, result.state)
    job = await app.get(job_id)
    assert ({"new": "1"}, "c", "HIGH") == (job.tags, job.correlation_id, job.priority)
    assert {"trace": "t"} == job.headers
    assert [job_id] == [each.job_id for each in (await app.search(tags={"new": "1"})).jobs]
    assert () == (await app.search(tags={"old": "1"})).jobs


async def test_new_priority_decides_the_order(app: Holdfast, drain: Drain) -> None:
    seen: list[str] = []

    @app.task("note")
    def note(name: str) -> None:
        seen.append(name)

    await app.submit("note", {"name": "first"})
    later = await app.submit("note", {"name": "later"})

    await app.update(later.job_id, priority="CRITICAL")
    await drain()

    assert ["later", "first"] == seen


async def test_delayed_job_runs_now(app: Holdfast, drain: Drain) -> None:
    @app.task("late")
    def late() -> None: ...

    job_id = (await app.submit("late", delay=3600)).job_id

    result = await app.update(job_id, delay=0)
    await drain()

    assert (UpdateStatus.UPDATED, State.DELAYED) == (result.status, result.state)
    assert State.COMPLETED is (await app.get(job_id)).state


async def test_due_time_is_postponed_within_the_lifetime_until_a_job_is_ready(
    app: Holdfast,
) -> None:
    job_id = (await app.submit("late", delay=60, lifetime=7200)).job_id
    ready = (await app.submit("ready")).job_id
    later = app.store.now() + timedelta(hours=1)

    moved = await app.update(job_id, scheduled_at=later)
    refused = await app.update(ready, delay=60, tags={"x": "1"})
    with pytest.raises(ValidationError, match="scheduled_at must fall within the job's lifetime"):
        await app.update(job_id, delay=8000, tags={"x": "1"})

    job = await app.get(job_id)
    assert (UpdateStatus.UPDATED, UpdateStatus.NOT_WAITING) == (moved.status, refused.status)
    assert (later, {}) == (job.scheduled_for, job.tags)
    assert {} == (await app.get(ready)).tags


async def test_job_updates_itself_while_it_runs(app: Holdfast, drain: Drain) -> None:
    @app.task("a")
    async def handler() -> str:
        (job,) = (await app.search(types=["a"])).jobs
        refused = await app.update(job.job_id, priority="LOW", tags={"no": "1"})
        assert (UpdateStatus.NOT_WAITING, State.RUNNING) == (refused.status, refused.state)
        assert UpdateStatus.UPDATED is (await app.update(job.job_id, tags={"step": "2"})).status
        return "done"

    job_id = (await app.submit("a")).job_id
    await drain()

    job = await app.get(job_id)
    assert (State.COMPLETED, {"step": "2"}, 1) == (job.state, job.tags, job.attempt)


async def test_ended_job_keeps_its_callback_and_changes_its_tags(app: Holdfast) -> None:
    job_id = (await app.submit("a")).job_id
    await app.cancel(job_id)

    late = await app.update(job_id, callback_url=URL, tags={"x": "1"})
    tagged = await app.update(job_id, tags={"y": "1"})

    assert [UpdateStatus.ENDED, UpdateStatus.UPDATED] == [late.status, tagged.status]
    assert {"y": "1"} == (await app.get(job_id)).tags


async def test_unknown_job_is_a_status_and_a_fault_changes_nothing(app: Holdfast) -> None:
    job_id = (await app.submit("a", tags={"x": "1"})).job_id

    missing = await app.update("nobody", tags={})
    with pytest.raises(ValidationError) as error:
        await app.update(job_id, tags={}, callback_url="http://127.0.0.1/")

    assert UpdateStatus.NOT_FOUND is missing.status
    assert [("callback_url", "REFUSED")] == [(f.field, f.code) for f in error.value.faults]
    assert {"x": "1"} == (await app.get(job_id)).tags


async def test_callback_that_comes_later_is_looked_for(app: Holdfast) -> None:
    job_id = (await app.submit("a")).job_id
    assert [None] == await app.store.records(CALLBACKS, [CALLBACKS])

    await app.update(job_id, callback_url=URL)

    (record,) = await app.store.records(CALLBACKS, [CALLBACKS])
    assert record is not None
    (job,) = await app.store.get([job_id])
    assert job is not None
    assert URL == job.callback_url
