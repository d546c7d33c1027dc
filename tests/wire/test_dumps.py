"""The same story told by Node alone and by Node and Python leaves the same keys behind."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

CHANGING = {"timestamp", "processedOn", "finishedOn", "pb", "stacktrace", "returnvalue"}
"""Fields whose values differ from run to run, or say who did the work."""
WORKERS_OWN = re.compile(r":(stalled-check|marker|pc|hf:.*)$")


async def dump(raw: Redis, prefix: str) -> dict[str, Any]:
    """Every key BullMQ knows, without times, names of workers and what is ours."""
    found: dict[str, Any] = {}
    for key in sorted(await raw.keys(f"{prefix}:*")):
        name = key.removeprefix(f"{prefix}:")
        if WORKERS_OWN.search(key) or name.startswith("hf:"):
            continue
        found[name] = await _value(raw, key, prefix)
    return found


async def _value(raw: Redis, key: str, prefix: str) -> Any:
    match await raw.type(key):
        case "hash":
            fields = await raw.hgetall(key)
            shown = {n: v for n, v in fields.items() if not n.startswith("hf:")}
            shown = {
                n.replace(prefix, "P"): "..." if n in CHANGING else v.replace(prefix, "P")
                for n, v in shown.items()
            }
            if "opts" in shown:
                shown["opts"] = json.loads(shown["opts"])
                shown["opts"].pop("timestamp", None)
            return shown
        case "list":
            return await raw.lrange(key, 0, -1)
        case "zset":
            return await raw.zrange(key, 0, -1)
        case "set":
            return sorted(m.replace(prefix, "P") for m in await raw.smembers(key))
        case "stream":
            rows = [fields for _, fields in await raw.xrange(key)]
            return [_event(row) for row in rows if row["event"] not in ("drained", "probe")]
        case _:
            return await raw.get(key)


def _event(row: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in row.items() if n not in ("delay", "returnvalue")}


async def by_node(peer: Peer, queue: str, count: int) -> None:
    """Let a Node worker finish so many attempts, then stop it."""
    await peer.ask("work", queue=queue, opts={"name": "w"})
    await peer.until("started", count)
    done = [e for e in await peer.ask("seen") if e["on"] in ("completed", "failed")]
    if len(done) < count:
        await peer.ask("until", match={}, count=2 * count, ms=5000)
    await peer.ask("rest", queue=queue)


async def by_us(side: Side, queue: str, count: int) -> None:
    """Finish so many attempts as the Node worker of the tests would."""
    for _ in range(count):
        (job,) = await side.take(queue=queue)
        data = json.loads(job.payload)
        if "fail" in data:
            await side.fail(job, data["fail"])
        elif "fatal" in data:
            await side.fail(job, data["fatal"], category="PERMANENT")
        else:
            await side.complete(job, msgspec.json.encode({"ran": job.type}))


STORIES: dict[str, tuple[list[dict[str, Any]], int]] = {
    "complete": ([{"job": "a", "data": {}}], 1),
    "priority": ([{"job": "a", "data": {}, "opts": {"priority": 3}}], 1),
    "fatal": ([{"job": "a", "data": {"fatal": "no"}, "opts": {"attempts": 3}}], 1),
    "exhaust": (
        [{"job": "a", "data": {"fail": "no"}, "opts": {"attempts": 2, "backoff": 10}}],
        2,
    ),
    "deduplicated": (
        [{"job": "a", "data": {}, "opts": {"deduplication": {"id": "K"}}}] * 2,
        1,
    ),
    "kept": ([{"job": "a", "data": {}, "opts": {"removeOnComplete": 1}}] * 3, 3),
    "removed": ([{"job": "a", "data": {}, "opts": {"removeOnComplete": True}}] * 2, 2),
}


@pytest.mark.req("B-1", "B-4")
@pytest.mark.parametrize("story", STORIES)
async def test_same_story_leaves_the_same_keys(
    side: Side,
    start_peer: Callable[[], Awaitable[Peer]],
    raw: Redis,
    prefix: str,
    story: str,
) -> None:
    peer = await start_peer()
    adds, attempts = STORIES[story]

    for add in adds:
        await peer.ask("add", queue="q", **add)
    await by_us(side, "q", attempts)
    mixed = await dump(raw, prefix)

    await peer.ask("use", prefix=f"{prefix}n")
    for add in adds:
        await peer.ask("add", queue="q", **add)
    await by_node(peer, "q", attempts)
    pure = await dump(raw, f"{prefix}n")

    assert pure == mixed


@pytest.mark.req("B-1")
async def test_same_flow_leaves_the_same_keys(
    side: Side, start_peer: Callable[[], Awaitable[Peer]], raw: Redis, prefix: str
) -> None:
    peer = await start_peer()
    kids = [{"name": "kid", "queueName": "kid", "data": {}, "opts": {"jobId": "k"}}]
    tree = {"name": "top", "queueName": "par", "data": {}, "opts": {"jobId": "p"}, "children": kids}

    await peer.ask("flow", tree=tree)
    await by_us(side, "kid", 1)
    await by_us(side, "par", 1)
    mixed = await dump(raw, prefix)

    await peer.ask("use", prefix=f"{prefix}n")
    await peer.ask("flow", tree=tree)
    await by_node(peer, "kid", 1)
    await by_node(peer, "par", 2)
    pure = await dump(raw, f"{prefix}n")

    assert pure == mixed
