"""Graph of a rehearsal as an SVG picture, for a README or a browser."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from rehearsal.report.labels import BANNER, cloud, counted, span
from rehearsal.report.layout import (
    BOX_HEIGHT,
    FONT,
    LARGE,
    LEFT,
    MEDIUM,
    PADDING,
    SMALL,
    STACKED,
    Box,
    Layout,
    Line,
    layout,
    width,
)
from rehearsal.report.outcome import Outcome

_LEAST_WIDTH = 760.0
_LEGEND_HEIGHT = 56.0
_INK, _GREY, _CRITICAL, _BANNER = "#1f2328", "#59636e", "#c2410c", "#a21caf"
_DATA, _ORDERING = "#8c959f", "#0969da"
_FILLS = {"Google Cloud": ("#eaf2ff", "#7aa7e8"), "Kubernetes": ("#f3eefe", "#a58be0"), "AWS": ("#fff3e0", "#e0a458")}
_OTHER_FILL = ("#f3f4f6", "#a8b0b9")


def picture(outcome: Outcome) -> str:
    """Return the picture as an SVG document: a column for each wave, the critical path in orange.

    Similar resources share a box, and implied lines are left out. A box's tooltip has the full names.
    """
    graph, prediction = outcome.graph, outcome.prediction
    plan = layout(graph, prediction)
    heading = f"stack {outcome.stack}: nothing was created"
    if graph.managed:
        up, destroy = span(prediction.up.makespan), span(prediction.destroy.makespan)
        size = f"{counted(len(graph.managed), 'resource')} in {counted(len(prediction.waves), 'wave')}"
        heading = f"stack {outcome.stack}: {size}, up predicted in {up}, destroy in {destroy}"
    wide = max(plan.width, width(heading, 15) + 2 * LEFT, _LEAST_WIDTH)
    high = plan.height + _LEGEND_HEIGHT
    body = [*_head(plan, heading), *_lines(plan), *_boxes(plan), *_legend(plan)]
    canvas = f'width="{wide:.0f}" height="{high:.0f}"'
    label = quoteattr(f"{BANNER}: {heading}")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" {canvas} font-family="{FONT}"'
        f' role="img" aria-label={label}>'
    )
    return "\n".join([opening, f'<rect {canvas} fill="#ffffff"/>', *body, "</svg>\n"])


def _text(x: float, y: float, text: str, size: float, colour: str = _INK, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{weight}>{escape(text)}</text>'


def _head(plan: Layout, heading: str) -> Iterator[str]:
    yield _text(LEFT, 24, BANNER, 15, _BANNER, bold=True)
    yield _text(LEFT, 46, heading, 13)
    for number, x in enumerate(plan.columns, 1):
        yield _text(x, 72, f"wave {number}", MEDIUM, _GREY)


def _lines(plan: Layout) -> Iterator[str]:
    # The critical path last, so that it is on top.
    for line in sorted(plan.lines, key=lambda line: line.critical):
        yield f'<path d="{_path(line)}" fill="none" {_stroke(line.data, line.critical)}/>'


def _stroke(data: bool, critical: bool) -> str:
    colour = _CRITICAL if critical else _DATA if data else _ORDERING
    dashes = "" if data else ' stroke-dasharray="5 4"'
    return f'stroke="{colour}" stroke-width="{2.6 if critical else 1.2}"{dashes}'


def _path(line: Line) -> str:
    """Draw straight lines through columns and curves between them."""
    (x, y), *others = line.points
    parts = [f"M{x:.1f} {y:.1f}"]
    for number, (to_x, to_y) in enumerate(others):
        if number % 2:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            middle = (x + to_x) / 2
            parts.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(parts)


def _boxes(plan: Layout) -> Iterator[str]:
    for box in plan.boxes:
        yield from _box(box)


def _box(box: Box) -> Iterator[str]:
    fill, edge = _FILLS.get(cloud(box.nodes[0].type), _OTHER_FILL)
    edge, thick = (_CRITICAL, 2.2) if box.critical else (edge, 1.0)
    names = "\n".join(f"{node.type} {node.name}" for node in box.nodes)
    yield f"<g><title>{escape(names)}</title>"
    shifts = (STACKED, STACKED / 2, 0.0) if box.stacked else (0.0,)
    for shift in shifts:
        yield (
            f'<rect x="{box.x + shift:.1f}" y="{box.y + shift:.1f}" width="{box.width:.1f}" height="{BOX_HEIGHT:g}"'
            f' rx="5" fill="{fill}" stroke="{edge}" stroke-width="{thick:g}"/>'
        )
    x = box.x + PADDING
    yield _text(x, box.y + 16, box.lines[0], LARGE, bold=True)
    yield _text(x, box.y + 30, box.lines[1], MEDIUM)
    yield _text(x, box.y + 43, box.lines[2], SMALL, _CRITICAL if box.critical else _GREY)
    yield "</g>"


def _legend(plan: Layout) -> Iterator[str]:
    x, y = LEFT, plan.height + 24
    for whose in sorted({cloud(box.nodes[0].type) for box in plan.boxes}):
        fill, edge = _FILLS.get(whose, _OTHER_FILL)
        yield f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="14" height="12" rx="2" fill="{fill}" stroke="{edge}"/>'
        yield _text(x + 20, y, whose, MEDIUM, _GREY)
        x += 20 + width(whose, MEDIUM) + 18
    for data, critical, words in (
        (True, False, "data dependency"),
        (False, False, "ordering only"),
        (True, True, "critical path"),
    ):
        yield f'<path d="M{x:.1f} {y - 4:.1f} h26" fill="none" {_stroke(data, critical)}/>'
        yield _text(x + 32, y, words, MEDIUM, _GREY)
        x += 32 + width(words, MEDIUM) + 18
    implied = "Times are predictions for real clouds from published durations. Implied lines are left out."
    yield _text(LEFT, y + 18, implied, SMALL, _GREY)
