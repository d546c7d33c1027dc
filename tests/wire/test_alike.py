"""Jobs of Node end alike, whether Node or Python runs them: each case is run by both."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, JobContext, PermanentError, RateLimitedError, TemporaryError
from tests.waiting import eventually
from tests.worker.rig import working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Redis

    from tests.servers import Valkey
    from tests.wire.peer import Peer

TIMES = {"timestamp", "processedOn", "finishedOn", "pb"}
Case = dict[str, Any]


def job(name: str, data: object = None, **opts: Any) -> Case:
    return {"name": name, "data": data or {}, "opts": {"jobId": name, **opts}}


CASES: dict[str, tuple[list[Case], int]] = {
    "plain": ([job("a"), job("b", {"result": [1]})], 2),
    "lifo retry": ([job("b"), job("a", {"fail": "x", "times": 1}, lifo=True, attempts=2)], 2),
    "priority retry": (
        [job("a", {"fail": "x", "times": 1}, priority=3, attempts=2), job("b", priority=3)],
        2,
    ),
    "no trace": ([job("a", {"fail": "x"}, attempts=3, stackTraceLimit=0)], 1),
    "one trace": ([job("a", {"fail": "x"}, attempts=3, stackTraceLimit=1)], 1),
    "all traces": ([job("a", {"fail": "x"}, attempts=14)], 1),
    "fatal": ([job("a", {"fatal": "no"}, attempts=3)], 1),
    "fixed backoff": ([job("a", {"fail": "x", "times": 1}, attempts=2, backoff=30)], 1),
    "zero attempts": ([job("a", {"fail": "x"}, attempts=0)], 1),
    "size limit": ([job("a", {"x": 1}, sizeLimit=1000)], 1),
    "keep logs": ([job("a", {"log": "line"}, keepLogs=1)], 1),
    "deduplicated": ([job("a", deduplication={"id": "d"})], 1),
    "throttled": ([job("a", deduplication={"id": "d", "ttl": 60_000})], 1),
    "deduplicated failure": ([job("a", {"fatal": "x"}, deduplication={"id": "d"})], 1),
    "kept last": (
        [job("a", deduplication={"id": "d", "keepLastIfActive": True}), job("b")],
        2,
    ),
    "large delay": ([job("a"), job("b", delay=10**13)], 1),
    "removed at its end": ([job("a", removeOnComplete=True), job("b")], 1),
    "evicted": ([job("a"), job("b", removeOnComplete=1)], 1),
    "failed and removed": ([job("a", {"fatal": "x"}, removeOnFail=True), job("b")], 1),
    "delayed by its handler": ([job("a", {"later": 50}, attempts=1)], 1),
    "returned by its handler": ([job("a", {"again": 1}, attempts=1), job("b")], 2),
    "returned with a priority": (
        [job("a", {"again": 1}, priority=3), job("b", priority=3), job("c", priority=2)],
        3,
    ),
    "limited by its handler": ([job("a", {"limited": 300}, attempts=1), job("b")], 2),
    "progress": ([job("a", {"progress": 40})], 1),
}


@pytest.mark.req("B-1")
@pytest.mark.parametrize("case", CASES)
async def test_python_leaves_what_node_leaves(
    valkey_server: Valkey, prefix: str, peer: Peer, raw: Redis, case: str
) -> None:
    jobs, ends = CASES[case]
    for queue in ("node", "python"):
        await peer.ask("call", queue=queue, method="pause")
        await peer.ask("listen", queue=queue)
        for each in jobs:
            await peer.ask(
                "add", queue=queue, job=each["name"], data=each["data"], opts=each["opts"]
            )
    await peer.ask("work", queue="node", opts={"concurrency": 1})
    await peer.ask("call", queue="node", method="resume")
    await until_ended(raw, f"{prefix}:node:", ends)
    await peer.ask("rest", queue="node")

    async with working(app_on(f"{valkey_server.url}?prefix={prefix}"), queues=("python",), slots=1):
        await peer.ask("call", queue="python", method="resume")
        await until_ended(raw, f"{prefix}:python:", ends)

    by_node, by_python = [await dump(raw, f"{prefix}:{name}:", jobs) for name in ("node", "python")]
    assert by_node == by_python


def app_on(url: str) -> Holdfast:
    """Return an app whose handler does what that of the Node process does."""
    app = Holdfast(url)

    @app.handler("python")
    async def handle(context: JobContext, payload: Any) -> object:
        if "progress" in payload:
            await context.report_progress(payload["progress"])
        if "log" in payload:
            await context.log("INFO", payload["log"])
        if context.previous_attempt_id is None:
            wait_once(payload)
        if "fatal" in payload:
            raise PermanentError(payload["fatal"])
        if "fail" in payload and context.attempt <= payload.get("times", 1000):
            raise RuntimeError(payload["fail"])
        return payload.get("result", {"ran": context.type})

    return app


def wait_once(payload: Any) -> None:
    """Give the job back as its payload says."""
    if "later" in payload:
        later = timedelta(milliseconds=payload["later"])
        raise TemporaryError("not yet", retry_after=later, uses_attempt=False)
    if "again" in payload:
        raise TemporaryError("my turn is next", uses_attempt=False)
    if "limited" in payload:
        limited = timedelta(milliseconds=payload["limited"])
        raise RateLimitedError("429 Too Many Requests", retry_after=limited)


async def until_ended(raw: Redis, base: str, count: int) -> None:
    async def is_done() -> bool:
        ended = [await raw.zcard(f"{base}{name}") for name in ("completed", "failed")]
        return sum(ended) >= count

    await eventually(is_done)


async def dump(raw: Redis, base: str, jobs: Sequence[Case]) -> dict[str, object]:
    """Return what BullMQ's clients see of a queue, without times."""
    found: dict[str, object] = {}
    for each in jobs:
        name = each["name"]
        values = await raw.hgetall(f"{base}{name}")
        shown = {k: v for k, v in values.items() if k not in TIMES and not k.startswith("hf:")}
        if "stacktrace" in shown:
            shown["stacktrace"] = len(json.loads(shown["stacktrace"]))
        found[name] = shown
        found[f"{name} logs"] = await raw.llen(f"{base}{name}:logs")
        found[f"{name} lock"] = await raw.exists(f"{base}{name}:lock")
        for place in ("completed", "failed", "delayed"):
            found[f"{name} {place}"] = await raw.zscore(f"{base}{place}", name) is not None
    keys = [key async for key in raw.scan_iter(f"{base}d[en]:*")]
    found["keys"] = sorted(key.removeprefix(base) for key in keys)
    entries = [fields for _, fields in await raw.xrange(f"{base}events")]
    found["order"] = [each["jobId"] for each in entries if each["event"] == "active"]
    # A worker may start the next job before the end of the last one is written.
    for name in (None, *(each["name"] for each in jobs)):
        found[f"{name} events"] = [
            sorted((field, value) for field, value in each.items() if field != "delay")
            for each in entries
            if each.get("jobId") == name and each["event"] != "probe"
        ]
    return found
