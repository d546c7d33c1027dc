"""The workflow of a job: a drawing, the same as a list, and what can be done with all of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from holdfast.api.jobs import visible_job
from holdfast.dashboard.formats import short_id
from holdfast.dashboard.graphs import ORDER, GraphLayout, layout, parents_of, tone, words
from holdfast.dashboard.screens.bulk import KINDS, run
from holdfast.dashboard.states import STATES
from holdfast.dashboard.visits import Action, ActionDone, ScreenRoute, Visit
from holdfast.model.bulk import BulkAction
from holdfast.model.job import TERMINAL, State
from holdfast.model.status import JobStatus, job_status
from holdfast.operations.graph import GraphNode, JobGraph

MOST_DRAWN = 150
"""Nodes of a drawing; of larger workflows there is only the list."""
MOST_EACH = 60
"""Jobs of a workflow that can be shown one by one."""
DEEPEST = 8
"""Levels of the list; what lies deeper is listed on the last of them."""
SHOWN = 50
"""Jobs of an opened node."""
FAILED = (State.FAILED, State.DEAD_LETTER)


class WorkflowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the list, with what follows it."""

    node: GraphNode
    words: str
    tone: str
    after: tuple[str, ...]
    """Types of the other nodes that it waits for."""
    following: tuple[WorkflowStep, ...]


class WorkflowView(msgspec.Struct, frozen=True, kw_only=True):
    """The workflow around a job."""

    graph: JobGraph
    layout: GraphLayout | None
    steps: tuple[WorkflowStep, ...]
    counts: tuple[tuple[State, int], ...]
    live: int
    failed: int
    done: int
    share: tuple[tuple[str, float, str], ...]
    each: bool
    """Whether every job has a node of its own."""
    labels: Mapping[str, str]
    """What distinguishes those nodes: the beginning of the id, and a tag that differs."""
    can_show_each: bool
    opened: GraphNode | None
    jobs: tuple[JobStatus, ...]
    """Jobs of the opened node."""


async def workflow(visit: Visit) -> WorkflowView:
    """Return the workflow around a job."""
    job_id, each = visit.path["job_id"], visit.asked("each") == "1"
    graph = await visit.operations.graph(job_id)
    few = graph.jobs <= MOST_EACH
    if each and few:
        graph = await visit.operations.graph(job_id, collapse=False)
    wanted = visit.asked("open")
    opened = next((node for node in graph.nodes if wanted and node.id == wanted), None)
    counts: Counter[State] = Counter()
    for node in graph.nodes:
        counts.update(node.states)
    return WorkflowView(
        graph=graph,
        layout=layout(graph) if len(graph.nodes) <= MOST_DRAWN else None,
        steps=_steps(graph),
        counts=tuple((state, counts[state]) for state in ORDER if counts[state]),
        live=sum(number for state, number in counts.items() if state not in TERMINAL),
        failed=sum(counts[state] for state in FAILED),
        done=counts[State.COMPLETED],
        share=tuple(_part(state, counts[state]) for state in ORDER if counts[state]),
        each=each and few,
        labels=await _labels(visit, graph) if each and few else {},
        can_show_each=few and (each or any(node.count > 1 for node in graph.nodes)),
        opened=opened,
        jobs=await _jobs(visit, opened) if opened else (),
    )


async def _labels(visit: Visit, graph: JobGraph) -> dict[str, str]:
    """Return for each job how its id begins, and of its tags the one that differs most."""
    found = [j for j in await visit.operations.store.get([n.id for n in graph.nodes]) if j]
    values: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for job in found:
        for name, value in job.tags.items():
            values[job.type, name].add(value)
    labels = {}
    for job in found:
        telling = sorted(job.tags, key=lambda name: (-len(values[job.type, name]), name))[:1]
        tags = [f"{each}:{job.tags[each]}" for each in telling if len(values[job.type, each]) > 1]
        labels[job.id] = " ".join([short_id(job.id), *tags])
    return labels


def _part(state: State, number: int) -> tuple[str, float, str]:
    look = STATES[state.value]
    return look.slug, number, f"{look.label} {number}"


async def _jobs(visit: Visit, node: GraphNode) -> tuple[JobStatus, ...]:
    """Return jobs of a node, those that failed first."""
    found = [job for job in await visit.operations.store.get(node.job_ids) if job is not None]
    rank = {state: at for at, state in enumerate(reversed(ORDER))}
    found.sort(key=lambda job: rank[job.state])
    traces = visit.caller.traces
    return tuple(visible_job(job_status(job), traces=traces) for job in found[:SHOWN])


def _steps(graph: JobGraph) -> tuple[WorkflowStep, ...]:
    """Return the nodes as a list in lists: each below the first node that it follows."""
    nodes = {node.id: node for node in graph.nodes}
    parents = parents_of(graph)
    below: defaultdict[str, list[str]] = defaultdict(list)
    depth: dict[str, int] = {}
    home: dict[str, str] = {}
    for node in graph.nodes:
        first = next((each for each in parents[node.id] if each in depth), "")
        while first and depth[first] >= DEEPEST:
            first = home[first]
        depth[node.id] = depth[first] + 1 if first else 0
        home[node.id] = first
        below[first].append(node.id)

    def step(node_id: str) -> WorkflowStep:
        node = nodes[node_id]
        others = [nodes[each].type for each in parents[node_id] if each != home[node_id]]
        return WorkflowStep(
            node=node,
            words=words(node),
            tone=tone(node),
            after=tuple(others[:5]),
            following=tuple(step(each) for each in below[node_id]),
        )

    return tuple(step(each) for each in below[""])


async def cancel(visit: Visit) -> ActionDone:
    """Cancel every job of the workflow that has not ended."""
    ids = await _ids(visit, tuple(state for state in State if state not in TERMINAL))
    return await _act(visit, BulkAction.CANCEL, ids, reason=visit.given("reason"))


async def retry(visit: Visit) -> ActionDone:
    """Run the failed jobs of the workflow again; what waits for them goes on after them."""
    return await _act(visit, BulkAction.RETRY, await _ids(visit, FAILED))


async def _ids(visit: Visit, states: tuple[State, ...]) -> list[str]:
    found = await visit.operations.graph(visit.path["job_id"], collapse=False)
    return [node.id for node in found.nodes if any(state in states for state in node.states)]


async def _act(visit: Visit, action: BulkAction, ids: list[str], **options: str) -> ActionDone:
    if not ids:
        return ActionDone(
            message="Nothing was changed: no job of it is in such a state.", failed=True
        )
    return await run(visit, KINDS[action.value], ids=ids, **options)


_PATH = "/jobs/{job_id}/workflow"

SCREENS = (
    ScreenRoute(
        path=_PATH,
        title="Workflow",
        template="workflow.html",
        call="getJobGraph",
        view=workflow,
        section="jobs",
        reads=20,
    ),
)

ACTIONS = (
    Action(path=f"{_PATH}/cancel", call="startOperation", run=cancel),
    Action(path=f"{_PATH}/retry", call="startOperation", run=retry),
)
