"""Graph of a deployment as a Mermaid flowchart: a column per wave, similar resources in one box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rehearsal.graph import Graph, GraphNode
from rehearsal.report.durations import published_seconds
from rehearsal.report.labels import sort, span, spans_of_names, stem
from rehearsal.report.schedule import Schedule

Edges = dict[tuple[int, int], tuple[bool, bool]]
"""(from, to) → (data, on the critical path), by number of box."""


def mermaid(graph: Graph, schedule: Schedule) -> str:
    """Return the flowchart. Solid arrows are data, dotted ones only order, thick ones the critical path of `up`."""
    boxes = [(number, nodes) for number, wave in enumerate(schedule.waves, 1) for nodes in _alike(wave)]
    return "\n".join(["flowchart LR", *_boxes(boxes), *_arrows(graph, schedule, [nodes for _, nodes in boxes])]) + "\n"


def _alike(wave: Sequence[GraphNode]) -> Iterator[list[GraphNode]]:
    """Group the resources of a wave that differ in a number only ("rdma-0" and "rdma-1")."""
    groups: dict[tuple[str | None, ...], list[GraphNode]] = {}
    for node in wave:
        groups.setdefault((node.type, stem(node.name)[0], node.parent), []).append(node)
    yield from groups.values()


def _boxes(boxes: Sequence[tuple[int, Sequence[GraphNode]]]) -> Iterator[str]:
    wave = 0
    for index, (number, nodes) in enumerate(boxes):
        if number != wave:
            yield from ["  end"] * bool(wave)
            yield f'  subgraph w{number}["wave {number}"]'
            wave = number
        lines = [f"{len(nodes)} × {sort(nodes[0])}" if len(nodes) > 1 else sort(nodes[0])]
        lines.append(spans_of_names(node.name for node in nodes))
        seconds = published_seconds(nodes[0].type, "create")
        lines += [] if seconds is None else [span(seconds)]
        yield f'    b{index}["{"<br>".join(_escaped(line) for line in lines)}"]'
    yield from ["  end"] * bool(wave)


def _arrows(graph: Graph, schedule: Schedule, boxes: Sequence[Sequence[GraphNode]]) -> Iterator[str]:
    holder = {node.urn: index for index, nodes in enumerate(boxes) for node in nodes}
    critical = {(holder[one.urn], holder[other.urn]) for one, other in pairwise(schedule.up.nodes)}
    edges: Edges = {}
    for urn, index in holder.items():
        for before, needed in graph.managed_before(urn).items():
            arrow = (holder[before], index)
            edges[arrow] = (edges.get(arrow, (False, False))[0] or needed, arrow in critical)
    for (source, target), (data, thick) in sorted(_reduced(edges).items()):
        yield f"  b{source} {'==>' if thick else '-->' if data else '-.->'} b{target}"


def _reduced(edges: Edges) -> Edges:
    """Remove arrows that longer paths imply. Boxes are numbered in the order of the waves."""
    following: dict[int, set[int]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
    reach: dict[int, set[int]] = {}
    for index in sorted({end for edge in edges for end in edge}, reverse=True):
        reach[index] = {far for near in following.get(index, ()) for far in {near} | reach[near]}
    return {
        (source, target): styles
        for (source, target), styles in edges.items()
        if styles[1] or not any(target in reach[near] for near in following[source] if near != target)
    }


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
