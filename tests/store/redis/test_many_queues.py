"""What one namespace has costs others nothing: the commands of a call are counted."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.model.policy import Retention
from holdfast.store import Claim, FailureSearch, Order, Search
from holdfast.store.redis import RedisStore
from tests.conformance.hand import make

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.servers import Valkey

pytestmark = pytest.mark.redis
MANY = 2000
CALLS = re.compile(r"cmdstat_[^:]+:calls=(\d+)")


@pytest.fixture
async def store(valkey_server: Valkey) -> AsyncIterator[RedisStore]:
    prefix = f"m{uuid.uuid4().hex[:10]}"
    async with RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}") as store:
        yield store


async def _commands(store: RedisStore, port: int, call: Callable[..., Awaitable[object]]) -> int:
    """Return how many commands the server runs for a call, those of scripts included."""
    async with Redis(port=port) as raw:
        await call(store)  # the first call may follow what was written
        await raw.config_resetstat()
        await call(store)
        text = await raw.execute_command("INFO", "commandstats")
    body = text if isinstance(text, str) else _text(text)
    return sum(map(int, CALLS.findall(body)))


def _text(info: object) -> str:
    if isinstance(info, dict):
        return "\n".join(f"{name}:calls={stats['calls']}" for name, stats in info.items())
    assert isinstance(info, bytes)
    return info.decode()


async def _fill(store: RedisStore, queues: int) -> None:
    """Add a job to so many queues of one namespace."""
    now = store.now()
    jobs = [make(f"a{n}", now=now, queue=f"loud/q{n}", type="a") for n in range(queues)]
    for start in range(0, queues, 500):
        await store.add(jobs[start : start + 500])


CALLS_OF_OTHERS = {
    "list": lambda store: store.find(Search(namespace="quiet", most_bytes=100)),
    "list by change": lambda store: store.find(
        Search(namespace="quiet", order=Order.UPDATED_DESC, most_bytes=100)
    ),
    "failures": lambda store: store.failures(FailureSearch(namespace="quiet")),
    "queues": lambda store: store.queues("quiet"),
    "stats": lambda store: store.stats(timedelta(hours=1), "quiet"),
    "claim": lambda store: store.claim(
        Claim(queues=tuple(f"quiet/q{n}" for n in range(5)), limit=1, worker="w", token="t")
    ),
}


@pytest.mark.parametrize("call", CALLS_OF_OTHERS.values(), ids=CALLS_OF_OTHERS)
async def test_queues_of_one_namespace_cost_the_calls_of_another_nothing(
    store: RedisStore, valkey_server: Valkey, call: Callable[..., Awaitable[object]]
) -> None:
    jobs = [make(f"b{n}", now=store.now(), queue=f"quiet/q{n}", type="b") for n in range(3)]
    await store.add(jobs)
    await store.claim(
        Claim(queues=("quiet/q0", "quiet/q1", "quiet/q2"), limit=3, worker="w", token="t")
    )
    alone = await _commands(store, valkey_server.port, call)

    await _fill(store, MANY)
    beside_many = await _commands(store, valkey_server.port, call)

    assert beside_many <= alone + 5


CALLS_OF_MAINTENANCE = {
    "promote": lambda store: store.promote(100),
    "overdue": lambda store: store.overdue(100),
    "dependents": lambda store: store.dependents(100),
    "prune": lambda store: store.prune(Retention(), 100),
    "events": lambda store: store.events(None, 0, timedelta(0)),
}


@pytest.mark.parametrize("call", CALLS_OF_MAINTENANCE.values(), ids=CALLS_OF_MAINTENANCE)
async def test_maintenance_looks_at_a_bounded_number_of_queues_per_call(
    store: RedisStore, valkey_server: Valkey, call: Callable[..., Awaitable[object]]
) -> None:
    await _fill(store, 1000)
    some = await _commands(store, valkey_server.port, call)

    now = store.now()
    more = [make(f"c{n}", now=now, queue=f"more/q{n}", type="c") for n in range(MANY)]
    for start in range(0, MANY, 500):
        await store.add(more[start : start + 500])
    many = await _commands(store, valkey_server.port, call)

    assert many <= some + 20


async def test_due_jobs_of_queues_beyond_those_of_one_call_become_ready_at_once(
    store: RedisStore,
) -> None:
    await _fill(store, MANY)
    late = make("z", now=store.now() - timedelta(hours=1), queue="zoo/q", type="z", delay=1)
    await store.add([late])

    promoted = await store.promote(10)

    assert 1 == promoted.count
