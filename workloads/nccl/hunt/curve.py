"""The cost of a hunt by the size of the fleet, simulated: the table and the picture in docs/hunt.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from workloads.nccl.hunt.plan import Settings
from workloads.nccl.hunt.simulate import Planted, Score, plant, score

MINUTES_PER_ROUND = 4  # of a test that is a job of its own (NVIDIA's Cluster Readiness Engine, ADR-021)


@dataclass(frozen=True)
class Cost:
    """Many hunts of one kind: tests and rounds (median, 95 %, most), and verdicts that were wrong, over all seeds."""

    nodes: int
    bad: int
    fault: Planted
    seeds: int
    tests: tuple[int, int, int]
    rounds: tuple[int, int, int]
    false: int
    missed: int
    hunts_with_false: int
    findings: dict[str, int]
    pairs: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def simulate(
    nodes: int, bad: int, fault: Planted, noise: float, seeds: int, settings: Settings, first: int = 0
) -> Iterator[Score]:
    """One score per seed, as they come."""
    for seed in range(first, first + seeds):
        yield score(nodes, plant(nodes, bad, fault, seed), noise, settings.seeded(seed), seed)


def cost(nodes: int, bad: int, fault: Planted, scores: Sequence[Score]) -> Cost:
    """What many scores come to."""
    kinds = sorted({kind for one in scores for kind in one.kinds})
    return Cost(
        nodes=nodes,
        bad=min(bad, 1) if fault == "spine" else bad,  # one spine is planted at most
        fault=fault,
        seeds=len(scores),
        tests=_spread([one.tests for one in scores]),
        rounds=_spread([one.rounds for one in scores]),
        false=sum(len(one.false) for one in scores),
        missed=sum(len(one.missed) for one in scores),
        hunts_with_false=sum(bool(one.false) for one in scores),
        findings={kind: sum(kind in one.kinds for one in scores) for kind in kinds},
        pairs=nodes * (nodes - 1) // 2,
    )


def table(costs: Sequence[Cost]) -> str:
    """A Markdown table, one line per fleet."""
    lines = [
        (
            "| nodes | bad | fault | hunts | tests (median / 95 % / most) | all pairs | rounds (median / 95 % / most)"
            " | hours at 4 min a round | falsely accused | missed | findings |"
        ),
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in costs:
        findings = ", ".join(f"{kind} {count}" for kind, count in one.findings.items()) or "none"
        hours = one.rounds[0] * MINUTES_PER_ROUND / 60
        lines.append(
            f"| {one.nodes:,} | {one.bad} | {one.fault} | {one.seeds} | {_three(one.tests)} | {one.pairs:,}"
            f" | {_three(one.rounds)} | {hours:.1f} | {one.false} | {one.missed} of {_planted(one)} | {findings} |"
        )
    return "\n".join(lines) + "\n"


def svg(curves: Sequence[tuple[str, Sequence[Cost]]]) -> str:
    """Tests over nodes, both logarithmic, a line per curve, beside the number of all pairs."""
    points = [one for _, costs in curves for one in costs]
    left, top, width, height = 70, 30, 560, 340
    nodes = sorted({one.nodes for one in points})
    low, high = nodes[0], nodes[-1]
    most = max(one.pairs for one in points)

    def x(value: float) -> float:
        return left + width * (_log(value) - _log(low)) / (_log(high) - _log(low))

    def y(value: float) -> float:
        return top + height * (1 - _log(value) / _log(most))

    drawn = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 150} {top + height + 60}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18" font-size="14">Tests of a hunt (median) by nodes</text>',
    ]
    power = 1
    while power <= most:
        drawn.append(f'<line x1="{left}" y1="{y(power)}" x2="{left + width}" y2="{y(power)}" stroke="#dddddd"/>')
        drawn.append(f'<text x="{left - 8}" y="{y(power) + 4}" text-anchor="end">{power:,}</text>')
        power *= 10
    for value in nodes:
        drawn.append(f'<text x="{x(value)}" y="{top + height + 18}" text-anchor="middle">{value:,}</text>')
    drawn.append(f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle">nodes</text>')
    every = [(value, value * (value - 1) / 2) for value in nodes]
    lines = [("every pair", "#999999", every)]
    for (name, costs), colour in zip(curves, ("#2166ac", "#b2182b", "#1b7837", "#762a83"), strict=False):
        lines.append((name, colour, [(one.nodes, one.tests[0]) for one in costs]))
    for name, colour, line in lines:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{colour}"/>' for a, b in line]
        drawn.append(f'<text x="{left + width + 8}" y="{y(line[-1][1]) + 4:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*drawn, "</svg>\n"])


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    ranked = sorted(values)
    return round(median(ranked)), ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))], ranked[-1]


def _three(values: tuple[int, int, int]) -> str:
    return " / ".join(map(str, values))


def _planted(one: Cost) -> int:
    return 0 if one.fault == "spine" else one.bad * one.seeds


def _log(value: float) -> float:
    from math import log

    return log(value)
