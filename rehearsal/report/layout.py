"""Layout of the graph's picture: a column for each wave, similar resources in one box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from rehearsal.durations import duration
from rehearsal.graph import Graph, Node
from rehearsal.report.labels import sort, span, spans_of_names, stem
from rehearsal.report.schedule import Prediction

FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
LARGE, MEDIUM, SMALL = 12.0, 11.0, 10.0
"""Font sizes in pixels."""

# Widths in em of DejaVu Sans 2.37, rounded up; Helvetica and Arial are narrower.
_NARROW = dict.fromkeys("ijl'", 0.28) | dict.fromkeys("I,.:;|!()[]/ -ftr", 0.42)
_WIDE = dict.fromkeys("mMWQO@%…·→", 1.0) | {"w": 0.82}
_CAPITAL, _OTHER, _FOREIGN = 0.78, 0.64, 1.1
_BOLD = 1.13


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper bound of the width of a line of text, in pixels."""
    return sum(map(_em, text)) * size * (_BOLD if bold else 1)


def fit(text: str, size: float, most: float, *, bold: bool = False) -> str:
    """Shorten text to `most` pixels by removing its middle: long names differ at both ends."""
    if width(text, size, bold=bold) <= most:
        return text
    for left_out in range(1, len(text) + 1):
        kept = len(text) - left_out
        short = f"{text[: kept // 2]}…{text[len(text) - (kept - kept // 2) :]}"
        if width(short, size, bold=bold) <= most:
            return short
    return ""


def _em(sign: str) -> float:
    if sign in _NARROW:
        return _NARROW[sign]
    if sign in _WIDE:
        return _WIDE[sign]
    if not sign.isascii():
        return _FOREIGN
    return _CAPITAL if sign.isupper() else _OTHER


LEFT, TOP = 16.0, 84.0
BOX_HEIGHT, LANE_HEIGHT = 50.0, 8.0
GAP_X, GAP_Y = 42.0, 12.0
PADDING = 8.0
MOST_TEXT = 166.0
STACKED = 6.0
"""Pixels by which the box of several resources extends to the right and down."""
_SWEEPS = 12
_SIMILAR = 3
"""Minimum number of similar resources of one type in a shared box."""


@dataclass
class Box:
    """Box of one resource or several similar ones. Corners in pixels; `lines` are name, kind, and number and time."""

    nodes: tuple[Node, ...]
    column: int
    lines: tuple[str, str, str]
    critical: bool
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = BOX_HEIGHT

    @property
    def stacked(self) -> bool:
        """Whether the box represents several resources."""
        return len(self.nodes) > 1

    @property
    def bottom(self) -> float:
        """The lower edge, in pixels."""
        return self.y + self.height + (STACKED if self.stacked else 0)

    @property
    def right(self) -> float:
        """The right edge, in pixels."""
        return self.x + self.width + (STACKED if self.stacked else 0)


@dataclass(frozen=True)
class Line:
    """Edge between two boxes, as points from left to right."""

    source: Box
    target: Box
    data: bool
    critical: bool
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Layout:
    """The whole picture, in pixels."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    columns: tuple[float, ...]
    width: float
    height: float


@dataclass
class _Place:
    """Position in a column: a box, or a line that passes through the column."""

    height: float
    key: tuple[str, ...]
    before: list[_Place] = field(default_factory=list)
    after: list[_Place] = field(default_factory=list)
    rank: float = 0
    centre: float = 0


def layout(graph: Graph, prediction: Prediction) -> Layout:
    """Arrange the graph with few crossings, short lines and no overlaps."""
    boxes = _boxes(prediction)
    edges = _reduced(boxes, _edges(graph, prediction, boxes))
    columns: list[list[_Place]] = [[] for _ in prediction.waves]
    places: dict[int, _Place] = {}
    for index, box in enumerate(boxes):
        places[index] = _Place(box.height + (STACKED if box.stacked else 0), box.nodes[0].key)
        columns[box.column].append(places[index])
    ways = _ways(boxes, edges, places, columns)
    _order(columns)
    _settle(columns)
    lefts, right = _across(boxes, len(columns))
    top = min((place.centre - place.height / 2 for column in columns for place in column), default=0.0)
    for column in columns:
        for place in column:
            place.centre += TOP - top
    for index, box in enumerate(boxes):
        box.y = places[index].centre - places[index].height / 2
    bottom = max((box.bottom for box in boxes), default=TOP)
    widths = [max(box.width for box in boxes if box.column == number) for number in range(len(columns))]
    lines = []
    for (source, target), (data, critical) in sorted(edges.items()):
        points = [(boxes[source].right, boxes[source].y + BOX_HEIGHT / 2)]
        for way, number in ways[source, target]:
            points += [(lefts[number], way.centre), (lefts[number] + widths[number], way.centre)]
        points.append((boxes[target].x, boxes[target].y + BOX_HEIGHT / 2))
        lines.append(Line(boxes[source], boxes[target], data, critical, tuple(points)))
    return Layout(tuple(boxes), tuple(lines), tuple(lefts), right + LEFT, bottom)


def _boxes(prediction: Prediction) -> list[Box]:
    critical = set(prediction.up.critical)
    boxes = []
    for column, wave in enumerate(prediction.waves):
        alike: dict[tuple[str | None, ...], list[Node]] = {}
        for node in wave:
            base, number = stem(node.name)
            alike.setdefault((node.type, base if number is not None else node.urn, node.parent), []).append(node)
        groups = []
        for nodes in alike.values():
            groups += [nodes] if len(nodes) >= _SIMILAR else [[node] for node in nodes]
        for nodes in groups:
            seconds = span(duration(nodes[0].type).create.seconds)
            lines = (
                fit(spans_of_names([node.name for node in nodes]), LARGE, MOST_TEXT, bold=True),
                fit(sort(nodes[0]), MEDIUM, MOST_TEXT),
                f"{len(nodes)}, {seconds} each" if len(nodes) > 1 else seconds,
            )
            boxes.append(Box(tuple(nodes), column, lines, any(node.urn in critical for node in nodes)))
    return boxes


_Edges = dict[tuple[int, int], tuple[bool, bool]]


def _edges(graph: Graph, prediction: Prediction, boxes: list[Box]) -> _Edges:
    """Return (from, to) → (data, critical), by number of box."""
    holder = {node.urn: index for index, box in enumerate(boxes) for node in box.nodes}
    path = prediction.up.critical
    critical = set(pairwise(path))
    edges: _Edges = {}
    for urn, index in holder.items():
        for before, needed in graph.managed_before(urn).items():
            data, decisive = edges.get((holder[before], index), (False, False))
            edges[holder[before], index] = (data or needed, decisive or (before, urn) in critical)
    return edges


def _reduced(boxes: list[Box], edges: _Edges) -> _Edges:
    """Remove edges that longer paths imply."""
    following: dict[int, set[int]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
    reach: dict[int, set[int]] = {}
    for index in sorted(range(len(boxes)), key=lambda index: -boxes[index].column):
        reach[index] = {far for near in following.get(index, ()) for far in {near} | reach[near]}
    return {
        (source, target): styles
        for (source, target), styles in edges.items()
        if styles[1] or not any(target in reach[near] for near in following[source] if near != target)
    }


def _ways(
    boxes: list[Box], edges: _Edges, places: Mapping[int, _Place], columns: list[list[_Place]]
) -> dict[tuple[int, int], list[tuple[_Place, int]]]:
    """Return the positions that each edge passes through. Edges of one box and one style share them."""
    lanes: dict[tuple[int, bool, int], _Place] = {}
    ways = {}
    for (source, target), (data, _) in sorted(edges.items()):
        way = []
        last = places[source]
        for column in range(boxes[source].column + 1, boxes[target].column):
            if (source, data, column) not in lanes:
                lane = _Place(LANE_HEIGHT, (*boxes[source].nodes[0].key, str(data)))
                lanes[source, data, column] = lane
                columns[column].append(lane)
                last.after.append(lane)
                lane.before.append(last)
            last = lanes[source, data, column]
            way.append((last, column))
        last.after.append(places[target])
        places[target].before.append(last)
        ways[source, target] = way
    return ways


def _order(columns: list[list[_Place]]) -> None:
    """Order each column by the mean position of the neighbors, back and forth, to reduce crossings."""
    for column in columns:
        column.sort(key=lambda place: place.key)
        _rank(column)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        for column in columns[1:] if forwards else columns[-2::-1]:
            wanted = {}
            for place in column:
                around = place.before if forwards else place.after
                wanted[id(place)] = sum(other.rank for other in around) / len(around) if around else place.rank
            column.sort(key=lambda place: (wanted[id(place)], place.key))
            _rank(column)


def _rank(column: list[_Place]) -> None:
    for number, place in enumerate(column):
        # Relative to the column: the middle of a column of 20 is level with the middle of a column of 3.
        place.rank = (number + 0.5) / len(column)


def _settle(columns: list[list[_Place]]) -> None:
    """Move each position towards the middle of its neighbors, as far as the column allows."""
    tallest = max((sum(place.height + GAP_Y for place in column) for column in columns), default=0.0)
    for column in columns:
        for place in column:
            place.centre = place.rank * tallest
        _apart(column)
    for sweep in range(_SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            for place in column:
                around = place.before + place.after
                if around:
                    place.centre = sum(other.centre for other in around) / len(around)
            _apart(column)


def _apart(column: list[_Place]) -> None:
    """Keep order and gaps with minimal movement: neighbors that collide become one block."""
    blocks: list[tuple[float, int]] = []
    offsets, offset = [], 0.0
    for before, place in zip([None, *column], column, strict=False):
        if before is not None:
            offset += before.height / 2 + place.height / 2 + GAP_Y
        offsets.append(offset)
        mean, size = place.centre - offset, 1
        while blocks and blocks[-1][0] > mean:
            above, count = blocks.pop()
            mean, size = (above * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    settled = [mean for mean, size in blocks for _ in range(size)]
    for place, base, shift in zip(column, settled, offsets, strict=True):
        place.centre = base + shift


def _across(boxes: list[Box], columns: int) -> tuple[list[float], float]:
    """Return the left edge of each column, and the right edge of the last. Boxes of a column have equal width."""
    lefts, x = [], LEFT
    for column in range(columns):
        inside = [box for box in boxes if box.column == column]
        widest = max(
            max(width(box.lines[0], LARGE, bold=True), width(box.lines[1], MEDIUM), width(box.lines[2], SMALL))
            for box in inside
        )
        for box in inside:
            box.x, box.width = x, widest + 2 * PADDING
        lefts.append(x)
        x += widest + 2 * PADDING + GAP_X
    return lefts, x - GAP_X + STACKED
