"""An app over each store under a clock that stands still, and a way to let it work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from holdfast import Holdfast, Worker
from holdfast.chance import Chance
from holdfast.clock import ManualClock
from holdfast.store import Store, open_store

STORES = ("memory", "sqlite")
Drain = Callable[..., Awaitable[None]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Store:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    return open_store(url, clock=clock)


@pytest.fixture
async def app(store: Store, clock: ManualClock) -> AsyncIterator[Holdfast]:
    async with Holdfast(store=store, clock=clock, chance=Chance(1)) as app:
        yield app


@pytest.fixture(params=STORES)
async def live_app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Holdfast]:
    """An app whose clock runs, for tests in which a job is stopped from outside."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    async with Holdfast(url) as app:
        yield app


@pytest.fixture
def drain(app: Holdfast) -> Drain:
    """Run everything that is ready, and what becomes ready by it, then stop."""

    async def drain(queues: Sequence[str] = ("default",)) -> None:
        await Worker(app, queues=queues, maintenance=False).run(burst=True)

    return drain
