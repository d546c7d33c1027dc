"""BullMQ's deduplication beside quotas, copies, encryption and the client over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Client, Deduplication, Holdfast, Limits, ValidationError
from holdfast.copying.copier import Copier
from holdfast.encryption import KeyRing
from holdfast.errors import QuotaError
from holdfast.model.results import SubmissionStatus
from holdfast.store.redis import RedisStore
from tests.http.test_client import listening

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side

DUPLICATE, ACCEPTED = SubmissionStatus.DUPLICATE, SubmissionStatus.ACCEPTED


@pytest.mark.req("B-1")
async def test_duplicate_needs_no_room_in_a_full_queue(
    side: Side, peer6: Peer, raw: Redis, prefix: str
) -> None:
    node_id = await peer6.ask("add", queue="q", job="t", opts={"deduplication": {"id": "n"}})
    async with Holdfast(store=side.store, limits=Limits(queue_depth=2)) as app:
        first = await app.submit("t", {}, queue="q", deduplication={"id": "k"})

        second = await app.submit("t", {}, queue="q", deduplication={"id": "k"})
        third = await app.submit("t", {}, queue="q", deduplication={"id": "n"})
        with pytest.raises(QuotaError):
            await app.submit("t", {}, queue="q", deduplication={"id": "new"})

    assert (DUPLICATE, first.job_id) == (second.status, second.existing_job_id)
    assert (DUPLICATE, f"q:{node_id}") == (third.status, third.existing_job_id)
    events = [fields for _, fields in await raw.xrange(f"{prefix}:q:events")]
    assert 2 == sum(each["event"] == "deduplicated" for each in events)


@pytest.mark.req("B-1")
async def test_missing_dependency_holds_no_id(side: Side) -> None:
    async with Holdfast(store=side.store) as app:
        option = {"id": "k"}
        with pytest.raises(ValidationError):
            await app.submit("t", {}, queue="q", deduplication=option, depends_on=["missing"])

        assert ACCEPTED is (await app.submit("t", {}, queue="q", deduplication=option)).status


@pytest.mark.req("B-1")
async def test_copied_job_holds_its_id(
    side: Side, peer6: Peer, valkey_server: Valkey, raw: Redis, prefix: str
) -> None:
    other = f"{prefix}b"
    async with (
        Holdfast(store=side.store) as app,
        RedisStore.from_url(f"{valkey_server.url}?prefix={other}") as target,
    ):
        first = await app.submit("t", {}, queue="q", deduplication={"id": "k"})
        await app.submit("t", {}, queue="q", deduplication={"id": "timed", "ttl": 60})

        assert (await Copier(side.store, target).run()).ok

    assert first.job_id == await raw.get(f"{other}:q:de:k")
    assert 0 < await raw.pttl(f"{other}:q:de:timed") <= 60_000
    await peer6.ask("use", prefix=other)
    again = await peer6.ask("add", queue="q", job="t", opts={"deduplication": {"id": "k"}})
    assert first.job_id == again


@pytest.mark.req("B-1")
async def test_encryption_refuses_to_keep_the_last_duplicate(side: Side) -> None:
    keys = KeyRing.parse(KeyRing.generate("k1"))
    async with Holdfast(store=side.store, keys=keys) as app:
        with pytest.raises(ValidationError, match="combined with encryption"):
            await app.submit(
                "t", {}, queue="q", deduplication={"id": "k", "keep_last_if_active": True}
            )
        assert ACCEPTED is (await app.submit("t", {}, deduplication={"id": "k"})).status


@pytest.mark.req("B-1")
async def test_client_deduplicates(valkey_server: Valkey, prefix: str) -> None:
    option = Deduplication(id="k")
    async with (
        listening(Holdfast(f"{valkey_server.url}?prefix={prefix}")) as served,
        Client(served.url) as client,
    ):
        first = await client.submit("t", {}, queue="q", deduplication=option)
        second = await client.submit("t", {}, queue="q", deduplication=option)
        job = {"type": "t", "payload": {}, "queue": "q"}
        batch = await client.submit_batch([{**job, "deduplication": {"id": "k"}}, job])

    assert ACCEPTED is first.status
    for duplicate in (second, batch.results[0]):
        assert (DUPLICATE, first.job_id) == (duplicate.status, duplicate.existing_job_id)
    assert ACCEPTED is batch.results[1].status
