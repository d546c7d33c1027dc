"""A Python process is killed between the end of a child and the release of its parent."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, State
from tests.wire.side import WITHIN
from tests.worker.rig import ended, working

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side

PROMPT = 8.0
"""Seconds; the releaser looks every two, and a busy machine is slow."""

VICTIM = """
import asyncio, os, signal, sys
from holdfast.model import lifecycle
from holdfast.model.job import FailureCategory, Failure
from holdfast.store import Change, Claim
from holdfast.store.redis import RedisStore

async def main(url, outcome):
    async with RedisStore.from_url(url) as store:
        want = Claim(queues=("q",), limit=1, worker="victim", token="victim:1", types=("child",))
        (job,) = await store.claim(want)
        after = lifecycle.completed(job, b"1", now=store.now())
        if outcome == "failed":
            no = Failure(category=FailureCategory.PERMANENT, message="no")
            after = lifecycle.after_failure(job, no, now=store.now())
        (answer,) = await store.swap([Change(job, after)])
        assert answer.written
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


async def end_child_and_die(url: str, outcome: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", VICTIM, url, outcome)
    async with asyncio.timeout(WITHIN):
        assert -signal.SIGKILL == await process.wait()


@pytest.mark.req("B-1", "B-5", "M-9")
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_parent_of_ours_is_released_though_the_process_died(
    side: Side, peer: Peer, valkey_server: Valkey, prefix: str, outcome: str
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    child = await side.add("child")
    parent = await side.add("parent", {"result": 2}, after=[child])
    app = Holdfast(url)

    @app.task("other", queue="other")
    async def other() -> None: ...

    async with working(app, queues=("other",)):
        await end_child_and_die(url, outcome)
        began = time.monotonic()
        await peer.ask("work", queue="q")
        state = await ended(app, parent.id)

    assert (State.COMPLETED if outcome == "completed" else State.FAILED) is state
    assert time.monotonic() - began < PROMPT


@pytest.mark.req("B-1", "B-5", "M-9")
@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_parent_of_node_is_released_though_the_process_died(
    side: Side, peer: Peer, valkey_server: Valkey, prefix: str, outcome: str
) -> None:
    opts = {"failParentOnFailure": True}
    tree = await peer.ask(
        "flow",
        tree={
            "name": "parent",
            "queueName": "q",
            "data": {"children": True},
            "children": [{"name": "child", "queueName": "q", "data": {}, "opts": opts}],
        },
    )

    await end_child_and_die(f"{valkey_server.url}?prefix={prefix}", outcome)
    began = time.monotonic()
    await peer.ask("work", queue="q")
    await peer.until(outcome, id=tree["id"])

    assert time.monotonic() - began < PROMPT
