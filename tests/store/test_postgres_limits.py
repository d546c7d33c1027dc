"""Which claims wait for each other when limits apply."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.store import Claim, LimitRule
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.claim import lock_params
from holdfast.store.postgres.connection import PostgresSession
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "limits"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    """A store in which one queue is limited and another claim holds that limit's lock."""
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        jobs = [make(queue, now=store.now(), queue=queue) for queue in ("narrow", "wide")]
        await store.add(jobs)
        await store.limit("queue:narrow", LimitRule(concurrency=5))
        held, release = asyncio.Event(), asyncio.Event()

        async def hold(session: PostgresSession) -> None:
            await session.run("limits_lock", lock_params(["queue:narrow"], None))
            held.set()
            await release.wait()

        holding = asyncio.create_task(state_of(store).pool.atomically(hold))
        await held.wait()
        yield store
        release.set()
        await holding


async def _claim(store: PostgresStore, queue: str) -> list[str]:
    want = Claim(queues=(queue,), limit=10, worker="w", token="t")
    return [job.queue for job in await store.claim(want)]


async def test_claims_under_the_same_limit_wait_for_each_other(store: PostgresStore) -> None:
    claiming = asyncio.create_task(_claim(store, "narrow"))

    done, _ = await asyncio.wait([claiming], timeout=0.3)

    assert set() == done
    claiming.cancel()
    await asyncio.wait([claiming])


async def test_claim_without_a_limit_does_not_wait(store: PostgresStore) -> None:
    async with asyncio.timeout(10):
        assert ["wide"] == await _claim(store, "wide")


async def test_claim_of_a_job_added_meanwhile_comes_after_its_submission(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim from several queues reads each with a new snapshot, in one older transaction."""
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        await store.limit("task:t", LimitRule(concurrency=10))
        first, late = (make(queue, now=store.now(), type="t", queue=queue) for queue in "ab")
        await store.add([first])
        run = PostgresSession.run

        async def run_slowly(
            session: PostgresSession, name: str, params: dict[str, object]
        ) -> object:
            rows = await run(session, name, params)
            if name == "ready" and params["queue"] == "a":
                await store.add([late])
            return rows

        with monkeypatch.context() as patched:
            patched.setattr(PostgresSession, "run", run_slowly)
            want = Claim(queues=("a", "b"), limit=5, worker="w", token="t")
            taken = [job.id for job in await store.claim(want)]
        taken += [job.id for job in await store.claim(replace(want, token="u"))]

        page = await store.events(None, 100, timedelta(0))
        (history,) = await store.history([late.id])

    assert [first.id, late.id] == taken
    assert list(history) == [e.transition for e in page.events if e.job_id == late.id]
