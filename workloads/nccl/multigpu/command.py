"""`rdma-ray bench multigpu`. Heavy imports stay inside the command, so that help is quick."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from workloads import running
from workloads.options import Flat, JobOptions


def bench_multigpu(
    *,
    nodes: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Nodes, with a worker on each. [default: 2]")
    ] = None,
    devices: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Tensors per worker. [default: a node's GPUs, 8 where it has none]"),
    ] = None,
    backend: Annotated[
        str, Parameter(help="auto (NCCL where there are GPUs and CuPy, else gloo), nccl or gloo.")
    ] = "auto",
    timeout: Annotated[
        float, Parameter(validator=Number(gte=1), help="Seconds a step may take before it counts as a hang.")
    ] = 300,
    wait: Annotated[float, Parameter(validator=Number(gte=1), help="Seconds to wait for the nodes.")] = 1800,
    inject_fault: Annotated[str | None, Parameter(show=False, help="Rehearse a failure: corrupt:RANK.")] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Several GPUs in each of several workers, added up by ray.util.collective: 24 everywhere on 2 nodes of 8.

    Ones on even devices, twos on odd ones; every element is looked at. Exit codes: 0 right, 1 error, 3 wrong data, 4 no
    answer within --timeout.
    """
    from workloads.client.run import Request
    from workloads.nccl.multigpu.request import request

    outputs = running.read_outputs(job)
    spec = request(
        outputs,
        nodes=nodes,
        devices=devices,
        backend=backend,
        timeout_s=timeout,
        wait_s=wait,
        inject_fault=inject_fault,
    )
    return running.workload(outputs, Request("multigpu", "workloads.nccl.multigpu.driver", [spec.to_json()]), job)
