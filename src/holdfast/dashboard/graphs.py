"""Workflows as SVG, made on the server: steps in layers from left to right, edges as curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, MutableMapping, Sequence

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from holdfast.dashboard.formats import count, visible
from holdfast.dashboard.routing import Addresses
from holdfast.dashboard.states import STATES
from holdfast.model.job import State
from holdfast.operations.graph import EdgeKind, GraphEdge, GraphNode, JobGraph

WIDE, TALL = 208, 66
ACROSS, DOWN = 56, 16
LONGEST_NAME = 23
LONGEST_LABEL = 28
NO_LABELS: Mapping[str, str] = {}
ORDER = (
    State.COMPLETED,
    State.RUNNING,
    State.RETRYING,
    State.SCHEDULED,
    State.DELAYED,
    State.PENDING,
    State.CANCELLED,
    State.FAILED,
    State.DEAD_LETTER,
)
"""The states of a bar, from left to right."""


class PlacedNode(msgspec.Struct, frozen=True):
    """A node and where it is."""

    node: GraphNode
    x: int
    y: int


class PlacedEdge(msgspec.Struct, frozen=True):
    """An edge and the points that it passes, from the right of a node to the left of another."""

    points: tuple[tuple[int, int], ...]
    kind: EdgeKind


class GraphLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with a place for every node."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    wide: int
    tall: int


def layout(graph: JobGraph) -> GraphLayout:
    """Place each node right of all nodes before it, near the middle of them.

    An edge over several layers has a lane of its own in each, so that no node hides it.
    """
    depth = _depths(graph, parents_of(graph))
    layers: defaultdict[int, list[str]] = defaultdict(list)
    for node_id, number in depth.items():
        layers[number].append(node_id)
    before: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    lanes = [_lanes(edge, depth, layers, before) for edge in graph.edges]
    rows = max((len(each) for each in layers.values()), default=0)
    height = rows * (TALL + DOWN) - DOWN
    places = _places(layers, before, height)
    return GraphLayout(
        nodes=tuple(PlacedNode(node, *places[node.id]) for node in graph.nodes),
        edges=tuple(
            PlacedEdge(_points(lane, places), edge.kind)
            for edge, lane in zip(graph.edges, lanes, strict=True)
        ),
        wide=len(layers) * (WIDE + ACROSS) - ACROSS,
        tall=height,
    )


def nearby(graph: JobGraph, most: int) -> JobGraph:
    """Return a graph with no more steps than ``most``: of a larger one, the job's neighbours."""
    if len(graph.nodes) <= most:
        return graph
    here = {node.id for node in graph.nodes if node.current}
    near = dict.fromkeys(here)
    for edge in graph.edges:
        if edge.source in here or edge.target in here:
            near |= dict.fromkeys((edge.source, edge.target))
    kept = set(list(near)[:most])
    return replace(
        graph,
        nodes=tuple(node for node in graph.nodes if node.id in kept),
        edges=tuple(e for e in graph.edges if e.source in kept and e.target in kept),
    )


def _depths(graph: JobGraph, parents: Mapping[str, list[str]]) -> dict[str, int]:
    depth: dict[str, int] = {}
    for node in graph.nodes:  # in an order in which they can run
        known = [depth[each] for each in parents[node.id] if each in depth]
        depth[node.id] = 1 + max(known, default=-1)
    return depth


def _lanes(
    edge: GraphEdge,
    depth: Mapping[str, int],
    layers: Mapping[int, list[str]],
    before: MutableMapping[str, list[str]],
) -> tuple[str, ...]:
    """Return the ids of what an edge passes, with a new lane in each layer between its ends."""
    lane = [edge.source]
    for number in range(depth[edge.source] + 1, depth[edge.target]):
        lane.append(f"{edge.source} {edge.target} {edge.kind} {number}")
        layers[number].append(lane[-1])
        before[lane[-1]] = [lane[-2]]
    before[edge.target].append(lane[-1])
    return (*lane, edge.target)


def _places(
    layers: Mapping[int, list[str]], before: Mapping[str, list[str]], height: int
) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for number, layer in sorted(layers.items()):
        middle = {
            each: _middle([places[b][1] for b in before[each] if b in places]) for each in layer
        }
        top = (height - len(layer) * (TALL + DOWN) + DOWN) // 2
        for at, each in enumerate(sorted(layer, key=middle.__getitem__)):
            places[each] = number * (WIDE + ACROSS), top + at * (TALL + DOWN)
    return places


def _points(
    lane: Sequence[str], places: Mapping[str, tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return where an edge passes; it crosses a lane straight."""
    points: list[tuple[int, int]] = []
    for at, each in enumerate(lane):
        x, y = places[each]
        if at > 0:
            points.append((x, y + TALL // 2))
        if at < len(lane) - 1:
            points.append((x + WIDE, y + TALL // 2))
    return tuple(points)


def parents_of(graph: JobGraph) -> Mapping[str, list[str]]:
    """Return the nodes before each node."""
    parents: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        parents[edge.target].append(edge.source)
    return parents


def _middle(places: Sequence[int]) -> float:
    return sum(places) / len(places) if places else 0.0


def drawing(
    made: GraphLayout, url: Addresses, job_id: str, labels: Mapping[str, str] = NO_LABELS
) -> Markup:
    """Return the drawing; a list beside it says the same to those who do not see it.

    ``labels`` distinguish nodes of one job.
    """
    edges = Markup("").join(_edge(each) for each in made.edges)
    nodes = Markup("").join(
        _node(each, url, job_id, labels.get(each.node.id, "")) for each in made.nodes
    )
    return Markup(
        '<svg class="flow" width="{}" height="{}" viewBox="-2 -2 {} {}" aria-hidden="true">{}{}'
        "</svg>"
    ).format(made.wide + 4, made.tall + 4, made.wide + 4, made.tall + 4, edges, nodes)


def _edge(edge: PlacedEdge) -> Markup:
    (x, y), *rest = edge.points
    path = f"M{x} {y}"
    for x2, y2 in rest:
        bend = max(24, (x2 - x) // 2)
        path += f"L{x2} {y2}" if y2 == y else f"C{x + bend} {y} {x2 - bend} {y2} {x2} {y2}"
        x, y = x2, y2
    return Markup('<path class="edge {}" d="{}"/>').format(edge.kind.value, path)


def _node(placed: PlacedNode, url: Addresses, job_id: str, label: str) -> Markup:
    node, x, y = placed.node, placed.x, placed.y
    name = visible(node.type)
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    address = (
        url("jobs", node.id) if node.count == 1 else url("jobs", job_id, "workflow", open=node.id)
    )
    return Markup(
        '<a class="step{}" href="{}" tabindex="-1"><title>{}</title><rect class="card" x="{}"'
        ' y="{}" width="{}" height="{}" rx="7"/><text class="name" x="{}" y="{}">{}</text>'
        '<text class="words tone-{}" x="{}" y="{}">{}</text>{}</a>'
    ).format(
        " current" if node.current else "",
        address,
        f"{name}, {words(node)}{', ' if label else ''}{visible(label)}",
        x,
        y,
        WIDE,
        TALL,
        x + 12,
        y + 23,
        short,
        tone(node),
        x + 12,
        y + 42,
        words(node),
        _label(label, x + 12, y + TALL - 8) if label else _bar(node, x + 12, y + TALL - 13),
    )


def _label(label: str, x: int, y: int) -> Markup:
    text = visible(label)
    short = text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"
    return Markup('<text class="label" x="{}" y="{}">{}</text>').format(x, y, short)


def _bar(node: GraphNode, x: int, y: int) -> Markup:
    whole, at = WIDE - 24, float(x)
    bar = Markup('<rect class="base" x="{}" y="{}" width="{}" height="5" rx="2"/>').format(
        x, y, whole
    )
    for state in ORDER:
        number = node.states.get(state, 0)
        if number:
            size = number / node.count * whole
            look = STATES[state.value].slug
            bar += Markup(
                '<rect class="part tone-{}" x="{:.1f}" y="{}" width="{:.1f}" height="5"/>'
            ).format(look, at, y, max(size, 1.5))
            at += size
    return bar


def words(node: GraphNode) -> str:
    """Return how far a node is: ``Running``, or ``12 of 40 completed, 1 failed``."""
    if node.count == 1:
        return STATES[next(iter(node.states)).value].label
    done = node.states.get(State.COMPLETED, 0)
    failed = node.states.get(State.FAILED, 0) + node.states.get(State.DEAD_LETTER, 0)
    text = f"{count(done)} of {count(node.count)} done"
    return f"{text}, {count(failed)} failed" if failed else text


def tone(node: GraphNode) -> str:
    """Return the tone of the worst state of a node."""
    tones = {STATES[state.value].tone for state in node.states}
    return next(each for each in ("bad", "caution", "active", "idle", "good") if each in tones)
