"""removeOnComplete and removeOnFail of Python's jobs, ended by Node and by Python."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.model.job import State
from holdfast.model.policy import Retention
from tests.wire.side import Side
from tests.worker.rig import working

if TYPE_CHECKING:
    from tests.servers import Valkey
    from tests.wire.peer import Peer

OPTIONS: list[Any] = [
    *(True, False, 0, 2),
    {"count": 0},
    {"count": 1},
    {"age": 3600},
    {"age": 3600, "count": 2, "limit": 10},
]
JOBS = 4


async def ended(peer: Peer, queue: str, state: str) -> int:
    counts = await peer.ask("call", queue=queue, method="getJobCounts", args=[state])
    return int(counts[state])


@pytest.mark.req("B-1", "B-3")
@pytest.mark.parametrize("option", OPTIONS, ids=str)
@pytest.mark.parametrize("fails", [False, True], ids=["complete", "fail"])
@pytest.mark.parametrize("worker", ["node", "python"])
async def test_removal_option_has_the_effect_it_has_between_node_and_node(
    valkey_server: Valkey, prefix: str, peer6: Peer, worker: str, fails: bool, option: object
) -> None:
    state = "failed" if fails else "completed"
    data = {"fatal": "no"} if fails else {}
    opts = {"removeOnFail" if fails else "removeOnComplete": option}
    await peer6.ask("work", queue="reference")
    for _ in range(JOBS):
        await peer6.ask("add", queue="reference", job="a", data=data, opts=opts)
    await peer6.until(state, JOBS)
    await peer6.ask("listen", queue="q")

    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

    @app.task("a")
    async def run(payload: object) -> None:
        if fails:
            raise ValueError("no")

    key = "remove_on_fail" if fails else "remove_on_complete"
    async with app:
        if worker == "node":
            await peer6.ask("work", queue="q")
        for _ in range(JOBS):
            await app.submit("a", data, queue="q", max_attempts=1, **{key: option})  # type: ignore[arg-type]  # by name
        if worker == "python":
            async with working(app, queues=("q",)):
                await peer6.until(f"event:{state}", JOBS)
        else:
            await peer6.until(f"event:{state}", JOBS)
        assert await ended(peer6, "reference", state) == await ended(peer6, "q", state)


@pytest.mark.req("B-3")
async def test_result_of_a_job_deleted_at_its_end_reaches_its_waiter(
    valkey_server: Valkey, prefix: str
) -> None:
    app = Holdfast(f"{valkey_server.url}?prefix={prefix}")

    @app.task("a")
    async def run(n: int) -> int:
        return n + 1

    async with working(app, queues=("default",)):
        job = await app.submit("a", {"n": 1}, delay=1, remove_on_complete=True)
        status = await app.wait(job.job_id, timeout=15)

    assert (State.COMPLETED, 2) == (status.state, status.output)


@pytest.mark.req("B-3")
async def test_retention_spares_jobs_that_say_how_they_are_kept(side: Side) -> None:
    kept = await side.add("a", remove_on_complete=False)
    plain = await side.add("a")
    for job in await side.take(2):
        await side.complete(job)

    assert 1 == await side.store.prune(Retention(completed=timedelta(0)), 100)
    assert [kept.id] == [job.id for job in await side.store.get([kept.id, plain.id]) if job]
