"""The next job of a scheduler is the same, made by a Python or a Node worker."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

HOUR = 3_600_000
SCHEDULES: dict[str, dict[str, Any]] = {
    "alias": {"pattern": "@yearly", "immediately": True},
    "any day": {"pattern": "0 0 ? * 1", "immediately": True, "tz": "Asia/Tokyo"},
    "few fields": {"pattern": "5", "immediately": True, "tz": "Europe/Berlin"},
    "local time": {"pattern": "0 4 * * *", "immediately": True},
    "over before the next match": {
        "pattern": "0 0 1 1 *",
        "immediately": True,
        "endDate": HOUR,
    },
    "over after the next match": {"pattern": "0 * * * *", "immediately": True, "endDate": 2 * HOUR},
    "interval": {"every": HOUR, "limit": 5},
    "interval over before its next": {"every": 2 * HOUR, "endDate": HOUR},
}
TEMPLATE = {
    "name": "tick",
    "data": {"z": 1},
    "opts": {"attempts": 2, "priority": 3, "lifo": True, "keepLogs": 5, "removeOnFail": {"age": 9}},
}
CHANGING = {"timestamp", "delay", "jobId"}


@pytest.mark.req("B-1")
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("template", [TEMPLATE, {"name": "tick"}], ids=["options", "plain"])
async def test_python_makes_the_next_job_as_node_does(
    side: Side, peer: Peer, raw: Redis, prefix: str, name: str, template: dict[str, Any]
) -> None:
    repeat = dict(SCHEDULES[name])
    if "endDate" in repeat:
        repeat["endDate"] += int(time.time() * 1000)
    for queue in ("q", "n"):
        await peer.ask("schedule", queue=queue, id="s", repeat=repeat, template=template)

    (job,) = await side.take()
    await side.complete(job)
    await peer.ask("work", queue="n")
    await peer.until("completed")

    ours, theirs = [await _next_job(raw, f"{prefix}:{queue}") for queue in ("q", "n")]
    assert theirs == ours
    ours, theirs = [await _follower(raw, f"{prefix}:{queue}") for queue in ("q", "n")]
    assert theirs == ours


@pytest.mark.req("B-1")
async def test_schedule_waits_when_its_next_job_exists_already(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    for queue in ("q", "n"):
        repeat = {"every": HOUR, "startDate": 1000}
        first = await peer.ask("schedule", queue=queue, id="s", repeat=repeat, template=TEMPLATE)
        at = int(first.rpartition(":")[2]) + HOUR
        await raw.hset(f"{prefix}:{queue}:repeat:s:{at}", "name", "leftover")

    (job,) = await side.take()
    await side.complete(job)
    await peer.ask("work", queue="n")
    await peer.until("completed")

    for queue in ("q", "n"):
        base = f"{prefix}:{queue}"
        assert "1" == await raw.hget(f"{base}:repeat:s", "ic")
        events = [fields["event"] for _, fields in await raw.xrange(f"{base}:events")]
        assert 1 == events.count("duplicated")


async def _follower(raw: Redis, base: str) -> bool | None:
    """Return whether the job that ran names the next one; None when it names none."""
    (ended,) = await raw.zrange(f"{base}:completed", 0, -1)
    named = await raw.hget(f"{base}:{ended}", "nrjid")
    return named and named in await raw.zrange(f"{base}:delayed", 0, -1)


async def _next_job(raw: Redis, base: str) -> object:
    """Return what a scheduler has made, without the moments at which it was made."""
    plan = await raw.hgetall(f"{base}:repeat:s")
    count = plan.pop("ic")
    plan.pop("offset", None)  # the moment of the first interval
    made = []
    for job_id in await raw.zrange(f"{base}:delayed", 0, -1):
        job = await raw.hgetall(f"{base}:{job_id}")
        options = {k: v for k, v in json.loads(job["opts"]).items() if k not in CHANGING}
        options["repeat"].pop("offset", None)
        if "prevMillis" in options:
            assert job_id == f"repeat:s:{options.pop('prevMillis')}"
            options["prevMillis"] = "as the id says"
        due = None if "every" in plan else job_id
        fields = {k: job[k] for k in ("name", "data", "priority", "rjk")}
        made.append((due, options, fields))
    return plan, count, made
