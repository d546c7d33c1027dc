"""Which waiters wake when work arrives: a marker wakes one, which must be one that can claim."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.errors import StoreUnavailableError
from holdfast.store import Claim
from holdfast.store.redis import RedisStore, client, wake
from tests.proxy import Proxy
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


async def settled() -> None:
    """Wait until a call blocks at the server, or is over there: neither is told of."""
    await asyncio.sleep(SETTLE)  # a watcher does not even block: it looks every 0.1 s


@pytest.fixture
async def sides(valkey_server: Valkey) -> AsyncIterator[list[Side]]:
    """Three stores on one prefix, as three processes would have."""
    url = f"{valkey_server.url}?prefix=a{uuid.uuid4().hex[:10]}"
    async with AsyncExitStack() as stack:
        yield [Side(await stack.enter_async_context(RedisStore.from_url(url))) for _ in range(3)]


@pytest.fixture
async def start(sides: list[Side]) -> AsyncIterator[Start]:
    """Run a task beside the test, and cancel it at the end."""
    tasks: list[asyncio.Task[str]] = []

    def start(work: Coroutine[object, object, str]) -> asyncio.Task[str]:
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _work(side: Side, types: tuple[str, ...] | None = None) -> str:
    """Wait for a job as a worker does, and claim it."""
    seen = 0
    while True:
        if jobs := await side.claim(types=types):
            return jobs[0].type
        seen = await side.store.arrivals(["q"], seen, LONG)


async def _wait(side: Side, seen: int) -> str:
    return str(await side.store.arrivals(["q"], seen, LONG))


async def _wait_for(side: Side, queues: list[str]) -> str:
    return str(await side.store.arrivals(queues, 0, LONG))


async def _watch(side: Side) -> str:
    """Wait for work without ever claiming, as a supervisor's maintenance does."""
    seen = 0
    while True:
        seen = await side.store.arrivals(["q"], seen, LONG)
        await asyncio.sleep(0.01)  # what it does between two looks


async def test_waiter_that_never_claims_takes_no_wake_up_from_a_worker(
    sides: list[Side], start: Start
) -> None:
    start(_watch(sides[1]))
    for number in range(6):
        await settled()
        working = start(_work(sides[0]))
        await settled()
        await sides[2].add(f"t{number}")

        assert f"t{number}" == await asyncio.wait_for(working, SOON)


async def test_worker_without_free_slots_passes_the_wake_up_on(
    sides: list[Side], start: Start
) -> None:
    assert [] == await sides[1].claim()
    start(_watch(sides[1]))
    await settled()
    for number in range(4):
        working = start(_work(sides[0]))
        await settled()
        await sides[2].add(f"t{number}")

        assert f"t{number}" == await asyncio.wait_for(working, SOON)


async def test_worker_of_other_types_passes_the_wake_up_on(sides: list[Side], start: Start) -> None:
    other = start(_work(sides[1], ("x",)))
    await settled()
    for _ in range(4):
        working = start(_work(sides[0], ("y",)))
        await settled()
        await sides[2].add("y")

        assert "y" == await asyncio.wait_for(working, SOON)
    await sides[2].add("x")
    assert "x" == await asyncio.wait_for(other, SOON)


async def test_waiter_that_never_claims_learns_of_new_due_times(
    sides: list[Side], start: Start
) -> None:
    seen = await sides[1].store.arrivals(["q"], -1, timedelta(0))
    seen = await sides[1].store.arrivals(["q"], seen, timedelta(seconds=SETTLE))
    waiting = start(_wait(sides[1], seen))
    await settled()

    await sides[2].add("later", delay=0.2)

    assert str(seen) != await asyncio.wait_for(waiting, SOON)


async def _connections(server: Valkey, name: str = "") -> int:
    async with Redis(port=server.port) as raw:
        listed = await raw.client_list()
    return sum(1 for each in listed if each["name"] == name)


async def test_waiters_of_one_process_share_one_connection(
    valkey_server: Valkey, sides: list[Side], start: Start
) -> None:
    name = sides[0].store.session.keys.client_name("q", "python")
    await sides[0].claim()
    start(_watch(sides[0]))
    async with Redis(port=valkey_server.port) as raw:
        before = (await raw.info("stats"))["total_connections_received"]
        for number in range(5):
            working = start(_work(sides[0]))
            await settled()
            assert 1 == await _connections(valkey_server, name)
            await sides[2].add(f"t{number}")
            assert f"t{number}" == await asyncio.wait_for(working, SOON)
        opened = (await raw.info("stats"))["total_connections_received"] - before

    assert opened <= 2 + 5 + 5, "one to wait, one to claim, and those of this test"


async def test_marker_without_a_waiter_is_returned(sides: list[Side], start: Start) -> None:
    await sides[1].claim()
    cancelled = start(_wait(sides[1], 0))
    await settled()
    cancelled.cancel()
    await settled()
    working = start(_work(sides[0]))
    await settled()

    await sides[2].add("t")

    assert "t" == await asyncio.wait_for(working, SOON)


async def test_worker_is_listed_for_each_of_its_queues(
    valkey_server: Valkey, sides: list[Side], start: Start
) -> None:
    queues = ["first", "second", "third"]
    await sides[0].store.claim(Claim(queues=tuple(queues), limit=1, worker="w", token="t"))
    start(_wait_for(sides[0], queues))
    await settled()

    names = [sides[0].store.session.keys.client_name(queue, "w") for queue in queues]

    assert [1, 1, 1] == [await _connections(valkey_server, name) for name in names]


async def test_silent_connection_delays_no_waiter_and_is_replaced(
    valkey_server: Valkey, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking call must not wait for an answer that never arrives."""
    monkeypatch.setattr(wake, "LONGEST", 1.0)
    assert client.GRACE <= timedelta(seconds=2), "a call must end before a lease of 3 s does"
    prefix = f"a{uuid.uuid4().hex[:10]}"
    async with (
        Proxy(valkey_server.port) as proxy,
        RedisStore.from_url(f"redis://127.0.0.1:{proxy.port}?prefix={prefix}") as far,
        RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}") as near,
    ):
        assert [] == await Side(far).claim()
        loop = asyncio.get_running_loop()
        waiting = start(_wait(Side(far), 0))
        await settled()
        proxy.silence()
        began = loop.time()

        assert 0 == await far.arrivals(["q"], 0, timedelta(seconds=0.5))
        assert loop.time() - began < 1.0

        with pytest.raises(StoreUnavailableError):
            await asyncio.wait_for(waiting, 1.0 + client.GRACE.total_seconds())
        proxy.heal()
        working = start(_work(Side(far)))
        await settled()
        await Side(near).add("t")
        assert "t" == await asyncio.wait_for(working, SOON)


@pytest.mark.req("S-6")
async def test_maintenance_returns_a_marker_that_a_dead_worker_removed(
    sides: list[Side], start: Start, valkey_server: Valkey
) -> None:
    keeper, producer, worker = sides
    async with Redis(port=valkey_server.port) as dying:
        marker = producer.store.session.keys.queue("q", "marker")
        taken = asyncio.ensure_future(dying.bzpopmin(marker, 30))
        await settled()
        working = start(_work(worker))
        await settled()
        await producer.add("t")
        await taken  # without a claim after it

        await keeper.store.promote(10)

        assert "t" == await asyncio.wait_for(working, SOON)
