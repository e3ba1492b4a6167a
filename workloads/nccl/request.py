"""From options and a stack's outputs to a Spec: presets, defaults, and every refusal that needs no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar, get_args

from infra.outputs import Outputs
from workloads.client.limits import limits_of
from workloads.exits import WorkloadError
from workloads.nccl import presets
from workloads.nccl.bandwidth import BUSBW_FACTORS, REDUCTIONS
from workloads.nccl.point_patterns import choose
from workloads.nccl.result import Mode
from workloads.nccl.sizes import parse_size, sweep
from workloads.nccl.spec import Spec, parse_fault
from workloads.nccl.steering import environment

DTYPES = ("fp32", "fp16", "bf16", "uint8")
MODES: tuple[Mode, ...] = get_args(Mode)
Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Options:
    """The options of `bench nccl`: None, or an empty list, where the preset or the stack decides."""

    preset: str | None = None
    ops: Sequence[str] = ()
    patterns: Sequence[str] = ()
    begin: str | None = None
    end: str | None = None
    factor: int | None = None
    step: str | None = None
    iterations: int | None = None
    warmup: int | None = None
    check: int | None = None
    dtypes: Sequence[str] = ()
    modes: Sequence[str] = ()
    algo: str | None = None
    variables: Sequence[str] = ()
    nodes: int | None = None
    per_node: int | None = None
    timeout_s: float = 300
    wait_s: float = 1800
    logs: bool = False
    no_floor: bool = False
    inject_fault: str | None = None


def request(outputs: Outputs, options: Options) -> Spec:
    """The run that the options ask for on this stack; WorkloadError names what does not fit."""
    use_gpu = outputs.nodes.gpus_per_node > 0
    nodes, per_node = _ranks(outputs, options)
    if options.preset is not None and options.preset not in presets.PRESETS:
        raise WorkloadError(f"--preset {options.preset}: choose one of {', '.join(presets.PRESETS)}")
    base = presets.preset(options.preset, use_gpu)
    ops = _operations(options.ops or base.ops)
    dtypes = _choice("--dtype", options.dtypes or base.dtypes, DTYPES)
    modes = _choice("--mode", options.modes or base.modes, MODES)
    if "graph" in modes and not use_gpu:
        raise WorkloadError("--mode graph replays CUDA graphs, and this stack has no GPUs: use throughput or latency")
    sums_of_bytes = [op for op in ops if op in REDUCTIONS] if "uint8" in dtypes else []
    if sums_of_bytes and options.ops and "all" not in options.ops:
        raise WorkloadError(
            f"--dtype uint8: {', '.join(sums_of_bytes)} would add up bytes, which hold no exact sum:"
            f" choose from {', '.join(op for op in BUSBW_FACTORS if op not in REDUCTIONS)}"
        )
    try:
        sizes = _sizes(options, base)
        parse_fault(options.inject_fault, nodes * per_node)
        patterns = choose(options.patterns or base.patterns, nodes, per_node)
    except ValueError as error:
        raise WorkloadError(str(error)) from error
    limits = limits_of(outputs.machine)
    return Spec(
        ops=ops,
        sizes=sizes,
        iterations=base.iterations if options.iterations is None else options.iterations,
        warmup=base.warmup if options.warmup is None else options.warmup,
        check=base.check if options.check is None else options.check,
        dtypes=dtypes,
        modes=modes,
        nodes=nodes,
        per_node=per_node,
        use_gpu=use_gpu,
        timeout_s=options.timeout_s,
        wait_s=options.wait_s,
        elastic=outputs.nodes.elastic,
        target=outputs.target,
        machine=outputs.machine,
        preset=options.preset,
        algo=options.algo,
        patterns=patterns,
        limits=asdict(limits) if limits else None,
        environment=environment(options.algo, options.variables, ops, use_gpu),
        left_out=[f"{op} uint8" for op in sums_of_bytes],
        logs=options.logs,
        no_floor=options.no_floor,
        inject_fault=options.inject_fault,
    )


def _ranks(outputs: Outputs, options: Options) -> tuple[int, int]:
    slots = outputs.nodes.slots_per_node
    nodes = options.nodes or outputs.nodes.default_gang
    per_node = options.per_node or slots
    kind = "GPUs" if outputs.nodes.gpus_per_node > 0 else "CPUs"
    if nodes > outputs.nodes.max:
        raise WorkloadError(f"--nodes {nodes}: the stack has at most {outputs.nodes.max} (nodes.max in its stack file)")
    if per_node > slots:
        raise WorkloadError(f"--per-node {per_node}: a node of this stack has {slots} {kind}, and a rank takes one")
    if nodes * per_node < 2:
        raise WorkloadError("one rank has nobody to talk to: use more with --nodes or --per-node")
    return nodes, per_node


def _sizes(options: Options, base: presets.Preset) -> list[int]:
    begin = base.begin if options.begin is None else parse_size(options.begin)
    end = base.end if options.end is None else parse_size(options.end)
    step = None if options.step is None else parse_size(options.step)
    # A preset's factor gives way to a step; two options that contradict each other are refused.
    factor = options.factor if options.factor is not None or step is not None else base.factor
    # Where only one end is given and lies beyond the preset's other one, that size alone is measured.
    if options.end is None:
        end = max(begin, end)
    if options.begin is None:
        begin = min(begin, end)
    return sweep(begin, end, factor, step)


def _operations(names: Sequence[str]) -> list[str]:
    known = list(BUSBW_FACTORS)
    unknown = [name for name in names if name not in (*known, "all")]
    if unknown:
        raise WorkloadError(f"--op {unknown[0]}: choose from all, {', '.join(known)}")
    return known if "all" in names else list(dict.fromkeys(names))


def _choice(option: str, names: Sequence[str], known: Sequence[Name]) -> list[Name]:
    """The names that are known, in the order of `known`."""
    for name in names:
        if name not in known:
            raise WorkloadError(f"{option} {name}: choose from {', '.join(known)}")
    return [name for name in known if name in names]
