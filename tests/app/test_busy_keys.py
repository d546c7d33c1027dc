"""A key held by an open transaction of a caller does not block other jobs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast import Holdfast, Limits, StoreUnavailableError
from holdfast.model.results import SubmissionStatus
from tests.conformance.stores import empty_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "busy_keys"
AT_ONCE = 2.0
"""Seconds for what takes a tenth of it on a quiet machine."""


@pytest.fixture
async def app(postgres_server: Postgres) -> AsyncIterator[Holdfast]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with Holdfast(f"{postgres_server.dsn}?schema={SCHEMA}") as app:
        yield app


@asynccontextmanager
async def _taken(
    server: Postgres, app: Holdfast
) -> AsyncIterator[tuple[psycopg.AsyncConnection, str]]:
    """A transaction in which a job has taken the key."""
    async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
        first = await app.submit("pay", idempotency_key="k", connection=connection)
        yield connection, first.job_id


@pytest.mark.parametrize("many", [10, 300])
async def test_jobs_with_other_keys_are_accepted_meanwhile(
    app: Holdfast, postgres_server: Postgres, many: int
) -> None:
    async def others(when: str) -> None:
        plain = [app.submit("plain") for _ in range(20)]
        keyed = [app.submit("keyed", idempotency_key=f"{when} {n}") for n in range(10)]
        async with asyncio.timeout(AT_ONCE):
            submitted = await asyncio.gather(*plain, *keyed, *(app.queues() for _ in range(3)))
        assert {SubmissionStatus.ACCEPTED} == {each.status for each in submitted[:30]}

    async with _taken(postgres_server, app) as (connection, first):
        same = [asyncio.create_task(app.submit("pay", idempotency_key="k")) for _ in range(many)]
        for when in ("at first", "soon", "later"):
            await others(when)
        assert not any(task.done() for task in same)
        await connection.commit()
        async with asyncio.timeout(3 * AT_ONCE):
            twins = await asyncio.gather(*same)

    assert {(SubmissionStatus.DUPLICATE, first)} == {(twin.status, twin.job_id) for twin in twins}


async def test_key_is_free_after_the_transaction_rolls_back(
    app: Holdfast, postgres_server: Postgres
) -> None:
    async with _taken(postgres_server, app) as (connection, first):
        second = asyncio.create_task(app.submit("pay", idempotency_key="k"))
        assert not (await asyncio.wait([second], timeout=0.5))[0]
        await asyncio.sleep(2)  # so that it is not tried often any more
        await connection.rollback()

        async with asyncio.timeout(1):
            accepted = await second

    assert SubmissionStatus.ACCEPTED is accepted.status
    assert first != accepted.job_id


@pytest.mark.parametrize("atomic", [True, False])
async def test_batch_waits_for_its_keys(
    app: Holdfast, postgres_server: Postgres, *, atomic: bool
) -> None:
    jobs = [{"type": "plain"}, {"type": "pay", "idempotency_key": "k"}]
    async with _taken(postgres_server, app) as (connection, first):
        batch = asyncio.create_task(app.submit_batch(jobs, atomic=atomic))
        assert not (await asyncio.wait([batch], timeout=0.5))[0]
        await connection.commit()

        results = (await batch).results

    assert (SubmissionStatus.DUPLICATE, first) == (results[1].status, results[1].job_id)
    assert SubmissionStatus.ACCEPTED is results[0].status


async def test_submission_that_times_out_reports_the_busy_key(
    app: Holdfast, postgres_server: Postgres
) -> None:
    hasty = Holdfast(app.url, limits=Limits(submission_timeout=timedelta(seconds=3)))
    async with hasty, _taken(postgres_server, app):
        with pytest.raises(StoreUnavailableError, match="idempotency_key is held by a transaction"):
            await hasty.submit("pay", idempotency_key="k")
