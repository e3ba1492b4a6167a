"""Layout of a run: the ranks of its tensor, context, expert, data and pipeline parallel groups. No torch, no Ray.

The order of the ranks is Megatron-Core's default, tp-cp-ep-dp-pp (megatron/core/parallel_state.py, 0.16.1), so that an
unmodified script with the same sizes forms these groups. Ranks are consecutive within a node (`launch.plan.Share`).

Expert layers share the ranks of a stage in another way: tp × ep × edp instead of tp × cp × dp. Their tensor parallel
size is tp, as in Megatron-Core without expert_tensor_parallel_size, so an expert group has no two ranks of a tensor
group: it lies within the ranks of cp × dp.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from workloads.exits import WorkloadError

KINDS = {"tp": "tensor", "cp": "context", "ep": "expert", "dp": "data", "pp": "pipeline"}
"""Kinds of groups by option, in the order of the ranks: the ranks of a tensor group are consecutive."""
FACTORS = ("tp", "cp", "dp", "pp")
"""Kinds whose sizes multiply up to the ranks."""
GROUPS = {"tp": "tensor", "cp": "context", "dp": "data", "ep": "expert", "edp": "expert dp", "pp": "pipeline"}
"""Kinds of groups as they are printed. `edp`: the ranks with the same experts, which reduce their gradients."""
ALTERNATIVES = 3  # to a product that does not fit
STAGES = 2  # of a pipeline that are shown before the last one
_OPTIONS = {"nodes": "--nodes", "per_node": "--per-node"} | {kind: f"--{kind}" for kind in KINDS}
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(KINDS)})\}}")


@dataclass(frozen=True)
class Layout:
    """Sizes of the groups of a run on `nodes` nodes with `per_node` ranks each."""

    nodes: int
    per_node: int
    tp: int
    cp: int
    dp: int
    pp: int
    ep: int = 1

    @property
    def edp(self) -> int:
        """Expert data parallel size: what ep leaves of cp × dp."""
        return self.cp * self.dp // self.ep

    def stride(self, kind: str) -> int:
        """Return the distance between ranks of a group: the product of the sizes before this kind."""
        before = {"tp": (), "cp": ("tp",), "ep": ("tp",), "dp": ("tp", "cp"), "edp": ("tp", "ep")}
        return math.prod(getattr(self, one) for one in before.get(kind, ("tp", "cp", "dp")))

    def groups(self, kind: str) -> list[range]:
        """Return the ranks of every group of a kind, in Megatron-Core's order of groups."""
        size, stride = getattr(self, kind), self.stride(kind)
        firsts = (rank for rank in range(self.nodes * self.per_node) if rank // stride % size == 0)
        return [range(first, first + size * stride, stride) for first in firsts]

    def problem(self, free: bool = False) -> str | None:
        """Return why these sizes do not fit the nodes; None if they do. `free`: dp follows from the other sizes.

        A block of ranks is what the sizes so far multiply up to: a tensor group, a context or an expert group of tensor
        groups, a stage of the pipeline. If each of them divides a node or fills nodes, a group has the same local ranks
        on each of its nodes, and its traffic between nodes can stay on the rails of these local ranks.
        """
        ranks, stage = self.nodes * self.per_node, self.tp * self.cp * self.dp
        product = self.tp * self.cp * self.pp * (1 if free else self.dp)
        if ranks % product or (not free and product != ranks):
            return f"{product} {'does not divide' if free else 'is not'} the run's {self._ranks()}"
        if self.per_node % self.tp:
            return f"a tensor group stays within a node, but the run has {self._ranks()}"
        if self.cp * self.dp % self.ep:
            return f"experts share the ranks of cp × dp, and {self.ep} does not divide {self.cp} × {self.dp}"
        blocks = {"a context group": self.tp * self.cp, "an expert group": self.tp * self.ep}
        for what, block in (blocks | {"a stage of the pipeline": stage}).items():
            if self.per_node % block and block % self.per_node:
                return (
                    f"{what} has {block} ranks, which neither divide a node's {self.per_node} nor fill nodes, so rings"
                    " between nodes would change rails"
                )
        return None

    def _ranks(self) -> str:
        ranks = self.nodes * self.per_node
        return f"{ranks} rank{'s' if ranks > 1 else ''}, {self.per_node} per node"

    def completed(self) -> Layout:
        """Return this layout with dp from the other sizes; its product is too small if they do not divide the ranks."""
        return replace(self, dp=max(1, self.nodes * self.per_node // (self.tp * self.cp * self.pp)))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the ranks: RDMA_RAY_TP, RDMA_RAY_CP, RDMA_RAY_EP, RDMA_RAY_DP and RDMA_RAY_PP."""
        return {f"RDMA_RAY_{kind.upper()}": str(getattr(self, kind)) for kind in KINDS}

    def fill(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command with the sizes in place of `{tp}`, `{cp}`, `{ep}`, `{dp}` and `{pp}`."""
        return tuple(_PLACEHOLDER.sub(lambda found: str(getattr(self, found[1])), word) for word in command)

    def as_json(self) -> dict[str, Any]:
        """Return the sizes, and the ranks of every group by kind."""
        sizes = {kind: getattr(self, kind) for kind in KINDS}
        return {**sizes, "groups": {kind: [list(group) for group in self.groups(kind)] for kind in GROUPS}}

    def table(self) -> str:
        """Return the layout in at most twelve lines: the groups by kind, with the first of each, and the stages."""
        sizes = " × ".join(f"{kind} {getattr(self, kind)}" for kind in FACTORS)
        experts = f"; experts: ep {self.ep} × edp {self.edp}" if self.ep > 1 else ""
        lines = [f"layout: {sizes} = {self._ranks()}{experts}"]
        kinds = [kind for kind in GROUPS if getattr(self, kind) > 1 and (kind != "edp" or self.ep > 1)]
        if kinds:
            lines.append("  groups    number  size  nodes  first group       its rails")
        for kind in kinds:
            groups = self.groups(kind)
            nodes = len({rank // self.per_node for rank in groups[0]})
            rails = _series(sorted({rank % self.per_node for rank in groups[0]})) if nodes > 1 else "within a node"
            figures = f"{len(groups):>6}{len(groups[0]):>6}{nodes:>7}"
            lines.append(f"  {GROUPS[kind]:<10}{figures}  {_series(groups[0]):<16}  {rails}")
        return "\n".join([*lines, *(f"  {place}" for place in self._places())])

    def _places(self) -> Iterator[str]:
        """Yield which nodes and ranks the stages of the pipeline have: the first two and the last one of many."""
        parts = min(self.pp, self.nodes)  # of whole nodes and whole stages
        for index in sorted({*range(min(parts, STAGES)), parts - 1}):
            if index > STAGES:
                yield "…"
            stages, nodes, ranks = (
                range(count * index // parts, count * (index + 1) // parts)
                for count in (self.pp, self.nodes, self.nodes * self.per_node)
            )
            staged = f"{_plural('stage', stages)} on " if self.pp > 1 else ""
            yield f"{staged}{_plural('node', nodes)}: {_plural('rank', ranks)}"


def layout_of(sizes: Mapping[str, int | None], nodes: int, per_node: int, most: tuple[int, int]) -> Layout | None:
    """Return the layout of a run; None if it declares no size. WorkloadError with the nearest sizes that fit.

    Args:
        sizes: Value of --tp, --cp, --ep, --dp and --pp; None for one that is not given.
        most: Maximum of nodes, and of ranks per node.
    """
    given = {kind: size for kind in KINDS if (size := sizes[kind]) is not None}
    if not given:
        return None
    free = "dp" not in given
    found = Layout(nodes, per_node, **{kind: given.get(kind, 1) for kind in KINDS})
    found = found.completed() if free else found
    if (problem := found.problem(free)) is None:
        return found
    written = " ".join(f"{_OPTIONS[kind]} {size}" for kind, size in given.items())
    advice = ", or ".join(_change(found, one, free) for one in _nearest(found, free, most))
    raise WorkloadError(f"{written}: {problem}: use {advice}")


def _nearest(wrong: Layout, free: bool, most: tuple[int, int]) -> list[Layout]:
    """Return the layouts that fit with the fewest changed options, then with the smallest ratios of values."""
    ranks = wrong.nodes * wrong.per_node
    sizes = [size for size in range(1, ranks + 1) if ranks % size == 0]
    triples = (each for each in itertools.product(sizes, repeat=3) if ranks % math.prod(each) == 0)
    candidates = [replace(wrong, tp=tp, cp=cp, pp=pp, dp=ranks // (tp * cp * pp)) for tp, cp, pp in triples]
    if wrong.ep > 1:
        candidates = [replace(one, ep=ep) for one in candidates for ep in sizes if one.cp * one.dp % ep == 0]
    scaled = [replace(wrong, nodes=nodes) for nodes in range(1, most[0] + 1)]
    scaled += [replace(wrong, per_node=number) for number in range(1, most[1] + 1)]
    candidates += [one.completed() if free else one for one in scaled]
    wanted = asdict(wrong)

    def distance(one: Layout) -> tuple[int, float]:
        found = asdict(one)
        ratios = [abs(math.log(found[name] / wanted[name])) for name in wanted if not (free and name == "dp")]
        return sum(ratio > 0 for ratio in ratios), sum(ratios)

    return sorted((one for one in candidates if one.problem() is None), key=distance)[:ALTERNATIVES]


def _change(wrong: Layout, right: Layout, free: bool) -> str:
    """Return the options that differ; dp only if it was given."""
    names = [name for name in _OPTIONS if getattr(wrong, name) != getattr(right, name) and not (free and name == "dp")]
    return " ".join(f"{_OPTIONS[name]} {getattr(right, name)}" for name in names)


def _plural(noun: str, numbers: range) -> str:
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {numbers[0]}-{numbers[-1]}"


def _series(numbers: Sequence[int]) -> str:
    """Return evenly spaced numbers as `0-7`, `0, 8` or `0, 8, …, 56`."""
    if len(numbers) > 2 and numbers[1] - numbers[0] == 1:
        return f"{numbers[0]}-{numbers[-1]}"
    shown = [*map(str, numbers)] if len(numbers) < 4 else [str(numbers[0]), str(numbers[1]), "…", str(numbers[-1])]
    return ", ".join(shown)
