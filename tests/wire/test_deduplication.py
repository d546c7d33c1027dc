"""BullMQ's deduplication, asked for by Python and by Node, with owners of either side."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Deduplication, Holdfast
from holdfast.model.job import State
from holdfast.model.results import SubmissionStatus
from holdfast.operations.dependents import release_dependents
from tests.http.site import API, running
from tests.waiting import eventually
from tests.wire.test_service_names import command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redis.asyncio import Redis

    from holdfast.model.results import SubmissionResult
    from tests.servers import Valkey
    from tests.wire.peer import Peer
    from tests.wire.side import Side

KEEP_LAST = {"id": "k", "keep_last_if_active": True}


@pytest.fixture
async def app(side: Side) -> AsyncIterator[Holdfast]:
    async with Holdfast(store=side.store) as app:
        yield app


async def submit(
    app: Holdfast, deduplication: Any = None, payload: object = None, **options: Any
) -> SubmissionResult:
    return await app.submit(
        "t",
        payload or {},
        queue="q",
        priority="CRITICAL",
        deduplication=deduplication or {"id": "k"},
        **options,
    )


async def holder(peer: Peer) -> str | None:
    return await peer.ask("call", queue="q", method="getDeduplicationJobId", args=["k"])


async def events(raw: Redis, prefix: str, *names: str) -> list[dict[str, str]]:
    entries = await raw.xrange(f"{prefix}:q:events")
    return [fields for _, fields in entries if fields["event"] in names]


async def counts(peer: Peer) -> int:
    found = await peer.ask("call", queue="q", method="getJobCounts")
    return sum(found.values())


@pytest.mark.req("B-1")
async def test_duplicate_is_answered_with_the_job_that_holds_the_id(
    app: Holdfast, side: Side, peer: Peer, raw: Redis, prefix: str
) -> None:
    first = await submit(app, Deduplication(id="k"))
    second = await submit(app)

    assert SubmissionStatus.ACCEPTED == first.status
    assert (SubmissionStatus.DUPLICATE, first.job_id) == (second.status, second.existing_job_id)
    assert (first.job_id, 1) == (await holder(peer), await counts(peer))
    (event,) = await events(raw, prefix, "deduplicated")
    assert (first.job_id, "k") == (event["jobId"], event["deduplicationId"])
    node_id = await peer.ask("add", queue="q", job="t", opts={"deduplication": {"id": "k"}})
    assert first.job_id == node_id

    (job,) = await side.take()
    await side.complete(job)
    assert await holder(peer) is None
    assert SubmissionStatus.ACCEPTED == (await submit(app)).status


@pytest.mark.req("B-1", "B-4")
@pytest.mark.parametrize("option", [{}, {"ttl": 60, "extend": True}, {"replace": True}])
async def test_duplicates_of_both_sides_emit_the_same_events(
    app: Holdfast, peer: Peer, raw: Redis, prefix: str, option: dict[str, Any]
) -> None:
    opts = {"id": "k", **option, **({"ttl": 60_000} if "ttl" in option else {})}
    await peer.ask("add", queue="q", job="t", opts={"deduplication": opts})
    seen = []
    for runner in ("python", "node"):
        await raw.xtrim(f"{prefix}:q:events", maxlen=0)
        if runner == "python":
            await submit(app, {"id": "k", **option})
        else:
            await peer.ask("add", queue="q", job="t", opts={"deduplication": opts})
        entries = [fields for _, fields in await raw.xrange(f"{prefix}:q:events")]
        seen.append([{**fields, "deduplicatedJobId": "?"} for fields in entries])

    assert seen[0] == seen[1]


@pytest.mark.req("B-1", "B-4")
@pytest.mark.parametrize("owner", ["python", "node"])
@pytest.mark.parametrize("delay", [0, 1800])
async def test_duplicate_gives_its_delay_to_a_delayed_job(
    app: Holdfast, side: Side, peer6: Peer, raw: Redis, prefix: str, owner: str, delay: int
) -> None:
    assert 0 == await counts(peer6)  # the queue is known to be one of BullMQ 6
    seen = []
    for runner in ("python", "node"):
        terms = {"id": runner, "reschedule": True}
        if owner == "python":
            job_id = (await submit(app, terms, delay=3600)).job_id
        else:
            made = await peer6.ask(
                "add", queue="q", job="t", opts={"delay": 3_600_000, "deduplication": terms}
            )
            job_id = f"q:{made}"
        await raw.xtrim(f"{prefix}:q:events", maxlen=0)
        if runner == "python":
            await submit(app, terms, delay=delay)
        else:
            await peer6.ask(
                "add", queue="q", job="t", opts={"delay": delay * 1000, "deduplication": terms}
            )

        entries = [fields for _, fields in await raw.xrange(f"{prefix}:q:events")]
        wire_id = job_id.removeprefix("q:")
        score = await raw.zscore(f"{prefix}:q:delayed", wire_id)
        stored = await side.get(job_id)
        assert stored.due_at is not None
        left = (stored.due_at - side.store.now()).total_seconds()
        assert abs(left - delay) < 5
        assert abs(score / 4096 - stored.due_at.timestamp() * 1000) < 2
        seen.append(
            (
                [(fields["event"], fields["jobId"] == wire_id) for fields in entries],
                round(int(await raw.hget(f"{prefix}:q:{wire_id}", "delay")) / 10_000),
                await raw.zscore(f"{prefix}:q:marker", "1") is not None,
            )
        )

    assert seen[0] == seen[1]
    if not delay:
        assert job_id in [job.id for job in await side.take(2)]


@pytest.mark.req("B-1")
async def test_job_of_node_that_holds_the_id_is_the_answer(app: Holdfast, peer: Peer) -> None:
    node_id = await peer.ask("add", queue="q", job="t", opts={"deduplication": {"id": "k"}})

    duplicate = await submit(app)
    assert (SubmissionStatus.DUPLICATE, f"q:{node_id}") == (
        duplicate.status,
        duplicate.existing_job_id,
    )
    await peer.ask("work", queue="q")
    await peer.until("completed", id=node_id)

    assert SubmissionStatus.ACCEPTED == (await submit(app)).status


@pytest.mark.req("B-1")
async def test_node_that_runs_our_job_gives_its_id_free(app: Holdfast, peer: Peer) -> None:
    first = await submit(app)
    await peer.ask("work", queue="q")
    await peer.until("completed", id=first.job_id)

    assert await holder(peer) is None
    assert SubmissionStatus.ACCEPTED == (await submit(app)).status


@pytest.mark.req("B-1")
@pytest.mark.parametrize("extend", [False, True])
async def test_ttl_holds_the_id_beyond_the_end_of_the_job(
    app: Holdfast, side: Side, peer: Peer, raw: Redis, prefix: str, extend: bool
) -> None:
    option = {"id": "k", "ttl": 60, "extend": extend}
    first = await submit(app, option)
    await side.complete((await side.take())[0])
    await raw.pexpire(f"{prefix}:q:de:k", 30_000)

    assert SubmissionStatus.DUPLICATE == (await submit(app, option)).status

    left = await raw.pttl(f"{prefix}:q:de:k")
    assert extend is (left > 30_000)
    assert first.job_id == await holder(peer)
    await raw.pexpire(f"{prefix}:q:de:k", 1)
    await eventually(lambda: _is_free(peer))
    assert SubmissionStatus.ACCEPTED == (await submit(app, option)).status


@pytest.mark.req("B-1")
@pytest.mark.parametrize("owner", ["python", "node"])
async def test_newest_submission_replaces_a_delayed_job(
    app: Holdfast, side: Side, peer: Peer, raw: Redis, prefix: str, owner: str
) -> None:
    option = {"id": "k", "ttl": 60, "extend": True, "replace": True}
    if owner == "python":
        old = (await submit(app, option, {"n": 1}, delay=60)).job_id
    else:
        opts = {"delay": 60_000, "deduplication": {**option, "ttl": 60_000}}
        old = await peer.ask("add", queue="q", job="t", data={"n": 1}, opts=opts)

    new = await submit(app, option, {"n": 2}, delay=60)

    assert SubmissionStatus.ACCEPTED == new.status
    assert (new.job_id, 1) == (await holder(peer), await counts(peer))
    assert await peer.ask("job", queue="q", id=old) is None
    assert [None] == await side.store.get([old if owner == "python" else f"q:{old}"])
    assert [new.job_id] == await raw.hkeys(f"{prefix}:hf:jobs")
    (removed,) = await events(raw, prefix, "removed")
    assert (old, "delayed") == (removed["jobId"], removed["prev"])
    (event,) = await events(raw, prefix, "deduplicated")
    assert (new.job_id, old) == (event["jobId"], event["deduplicatedJobId"])


@pytest.mark.req("B-1", "M-9")
async def test_dependent_of_a_replaced_job_is_cancelled(app: Holdfast, side: Side) -> None:
    option = {"id": "k", "replace": True}
    old = await submit(app, option, delay=60)
    dependent = await app.submit("after", queue="q", depends_on=[old.job_id])

    await submit(app, option, delay=60)
    await release_dependents(side.store)

    assert State.CANCELLED is (await side.get(dependent.job_id)).state


@pytest.mark.req("B-1")
async def test_node_replaces_our_delayed_job(app: Holdfast, side: Side, peer: Peer) -> None:
    old = await submit(app, {"id": "k", "replace": True}, delay=60)
    opts = {"delay": 60_000, "deduplication": {"id": "k", "replace": True}}

    new = await peer.ask("add", queue="q", job="t", opts=opts)

    assert new != old.job_id
    assert [None] == await side.store.get([old.job_id])
    assert f"q:{new}" == (await submit(app)).existing_job_id


@pytest.mark.req("B-1")
@pytest.mark.parametrize("runner", ["python", "node"])
async def test_newest_duplicate_of_a_running_job_runs_after_it(
    app: Holdfast, side: Side, peer: Peer, runner: str
) -> None:
    first = await submit(app, KEEP_LAST, {"sleep": 500})
    if runner == "python":
        (running,) = await side.take()
    else:
        await peer.ask("work", queue="q")
        await peer.until("started", id=first.job_id)
    for n in (2, 3):
        assert SubmissionStatus.DUPLICATE == (await submit(app, KEEP_LAST, {"n": n})).status

    if runner == "python":
        await side.complete(running)
        (following,) = await side.take()
        assert b'{"n":3}' == following.payload
        assert await holder(peer) == following.id.removeprefix("q:")
    else:
        await peer.until("completed", 2)
        started = [e for e in await peer.ask("seen") if e["on"] == "started"]
        assert [{"sleep": 500}, {"n": 3}] == [entry["data"] for entry in started]


@pytest.mark.req("B-1")
async def test_ids_in_one_batch_are_deduplicated(app: Holdfast, peer: Peer) -> None:
    jobs = [{"type": "t", "queue": "q", "deduplication": {"id": "k"}} for _ in range(3)]

    result = await app.submit_batch(jobs)

    first, *others = result.results
    assert SubmissionStatus.ACCEPTED == first.status
    assert {(SubmissionStatus.DUPLICATE, first.job_id)} == {
        (other.status, other.existing_job_id) for other in others
    }
    assert 1 == await counts(peer)


@pytest.mark.req("B-1")
async def test_refused_batch_holds_no_id(app: Holdfast, peer: Peer) -> None:
    taken = await app.submit("t", 1, queue="q", idempotency_key="x")
    jobs = [
        {"type": "t", "queue": "q", "deduplication": {"id": "k"}},
        {"type": "t", "queue": "q", "payload": 2, "idempotency_key": "x"},
    ]

    with pytest.raises(Exception, match=taken.job_id):
        await app.submit_batch(jobs)

    assert await holder(peer) is None


@pytest.mark.req("B-1")
async def test_deleted_job_and_node_give_the_id_free(app: Holdfast, side: Side, peer: Peer) -> None:
    option = {"id": "k", "ttl": 60}
    first = await submit(app, option)
    await side.complete((await side.take())[0])
    await app.delete(first.job_id)
    assert await holder(peer) is None

    await submit(app, option)
    await peer.ask("call", queue="q", method="removeDeduplicationKey", args=["k"])
    assert SubmissionStatus.ACCEPTED == (await submit(app, option)).status


@pytest.mark.req("B-1")
async def test_cancelled_job_gives_the_id_free(app: Holdfast, side: Side, peer: Peer) -> None:
    first = await submit(app)
    await app.cancel(first.job_id)

    await eventually(lambda: _is_free(peer))
    assert State.CANCELLED is (await side.get(first.job_id)).state


async def _is_free(peer: Peer) -> bool:
    return await holder(peer) is None


@pytest.mark.req("B-1")
async def test_deduplication_is_asked_for_over_http_and_by_command(
    valkey_server: Valkey, prefix: str, peer: Peer
) -> None:
    url = f"{valkey_server.url}?prefix={prefix}"
    option = {"id": "k", "ttl": 60}
    async with running(Holdfast(url)) as site:
        body = {"type": "t", "payload": {}, "queue": "q", "deduplication": option}
        first = await site.post(f"{API}/jobs", body)
        second = await site.post(f"{API}/jobs", body)
        refused = await site.post(f"{API}/jobs", {**body, "deduplication": {"ttl": -1}})
    words = ("submit", "t", "{}", "--queue", "q", "--deduplication", json.dumps(option))
    third = await asyncio.to_thread(command, url, *words)

    assert (201, "ACCEPTED") == (first.status, first.json["status"])
    assert 200 == second.status, second.body
    for duplicate in (second.json, third):
        assert ("DUPLICATE", first.json["job_id"]) == (
            duplicate["status"],
            duplicate["existing_job_id"],
        )
    assert {"deduplication.ttl", "deduplication.id"} == refused.fields.keys()
    assert first.json["job_id"] == await holder(peer)
    shown = await peer.ask("job", queue="q", id=first.json["job_id"])
    assert {"id": "k", "ttl": 60_000} == shown["opts"]["deduplication"]
