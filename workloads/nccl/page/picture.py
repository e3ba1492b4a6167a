"""The summary as a picture (PNG), for a slide or an issue: the verdict, what was measured, and the main plots."""

from __future__ import annotations

import io
import textwrap

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from workloads.nccl.page import figures
from workloads.nccl.page.content import facts, headline
from workloads.nccl.page.figures import Palette
from workloads.nccl.page.groups import Group, sweeps
from workloads.nccl.page.reference import floor, line_rates, machine_of
from workloads.nccl.page.svg import settings
from workloads.nccl.result import Result

WIDTH, HEIGHT, SCALE = 1200.0, 675.0, 1.5  # points, 16:9; pixels in a point
MOST_PLOTS = 6
TONES = {"pass": "#1b6e3c", "warn": "#8a5a00", "fail": "#b3261e", "unjudged": "#3f4a56"}
SUMMARY = ("Machine", "World", "Library", "Data", "Started", "Job")


def picture(result: Result, machine: str | None = None) -> bytes:
    """The PNG, 1800 × 1012 pixels; the same result gives the same picture.

    Raises:
        WorkloadError: `machine` is not in the catalog.
    """
    known = machine_of(result, machine)
    palette = Palette()
    with settings():
        drawing = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72 * SCALE, facecolor="#ffffff")
        head = headline(result)
        edge = Rectangle((0, 0), 12 / WIDTH, 1, color=TONES[head.status], transform=drawing.transFigure, linewidth=0)
        drawing.add_artist(edge)
        _say(drawing, 40, head.badge, 22, TONES[head.status], bold=True)
        words = textwrap.wrap(head.sentence, 92, max_lines=2, placeholder=" …")
        for index, line in enumerate(words):
            _say(drawing, 70 + 24 * index, line, 18, palette.ink)
        below = 70 + 24 * len(words)
        if head.functional:
            _say(drawing, below, textwrap.shorten(head.functional, 150, placeholder=" …"), 13, palette.ink, bold=True)
            below += 20
        told = dict(facts(result, known))
        summary = " · ".join(told[key] for key in SUMMARY if key in told)
        _say(drawing, below, textwrap.shorten(summary, 160, placeholder=" …"), 12, palette.soft)
        chosen = _chosen(sweeps(result))
        columns = 3 if len(chosen) > 2 else 2
        lines = 2 if len(chosen) > 3 else 1
        top = below + 24
        for index, group in enumerate(chosen):
            across, down = index % columns, index // columns
            width, height = (WIDTH - 60) / columns, (HEIGHT - top - 30) / lines
            left = 30 + across * width
            bottom = 24 + (lines - 1 - down) * height
            axes = drawing.add_axes(
                ((left + 44) / WIDTH, (bottom + 28) / HEIGHT, (width - 150) / WIDTH, (height - 84) / HEIGHT)
            )
            figures.sweep(axes, group, line_rates(group, result, known), floor(group, result, known), palette)
            drawing.text(
                (left + 10) / WIDTH,
                (bottom + height - 16) / HEIGHT,
                f"{group.title}: {'sum of all pairs' if group.total else 'busbw'}",
                fontsize=12,
                fontweight="bold",
                color=palette.ink,
                va="top",
            )
        written = io.BytesIO()
        drawing.savefig(written, format="png", metadata={"Software": None})
    return written.getvalue()


def _chosen(groups: list[Group]) -> list[Group]:
    """At most six: the sum of all pairs is never the one that is left out."""
    pairs = [group for group in groups if group.total][:1]
    return [group for group in groups if not group.total][: MOST_PLOTS - len(pairs)] + pairs


def _say(drawing: Figure, down: float, text: str, size: float, colour: str, *, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    drawing.text(40 / WIDTH, 1 - down / HEIGHT, text, fontsize=size, color=colour, fontweight=weight, va="center")
