"""The server's clock was set while a producer was idle: its next delay counts from the new time."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres import clock as postgres_clock
from holdfast.store.redis import RedisStore
from holdfast.store.redis import session as redis_session
from holdfast.store.redis.fields import micros
from tests.conformance.conftest import SERVED
from tests.conformance.stores import PLACES, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast.store import Store

HOURS = timedelta(hours=3)
DELAY = timedelta(seconds=60)
CLOSE = timedelta(seconds=20)


@pytest.fixture(
    params=[pytest.param(name, marks=SERVED.get(name, ())) for name in ("postgres", "redis")]
)
def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    with ExitStack() as stack:
        yield stack.enter_context(PLACES[request.param](request))


@pytest.fixture
async def idle(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    """An app that knows the server's time from before its clock was set forward, and must ask."""
    app = Holdfast(place.url)
    app.task("late", queue="own")(_late)
    async with app:
        await app.submit("late", delay=DELAY)  # nothing of its declaration is read again
        _set_estimate_back(app.store)
        monkeypatch.setattr(postgres_clock, "REFRESH_AFTER", 0.0)
        monkeypatch.setattr(redis_session, "REFRESH_AFTER", 0.0)
        yield app


async def _late() -> None: ...


def _set_estimate_back(store: Store) -> None:
    before = store.now() - HOURS
    if isinstance(store, RedisStore):
        store.session.learn_time(micros(before), store.session.monotonic())
    else:
        assert isinstance(store, PostgresStore)
        clock = store._state.clock  # the server's clock itself cannot be set
        clock.observe(before, clock.ticks())
    assert store.now() < before + CLOSE


async def _check_due(app: Holdfast, job_id: str) -> None:
    (job,) = await app.store.get([job_id])
    assert job is not None
    assert job.due_at is not None
    assert abs(job.due_at - (app.store.now() + DELAY)) < CLOSE


async def test_delay_of_one_job_counts_from_the_new_time(idle: Holdfast) -> None:
    submitted = await idle.submit("late", delay=DELAY)

    await _check_due(idle, submitted.job_id)


async def test_delay_of_a_batch_counts_from_the_new_time(idle: Holdfast) -> None:
    batch = await idle.submit_batch([{"type": "late", "delay": DELAY}])

    await _check_due(idle, batch.results[0].job_id)
