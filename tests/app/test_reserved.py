"""Names that holdfast uses itself are refused from every caller, wherever it submits."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, JobContext, State
from holdfast.errors import ValidationError
from holdfast.model.reserved import DELIVERIES, DELIVERY
from holdfast.model.submission import Submission
from holdfast.store import MemoryStore
from holdfast.worker import Worker
from tests.http.site import API, running
from tests.worker.rig import ended, working

RESERVED = [
    {"type": DELIVERY},
    {"type": "holdfast.anything"},
    {"type": "work", "queue": DELIVERIES},
    {"type": "work", "queue": "holdfast.x"},
]


def _codes(error: ValidationError) -> set[str]:
    return {fault.code for fault in error.faults}


@pytest.mark.req("R-1")
@pytest.mark.parametrize("given", RESERVED)
async def test_library_refuses_reserved_names(given: dict[str, str]) -> None:
    async with Holdfast("memory://") as app:
        type_, options = given["type"], {k: v for k, v in given.items() if k != "type"}
        with pytest.raises(ValidationError) as single:
            await app.submit(type_, 1, **options)  # type: ignore[arg-type]
        with pytest.raises(ValidationError) as batch:
            await app.submit_batch([Submission(**given)], atomic=True)  # type: ignore[arg-type]

    assert {"RESERVED"} == _codes(single.value) == _codes(batch.value)


@pytest.mark.req("R-1")
@pytest.mark.parametrize("given", RESERVED)
async def test_running_job_cannot_spawn_under_reserved_names(given: dict[str, str]) -> None:
    app = Holdfast("memory://")

    @app.task("parent", max_attempts=1)
    async def parent(ctx: JobContext) -> None:
        options = {k: v for k, v in given.items() if k != "type"}
        await ctx.spawn(given["type"], 1, **options)  # type: ignore[arg-type]

    async with working(app):
        job = await app.submit("parent")
        assert State.COMPLETED is not await ended(app, job.job_id)
        page = await app.search()

    assert ["parent"] == [one.type for one in page.jobs]


@pytest.mark.req("R-1")
def test_handlers_and_workers_for_reserved_names_are_refused() -> None:
    app = Holdfast("memory://")

    with pytest.raises(ValidationError):
        app.task(DELIVERY)(lambda: None)
    with pytest.raises(ValidationError):
        app.task("work", queue=DELIVERIES)(lambda: None)
    with pytest.raises(ValidationError):
        Worker(app, queues=["default", DELIVERIES])


@pytest.mark.req("R-1")
@pytest.mark.parametrize("given", RESERVED)
async def test_service_refuses_reserved_names(given: dict[str, str]) -> None:
    async with running(Holdfast(store=MemoryStore())) as site:
        single = await site.post(f"{API}/jobs", given)
        batch = await site.post(f"{API}/jobs/batch", {"jobs": [given]})

    assert 400 == single.status
    assert "RESERVED" in set(single.fields.values())
    assert b"RESERVED" in batch.body


@pytest.mark.req("R-1")
async def test_worker_over_http_cannot_claim_deliveries() -> None:
    async with running(Holdfast(store=MemoryStore())) as site:
        reply = await site.post(
            f"{API}/workers/claim", {"worker_id": "w", "queues": ["default", DELIVERIES]}
        )

    assert 400 == reply.status
    assert "holdfast uses it itself" in reply.body.decode()


@pytest.mark.req("R-1")
@pytest.mark.redis
async def test_redis_refuses_a_queue_named_like_its_own_keys(valkey_server) -> None:  # type: ignore[no-untyped-def]
    async with Holdfast(f"{valkey_server.url}?prefix=reserved") as app:
        app.task("default-queue", queue="hf")(lambda: None)
        with pytest.raises(ValidationError) as given:
            await app.submit("work", queue="hf")
        with pytest.raises(ValidationError) as default:
            await app.submit("default-queue")
        result = await app.submit_batch([Submission(type="work", queue="hf")], atomic=False)

    assert {"RESERVED"} == _codes(given.value) == _codes(default.value)
    assert 1 == result.rejected
