"""QueueEvents, dashboards and getWorkers show a shared queue as any other."""

from __future__ import annotations

import asyncio
import functools
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import LogLine, Progress
from holdfast.store import Fence, JobNote
from tests.waiting import eventually

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side


@pytest.mark.req("B-4")
async def test_queue_events_report_every_step_of_our_job(side: Side, peer: Peer) -> None:
    await peer.ask("listen", queue="q")
    job = await side.add("reported", {}, max_attempts=2, backoff={"initial_delay": 0.01})

    (first,) = await side.take()
    assert first.lease is not None
    moment = side.store.now()
    await side.store.note(
        [
            JobNote(
                fence=Fence(first.id, first.lease.token),
                progress=Progress(50, "half", moment),
                log=LogLine(moment, "info", "line"),
            )
        ]
    )
    await side.fail(first, "once")
    (second,) = await side.take()
    await side.complete(second, b'{"fine":true}')

    await peer.until("event:completed", jobId=job.id)
    events = [each for each in await peer.ask("seen") if each.get("jobId") == job.id]
    assert [
        *("event:added", "event:waiting", "event:active", "event:progress", "event:delayed"),
        *("event:waiting", "event:active", "event:completed"),
    ] == [each["on"] for each in events]
    assert {"percent": 50, "message": "half"} == events[3]["data"]
    assert {"fine": True} == events[-1]["returnvalue"]
    assert "active" == events[-1]["prev"]
    logs = await peer.ask("logs", queue="q", id=job.id)
    assert "line" == json.loads(logs["logs"][0])["message"]


@pytest.mark.req("B-4")
async def test_result_that_is_not_json_does_not_stop_queue_events(side: Side, peer: Peer) -> None:
    await peer.ask("listen", queue="q")
    await side.add("raw", {})
    (job,) = await side.take()

    done = await side.complete(job, b"\x00\xffnot json")
    await side.add("next", {})
    (following,) = await side.take()
    await side.complete(following)

    assert b"\x00\xffnot json" == done.result
    await peer.until("event:completed", jobId=following.id)
    assert [] == [each for each in await peer.ask("seen") if each["on"] == "error"]


@pytest.mark.req("B-4")
async def test_event_stream_stays_about_as_long_as_its_queue_says(
    side: Side, raw: Redis, prefix: str
) -> None:
    await raw.hset(f"{prefix}:q:meta", "opts.maxLenEvents", 50)
    for _ in range(3):
        for n in range(100):
            await side.add(f"many.{n}", {})

    assert await raw.xlen(f"{prefix}:q:events") < 250


@pytest.mark.req("B-1")
async def test_board_lists_a_mixed_queue(side: Side, peer6: Peer) -> None:
    await peer6.ask("add", queue="q", job="node.done", data={"n": 1})
    await side.add("python.done", {"n": 2})
    for job in await side.take(2):
        await side.complete(job)
    await side.add("python.later", {}, delay=60)
    await side.add("python.low", {}, priority="LOW")
    failing = await side.add("python.bad", {}, max_attempts=1)
    (bad,) = await side.claim(types=("python.bad",))
    await side.fail(bad, "why")

    board = (await peer6.ask("board", queues=["q"]))["q"]

    assert (2, 1, 1, 1) == tuple(
        board["counts"][state] for state in ("completed", "delayed", "prioritized", "failed")
    )
    names = {job["name"]: job for job in board["jobs"]}
    assert {"node.done", "python.done", "python.later", "python.low", "python.bad"} == set(names)
    assert ("why", failing.id) == (names["python.bad"]["failedReason"], names["python.bad"]["id"])


@pytest.mark.req("B-5")
async def test_get_workers_lists_ours_for_each_queue_while_it_waits(side: Side, peer: Peer) -> None:
    queues = ["other", "q"]
    for queue in queues:
        assert [] == await side.claim(queue=queue)
    waiting = asyncio.create_task(side.store.arrivals(queues, 0, timedelta(seconds=30)))
    for queue in queues:
        ask = functools.partial(peer.ask, "call", queue=queue, method="getWorkers")
        assert 1 == len(await eventually(ask, every=0.05))

    await side.add("wake", {})
    assert 0 != await waiting
