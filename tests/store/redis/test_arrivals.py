"""Who is woken when work arrives: a marker wakes one, and it must be one that can work."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.store.redis import RedisStore
from tests.wire.side import Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.servers import Valkey

    Start = Callable[[Coroutine[object, object, str]], asyncio.Task[str]]

pytestmark = pytest.mark.redis
LONG = timedelta(seconds=30)
SOON = 3.0
SETTLE = 0.15
"""Seconds after which a waiting call has certainly reached the server."""


@pytest.fixture
async def sides(valkey_server: Valkey) -> AsyncIterator[list[Side]]:
    """Three processes' worth of stores on one place."""
    url = f"{valkey_server.url}?prefix=a{uuid.uuid4().hex[:10]}"
    async with AsyncExitStack() as stack:
        yield [Side(await stack.enter_async_context(RedisStore.from_url(url))) for _ in range(3)]


@pytest.fixture
async def start(sides: list[Side]) -> AsyncIterator[Start]:
    """Run something beside the test, and end it with the test."""
    tasks: list[asyncio.Task[str]] = []

    def start(work: Coroutine[object, object, str]) -> asyncio.Task[str]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _work(side: Side, types: tuple[str, ...] | None = None) -> str:
    """Wait for a job as a worker does, and take it."""
    seen = 0
    while True:
        if jobs := await side.claim(types=types):
            return jobs[0].type
        seen = await side.store.arrivals(["q"], seen, LONG)


async def _wait(side: Side, seen: int) -> str:
    return str(await side.store.arrivals(["q"], seen, LONG))


async def _watch(side: Side) -> str:
    """Wait for work without ever taking any, as a supervisor's maintenance does."""
    seen = 0
    while True:
        seen = await side.store.arrivals(["q"], seen, LONG)
        await asyncio.sleep(0.01)


async def test_who_takes_no_jobs_takes_no_workers_wake_up(sides: list[Side], start: Start) -> None:
    start(_watch(sides[1]))
    for number in range(6):
        await asyncio.sleep(SETTLE)
        working = start(_work(sides[0]))
        await asyncio.sleep(SETTLE)
        await sides[2].add(f"t{number}")

        assert f"t{number}" == await asyncio.wait_for(working, SOON)


async def test_worker_with_full_hands_passes_the_wake_up_on(
    sides: list[Side], start: Start
) -> None:
    assert [] == await sides[1].claim()
    start(_watch(sides[1]))
    await asyncio.sleep(SETTLE)
    for number in range(4):
        working = start(_work(sides[0]))
        await asyncio.sleep(SETTLE)
        await sides[2].add(f"t{number}")

        assert f"t{number}" == await asyncio.wait_for(working, SOON)


async def test_worker_of_other_types_passes_the_wake_up_on(sides: list[Side], start: Start) -> None:
    strangers = start(_work(sides[1], ("x",)))
    await asyncio.sleep(SETTLE)
    for _ in range(4):
        working = start(_work(sides[0], ("y",)))
        await asyncio.sleep(SETTLE)
        await sides[2].add("y")

        assert "y" == await asyncio.wait_for(working, SOON)
    await sides[2].add("x")
    assert "x" == await asyncio.wait_for(strangers, SOON)


async def test_who_only_watches_is_told_of_new_due_times(sides: list[Side], start: Start) -> None:
    seen = await sides[1].store.arrivals(["q"], -1, timedelta(0))
    seen = await sides[1].store.arrivals(["q"], seen, timedelta(seconds=SETTLE))
    waiting = start(_wait(sides[1], seen))
    await asyncio.sleep(SETTLE)

    await sides[2].add("later", delay=0.2)

    assert str(seen) != await asyncio.wait_for(waiting, SOON)
