"""One trace through Node and Python: the carrier of BullMQ's telemetry is the job's headers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.model.job import State, read_extra

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "vendor=value"


async def test_trace_of_a_node_producer_reaches_python(side: Side, peer: Peer) -> None:
    carrier = {"traceparent": PARENT, "tracestate": STATE}
    await peer.ask("addTraced", queue="q", job="greet", data={"a": 1}, context=carrier)

    (job,) = await side.take()

    assert carrier == read_extra(job.extra).headers
    assert b'{"a":1}' == job.payload


async def test_trace_of_a_python_producer_reaches_a_node_worker(side: Side, peer: Peer) -> None:
    headers = {"traceparent": PARENT, "tracestate": STATE, "own": "kept here"}
    job = await side.add("greet", {"result": 1}, headers=headers)

    await peer.ask("workTraced", queue="q")
    done = await side.becomes(job.id, State.COMPLETED)

    assert PARENT in [span["parent"] for span in await peer.ask("spans")]
    assert headers == read_extra(done.extra).headers


async def test_only_the_trace_context_is_written_for_node(
    side: Side, raw: Redis, prefix: str
) -> None:
    traced = await side.add("greet", {}, headers={"traceparent": PARENT, "own": "x"})
    plain = await side.add("greet", {}, headers={"own": "x"})

    options = [
        json.loads(await raw.hget(f"{prefix}:q:{job.id}", "opts"))
        for job in (traced, plain)  # type: ignore[misc]
    ]

    assert {"traceparent": PARENT} == json.loads(options[0]["tm"])
    assert "tm" not in options[1]


@pytest.mark.parametrize(
    "carrier", ["", "no json", "[1]", '"text"', "x" * 100_000, 7, {"a": 1}, '{"a": 1}']
)
async def test_a_carrier_that_is_no_carrier_is_ignored(
    side: Side, peer: Peer, carrier: object
) -> None:
    opts = {"telemetry": {"metadata": carrier}}
    await peer.ask("add", queue="q", job="greet", data={}, opts=opts)

    (job,) = await side.take()

    assert {} == read_extra(job.extra).headers
