"""From options and a stack's outputs to a HuntSpec: defaults, and every refusal that needs no cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from infra.outputs import Outputs
from workloads.exits import WorkloadError
from workloads.nccl.hunt.spec import HuntSpec, parse_fault
from workloads.nccl.sizes import parse_size

UNITS = ("node", "rank")
# Ranks on CPUs share cores and one memory: their noise is tens of percent, and so is what can be told from it.
THRESHOLD = {True: 0.90, False: 0.50}
SIZE = {True: "1G", False: "4M"}
ITERATIONS = {True: 20, False: 5}
SAMPLES = {True: 5, False: 3}


@dataclass(frozen=True)
class Options:
    """The options of `bench hunt`: None where the stack decides."""

    nodes: int | None = None
    per_node: int | None = None
    unit: str = "node"
    size: str | None = None
    iterations: int | None = None
    samples: int | None = None
    threshold: float | None = None
    floor: float | None = None
    full: bool = False
    single: bool = True
    timeout_s: float = 120
    wait_s: float = 1800
    seed: int = 0
    inject_fault: str | None = None


def request(outputs: Outputs, options: Options) -> HuntSpec:
    """The hunt that the options ask for on this stack; WorkloadError names what does not fit."""
    use_gpu = outputs.nodes.gpus_per_node > 0
    slots = outputs.nodes.slots_per_node
    nodes = options.nodes or outputs.nodes.default_gang
    per_node = options.per_node or slots
    if nodes > outputs.nodes.max:
        raise WorkloadError(f"--nodes {nodes}: the stack has at most {outputs.nodes.max} (nodes.max in its stack file)")
    if per_node > slots:
        kind = "GPUs" if use_gpu else "CPUs"
        raise WorkloadError(f"--per-node {per_node}: a node of this stack has {slots} {kind}, and a rank takes one")
    if options.unit not in UNITS:
        raise WorkloadError(f"--unit {options.unit}: choose one of {', '.join(UNITS)}")
    try:
        size = parse_size(options.size or SIZE[use_gpu])
    except ValueError as error:
        raise WorkloadError(f"--size: {error}") from error
    spec = HuntSpec(
        nodes=nodes,
        per_node=per_node,
        unit=cast(Literal["node", "rank"], options.unit),
        use_gpu=use_gpu,
        size=size,
        iterations=options.iterations or ITERATIONS[use_gpu],
        samples=options.samples or SAMPLES[use_gpu],
        threshold=THRESHOLD[use_gpu] if options.threshold is None else options.threshold,
        floor=options.floor,
        full=options.full,
        single=options.single,
        timeout_s=options.timeout_s,
        wait_s=options.wait_s,
        elastic=outputs.nodes.elastic,
        target=outputs.target,
        seed=options.seed,
        inject_fault=options.inject_fault,
    )
    if spec.units < 2:
        raise WorkloadError(
            f"one {spec.unit} has nobody to be compared with: use more with --nodes, or --unit rank for the GPUs of one"
        )
    try:
        parse_fault(spec.inject_fault, spec.units, spec.rails)
    except ValueError as error:
        raise WorkloadError(f"--inject-fault: {error}") from error
    return spec
