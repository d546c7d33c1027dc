"""Which statements write outcomes: the common one by the short statement."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.model import lifecycle
from holdfast.model.job import Failure, FailureCategory
from holdfast.store import Change, Claim
from holdfast.store.postgres import PostgresSettings, PostgresStore
from tests.conformance.hand import make
from tests.conformance.stores import empty_schema
from tests.store.sessions import state_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.model.job import Job
    from tests.servers import Postgres

pytestmark = pytest.mark.postgres
SCHEMA = "swap"


@pytest.fixture
async def store(postgres_server: Postgres) -> AsyncIterator[PostgresStore]:
    empty_schema(postgres_server.dsn, SCHEMA)
    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as store:
        yield store


async def _claimed(store: PostgresStore, count: int, token: str = "t") -> list[Job]:
    await store.add([make(str(n), now=store.now()) for n in range(count)])
    return await store.claim(Claim(queues=("default",), limit=count, worker="w", token=token))


def _recorded(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each call appends the names of its statements."""
    names: list[str] = []
    run = state_of(store).pool.run

    async def recording(name: str, params: dict[str, object]) -> list[tuple]:
        names.append(name)
        return await run(name, params)

    monkeypatch.setattr(state_of(store).pool, "run", recording)
    return names


async def test_completions_are_written_by_the_short_statement(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await _claimed(store, 3)
    names = _recorded(store, monkeypatch)

    now = store.now()
    answers = await store.swap([Change(j, lifecycle.completed(j, b"1", now=now)) for j in jobs])

    assert names == ["complete"]
    assert all(answer.written for answer in answers)
    (history,) = await store.history([jobs[0].id])
    assert history[-1].reason == "handler returned"


async def test_completions_that_differ_are_judged_and_written_one_by_one(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.add([make(str(n), now=store.now()) for n in range(4)])
    first, stale, *others = [
        job
        for token in ("a", "b", "c", "d")
        for job in await store.claim(Claim(queues=("default",), limit=1, worker="w", token=token))
    ]
    held = stale.lease
    assert held is not None
    stale = replace(stale, lease=replace(held, token="other"))
    unknown = others[1].id
    del state_of(store).numbers[unknown]
    names = _recorded(store, monkeypatch)

    changes = []
    for n, job in enumerate((first, stale, *others)):
        done = lifecycle.completed(job, b"%d" % n, now=store.now() + n * timedelta(seconds=1))
        changes.append(Change(job, done))
    answers = await store.swap(changes)

    assert [True, False, True, True] == [answer.written for answer in answers]
    assert names[0] == "complete"
    for change, found in zip(changes, await store.get([c.before.id for c in changes]), strict=True):
        assert found is not None
        if change.before is not stale:
            after = change.after
            assert (after.result, after.finished_at) == (found.result, found.finished_at)


async def test_any_other_outcome_is_written_by_swap(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = await _claimed(store, 1)
    names = _recorded(store, monkeypatch)

    failure = Failure(category=FailureCategory.PERMANENT, message="no", code="NO")
    failed = lifecycle.after_failure(job, failure, now=store.now())
    await store.swap([Change(job, failed)])

    assert names == ["swap"]


async def test_job_that_another_store_claimed_is_found_by_its_id(
    store: PostgresStore, postgres_server: Postgres
) -> None:
    (job,) = await _claimed(store, 1)

    async with PostgresStore(PostgresSettings(dsn=postgres_server.dsn, schema=SCHEMA)) as other:
        done = lifecycle.completed(job, b"1", now=other.now())
        (answer,) = await other.swap([Change(job, done)])

    assert answer.written


async def test_number_of_a_deleted_job_writes_nothing(store: PostgresStore) -> None:
    (old,) = await _claimed(store, 1)
    number = state_of(store).numbers[old.id]
    await store.swap([Change(old, lifecycle.completed(old, b"1", now=store.now()))])
    assert await store.delete([old.id]) == [True]
    await _claimed(store, 1, "later")
    state_of(store).numbers[old.id] = number

    (answer,) = await store.swap([Change(old, lifecycle.completed(old, b"2", now=store.now()))])

    assert not answer.written
    assert answer.job is not None
    assert answer.job.result is None
