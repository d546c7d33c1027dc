"""Jobs made by holdfast, run by unmodified BullMQ workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from holdfast.errors import ValidationError
from holdfast.model import lifecycle
from holdfast.model.dependencies import verdict
from holdfast.model.job import Event, State
from holdfast.model.policy import Backoff, BackoffKind
from holdfast.store import Change, Swapped

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from tests.wire.peer import Peer
    from tests.wire.side import Side

QUICK = Backoff(strategy=BackoffKind.CONSTANT, initial_delay=lifecycle.SECOND / 20)


@pytest.mark.req("B-1", "B-7")
async def test_node_worker_runs_our_job_and_we_see_it_completed(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("greet", {"result": {"ok": [1, "ü"]}}, tags={"team": "a"})
    done = await side.becomes(job.id, State.COMPLETED)

    assert b'{"ok":[1,"\xc3\xbc"]}' == done.result
    assert {"team": "a"} == done.tags
    assert 1 == done.attempt
    (history,) = await side.store.history([job.id])
    assert [Event.SUBMIT, Event.ENQUEUE, Event.CLAIM, Event.COMPLETE] == [e.event for e in history]


@pytest.mark.req("B-1")
async def test_node_worker_retries_our_job_by_our_backoff(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("flaky", {"fail": "boom", "times": 2}, max_attempts=3, backoff=QUICK)
    done = await side.becomes(job.id, State.COMPLETED)

    assert 3 == done.attempt
    started = await peer.ask("seen")
    assert [0, 1, 2] == [each["attempts"] for each in started if each["on"] == "started"]


@pytest.mark.req("B-1")
async def test_job_that_node_worker_gives_up_on_is_dead_lettered(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("flaky", {"fail": "boom"}, max_attempts=2, backoff=QUICK)
    dead = await side.becomes(job.id, State.DEAD_LETTER)

    assert dead.failure is not None
    assert "boom" == dead.failure.message
    assert 2 == dead.attempt


@pytest.mark.req("B-1")
async def test_unrecoverable_error_in_node_worker_fails_our_job(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("fatal", {"fatal": "no way"}, max_attempts=5)
    failed = await side.becomes(job.id, State.FAILED)

    assert failed.failure is not None
    assert "no way" == failed.failure.message


@pytest.mark.req("B-1")
async def test_node_worker_picks_up_our_delayed_job_in_time(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("later", {}, delay=0.5)
    assert "delayed" == await peer.ask("state", queue="q", id=job.id)
    done = await side.becomes(job.id, State.COMPLETED)

    assert done.started_at is not None
    assert 0.45 < (done.started_at - job.created_at).total_seconds() < 3


@pytest.mark.req("B-1", "M-13")
async def test_node_worker_follows_a_changed_priority(side: Side, peer: Peer) -> None:
    jobs = [await side.add("x", n, priority=level) for n, level in enumerate([0, 2, 2, 4])]
    await peer.ask("call", queue="q", method="pause")

    for job, priority in ((jobs[0], 4), (jobs[1], 0), (jobs[3], 2)):
        after = replace(job, revision=job.revision + 1, priority=priority)
        assert [Swapped(written=True)] == await side.store.amend([Change(job, after)])
    shown = [(await peer.ask("job", queue="q", id=job.id))["priority"] for job in jobs]
    states = [await peer.ask("state", queue="q", id=job.id) for job in jobs]
    await peer.ask("call", queue="q", method="resume")
    await peer.ask("work", queue="q")
    for job in jobs:
        await side.becomes(job.id, State.COMPLETED)

    assert [4, 0, 2, 2] == shown
    assert ["prioritized", "waiting", "prioritized", "prioritized"] == states
    started = [each["id"] for each in await peer.ask("seen") if each["on"] == "started"]
    assert [jobs[n].id for n in (1, 2, 3, 0)] == started


@pytest.mark.req("B-1", "M-13")
async def test_priority_of_a_job_that_node_submitted_changes_but_it_has_no_tags(
    side: Side, peer: Peer
) -> None:
    await peer.ask("call", queue="q", method="add", args=["x", {}, {"jobId": "n1"}])
    (job,) = await side.store.get(["q:n1"])
    assert job is not None

    lowered = replace(job, revision=job.revision + 1, priority=3)
    assert [Swapped(written=True)] == await side.store.amend([Change(job, lowered)])
    with pytest.raises(ValidationError, match="tags"):
        await side.store.amend([Change(lowered, replace(lowered, tags={"a": "1"}))])

    assert [lowered] == await side.store.get(["q:n1"])
    assert 3 == (await peer.ask("job", queue="q", id="n1"))["priority"]
    assert "prioritized" == await peer.ask("state", queue="q", id="n1")


@pytest.mark.req("B-1", "B-5")
async def test_progress_and_logs_of_node_worker_reach_us(side: Side, peer: Peer) -> None:
    await peer.ask("work", queue="q")

    job = await side.add("chatty", {"progress": 40, "log": "half way"})
    done = await side.becomes(job.id, State.COMPLETED)

    assert done.progress is not None
    assert 40 == done.progress.percent
    assert ["half way"] == [line.message for line in (await side.store.logs([job.id]))[0]]


@pytest.mark.req("B-1", "M-9")
async def test_dependent_of_a_job_that_node_made_is_due_for_a_verdict(
    side: Side, peer: Peer
) -> None:
    first = await side.get(f"q:{await peer.ask('add', queue='q', job='first', data={})}")
    second = await side.add("second", {}, after=[first])
    assert "waiting-children" == await peer.ask("state", queue="q", id=second.id)

    await peer.ask("work", queue="q")
    await side.becomes(first.id, State.COMPLETED)

    (dependent,) = await side.store.dependents(10)
    assert (second.id, ((first.id, State.COMPLETED),)) == (
        dependent.job.id,
        dependent.parents,
    )
    decided = lifecycle.dependency_ended(
        dependent.job,
        verdict(dependent.job.dependency_kind, dependent.parents),
        now=side.store.now(),
    )
    await side.swap(dependent.job, decided)
    await side.becomes(second.id, State.COMPLETED)


@pytest.mark.req("B-2")
async def test_node_worker_runs_our_jobs_in_order_of_priority(side: Side, peer: Peer) -> None:
    for name, priority in (
        ("low", "LOW"),
        ("high", "HIGH"),
        ("now", "CRITICAL"),
        ("high2", "HIGH"),
    ):
        await side.add(name, {}, priority=priority)

    await peer.ask("work", queue="q", opts={"concurrency": 1})
    await peer.until("completed", 4)

    started = [each["name"] for each in await peer.ask("seen") if each["on"] == "started"]
    assert ["now", "high", "high2", "low"] == started


async def test_our_hash_has_bullmqs_fields_and_nothing_else_but_ours(
    side: Side, raw: Redis, prefix: str
) -> None:
    job = await side.add("plain", {"a": 1}, priority="NORMAL")

    fields = await raw.hgetall(f"{prefix}:q:{job.id}")

    own = {name for name in fields if not name.startswith("hf:")}
    assert {"name", "data", "opts", "timestamp", "delay", "priority"} == own
    assert ("plain", '{"a":1}', "0", "2") == tuple(
        fields[name] for name in ("name", "data", "delay", "priority")
    )
