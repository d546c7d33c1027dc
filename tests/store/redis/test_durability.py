"""What a killed Redis server keeps, and what submissions can wait for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.errors import StoreError, StoreUnavailableError, UnconfirmedError, UnsafeStoreError
from holdfast.model.job import State
from holdfast.store import AddStatus, Search
from holdfast.store.redis import RedisStore
from holdfast.store.redis.settings import RedisSettings
from tests.proxy import Proxy
from tests.servers import Valkey
from tests.store.redis.servers import Replica
from tests.waiting import eventually
from tests.wire.side import Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from holdfast.model.job import Job

pytestmark = pytest.mark.redis
JOBS = 20


@pytest.fixture
def pair() -> Iterator[tuple[Valkey, Replica]]:
    """A primary and its replica, in step."""
    with Valkey() as primary, Replica(primary.port) as replica:
        replica.in_step()
        yield primary, replica


@contextlib.asynccontextmanager
async def opened(server: Valkey, query: str = "") -> AsyncIterator[Side]:
    async with RedisStore.from_url(f"{server.url}?prefix=d&timeout=5{query}") as store:
        yield Side(store)


async def holds(server: Valkey, job: Job) -> bool:
    async with Redis(port=server.port) as raw:
        return bool(await raw.exists(f"d:q:{job.id}"))


@pytest.mark.slow
@pytest.mark.req("S-1", "S-13", stores=["redis"])
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--appendonly", "no"], 0),
        (["--appendonly", "yes", "--appendfsync", "everysec"], JOBS),
        (["--appendonly", "yes", "--appendfsync", "always"], JOBS),
    ],
    ids=["no file", "everysec", "always"],
)
async def test_killed_server_keeps_what_its_settings_promise(options: list[str], kept: int) -> None:
    with Valkey(options) as server:
        async with opened(server) as side:
            for n in range(JOBS):
                await side.add(f"t{n}")
            if "everysec" in options:  # it writes at once, but not while an fsync runs late
                await _synced(server)

        server.kill()
        server.start()

        async with opened(server) as side:
            assert kept == (await side.store.find(Search(limit=1))).total


@pytest.mark.req("S-1", stores=["redis"])
async def test_submission_waits_for_a_replica_when_asked(pair: tuple[Valkey, Replica]) -> None:
    primary, replica = pair
    async with opened(primary, "&replicas=1&confirm_within=10") as side:
        jobs = [await side.add(f"t{n}") for n in range(JOBS)]

        assert all([await holds(replica, job) for job in jobs])


@pytest.mark.req("S-1", "S-9", stores=["redis"])
async def test_submission_no_replica_confirms_exists_and_says_so(
    pair: tuple[Valkey, Replica],
) -> None:
    """The replica hangs but stays connected, so that only the confirmation is missing."""
    primary, replica = pair
    assert replica.process is not None
    options = "&replicas=1&confirm_within=1"
    async with opened(primary, options) as side, opened(primary, options) as other:
        os.kill(replica.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnconfirmedError, match="0 of 1 replicas") as caught:
                await side.add("first")
            assert isinstance(caught.value, StoreUnavailableError)
            (job,) = (await side.store.find(Search())).jobs

            with pytest.raises(UnconfirmedError):
                await other.store.add([job])  # which writes nothing but the counter
        finally:
            os.kill(replica.process.pid, signal.SIGCONT)
        (answer,) = await _persistently(side, job)

        assert AddStatus.ACCEPTED is answer
        assert await holds(replica, job)
        assert State.SCHEDULED is (await side.get(job.id)).state


@pytest.mark.slow
@pytest.mark.req("S-1", stores=["redis"])
async def test_failover_to_a_replica_that_was_cut_off_loses_what_it_had_not_received() -> None:
    """As docs/redis.md warns: without ``replicas`` an answered submission can be lost."""
    with Valkey() as primary, contextlib.closing(Replica(0)) as replica:
        async with Proxy(primary.port) as proxy:
            replica.follow(proxy.port)
            await asyncio.to_thread(replica.start)
            await asyncio.to_thread(replica.in_step)
            async with opened(primary) as side:
                before = await side.add("before")
                await eventually(lambda: holds(replica, before))
                proxy.silence()
                after = await side.add("after")
            async with opened(primary, "&replicas=1&confirm_within=1") as side:
                with pytest.raises(UnconfirmedError):
                    await side.add("refused")
            primary.kill()
        async with Redis(port=replica.port) as raw:
            await raw.replicaof("NO", "ONE")

        async with opened(replica) as side:
            found = [job and job.id for job in await side.store.get([before.id, after.id])]
        assert [before.id, None] == found


@pytest.mark.usefixtures("waits_for_disk")
@pytest.mark.req("S-1", stores=["redis"])
async def test_submission_waits_for_the_disk_when_asked() -> None:
    with Valkey(["--appendfsync", "everysec"]) as server:
        async with opened(server, "&durability=fsync&confirm_within=10") as side:
            job = await side.add("t")

            server.kill()
            server.start()

        async with opened(server) as side:
            assert job.id == (await side.get(job.id)).id


@pytest.mark.usefixtures("waits_for_disk")
@pytest.mark.req("S-1", "S-9", stores=["redis"])
async def test_submission_the_disk_does_not_confirm_exists_and_says_so() -> None:
    with Valkey(["--appendfsync", "no"]) as server:  # only the kernel decides when to sync
        async with opened(server, "&durability=fsync&confirm_within=1") as side:
            with pytest.raises(UnconfirmedError, match="not on the server's disk"):
                await side.add("t")

            assert 1 == (await side.store.find(Search())).total


@pytest.mark.req("S-13", stores=["redis"])
async def test_disk_confirmation_without_an_append_only_file_is_refused() -> None:
    with (
        Valkey(["--appendonly", "no"]) as server,
        pytest.raises(UnsafeStoreError, match="needs an append-only file"),
    ):
        await RedisStore.from_url(f"{server.url}?durability=fsync").start()


@pytest.mark.parametrize(
    "query", ["durability=disk", "replicas=0", "replicas=x", "replicas=1&cluster=1&prefix={b}"]
)
def test_confirmation_that_is_not_available_is_refused_by_name(query: str) -> None:
    with pytest.raises(StoreError, match=r"durability|replicas"):
        RedisSettings.from_url(f"redis://h?{query}")


async def _synced(server: Valkey) -> None:
    """Wait until everything so far is on disk, without WAITAOF, which Redis 7.0 lacks."""
    async with Redis(port=server.port) as raw:
        for _ in range(3):  # what was written since the last fsync is due within a second
            await asyncio.sleep(1.1)  # and nothing else tells that it is done
            if not (await raw.info("persistence"))["aof_pending_bio_fsync"]:
                return


async def _persistently(side: Side, job: Job) -> list[AddStatus]:
    for _ in range(20):
        with contextlib.suppress(UnconfirmedError):
            return [answer.status for answer in await side.store.add([job])]
    raise AssertionError("the replica never confirmed")
