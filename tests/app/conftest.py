"""An app over each store with a manual clock, and a function that runs its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import pytest

from holdfast import Holdfast, Worker
from holdfast.runtime.clock import ManualClock
from holdfast.runtime.randomness import Randomness
from holdfast.store import Store
from tests.conformance.conftest import SERVED
from tests.conformance.stores import NAMES, PLACES, Place

Drain = Callable[..., Awaitable[None]]


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The timers that the loop creates from here on."""
    loop, made = asyncio.get_running_loop(), list[object]()
    call_at = loop.call_at

    def counted(*args: object, **options: object) -> asyncio.TimerHandle:
        made.append(args)
        return call_at(*args, **options)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(loop, "call_at", counted)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=[pytest.param(name, marks=SERVED.get(name, ())) for name in NAMES])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with PLACES[request.param](request) as place:
        yield place


@pytest.fixture
def store(place: Place, clock: ManualClock) -> Store:
    """The store under test, not yet started."""
    return place.open(clock)


@pytest.fixture
async def app(store: Store, clock: ManualClock) -> AsyncIterator[Holdfast]:
    async with Holdfast(store=store, clock=clock, randomness=Randomness(1)) as app:
        yield app


@pytest.fixture
async def live_app(place: Place) -> AsyncIterator[Holdfast]:
    """An app whose clock runs, for tests in which a job is stopped from outside."""
    async with Holdfast(place.url) as app:
        yield app


@pytest.fixture
def drain(app: Holdfast) -> Drain:
    """Run everything that is ready, and what becomes ready by it, then stop."""

    async def drain(queues: Sequence[str] = ("default",)) -> None:
        await Worker(app, queues=queues, maintenance=False).run(burst=True)

    return drain
