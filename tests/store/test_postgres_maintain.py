"""Deleting expired rows and summing up counters keeps up with any amount of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.model.policy import Retention
from holdfast.store.postgres import PostgresSettings, PostgresStore
from holdfast.store.postgres.claim_position import Throttle
from holdfast.store.postgres.maintain import FOLD_BATCH, TRIM_BATCH
from holdfast.store.postgres.state import FOLD_EVERY
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "maintain"
KEPT = 10
MANY = 2 * TRIM_BATCH + 1
FILLED = {
    "dedupe": "(scope, key, expires_at) SELECT 's', n::text, now() - interval '1 s'",
    "hold": "(name, holder, until, data) SELECT n::text, 'w', now() - interval '1 s', ''",
    "rate_window": "(scope, started, until) SELECT n::text, 1, now() - interval '1 s'",
    "journal": "(job, at, attempt, lease_version, reason, worker) SELECT 1, now(), 1, 1, '', ''",
}


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    settings = PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)
    async with PostgresStore(settings, events_kept=KEPT) as store:
        yield store


def _fill(server: Postgres, table: str, count: int) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        text = f"INSERT INTO {SCHEMA}.{table} {FILLED[table]} FROM generate_series(1, {count}) AS n"
        connection.execute(text.encode())


def _rows(server: Postgres, table: str) -> int:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute(f"SELECT count(*) FROM {SCHEMA}.{table}".encode())
        return sum(count for (count,) in cursor)


@pytest.mark.parametrize("table", FILLED)
async def test_everything_expired_is_deleted_in_batches(
    store: PostgresStore, postgres_server: Postgres, table: str
) -> None:
    _fill(postgres_server, table, MANY)

    await store.prune(Retention(), 1)

    assert KEPT >= _rows(postgres_server, table)


async def test_named_lock_that_is_held_is_not_deleted(store: PostgresStore) -> None:
    await store.lock("mine", "me", timedelta(minutes=1))

    await store.prune(Retention(), 1)

    assert ["mine"] == [lock.name for lock in await store.locks("")]


async def test_backlog_of_counters_is_summed_up_without_long_pauses(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(
            f"""
            INSERT INTO {SCHEMA}.delta (queue, type, priority, name, bucket, count, top)
            SELECT 'q', 't', 2, 'SCHEDULED', 0, 1, 0
            FROM generate_series(1, {FOLD_BATCH} + 1)
            """.encode()
        )

    await store.prune(Retention(), 1)

    assert 1 == _rows(postgres_server, "delta")
    # Nothing public shows when it runs next.
    assert FOLD_EVERY > state_of(store).folding._next - state_of(store).ticks()


async def test_unfinished_work_rests_only_as_long_as_it_took() -> None:
    time = [0.0]

    async def work() -> None:
        time[0] += 3.0

    throttle = Throttle(lambda: time[0], every=1.0)
    await throttle.run(work())
    time[0] += 3.0
    assert not throttle.is_due

    throttle.continue_soon()
    assert not throttle.is_due
    time[0] += 3.0
    assert throttle.is_due
