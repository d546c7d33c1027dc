"""Jobs that are alike are written together, with the same result as one by one."""

from __future__ import annotations

import contextlib
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from holdfast.model import lifecycle
from holdfast.model.acceptance import accept, read
from holdfast.model.job import State
from holdfast.runtime.clock import ManualClock
from holdfast.store import AddStatus, Change, Claim
from holdfast.store.redis import RedisStore, add, encode, swap
from holdfast.store.redis.connections import LARGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.model.job import Job
    from tests.servers import Valkey

pytestmark = pytest.mark.redis

Dump = dict[str, object]
CLOCK = ManualClock()


def made(n: int, **options: object) -> Job:
    given = {"type": "alike", "payload": {"n": n}, "queue": "q", **options}
    return accept(read(given), job_id=f"job-{n}", now=CLOCK.now())


@contextlib.asynccontextmanager
async def opened(server: Valkey) -> AsyncIterator[tuple[RedisStore, Redis, str]]:
    """Open a store under a new prefix, with a plain client; yield both and the prefix."""
    prefix = f"b{uuid.uuid4().hex[:10]}"
    async with (
        RedisStore.from_url(f"{server.url}?prefix={prefix}", clock=CLOCK) as store,
        Redis(port=server.port) as raw,
    ):
        yield store, raw, prefix


async def dump(raw: Redis, prefix: str) -> Dump:
    """Return every key except our own streams, without the ids of stream entries."""
    found: Dump = {}
    for key in [each async for each in raw.scan_iter(f"{prefix}:*")]:
        name = key.decode().removeprefix(f"{prefix}:")
        match (await raw.type(key)).decode():
            case "hash" if name != "hf:seen":
                found[name] = await raw.hgetall(key)
            case "zset":
                found[name] = await raw.zrange(key, 0, -1, withscores=True)
            case "list":
                found[name] = await raw.lrange(key, 0, -1)
            case "stream" if not name.startswith("hf:"):
                found[name] = [entry for _, entry in await raw.xrange(key)]
            case "string":
                found[name] = await raw.get(key)
    return found


async def written(server: Valkey, calls: Sequence[Sequence[Job]]) -> Dump:
    async with opened(server) as (store, raw, prefix):
        for jobs in calls:
            await store.add(jobs)
        return await dump(raw, prefix)


@pytest.mark.parametrize("priority", ["CRITICAL", "NORMAL"])
async def test_jobs_added_together_are_stored_like_jobs_added_one_by_one(
    valkey_server: Valkey, priority: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [made(n, priority=priority) for n in range(700)]
    assert 1 == len(add.new_jobs(jobs, []))

    together = await written(valkey_server, [jobs])
    one_by_one = await written(valkey_server, [[job] for job in jobs])
    monkeypatch.setattr(add, "new_jobs", _each_by_itself)
    separately = await written(valkey_server, [jobs])

    assert separately == together
    assert separately == one_by_one


def _each_by_itself(jobs: Sequence[Job], _large: list[bytes]) -> list[add.Params]:
    return [add.new_job(job, encode.data_value(job)) for job in jobs]


async def test_payloads_of_any_size_share_a_batch(valkey_server: Valkey) -> None:
    def text(size: int) -> str:
        return "x" * (size - len('"é"'.encode()) + 1) + "é"

    sizes = [10, LARGE - 1, LARGE, LARGE + 1, 20, 3 * LARGE, 300_000]
    kinds = [{}, {"tags": {"a": "b"}}, {"idempotency_key": "k"}, {"delay": 60}]
    jobs = [
        made(10 * n + k, payload=text(size), **kind)
        for n, size in enumerate(sizes)
        for k, kind in enumerate(kinds)
        if n == 5 or "idempotency_key" not in kind
    ]
    jobs += [made(900, payload=bytes(range(256)) * 100), made(901, payload=7)]

    async with opened(valkey_server) as (store, _, _):
        answers = await store.add([jobs[0], *jobs])  # one of them twice
        stored = await store.get([job.id for job in jobs])

    assert {AddStatus.ACCEPTED} == {answer.status for answer in answers}
    assert [job.payload for job in jobs] == [job.payload for job in stored if job]


async def test_batch_of_different_jobs_keeps_its_order(valkey_server: Valkey) -> None:
    jobs = [
        made(1, priority="CRITICAL"),
        made(2, priority="CRITICAL"),
        made(3, priority="CRITICAL", tags={"a": "b"}),
        made(4, priority="CRITICAL"),
        made(5, priority="CRITICAL", timeout="PT5S"),
    ]

    stored = await written(valkey_server, [jobs])

    assert [b"job-5", b"job-4", b"job-3", b"job-2", b"job-1"] == stored["q:wait"]
    assert b"5" == stored["q:id"]


async def test_job_of_a_batch_that_exists_is_not_written_again(valkey_server: Valkey) -> None:
    first, second, third = (made(n) for n in range(3))

    stored = await written(valkey_server, [[first, second], [second, third, third, first]])

    assert b"3" == stored["q:id"]
    assert {b"q:2:SCHEDULED:alike": b"3"} == stored["hf:tally"]


async def test_plain_jobs_of_a_batch_that_is_refused_are_not_written(
    valkey_server: Valkey,
) -> None:
    async with opened(valkey_server) as (store, raw, prefix):
        await store.add([made(1, idempotency_key="taken")])
        before = await dump(raw, prefix)
        jobs = [made(2), made(3), made(4, payload={"other": 1}, idempotency_key="taken")]

        answers = await store.add(jobs)

        assert [AddStatus.ABORTED, AddStatus.ABORTED, AddStatus.CONFLICT] == [
            answer.status for answer in answers
        ]
        assert ["job-2", "job-3"] == [answer.job_id for answer in answers[:2]]
        assert before == await dump(raw, prefix)


async def worked(server: Valkey, results: Sequence[bytes | None]) -> Dump:
    """Claim jobs and complete each with a result, and return what is stored."""
    async with opened(server) as (store, raw, prefix):
        await store.add([made(n) for n in range(len(results))])
        want = Claim(queues=("q",), limit=len(results), worker="w", token="t")
        jobs = await store.claim(want)
        now = store.now() + timedelta(seconds=1)
        answers = await store.swap(
            [
                Change(job, lifecycle.completed(job, result, now=now))
                for job, result in zip(jobs, results, strict=True)
            ]
        )
        assert all(answer.written for answer in answers)
        assert list(results) == [
            job.result for job in await store.get([job.id for job in jobs]) if job
        ]
        return await dump(raw, prefix)


async def test_completions_written_together_are_stored_like_single_ones(
    valkey_server: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [*([b"1", b'"two"', b"[3]"] * 200), b"null", b"null", None, b"\xff\xfe", b"4"]

    together = await worked(valkey_server, results)
    monkeypatch.setattr(
        swap, "change_params", lambda changes: [swap.one_change(c) for c in changes]
    )
    separately = await worked(valkey_server, results)

    assert separately == together


async def test_completion_of_a_job_that_changed_is_refused_within_a_group(
    valkey_server: Valkey,
) -> None:
    async with opened(valkey_server) as (store, _, _):
        await store.add([made(n) for n in range(4)])
        jobs = await store.claim(Claim(queues=("q",), limit=4, worker="w", token="t"))
        now = store.now()
        changes = [Change(job, lifecycle.completed(job, b"1", now=now)) for job in jobs]
        assert 1 == len(swap.change_params(changes))
        await store.swap([changes[1]])

        answers = await store.swap(changes)

        assert [True, False, True, True] == [answer.written for answer in answers]
        assert answers[1].job is not None
        assert State.COMPLETED is answers[1].job.state


async def test_jobs_claimed_together_are_read_like_jobs_read_alone(valkey_server: Valkey) -> None:
    async with opened(valkey_server) as (store, _, _):
        jobs = [
            *(made(n) for n in range(3)),
            made(3, payload=b"\xff", timeout="PT5S"),
            made(4, payload=b"\xfe", timeout="PT5S"),
            *(made(n, tags={"n": str(n)}) for n in (5, 6)),
            made(7),
        ]
        await store.add(jobs)

        taken = await store.claim(Claim(queues=("q",), limit=8, worker="w", token="t"))

        assert taken == [(await store.get([job.id]))[0] for job in jobs]
        assert [job.payload for job in jobs] == [job.payload for job in taken]


async def claimed(server: Valkey, jobs: Sequence[Job], limit: int) -> tuple[Dump, list[object]]:
    """Claim jobs, up to a limit per call, and return what is stored and the events."""
    async with opened(server) as (store, raw, prefix):
        await store.add(jobs)
        want = Claim(queues=("q", "p"), limit=limit, worker="w", token="t")
        while await store.claim(want):
            pass
        page = await store.events(None, 10_000, timedelta(0))
        return await dump(raw, prefix), list(page.events)


@pytest.mark.parametrize("priority", ["CRITICAL", "NORMAL"])
async def test_jobs_claimed_together_are_stored_like_jobs_claimed_one_by_one(
    valkey_server: Valkey, priority: str
) -> None:
    jobs = [
        *(made(n, priority=priority) for n in range(200)),
        made(200, priority=priority, limit_key="k"),
        made(201, priority=priority),
        *(made(n, priority=priority, queue="p") for n in range(202, 210)),
        made(210, priority=priority, type="other"),
    ]

    together = await claimed(valkey_server, jobs, len(jobs))
    one_by_one = await claimed(valkey_server, jobs, 1)

    assert one_by_one == together


async def test_jobs_that_end_out_of_order_leave_the_others_running(
    valkey_server: Valkey,
) -> None:
    async with opened(valkey_server) as (store, raw, prefix):
        await store.add([made(n) for n in range(8)])
        jobs = await store.claim(Claim(queues=("q",), limit=8, worker="w", token="t"))
        left = [job.id.encode() for job in jobs]
        for ended in ([0, 1], [2, 4], [7, 3], [5], [6]):
            done = [
                Change(jobs[n], lifecycle.completed(jobs[n], b"1", now=store.now())) for n in ended
            ]

            await store.swap(done)

            left = [each for each in left if each not in {jobs[n].id.encode() for n in ended}]
            assert left == (await raw.lrange(f"{prefix}:q:active", 0, -1))[::-1]
