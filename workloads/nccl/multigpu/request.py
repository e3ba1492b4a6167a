"""From options and a stack's outputs to a Spec: defaults, and every refusal that needs no cluster."""

from __future__ import annotations

from infra.outputs import Outputs
from workloads.exits import WorkloadError
from workloads.nccl.multigpu.spec import BACKENDS, Spec, parse_fault

NODES = 2
DEVICES_WITHOUT_GPU = 8  # so that the numbers are those of two machines of eight GPUs


def request(
    outputs: Outputs,
    *,
    nodes: int | None,
    devices: int | None,
    backend: str,
    timeout_s: float,
    wait_s: float,
    inject_fault: str | None,
) -> Spec:
    """The check that the options ask for on this stack; WorkloadError names what does not fit."""
    gpus = outputs.nodes.gpus_per_node
    nodes = nodes or NODES
    devices = devices or gpus or DEVICES_WITHOUT_GPU
    if backend not in BACKENDS:
        raise WorkloadError(f"--backend {backend}: choose one of {', '.join(BACKENDS)}")
    if backend == "nccl" and not gpus:
        raise WorkloadError("--backend nccl: this stack's nodes have no GPUs; --backend gloo checks the numbers alone")
    if nodes > outputs.nodes.max:
        raise WorkloadError(
            f"--nodes {nodes}: the stack has at most {outputs.nodes.max} (nodes.max in its stack file), and each"
            " worker has a node of its own"
        )
    if gpus and devices > gpus:
        raise WorkloadError(f"--devices {devices}: a node of this stack has {gpus} GPUs")
    try:
        parse_fault(inject_fault, nodes)
    except ValueError as error:
        raise WorkloadError(str(error)) from error
    return Spec(
        nodes=nodes,
        devices=devices,
        use_gpu=gpus > 0,
        backend=backend,
        timeout_s=timeout_s,
        wait_s=wait_s,
        elastic=outputs.nodes.elastic,
        inject_fault=inject_fault,
    )
