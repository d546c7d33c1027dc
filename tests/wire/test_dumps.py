"""The same scenario leaves the same keys, run by Node alone or by Node and Python."""

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
"""Fields whose values differ from run to run, or name the worker."""
WORKERS_OWN = re.compile(r":(stalled-check|marker|pc|hf:.*)$")


async def dump(raw: Redis, prefix: str) -> dict[str, Any]:
    """Return every key that BullMQ knows, without times, names of workers and our own fields."""
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
            if "stacktrace" in fields:
                shown["stacktrace"] = f"{len(json.loads(fields['stacktrace']))} traces"
            if "opts" in shown:
                shown["opts"] = json.loads(shown["opts"])
                shown["opts"].pop("timestamp", None)
            return shown
        case "list":
            return await raw.lrange(key, 0, -1)
        case "zset":
            members = [m.replace(prefix, "P") for m in await raw.zrange(key, 0, -1)]
            is_by_end = key.endswith((":completed", ":failed"))  # two may end in one millisecond
            return sorted(members) if is_by_end else members
        case "set":
            return sorted(m.replace(prefix, "P") for m in await raw.smembers(key))
        case "stream":
            rows = [fields for _, fields in await raw.xrange(key)]
            return [_event(row, prefix) for row in rows if row["event"] not in ("drained", "probe")]
        case _:
            return await raw.get(key)


def _event(row: dict[str, str], prefix: str) -> dict[str, str]:
    hidden = ("delay", "returnvalue")
    return {n: v.replace(prefix, "P") for n, v in row.items() if n not in hidden}


async def by_node(peer: Peer, queue: str, count: int, end: str = "completed") -> None:
    """Run so many attempts in a Node worker, then stop it."""
    await peer.ask("work", queue=queue, opts={"name": "w"})
    await peer.until(end, count)
    await peer.ask("rest", queue=queue)


async def by_us(side: Side, queue: str, count: int) -> None:
    """Run so many attempts as the Node worker of these tests does."""
    for _ in range(count):
        (job,) = await side.take(queue=queue)
        data = json.loads(job.payload)
        if "fail" in data:
            await side.fail(job, data["fail"])
        elif "fatal" in data:
            await side.fail(job, data["fatal"], category="PERMANENT")
        else:
            await side.complete(job, msgspec.json.encode({"ran": job.type}))


SCENARIOS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "complete": ([{"job": "a", "data": {}}], 1),
    "priority": ([{"job": "a", "data": {}, "opts": {"priority": 3}}], 1),
    "fatal": ([{"job": "a", "data": {"fatal": "no"}, "opts": {"attempts": 3}}], 1),
    "exhaust": (
        [{"job": "a", "data": {"fail": "no"}, "opts": {"attempts": 2, "backoff": 10}}],
        2,
    ),
    "retried at once": ([{"job": "a", "data": {"fail": "no"}, "opts": {"attempts": 3}}], 3),
    "delayed": ([{"job": "a", "data": {}, "opts": {"delay": 60}}], 1),
    "delayed with a priority": (
        [{"job": "a", "data": {}, "opts": {"delay": 60, "priority": 2}}],
        1,
    ),
    "last in first out": (
        [{"job": "a", "data": {}}, {"job": "b", "data": {}, "opts": {"lifo": True}}],
        2,
    ),
    "short stack": (
        [{"job": "a", "data": {"fail": "no"}, "opts": {"attempts": 3, "stackTraceLimit": 1}}],
        3,
    ),
    "no stack": (
        [{"job": "a", "data": {"fail": "no"}, "opts": {"attempts": 2, "stackTraceLimit": 0}}],
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
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_same_scenario_leaves_the_same_keys(
    side: Side,
    start_peer: Callable[[], Awaitable[Peer]],
    raw: Redis,
    prefix: str,
    scenario: str,
) -> None:
    peer = await start_peer()
    adds, attempts = SCENARIOS[scenario]

    for add in adds:
        await peer.ask("add", queue="q", **add)
    await by_us(side, "q", attempts)
    mixed = await dump(raw, prefix)

    await peer.ask("use", prefix=f"{prefix}n")
    for add in adds:
        await peer.ask("add", queue="q", **add)
    fails = {"fail", "fatal"} & adds[0]["data"].keys()
    await by_node(peer, "q", attempts, "failed" if fails else "completed")
    pure = await dump(raw, f"{prefix}n")

    assert pure == mixed


OPTIONS = (
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
)


@pytest.mark.req("B-1")
@pytest.mark.parametrize("option", ["", *OPTIONS])
async def test_same_flow_leaves_the_same_keys(
    side: Side, start_peer: Callable[[], Awaitable[Peer]], raw: Redis, prefix: str, option: str
) -> None:
    peer = await start_peer()
    data = {"fatal": "no"} if option else {}
    kid = {"jobId": "k", **({option: True} if option else {})}
    kids = [{"name": "kid", "queueName": "kid", "data": data, "opts": kid}]
    tree = {"name": "top", "queueName": "par", "data": {}, "opts": {"jobId": "p"}, "children": kids}
    runs = 0 if option == "failParentOnFailure" else 1

    await peer.ask("flow", tree=tree)
    await by_us(side, "kid", 1)
    await by_us(side, "par", runs)
    if not runs:
        assert [] == await side.claim(queue="par")
    mixed = await dump(raw, prefix)

    await peer.ask("use", prefix=f"{prefix}n")
    await peer.ask("flow", tree=tree)
    await by_node(peer, "kid", 1, "failed" if option else "completed")
    await by_node(peer, "par", 1 if option and runs else 2, "completed" if runs else "failed")
    pure = await dump(raw, f"{prefix}n")

    assert pure == mixed


@pytest.mark.req("B-1")
async def test_same_pause_leaves_the_same_keys(
    side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    async def scenario(pause: Callable[[bool], Awaitable[object]]) -> list[dict[str, Any]]:
        dumps = []
        for step in ("add", "pause", "add", "resume", "add"):
            if step == "add":
                await peer.ask("add", queue="q", job="a", data={})
            else:
                await pause(step == "pause")
            dumps.append(await dump(raw, prefix_now))
        return dumps

    prefix_now = prefix
    await peer.ask("call", queue="q", method="count")
    mixed = await scenario(lambda paused: side.store.configure("q", {"paused": paused}))

    prefix_now = f"{prefix}n"
    await peer.ask("use", prefix=prefix_now)
    words = {True: "pause", False: "resume"}
    pure = await scenario(lambda paused: peer.ask("call", queue="q", method=words[paused]))

    assert pure == mixed
