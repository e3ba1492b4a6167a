"""`rdma-ray bench multigpu`. Heavy imports stay inside the command, so that help is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from workloads import running
from workloads.options import Detach, JsonFile, OutputsFile, Stack


def bench_multigpu(
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes, with a worker on each.", show_default="2")] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Tensors per worker.", show_default="a node's GPUs, 8 where it has none"),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="auto (NCCL where there are GPUs and CuPy, else gloo), nccl or gloo.")
    ] = "auto",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds a step may take before it counts as a hang.")] = 300,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the nodes.")] = 1800,
    inject_fault: Annotated[str | None, typer.Option(hidden=True, help="Rehearse a failure: corrupt:RANK.")] = None,
    json_file: JsonFile = None,
    detach: Detach = False,
    stack: Stack = None,
    outputs_file: OutputsFile = None,
) -> None:
    """Several GPUs in each of several workers, added up by ray.util.collective: 24 everywhere on 2 nodes of 8.

    Ones on even devices, twos on odd ones; every element is looked at. Exit codes: 0 right, 1 error, 3 wrong data, 4 no
    answer within --timeout.
    """
    from workloads.client.run import Request
    from workloads.nccl.multigpu.request import request

    outputs = running.read_outputs(stack, outputs_file)
    spec = request(
        outputs,
        nodes=nodes,
        devices=devices,
        backend=backend,
        timeout_s=timeout,
        wait_s=wait,
        inject_fault=inject_fault,
    )
    running.workload(
        outputs, Request("multigpu", "workloads.nccl.multigpu.driver", [spec.to_json()]), json_file, detach
    )
