"""The workflow around a job, on every store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import Holdfast, JobContext, NotFoundError, State, Submission, Worker
from holdfast.model.job import Job
from holdfast.operations import graph as module
from holdfast.store.proxy import StoreProxy
from holdfast.store.tenants import TenantStore


async def chained(app: Holdfast, width: int) -> list[str]:
    pages = [Submission(type="page") for _ in range(width)]
    steps = (Submission(type="start"), pages, Submission(type="end"))
    return [result.job_id for result in await app.chain(*steps)]


async def test_fan_out_is_one_node_from_wherever_one_looks(app: Holdfast) -> None:
    ids = await chained(app, 60)

    found = [await app.graph(each) for each in (ids[0], ids[30], ids[-1])]

    for graph in found:
        assert [("start", 1), ("page", 60), ("end", 1)] == [
            (node.type, node.count) for node in graph.nodes
        ]
        kinds = {node.id: node.type for node in graph.nodes}
        assert {("start", "page"), ("page", "end")} == {
            (kinds[edge.source], kinds[edge.target]) for edge in graph.edges
        }
        assert (62, False) == (graph.jobs, graph.truncated)
    assert {State.PENDING: 60} == found[0].nodes[1].states
    assert ["page"] == [node.type for node in found[1].nodes if node.current]


async def test_expanded_graph_has_a_node_for_each_job(app: Holdfast) -> None:
    ids = await chained(app, 5)

    graph = await app.graph(ids[0], collapse=False)

    assert (7, 10) == (len(graph.nodes), len(graph.edges))
    assert set(ids) == {node.id for node in graph.nodes}


async def test_graph_is_bounded(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 10)
    ids = await chained(app, 30)

    graph = await app.graph(ids[0])

    assert (10, True) == (graph.jobs, graph.truncated)


class Watched(StoreProxy):
    """Counts the bytes of payloads that one read returned."""

    most = 0

    async def get(self, ids: Sequence[str]) -> list[Job | None]:
        found = await super().get(ids)
        self.most = max(self.most, sum(len(job.payload) for job in found if job))
        return found


async def test_graph_of_large_jobs_is_read_in_parts() -> None:
    async with Holdfast("memory://") as app:
        root = await app.submit("start")
        large = Submission(type="page", payload="x" * 1_000_000, depends_on=[root.job_id])
        await app.submit_batch([large] * 40)
        store = Watched(app.store)

        found = await module.graph(store, root.job_id)

    assert (41, False) == (found.jobs, found.truncated)
    assert 9_000_000 > store.most


async def test_graph_is_bounded_in_dependencies(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINKS", 50)
    roots = [(await app.submit("root")).job_id for _ in range(10)]
    await app.submit_batch([Submission(type="all", depends_on=roots) for _ in range(10)])

    found = await app.graph(roots[0], collapse=False)

    assert found.truncated
    assert 60 >= len(found.edges)


async def test_lonely_job_is_one_node_and_an_unknown_one_is_not_found(app: Holdfast) -> None:
    job = await app.submit("t")

    graph = await app.graph(job.job_id)

    assert (1, ()) == (len(graph.nodes), graph.edges)
    with pytest.raises(NotFoundError):
        await app.graph("unknown")
    with pytest.raises(NotFoundError):
        await app.over(TenantStore(app.store, "acme")).graph(job.job_id)


async def test_spawned_jobs_follow_their_spawner(live_app: Holdfast) -> None:
    @live_app.task("parent")
    async def parent(ctx: JobContext) -> None:
        for _ in range(3):
            await ctx.spawn("child")

    @live_app.task("child")
    async def child() -> None: ...

    job = await live_app.submit("parent")
    await Worker(live_app, maintenance=False).run(burst=True)

    graph = await live_app.graph(job.job_id)

    assert [("parent", 1), ("child", 3)] == [(node.type, node.count) for node in graph.nodes]
    assert ["spawned"] == [edge.kind.value for edge in graph.edges]
