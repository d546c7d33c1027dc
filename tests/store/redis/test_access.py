"""Connecting to a Redis server: with TLS, as a user with few rights, through a sentinel."""

from __future__ import annotations

import asyncio
import contextlib
import re
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from holdfast import Holdfast, State
from holdfast.errors import StoreError, StoreUnavailableError
from holdfast.model.policy import Retention
from holdfast.store import FailureSearch, Fence, JobNote, Level, LimitRule, Search
from holdfast.store.redis import RedisStore
from holdfast.worker import Worker
from tests.servers import Valkey
from tests.store.redis.servers import (
    MASTER,
    Replica,
    SentinelServer,
    behind_tls,
    make_certificates,
)
from tests.waiting import eventually
from tests.wire.side import Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.redis
PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
WITHIN = 30.0


async def test_server_behind_tls_is_trusted_by_its_authority_alone(
    valkey_server: Valkey, tmp_path: Path
) -> None:
    authority = make_certificates(tmp_path, IPv4Address("127.0.0.1"))
    async with behind_tls(valkey_server.port, tmp_path) as port:
        url = f"rediss://127.0.0.1:{port}/0?prefix=tls&timeout=5"

        async with RedisStore.from_url(f"{url}&ssl_ca_certs={authority}") as store:
            side = Side(store)
            job = await side.add("t")
            (taken,) = await side.take()
            assert job.id == (await side.complete(taken)).id
        with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
            await RedisStore.from_url(url).start()


async def test_certificate_of_another_machine_is_refused(
    valkey_server: Valkey, tmp_path: Path
) -> None:
    authority = make_certificates(tmp_path, IPv4Address("127.0.0.9"))
    async with behind_tls(valkey_server.port, tmp_path) as port:
        url = f"rediss://127.0.0.1:{port}/0?timeout=5&ssl_ca_certs={authority}"

        with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
            await RedisStore.from_url(url).start()


@pytest.fixture(params=["with functions", "without functions", "without the right to load them"])
async def user(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A URL of a user with the rights that the page on Redis names."""
    rule = re.search(r"^user holdfast (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rule is not None
    words = rule[1].replace(">PASSWORD", ">secret").split()
    if request.param == "without functions":
        words.remove("+fcall")
    elif request.param == "without the right to load them":
        words[words.index("+function|load")] = "-function|load"
    with Valkey() as server:
        async with Redis(port=server.port) as raw:
            await raw.execute_command("ACL", "SETUSER", "holdfast", *words)
        yield f"redis://holdfast:secret@127.0.0.1:{server.port}/0?prefix=bull"


async def test_user_with_the_documented_rights_can_do_everything(user: str) -> None:
    async with RedisStore.from_url(f"{user}&durability=server") as store:
        side = Side(store)
        parent = await side.add("parent", tags={"k": "v"}, idempotency_key="k")
        child = await side.add("child", after=[parent])
        await side.add("later", delay=60)
        (taken,) = await side.take()
        assert taken.lease is not None
        fence = Fence(taken.id, taken.lease.token)
        await store.note([JobNote(fence=fence, checkpoint=b"1")])
        assert (await store.extend([fence]))[0].held
        await side.complete(taken)
        await store.limit("queue:q", LimitRule(concurrency=5, rate=9))
        await store.configure("q", {"paused": True, "ageing": timedelta(seconds=1)})
        await store.configure("q", {"paused": False})
        assert 1 == len(await store.dependents(10))
        assert 3 == (await store.find(Search(tags={}))).total
        assert [child.id] == [job.id for job in (await store.find(Search(types=("child",)))).jobs]
        await store.failures(FailureSearch())
        await store.stats(timedelta(minutes=1))
        assert (await store.events(None, 10, timedelta(0))).events
        await store.overdue(10)
        await store.prune(Retention(completed=timedelta(0)), 10)
        assert await store.lock("name", "me", timedelta(seconds=5))
        assert 1 == len(await store.locks("name"))
        assert {"q"} == {queue.name for queue in await store.queues()}
        assert 1 == len(await store.limits())
        findings = {each.name: each.level for each in await store.findings()}
        assert Level.ERROR not in findings.values()


@pytest.mark.usefixtures("waits_for_disk")
async def test_user_with_the_documented_rights_can_wait_for_the_disk(user: str) -> None:
    async with RedisStore.from_url(f"{user}&durability=fsync&confirm_within=1") as store:
        with pytest.raises(StoreUnavailableError, match="not on the server's disk"):
            await Side(store).add("t")  # which this server never syncs


@pytest.mark.parametrize(
    "words",
    [("GET", "other"), ("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "SET", "appendonly", "no")],
    ids=" ".join,
)
async def test_user_with_the_documented_rights_can_do_nothing_else(
    user: str, words: tuple[str, ...]
) -> None:
    async with Redis.from_url(user.partition("?")[0]) as raw:
        with pytest.raises(NoPermissionError):
            await raw.execute_command(*words)


async def test_wrong_password_is_reported(user: str) -> None:
    with pytest.raises(StoreError, match=r"(?i)password"):
        await RedisStore.from_url(user.replace(":secret@", ":wrong@")).start()


@pytest.mark.slow
@pytest.mark.req("S-9", stores=["redis"])
async def test_worker_goes_on_after_a_sentinel_changed_the_primary() -> None:
    with Valkey() as primary, Replica(primary.port) as replica:
        replica.in_step()
        with SentinelServer(primary.port) as sentinel:
            sentinel.knows_a_replica()
            # The first sentinel does not answer: the others are tried.
            url = f"redis://127.0.0.1:1,127.0.0.1:{sentinel.port}/0?sentinel={MASTER}&timeout=2"
            async with Holdfast(url) as app, asyncio.timeout(2 * WITHIN):
                ran: list[int] = []

                @app.task("noop")
                async def noop(n: int) -> int:
                    ran.append(n)
                    return n

                worker = Worker(app, slots=2)
                running = asyncio.create_task(worker.run())
                first = await app.submit("noop", {"n": 1})
                await app.wait(first.job_id, timeout=WITHIN)
                async with Redis(port=primary.port) as raw:
                    await raw.incr("mark")
                    assert 1 == await raw.wait(1, 10_000)

                primary.kill()

                second = await _submitted(app)
                assert State.COMPLETED is (await app.wait(second, timeout=WITHIN)).state
                assert State.COMPLETED is (await app.get(first.job_id)).state
                worker.stop()
                await running
            assert [1, 2] == ran


async def _submitted(app: Holdfast) -> str:
    """Submit once the new primary answers."""

    async def submit() -> str:
        with contextlib.suppress(StoreUnavailableError):
            return (await app.submit("noop", {"n": 2}, idempotency_key="second")).job_id
        return ""

    return await eventually(submit, within=WITHIN, every=0.2)
