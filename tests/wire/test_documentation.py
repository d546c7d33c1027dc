"""What BullMQ's guides do with a queue, where Python made or ran its jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, JobContext, TemporaryError
from holdfast.model.job import Job, State
from tests.waiting import eventually
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side

pytestmark = pytest.mark.req("B-1")


async def _on(peer: Peer, job: Job, method: str, *args: object) -> Any:
    """Call a method of Node's job object."""
    job_id = job.id.removeprefix(f"{job.queue}:")
    return await peer.ask("onJob", queue=job.queue, id=job_id, method=method, args=list(args))


async def test_manually_fetched_job_is_completed_by_its_token(side: Side, peer: Peer) -> None:
    job = await side.add("some", {"n": 1})

    assert job.id == await peer.ask("fetch", queue="q", token="mine")
    assert State.RUNNING is (await side.get(job.id)).state
    assert [] == await side.claim()
    await peer.ask("settle", queue="q", id=job.id, token="mine", value={"by": "hand"})

    done = await side.becomes(job.id, State.COMPLETED)
    assert b'{"by":"hand"}' == done.result


async def test_manually_fetched_job_can_fail_and_be_fetched_again(side: Side, peer: Peer) -> None:
    job = await side.add("some", {}, max_attempts=2, backoff={"initial_delay": 0.01})

    assert job.id == await peer.ask("fetch", queue="q", token="mine")
    await peer.ask("settle", queue="q", id=job.id, token="mine", error="no")

    (again,) = await side.take()
    assert (job.id, 2) == (again.id, again.attempt)
    await side.complete(again)


async def test_data_that_node_updates_reaches_a_python_handler(side: Side, peer: Peer) -> None:
    job = await side.add("some", {"step": 1})

    await _on(peer, job, "updateData", {"step": 2})

    (taken,) = await side.take()
    assert b'{"step":2}' == taken.payload


@pytest.mark.parametrize("maker", ["node", "python"])
async def test_step_that_python_stores_reaches_a_node_worker(
    side: Side, peer: Peer, valkey_server: Valkey, prefix: str, maker: str
) -> None:
    """BullMQ: process step jobs, which keep the step in the data."""
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")
    ran = asyncio.Event()

    @app.handler("q")
    async def first(ctx: JobContext, payload: dict[str, object]) -> None:
        await ctx.update_payload({**payload, "step": "second"})
        ran.set()
        raise TemporaryError("the rest is for another worker", retry_after=1, uses_attempt=False)

    if maker == "node":
        made = f"q:{await peer.ask('add', queue='q', job='steps', data={'step': 'first'})}"
    else:
        made = (await side.add("steps", {"step": "first"})).id
    async with working(app, queues=["q"]):
        await asyncio.wait_for(ran.wait(), 10)
        await side.becomes(made, State.RETRYING)
    await peer.ask("work", queue="q")

    (started,) = await peer.until("started")
    assert {"step": "second"} == started["data"]
    await side.becomes(made, State.COMPLETED)


async def test_delay_that_node_changes_counts(side: Side, peer: Peer) -> None:
    job = await side.add("some", {}, delay=3600)

    await _on(peer, job, "changeDelay", 50)

    (taken,) = await side.take()
    assert job.id == taken.id


async def test_job_that_node_promotes_is_ready(side: Side, peer: Peer) -> None:
    job = await side.add("some", {}, delay=3600)

    await _on(peer, job, "promote")

    assert [job.id] == [each.id for each in await side.claim(2)]


async def test_all_delayed_jobs_are_promoted(side: Side, peer: Peer) -> None:
    jobs = [await side.add("some", {}, delay=3600) for _ in range(3)]

    await peer.ask("call", queue="q", method="promoteJobs")

    assert {job.id for job in jobs} == {job.id for job in await side.take(3)}


async def test_all_failed_jobs_are_retried(side: Side, peer: Peer) -> None:
    jobs = [await side.add(f"j{n}", {}) for n in range(3)]
    for job in await side.take(3):
        await side.fail(job, category="PERMANENT")

    await peer.ask("call", queue="q", method="retryJobs")

    assert {job.id for job in jobs} == {job.id for job in await side.take(3)}


async def test_clean_deletes_ended_jobs_of_python(side: Side, peer: Peer) -> None:
    kept = await side.add("kept", {}, delay=3600)
    done = await side.add("done", {})
    (taken,) = await side.take()
    await side.complete(taken)
    await asyncio.sleep(0.01)  # BullMQ deletes jobs that are older than the grace

    removed = await peer.ask("call", queue="q", method="clean", args=[0, 100, "completed"])

    assert [done.id] == removed
    assert [None, True] == [job and True for job in await side.store.get([done.id, kept.id])]


async def test_drain_deletes_ready_jobs_and_spares_delayed_ones(side: Side, peer: Peer) -> None:
    ready, urgent, later = (
        await side.add("ready", {}),
        await side.add("urgent", {}, priority="HIGH"),
        await side.add("later", {}, delay=3600),
    )

    await peer.ask("call", queue="q", method="drain")

    assert [None, None, True] == [
        job and True for job in await side.store.get([ready.id, urgent.id, later.id])
    ]


async def test_getters_count_and_list_jobs_of_both_sides(side: Side, peer: Peer) -> None:
    ours = await side.add("ours", {}, priority="HIGH")
    theirs = await peer.ask("add", queue="q", job="theirs", data={}, opts={"delay": 60_000})
    (taken,) = await side.take()

    counts = await peer.ask("call", queue="q", method="getJobCounts", args=["active", "delayed"])

    assert {"active": 1, "delayed": 1} == counts
    listed = await peer.ask("call", queue="q", method="getJobs", args=[["active", "delayed"]])
    assert {ours.id, theirs} == {job["id"] for job in listed}
    await side.complete(taken)
    assert 1 == await peer.ask("call", queue="q", method="getCompletedCount")


async def test_node_waits_for_a_job_that_python_runs(side: Side, peer: Peer) -> None:
    made = await peer.ask("add", queue="q", job="some", data={})
    waiting = asyncio.create_task(peer.ask("finished", queue="q", id=made))

    (taken,) = await side.take()
    await side.complete(taken, b'{"n":7}')

    assert {"n": 7} == await waiting


async def test_child_removed_from_its_parent_is_not_waited_for(side: Side, peer6: Peer) -> None:
    child = await side.add("child", {})
    parent = await side.add("parent", {}, after=[child])

    await _on(peer6, child, "removeChildDependency")

    await side.becomes(parent.id, State.SCHEDULED)


async def test_unprocessed_children_of_a_python_job_are_removed(side: Side, peer6: Peer) -> None:
    child = await side.add("child", {}, delay=3600)
    parent = await side.add("parent", {}, after=[child])

    await _on(peer6, parent, "removeUnprocessedChildren")

    assert [None] == await side.store.get([child.id])
    await side.becomes(parent.id, State.SCHEDULED)


async def test_running_job_is_not_given_to_a_worker_that_starts(
    side: Side, peer6: Peer, valkey_server: Valkey, prefix: str
) -> None:
    """BullMQ: does not process a job that is being processed when a new queue starts."""
    runs: list[str] = []

    def started(name: str) -> Holdfast:
        app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

        @app.handler("q")
        async def run(ctx: JobContext, payload: object) -> None:
            runs.append(f"{name} {ctx.job_id}")
            await asyncio.sleep(0.3)  # while the other worker starts

        return app

    for n in range(5):
        async with working(started("first"), queues=["q"]):
            made = await peer6.ask("add", queue="q", job="test", data={"foo": "bar"})
            await eventually(lambda n=n: len(runs) > n)
            async with working(started("second"), queues=["q"]):
                await side.becomes(f"q:{made}", State.COMPLETED)

    assert [True] * 5 == [run.startswith("first") for run in runs]
    assert 5 == len(set(runs))
