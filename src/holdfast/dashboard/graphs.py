"""Workflows as SVG, made on the server: steps in layers from left to right, edges as curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from holdfast.dashboard.formats import count, visible
from holdfast.dashboard.routing import Addresses
from holdfast.dashboard.states import STATES
from holdfast.model.job import State
from holdfast.operations.graph import EdgeKind, GraphNode, JobGraph

WIDE, TALL = 208, 66
ACROSS, DOWN = 56, 16
LONGEST_NAME = 23
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


class GraphLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A graph with a place for every node."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[tuple[PlacedNode, PlacedNode, EdgeKind], ...]
    wide: int
    tall: int


def layout(graph: JobGraph) -> GraphLayout:
    """Place each node right of all nodes before it, near the middle of them."""
    parents = parents_of(graph)
    layers: defaultdict[int, list[GraphNode]] = defaultdict(list)
    depth: dict[str, int] = {}
    for node in graph.nodes:  # in an order in which they can run
        before = [depth[each] for each in parents.get(node.id, ()) if each in depth]
        depth[node.id] = 1 + max(before, default=-1)
        layers[depth[node.id]].append(node)
    tallest = max((len(each) for each in layers.values()), default=0)
    height = tallest * (TALL + DOWN) - DOWN
    placed: dict[str, PlacedNode] = {}
    for number, layer in sorted(layers.items()):
        layer.sort(key=lambda node: _middle([placed[p].y for p in parents[node.id] if p in placed]))
        top = (height - len(layer) * (TALL + DOWN) + DOWN) // 2
        for at, node in enumerate(layer):
            x, y = number * (WIDE + ACROSS), top + at * (TALL + DOWN)
            placed[node.id] = PlacedNode(node, x, y)
    return GraphLayout(
        nodes=tuple(placed.values()),
        edges=tuple((placed[each.source], placed[each.target], each.kind) for each in graph.edges),
        wide=len(layers) * (WIDE + ACROSS) - ACROSS,
        tall=height,
    )


def parents_of(graph: JobGraph) -> Mapping[str, list[str]]:
    """Return the nodes before each node."""
    parents: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        parents[edge.target].append(edge.source)
    return parents


def _middle(places: Sequence[int]) -> float:
    return sum(places) / len(places) if places else 0.0


def drawing(made: GraphLayout, url: Addresses, job_id: str) -> Markup:
    """Return the drawing; a list beside it says the same to those who do not see it."""
    edges = Markup("").join(_edge(*each) for each in made.edges)
    nodes = Markup("").join(_node(each, url, job_id) for each in made.nodes)
    return Markup(
        '<svg class="flow" width="{}" height="{}" viewBox="-2 -2 {} {}" aria-hidden="true">{}{}'
        "</svg>"
    ).format(made.wide + 4, made.tall + 4, made.wide + 4, made.tall + 4, edges, nodes)


def _edge(source: PlacedNode, target: PlacedNode, kind: EdgeKind) -> Markup:
    x1, y1 = source.x + WIDE, source.y + TALL // 2
    x2, y2 = target.x, target.y + TALL // 2
    bend = max(24, (x2 - x1) // 2)
    return Markup('<path class="edge {}" d="M{} {}C{} {} {} {} {} {}"/>').format(
        kind.value, x1, y1, x1 + bend, y1, x2 - bend, y2, x2, y2
    )


def _node(placed: PlacedNode, url: Addresses, job_id: str) -> Markup:
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
        f"{name}, {words(node)}",
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
        _bar(node, x + 12, y + TALL - 13),
    )


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
