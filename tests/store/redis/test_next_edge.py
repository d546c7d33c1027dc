"""The edges by which scripts follow BullMQ clients are edges of the state machine."""

from __future__ import annotations

import uuid
from itertools import product
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.model.job import LIVE, Event, State
from holdfast.model.lifecycle import TABLE
from holdfast.store.redis import RedisStore
from holdfast.store.redis.scripts import with_parts
from tests.wire.side import Side

if TYPE_CHECKING:
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

Edge = tuple[State | None, Event, State]

PLACES = (
    State.SCHEDULED,  # wait, paused, prioritized
    State.RUNNING,  # active
    State.DELAYED,  # delayed, before the first attempt
    State.RETRYING,  # delayed, after an attempt
    State.PENDING,  # waiting-children
    State.COMPLETED,  # completed
    State.FAILED,  # failed
    State.DEAD_LETTER,  # failed, without an attempt left
)
"""The states that a place in BullMQ can mean."""

STARTED_BEFORE = (State.SCHEDULED, State.RUNNING, State.RETRYING)
"""Known states from which a delayed job must have been started."""

FOLLOWED: frozenset[Edge] = frozenset(
    {
        (None, Event.SUBMIT, State.PENDING),
        (State.PENDING, Event.ENQUEUE, State.SCHEDULED),
        (State.PENDING, Event.DELAY, State.DELAYED),
        (State.DELAYED, Event.DUE, State.SCHEDULED),
        (State.RETRYING, Event.DUE, State.SCHEDULED),
        (State.SCHEDULED, Event.CLAIM, State.RUNNING),
        (State.RUNNING, Event.COMPLETE, State.COMPLETED),
        (State.RUNNING, Event.FAIL, State.FAILED),
        (State.RUNNING, Event.EXHAUST, State.DEAD_LETTER),
        (State.RUNNING, Event.RETRY, State.RETRYING),
        (State.RUNNING, Event.LAPSE, State.RETRYING),
        (State.RUNNING, Event.WAIT, State.PENDING),
        (State.FAILED, Event.REOPEN, State.SCHEDULED),
        (State.FAILED, Event.REOPEN, State.DELAYED),
        (State.DEAD_LETTER, Event.REOPEN, State.SCHEDULED),
        (State.DEAD_LETTER, Event.REOPEN, State.DELAYED),
    }
)
"""Edges of the table that BullMQ clients take."""

OURS: frozenset[Edge] = frozenset(
    {
        (State.PENDING, Event.INHERIT, State.FAILED),
        (State.PENDING, Event.INHERIT, State.DEAD_LETTER),
        (State.PENDING, Event.INHERIT, State.CANCELLED),
        (State.SCHEDULED, Event.RESUME, State.RUNNING),
        (State.RUNNING, Event.GIVE_BACK, State.RETRYING),
        (State.FAILED, Event.REOPEN, State.PENDING),
        (State.DEAD_LETTER, Event.REOPEN, State.PENDING),
        *((state, Event.CANCEL, State.CANCELLED) for state in LIVE),
        *((state, Event.EXPIRE, State.DEAD_LETTER) for state in LIVE),
    }
)
"""Edges of the table that only holdfast takes: BullMQ has no such events."""

BULLMQ_ONLY: frozenset[Edge] = frozenset(
    {
        (State.COMPLETED, Event.REOPEN, State.SCHEDULED),  # job.retry("completed")
        (State.COMPLETED, Event.REOPEN, State.DELAYED),
        (State.CANCELLED, Event.REOPEN, State.SCHEDULED),  # BullMQ sees it as failed
        (State.CANCELLED, Event.REOPEN, State.DELAYED),
    }
)
"""Edges outside the table that BullMQ allows; they are recorded because they have happened."""

ASK = """
-- needs: base queue job links forget flow sync
local answers = {}
for i = 7, #ARGV, 3 do
  local event, state = next_edge(ARGV[i] ~= '' and ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1')
  answers[#answers + 1] = {event, state}
end
return answers
"""


@pytest.fixture
async def edges(valkey_server: Valkey) -> dict[tuple[State | None, State, bool], Edge]:
    """What ``next_edge`` returns for every state, every place, and stalled or not."""
    cases = list(product((None, *State), PLACES, (False, True)))
    words = [word for from_, to, stalled in cases for word in (from_ or "", to, str(int(stalled)))]
    async with Redis(port=valkey_server.port, decode_responses=True) as raw:
        answers = await raw.eval(
            with_parts(ASK), 1, "e:hf:jobs", "e", "", "10000", "1", "1", "", *words
        )
    return {
        (from_, to, stalled): (from_, Event(event), State(state))
        for (from_, to, stalled), (event, state) in zip(cases, answers, strict=True)
    }


def test_every_edge_of_the_table_is_known_to_be_followed_or_ours() -> None:
    assert TABLE == FOLLOWED | OURS
    assert not FOLLOWED & OURS
    assert not TABLE & BULLMQ_ONLY


async def test_scripts_take_exactly_the_edges_that_bullmq_clients_take(
    edges: dict[tuple[State | None, State, bool], Edge],
) -> None:
    assert FOLLOWED | BULLMQ_ONLY == set(edges.values())


async def test_edges_lead_from_every_state_to_every_place(
    edges: dict[tuple[State | None, State, bool], Edge],
) -> None:
    for from_, to, stalled in edges:
        if to is State.DELAYED and from_ in STARTED_BEFORE:
            continue  # then the place means RETRYING
        state, steps = from_, 0
        while state != to and steps < 9:
            state, steps = edges[state, to, stalled][2], steps + 1

        assert to is state, (from_, to, stalled)


async def test_ready_job_that_a_node_worker_delayed_unseen_waits_for_its_next_attempt(
    valkey_server: Valkey,
) -> None:
    """The worker claimed the job and delayed it between two calls of ours, without an attempt."""
    prefix = f"e{uuid.uuid4().hex[:10]}"
    async with (
        RedisStore.from_url(f"{valkey_server.url}?prefix={prefix}") as store,
        Redis(port=valkey_server.port) as raw,
    ):
        base, due = f"{prefix}:q:", int(store.now().timestamp() * 1000)
        await raw.hset(base + "1", mapping={"name": "t", "data": "{}", "opts": "{}"})
        await Side(store).claim()  # maintenance looks after queues that a worker serves
        await raw.lpush(base + "wait", "1")
        (seen,) = await store.get(["q:1"])
        await raw.lrem(base + "wait", 1, "1")
        await raw.hset(base + "1", mapping={"ats": 1, "processedOn": due})
        await raw.zadd(base + "delayed", {"1": due * 4096})
        await raw.xadd(base + "events", {"event": "delayed", "jobId": "1"})

        (delayed,) = await store.get(["q:1"])
        promoted = await store.promote(10)
        (history,) = await store.history(["q:1"])

    assert seen is not None
    assert delayed is not None
    assert (State.SCHEDULED, State.RETRYING) == (seen.state, delayed.state)
    assert 1 == promoted.count
    assert [Event.CLAIM, Event.RETRY, Event.DUE] == [edge.event for edge in history[2:]]
