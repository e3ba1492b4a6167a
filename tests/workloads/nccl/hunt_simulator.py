"""Simulated fleets with injected faults: the cost of a hunt and its mistakes (`make simulate-hunt`)."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Any, Literal, get_args

from cyclopts import App, CycloptsError, Parameter

from workloads.exits import Exit, WorkloadError
from workloads.nccl.hunt import search
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Answer, GroupProbe, HuntVerdict, Round
from workloads.terminal.console import write_json

Kind = Literal["nic", "node", "flapping", "spine"]

HEALTHY = 325.0  # GB/s all_gather of two a3-ultra nodes; any value is fine
LEAF = 16  # units below one leaf switch
CURVE = (4, 8, 16, 32, 64, 128, 232, 512, 1024, 2048, 4096)
FEW = 5  # nodes at fault in the first curve
SHARE = 46  # one node of so many in the second curve: 5 of 232
MINUTES_PER_ROUND = 4  # of a test that is a job of its own (NVIDIA's Cluster Readiness Engine, ADR-021)


@dataclass(frozen=True)
class Fault:
    """An injected fault. `factor` is the remaining share of the bandwidth.

    nic: one rail of a unit, which slows every ring through the unit, because rings use all rails alike. node: all
    rails. flapping: the unit, in a `chance` share of the samples. spine: tests across the uplinks of leaf `unit` while
    another test crosses them.
    """

    kind: Kind
    unit: int
    factor: float
    rail: int = 0
    chance: float = 1.0


class Fabric:
    """Answers tests as a fleet with these faults would, with Gaussian noise of `noise` on every sample."""

    def __init__(self, faults: Sequence[Fault], noise: float, seed: int) -> None:
        self.faults, self.noise = faults, noise
        self.random = Random(seed)

    def answer(self, tests: Round) -> list[Answer]:
        crowded = {
            fault.unit: sum(_crosses(probe, fault.unit) for probe in tests) > 1
            for fault in self.faults
            if fault.kind == "spine"
        }
        return [Answer(tuple(self._sample(probe, crowded) for _ in range(max(1, probe.count)))) for probe in tests]

    def _sample(self, probe: GroupProbe, crowded: dict[int, bool]) -> float:
        """A ring is as slow as its slowest member."""
        left = 1.0
        if probe.kind not in ("burn", "intra"):
            for fault in self.faults:
                if fault.factor < left and self._slows(fault, probe, crowded):
                    left = fault.factor
        return HEALTHY * left * (1 + self.random.gauss(0, self.noise))

    def _slows(self, fault: Fault, probe: GroupProbe, crowded: dict[int, bool]) -> bool:
        if fault.kind == "spine":
            return crowded[fault.unit] and _crosses(probe, fault.unit)
        if fault.unit not in probe.units:
            return False
        if fault.kind == "nic" and probe.kind == "rail":
            shifted = probe.shifted and probe.units[0] != fault.unit
            return fault.rail == (probe.rail or 0) + shifted
        return fault.kind != "flapping" or self.random.random() < fault.chance


def _crosses(probe: GroupProbe, leaf: int) -> bool:
    inside = sum(unit // LEAF == leaf for unit in probe.units)
    return 0 < inside < len(probe.units)


def inject(units: int, bad: int, kind: Kind, seed: int) -> list[Fault]:
    """Return `bad` faults of one kind on different units (one leaf for a spine), each leaving 0.4 … 0.8."""
    random = Random(f"{seed} {kind}")
    if kind == "spine":
        return [Fault("spine", leaf, 0.5) for leaf in random.sample(range(-(-units // LEAF)), min(bad, 1))]
    return [
        Fault(kind, unit, random.uniform(0.4, 0.8), random.randrange(8), 0.5 if kind == "flapping" else 1.0)
        for unit in random.sample(range(units), bad)
    ]


def search_options(*, rails: int = 1, **changed: Any) -> HuntOptions:
    """Return the options of a search among units of `rails` ranks: the threshold of GPUs, and one sample per test."""
    return HuntOptions(**{"per_node": rails, "threshold": 0.9, "samples": 1, **changed})


def play(units: int, fabric: Fabric, options: HuntOptions) -> HuntVerdict:
    """Run a whole hunt against a simulated fabric."""
    return search.hunt(options.model_copy(update={"nodes": units}), fabric.answer)


@dataclass(frozen=True)
class Cost:
    """Many hunts of one kind: tests and rounds (median, 95 %, maximum), and wrong verdicts over all seeds."""

    nodes: int
    bad: int
    fault: Kind
    seeds: int
    tests: tuple[int, int, int]
    rounds: tuple[int, int, int]
    false: int
    missed: int
    hunts_with_false: int
    findings: dict[str, int]
    pairs: int


def cost(nodes: int, bad: int, fault: Kind, noise: float, seeds: int, options: HuntOptions, first: int = 0) -> Cost:
    """Return the cost and the mistakes of `seeds` hunts."""
    verdicts: list[HuntVerdict] = []
    false: list[int] = []
    missed = 0
    for seed in range(first, first + seeds):
        faults = inject(nodes, bad, fault, seed)
        verdicts.append(play(nodes, Fabric(faults, noise, seed), options.model_copy(update={"seed": seed})))
        guilty = {each.unit for each in faults if each.kind != "spine"}
        named = {one.unit for one in verdicts[-1].accused}
        false.append(len(named - guilty))
        missed += len(guilty - named)
    kinds = Counter(kind for verdict in verdicts for kind in {finding.kind for finding in verdict.findings})
    return Cost(
        nodes=nodes,
        bad=min(bad, 1) if fault == "spine" else bad,  # one spine at most
        fault=fault,
        seeds=seeds,
        tests=_spread([verdict.network_tests for verdict in verdicts]),
        rounds=_spread([verdict.rounds for verdict in verdicts]),
        false=sum(false),
        missed=missed,
        hunts_with_false=sum(map(bool, false)),
        findings=dict(sorted(kinds.items())),
        pairs=nodes * (nodes - 1) // 2,
    )


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    ranked = sorted(values)
    return round(median(ranked)), ranked[min(len(ranked) - 1, int(0.95 * len(ranked)))], ranked[-1]


def table(costs: Sequence[Cost]) -> str:
    """Return a Markdown table with one line per fleet."""
    tests, rounds = (f"{what} (median / 95 % / most)" for what in ("tests", "rounds"))
    names = ["nodes", "bad", "fault", "hunts", tests, "all pairs", rounds, f"hours at {MINUTES_PER_ROUND} min a round"]
    lines = [
        f"| {' | '.join(names)} | falsely accused | missed | findings |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in costs:
        findings = ", ".join(f"{kind} {count}" for kind, count in one.findings.items()) or "none"
        tests, rounds = (" / ".join(map(str, values)) for values in (one.tests, one.rounds))
        hours = one.rounds[0] * MINUTES_PER_ROUND / 60
        injected = 0 if one.fault == "spine" else one.bad * one.seeds
        lines.append(
            f"| {one.nodes:,} | {one.bad} | {one.fault} | {one.seeds} | {tests} | {one.pairs:,} | {rounds}"
            f" | {hours:.1f} | {one.false} | {one.missed} of {injected} | {findings} |"
        )
    return "\n".join(lines) + "\n"


def write_picture(curves: Sequence[tuple[str, Sequence[Cost]]], file: Path) -> None:
    """Draw tests over nodes, both logarithmic, with a line per curve and one for the number of all pairs."""
    from matplotlib import rc_context  # slow to import
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot(title="Tests of a hunt (median) by nodes", xlabel="nodes", xscale="log", yscale="log")
    nodes = sorted({one.nodes for _, costs in curves for one in costs})
    axes.plot(nodes, [size * (size - 1) / 2 for size in nodes], marker=".", color="#999999", label="every pair")
    for (name, costs), color in zip(curves, ("#2166ac", "#b2182b"), strict=True):
        axes.plot([one.nodes for one in costs], [one.tests[0] for one in costs], marker=".", color=color, label=name)
    axes.set_xticks(nodes, [f"{size:,}" for size in nodes], rotation=30)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color="#dddddd")
    axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "hunt"}):
        figure.savefig(file, metadata={"Date": None})


app = App(name="simulate-hunt", default_parameter=Parameter(negative=()), version_flags=())


@app.default
def simulate(
    *,
    nodes: Annotated[int, Parameter(help="Nodes of the fleet.")] = 232,
    bad: Annotated[int, Parameter(help="Units at fault.")] = 5,
    fault: Annotated[str, Parameter(help="Injected fault: nic, node, flapping or spine.")] = "nic",
    noise: Annotated[float, Parameter(help="Standard deviation of a sample, as a share.")] = 0.03,
    seeds: Annotated[int, Parameter(help="Hunts to simulate.")] = 1000,
    seed: Annotated[int, Parameter(help="First seed.")] = 0,
    samples: Annotated[int, Parameter(help="Samples per test.")] = 1,
    max_tests: Annotated[int | None, Parameter(help="Exit with 2 if a hunt needs more tests.")] = None,
    curve: Annotated[bool, Parameter(help="Simulate fleets of 4 to 4,096 nodes.")] = False,
    out: Annotated[Path | None, Parameter(help="Folder for the picture of --curve, hunt-cost.svg.")] = None,
    json_file: Annotated[str | None, Parameter(name="--json", help="File for the result; `-` is stdout.")] = None,
) -> Exit:
    """Run many hunts against injected faults, and print their cost and their mistakes.

    Exit codes: 0 no unit was accused falsely, 1 error, 2 one was, or a hunt needed more than --max-tests.
    """
    kinds: tuple[Kind, ...] = get_args(Kind)
    kind = next((each for each in kinds if each == fault), None)
    if kind is None:
        raise WorkloadError(f"--fault {fault}: choose one of {', '.join(kinds)}")
    if nodes < 2 or not 0 <= bad <= nodes // 2 or min(seeds, samples) < 1 or not 0 <= noise <= 0.5:
        raise WorkloadError(
            f"--nodes {nodes} --bad {bad} --seeds {seeds} --samples {samples} --noise {noise}: a hunt needs two nodes"
            " or more, at most half of them bad, at least one seed and sample, and noise of at most 0.5"
        )

    def run(size: int, faulty: int, hunts: int) -> Cost:
        began = time.monotonic()
        found = cost(size, faulty, kind, noise, hunts, search_options(samples=samples), seed)
        print(f"{size} nodes, {faulty} {kind}: {hunts} hunts in {time.monotonic() - began:.0f} s", file=sys.stderr)
        return found

    def fewer(size: int) -> int:
        """Large fleets take long to simulate and vary little."""
        return max(10, min(seeds, seeds * 232 // size))

    if curve:
        few = [run(size, min(FEW, max(1, size // 8)), fewer(size)) for size in CURVE]
        share = [run(size, size // SHARE, fewer(size)) for size in CURVE[4:]]
        costs = [*few, *share]
        if out is not None:
            write_picture([("up to 5 bad", few), ("1 in 46 bad", share)], out / "hunt-cost.svg")
            print(f"written: {out / 'hunt-cost.svg'}", file=sys.stderr)
    else:
        costs = [run(nodes, bad, seeds)]
    print(table(costs), end="", file=sys.stderr if json_file == "-" else sys.stdout)
    if json_file:
        found = {"schema": "rdma-ray/hunt-simulation/1", "noise": noise, "costs": [asdict(one) for one in costs]}
        write_json(found, json_file)
    over = max_tests is not None and any(one.tests[2] > max_tests for one in costs)
    return Exit.BELOW if over or any(one.false for one in costs) else Exit.OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code of the process."""
    try:
        code: int = app(arguments, exit_on_error=False, result_action="return_value") or Exit.OK
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return error.code
    except CycloptsError:  # its message is printed
        return Exit.ERROR
    return code


if __name__ == "__main__":
    sys.exit(main())
