"""From options and a stack's outputs to a Spec: defaults, and every refusal that needs no cluster."""

from __future__ import annotations

from collections.abc import Sequence

from infra.outputs import Outputs
from workloads.exits import WorkloadError
from workloads.nccl.bandwidth import BUSBW_FACTORS
from workloads.nccl.sizes import parse_size, sweep
from workloads.nccl.spec import Spec, parse_fault

DTYPES = ("fp32", "fp16", "bf16")


def request(
    outputs: Outputs,
    *,
    ops: Sequence[str],
    begin: str,
    end: str | None,
    factor: int | None,
    iterations: int,
    warmup: int,
    dtype: str,
    nodes: int | None,
    per_node: int | None,
    timeout_s: float,
    wait_s: float,
    inject_fault: str | None,
) -> Spec:
    """The run that the options ask for on this stack; WorkloadError names what does not fit."""
    use_gpu = outputs.nodes.gpus_per_node > 0
    slots = outputs.nodes.slots_per_node
    nodes = nodes or outputs.nodes.default_gang
    per_node = per_node or slots
    kind = "GPUs" if use_gpu else "CPUs"
    if nodes > outputs.nodes.max:
        raise WorkloadError(f"--nodes {nodes}: the stack has at most {outputs.nodes.max} (nodes.max in its stack file)")
    if per_node > slots:
        raise WorkloadError(f"--per-node {per_node}: a node of this stack has {slots} {kind}, and a rank takes one")
    if nodes * per_node < 2:
        raise WorkloadError("one rank has nobody to talk to: use more with --nodes or --per-node")
    if dtype not in DTYPES:
        raise WorkloadError(f"--dtype {dtype}: choose one of {', '.join(DTYPES)}")
    try:
        sizes = sweep(
            parse_size(begin), parse_size(end or ("8G" if use_gpu else "4M")), factor or (2 if use_gpu else 8)
        )
        parse_fault(inject_fault, nodes * per_node)
    except ValueError as error:
        raise WorkloadError(str(error)) from error
    return Spec(
        ops=_operations(ops),
        sizes=sizes,
        iterations=iterations,
        warmup=warmup,
        dtype=dtype,
        nodes=nodes,
        per_node=per_node,
        use_gpu=use_gpu,
        timeout_s=timeout_s,
        wait_s=wait_s,
        elastic=outputs.nodes.elastic,
        target=outputs.target,
        inject_fault=inject_fault,
    )


def _operations(names: Sequence[str]) -> list[str]:
    known = list(BUSBW_FACTORS)
    unknown = [name for name in names if name not in (*known, "all")]
    if unknown:
        raise WorkloadError(f"--op {unknown[0]}: choose from all, {', '.join(known)}")
    return known if "all" in names else list(dict.fromkeys(names))
