"""BullMQ's job schedulers: the worker that claims a scheduler's job makes the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side


@pytest.mark.req("B-1")
async def test_interval_goes_on_under_our_worker_and_stops_at_its_limit(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    template = {"name": "tick", "data": {"z": 1}, "opts": {"attempts": 2}}
    await peer.ask(
        "schedule", queue="q", id="ev", repeat={"every": 200, "limit": 3}, template=template
    )

    ran = []
    for _ in range(3):
        (job,) = await side.take()
        ran.append(job)
        await side.complete(job)

    assert 3 == len({job.id for job in ran})
    assert {b'{"z":1}'} == {job.payload for job in ran}
    assert {2} == {job.max_attempts for job in ran}
    assert "3" == await raw.hget(f"{prefix}:q:repeat:ev", "ic")
    assert 0 == await raw.zcard(f"{prefix}:q:delayed")


@pytest.mark.req("B-1")
async def test_cron_goes_on_with_node_after_we_ran_one(side: Side, peer: Peer) -> None:
    repeat = {"pattern": "*/1 * * * * *", "tz": "Europe/Berlin"}
    await peer.ask("schedule", queue="q", id="cron", repeat=repeat, template={"name": "cron"})
    (job,) = await side.take()
    await side.complete(job)

    await peer.ask("work", queue="q")
    done = await peer.until("completed", 2)

    due = [int(job.id.rpartition(":")[2]), *(int(each["id"].rpartition(":")[2]) for each in done)]
    assert sorted(set(due)) == due
    assert {0} == {moment % 1000 for moment in due}


@pytest.mark.req("B-1")
async def test_retried_tick_makes_no_second_next_one(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    template = {"name": "tick", "opts": {"attempts": 3, "backoff": 10}}
    await peer.ask("schedule", queue="q", id="ev", repeat={"every": 60_000}, template=template)
    (job,) = await side.take()
    await side.fail(job)
    (again,) = await side.take()
    await side.complete(again)

    assert job.id == again.id
    assert 1 == await raw.zcard(f"{prefix}:q:delayed")
    assert "2" == await raw.hget(f"{prefix}:q:repeat:ev", "ic")
