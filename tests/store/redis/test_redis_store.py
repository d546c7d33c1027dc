"""Settings, refusals and crashes that only the Redis store has."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from holdfast.errors import StoreError, StoreUnavailableError, UnsafeStoreError, ValidationError
from holdfast.model import lifecycle
from holdfast.model.job import Priority, State
from holdfast.model.policy import Retention
from holdfast.runtime.clock import ManualClock
from holdfast.store import Change, Claim, LimitRule, Search, open_store
from holdfast.store.redis import RedisStore
from holdfast.store.redis.maintain import KEYS_AT_ONCE
from tests.conformance.hand import make
from tests.servers import Valkey
from tests.waiting import eventually
from tests.wire.side import Side

if TYPE_CHECKING:
    from holdfast.model.job import Job

pytestmark = pytest.mark.redis


def place(server: Valkey, **query: str) -> str:
    options = {"prefix": f"s{uuid.uuid4().hex[:10]}", **query}
    return f"{server.url}?" + "&".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.req("S-13")
async def test_server_that_evicts_is_refused_unless_accepted(valkey_server: Valkey) -> None:
    with Valkey(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]) as server:
        with pytest.raises(UnsafeStoreError, match="noeviction"):
            await RedisStore.from_url(place(server)).start()

        async with RedisStore.from_url(place(server, accept="eviction")) as store:
            assert "allkeys-lru" in store.session.health.warnings[0]


@pytest.mark.req("S-13")
@pytest.mark.parametrize(
    ("options", "aof", "word"),
    [
        (["--appendonly", "no"], "off", "appendonly is off"),
        (["--appendfsync", "no"], "no", "appendfsync"),
        (["--appendfsync", "always"], "always", None),
    ],
)
async def test_health_reports_what_a_crash_would_lose(
    options: list[str], aof: str, word: str | None
) -> None:
    with Valkey(options) as server:
        async with RedisStore.from_url(place(server)) as store:
            assert aof == store.session.health.aof
            assert [word is not None] == [
                any(word or "" in w for w in store.session.health.warnings)
            ]


async def test_queue_of_an_old_bullmq_is_refused_unless_forced(valkey_server: Valkey) -> None:
    url = place(valkey_server, prefix="old")
    async with Redis(port=valkey_server.port) as raw:
        await raw.hset("old:q:meta", "version", "bullmq:4.18.3")

        with pytest.raises(StoreError, match="BullMQ 5 and 6"):
            await RedisStore.from_url(url).start()
        async with RedisStore.from_url(f"{url}&accept=unknown-version"):
            pass


async def test_queue_taken_over_by_an_old_bullmq_is_refused_from_then_on(
    valkey_server: Valkey,
) -> None:
    url = place(valkey_server)
    async with RedisStore.from_url(url) as store, Redis(port=valkey_server.port) as raw:
        side = Side(store)
        await side.add("before", {}, delay=0.01)
        await raw.hset(f"{store.session.settings.prefix}:q:meta", "version", "bullmq:4.18.3")
        kept = await raw.zcard(f"{store.session.settings.prefix}:q:delayed")
        await asyncio.sleep(0.02)  # until it is due

        with pytest.raises(StoreError, match=r"'q' was last used by 'bullmq:4.18.3': only"):
            await side.add("after", {})
        with pytest.raises(StoreError, match="accept=unknown-version"):
            await side.claim()
        assert 0 == (await store.promote(10)).count
        for _ in range(1000):  # each looks at some of all keys of the server
            await store.promote(10)
            if warnings := [
                text for text in store.session.health.warnings if "'q' was last used" in text
            ]:
                break
        assert warnings
        assert kept == 1 == await raw.zcard(f"{store.session.settings.prefix}:q:delayed")

        want = Claim(queues=("q", "fine"), limit=1, worker="w", token="t")
        assert [] == await store.claim(want), "its other queues are served"
        async with RedisStore.from_url(f"{url}&accept=unknown-version") as forced:
            assert 1 == (await forced.promote(10)).count
            assert ["before"] == [job.type for job in await Side(forced).claim()]


@pytest.mark.parametrize(
    ("unknown", "delays"),
    [
        ("exponential", [250, 500, 1000]),
        ("fixed", [250, 250, 250]),
        ("none", [0, 0, 0]),
    ],
)
async def test_backoff_strategy_that_only_node_knows_is_replaced_as_the_url_says(
    valkey_server: Valkey, unknown: str, delays: list[int]
) -> None:
    options = '{"attempts": 3, "backoff": {"type": "own", "delay": 250}}'
    async with (
        RedisStore.from_url(place(valkey_server, unknown_backoff=unknown)) as store,
        Redis(port=valkey_server.port) as raw,
    ):
        base = f"{store.session.settings.prefix}:q:"
        await raw.hset(base + "1", mapping={"name": "t", "data": "{}", "opts": options})
        await raw.lpush(base + "wait", "1")

        (job,) = await Side(store).claim()

        found = [job.backoff.delay(attempt) for attempt in (1, 2, 3)]
        assert delays == [each / timedelta(milliseconds=1) for each in found]
        assert not job.backoff.needs_function


@pytest.mark.parametrize("job_id", ["wait", "meta", "", "0", "a:b", "repeat"])
async def test_id_that_would_break_a_queue_is_refused(valkey_server: Valkey, job_id: str) -> None:
    async with RedisStore.from_url(place(valkey_server)) as store:
        job = replace(_made(store), id=job_id)

        with pytest.raises(ValidationError, match="cannot be"):
            await store.add([job])


@pytest.mark.parametrize(
    "url",
    [
        "redis://h?accept=everything",
        "redis://h?prefix=a b",
        "redis://h?timeout=0",
        "redis://h?events_kept=x",
        "redis://h?unknown_backoff=linear",
        "redis://h?lock_duration=0",
        "redis://h?lock_duration=3601",
    ],
)
def test_invalid_option_in_a_url_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        open_store(url)


def test_valkey_url_opens_the_same_store() -> None:
    assert isinstance(open_store("valkey://localhost"), RedisStore)


@pytest.mark.slow
@pytest.mark.req("S-1", "S-2", "S-9")
async def test_nothing_acknowledged_is_lost_when_the_server_is_killed() -> None:
    with Valkey() as server:
        async with RedisStore.from_url(place(server, timeout="2")) as store:
            side = Side(store)
            jobs = [await side.add(f"kept.{n}", {}) for n in range(50)]
            (running,) = await side.claim()

            server.kill()
            with pytest.raises(StoreUnavailableError):
                await store.get([running.id])
            server.start()

            done = await _persistently(lambda: side.complete(running))
            assert State.COMPLETED is done.state
            found = await store.get([job.id for job in jobs])
            assert None not in found
            assert 50 == (await store.find(Search(limit=1))).total


@pytest.mark.req("S-9")
async def test_waiting_worker_is_told_when_the_server_dies() -> None:
    with Valkey() as server:
        async with RedisStore.from_url(place(server, timeout="2")) as store:
            assert [] == await Side(store).claim()
            waiting = asyncio.create_task(store.arrivals(["q"], 0, timedelta(seconds=30)))
            await asyncio.sleep(0.2)  # until the call has reached the server and blocks there

            server.kill()

            with pytest.raises(StoreUnavailableError):
                await waiting


@pytest.mark.req("S-9")
async def test_full_server_refuses_work_but_not_answers() -> None:
    with Valkey(["--maxmemory", "12mb", "--maxmemory-policy", "noeviction"]) as server:
        async with RedisStore.from_url(place(server)) as store:
            side = Side(store)
            await side.add("first", {})
            (running,) = await side.claim()

            with pytest.raises(StoreUnavailableError, match="OOM"):
                await _fill(side)

            done = await side.complete(running)
            assert State.COMPLETED is done.state


@pytest.mark.req("S-1", "S-9")
async def test_batch_that_a_full_server_refused_left_nothing_behind() -> None:
    """All of a batch is stored or none of it, and the same batch can be added again."""
    with Valkey(["--maxmemory", "12mb", "--maxmemory-policy", "noeviction"]) as server:
        async with (
            RedisStore.from_url(place(server, prefix="full")) as store,
            Redis(port=server.port) as raw,
        ):
            side, written = Side(store), 0
            batch: list[Job] = []
            for _ in range(200):
                batch = [_made(store) for _ in range(20)]
                batch = [replace(job, payload=b'"%s"' % (b"x" * 5000)) for job in batch]
                try:
                    await store.add(batch)
                except StoreUnavailableError:
                    break
                written += len(batch)
            assert 0 < written < 4000
            assert written == (await store.find(Search(limit=1))).total
            assert written == await raw.hlen("full:hf:jobs")
            assert [None] * len(batch) == await store.get([job.id for job in batch])
            assert written == await raw.zcard("full:default:prioritized")

            await raw.config_set("maxmemory", "100mb")
            await store.add(batch)

            assert None not in await store.get([job.id for job in batch])
            (taken, *_) = await side.claim(queue="default")
            assert State.COMPLETED is (await side.complete(taken)).state


@pytest.mark.req("S-11")
async def test_scripts_go_by_the_servers_clock(valkey_server: Valkey) -> None:
    async with RedisStore.from_url(place(valkey_server)) as store:
        async with Redis(port=valkey_server.port) as raw:
            seconds, micros = await raw.time()

        behind = seconds + micros / 1_000_000 - store.now().timestamp()

        assert abs(behind) < 0.5


async def _fill(side: Side) -> None:
    for n in range(2000):
        await side.add(f"fill.{n}", {"x": "y" * 20_000})


def _made(store: RedisStore) -> Job:
    from holdfast.model.acceptance import accept
    from holdfast.model.submission import Submission

    return accept(Submission(type="some"), job_id=str(uuid.uuid4()), now=store.now())


async def _persistently(call: Callable[[], Awaitable[Job]]) -> Job:
    async def answered() -> Job | None:
        with contextlib.suppress(StoreUnavailableError):
            return await call()
        return None

    job = await eventually(answered, every=0.1)
    assert job is not None
    return job


@pytest.mark.req("S-14")
@pytest.mark.parametrize("priority", ["CRITICAL", "LOW"])
async def test_many_jobs_of_other_types_do_not_hide_one_behind_them(
    valkey_server: Valkey, priority: str
) -> None:
    async with RedisStore.from_url(place(valkey_server)) as store:
        side = Side(store)
        others = [replace(_made(store), type="other", queue="q") for _ in range(1100)]
        await store.add([replace(job, priority=Priority[priority]) for job in others])
        wanted = await side.add("wanted", {}, priority=priority)

        found = [job.id for _ in range(3) for job in await side.claim(types=("wanted",))]

        assert [wanted.id] == found
        assert 1100 == (await store.find(Search(states=(State.SCHEDULED,), limit=1))).total


async def test_script_that_failed_half_way_does_not_stop_the_store(valkey_server: Valkey) -> None:
    async with RedisStore.from_url(place(valkey_server, prefix="half")) as store:
        side = Side(store)
        await side.add("first", {})
        async with Redis(port=valkey_server.port) as raw:
            await raw.decrby("half:hf:told", 2)

        job = await side.add("second", {})

        assert job.id == (await side.get(job.id)).id


@pytest.mark.req("M-2", stores=["redis"])
async def test_any_number_of_expired_keys_is_deleted_although_their_jobs_are_gone(
    valkey_server: Valkey,
) -> None:
    clock, count = ManualClock(), 2 * KEYS_AT_ONCE + 1
    async with RedisStore.from_url(place(valkey_server), clock=clock) as store:
        now, fields = clock.now(), {"idempotency_window": 60, "max_attempts": 1}
        jobs = [make(f"j{n}", now=now, idempotency_key="k", **fields) for n in range(count)]
        await store.add(jobs)
        ended = [
            lifecycle.cancel_requested(job, reason="", force=False, now=now)
            for job in await store.get([job.id for job in jobs])
            if job is not None
        ]
        await store.swap([Change(job, end) for job, end in zip(jobs, ended, strict=True)])
        assert all(await store.delete([job.id for job in jobs]))
        async with Redis.from_url(valkey_server.url) as server:
            found = await server.keys(f"{store.session.settings.prefix}*")
            kept = [name for name in found if name.endswith((b":keys", b":expiring"))]
            clock.advance(60)
            await store.prune(Retention(), 1)
            left = await server.exists(*kept)

    assert (2, 0) == (len(kept), left)


@pytest.mark.req("S-12", stores=["redis"])
@pytest.mark.parametrize(
    ("started", "claims"), [pytest.param(1, 1, id="counted"), pytest.param(2**53 - 1, 0, id="Node")]
)
async def test_rate_window_of_bullmq_is_over_when_the_clock_is_set_back(
    valkey_server: Valkey, started: int, claims: int
) -> None:
    """The server keeps when the limiter key expires by its clock. Node closes it for any time."""
    async with RedisStore.from_url(place(valkey_server)) as store:
        await store.limit("queue:default", LimitRule(rate=1, per=timedelta(minutes=1)))
        await store.add([make("a", now=store.now())])
        async with Redis.from_url(valkey_server.url) as server:
            key = f"{store.session.settings.prefix}:default:limiter"
            await server.set(key, started, px=timedelta(hours=3))

        before = await store.limits()
        taken = await store.claim(Claim(queues=("default",), limit=1, worker="w", token="t"))

    assert [1 - claims] == [state.started for state in before]
    assert claims == len(taken)
