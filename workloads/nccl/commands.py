"""`rdma-ray bench …`: the commands that measure the network and judge what was measured.

Heavy imports (ray, torch, rich, pydantic) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from workloads import running
from workloads.options import Detach, JsonFile, OutputsFile, Stack

bench = typer.Typer(name="bench", help="Measure the network between the ranks.", no_args_is_help=True)


@bench.command("nccl")
def bench_nccl(
    op: Annotated[
        list[str] | None, typer.Option(help="Operation to measure; may be given more than once.  [default: all]")
    ] = None,
    begin: Annotated[str, typer.Option("-b", "--begin", help="Smallest size.")] = "1K",
    end: Annotated[
        str | None, typer.Option("-e", "--end", help="Largest size.  [default: 4M on CPUs, 8G on GPUs]")
    ] = None,
    factor: Annotated[int | None, typer.Option("-f", "--factor", help="Step.  [default: 8 on CPUs, 2 on GPUs]")] = None,
    iterations: Annotated[int, typer.Option("-n", "--iterations", min=1, help="Timed runs of each row.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", min=0, help="Untimed runs before each row.")] = 5,
    dtype: Annotated[str, typer.Option(help="fp32, fp16 or bf16.")] = "fp32",
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes.  [default: those the stack keeps]")] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Ranks per node.  [default: its GPUs, else its CPUs]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds a row may take before it counts as a hang.")] = 300,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the nodes.")] = 1800,
    inject_fault: Annotated[
        str | None, typer.Option(hidden=True, help="Rehearse a failure: corrupt:RANK or hang:RANK.")
    ] = None,
    json_file: JsonFile = None,
    detach: Detach = False,
    stack: Stack = None,
    outputs_file: OutputsFile = None,
) -> None:
    """Collectives between the ranks of the cluster, every element checked.

    NCCL with a rank per GPU, gloo with a rank per CPU where there are none. Exit codes: 0 measured and right, 1 error,
    3 wrong data, 4 no answer within --timeout.
    """
    from workloads.client.run import Request
    from workloads.nccl.request import request

    outputs = running.read_outputs(stack, outputs_file)
    spec = request(
        outputs,
        ops=op or ["all"],
        begin=begin,
        end=end,
        factor=factor,
        iterations=iterations,
        warmup=warmup,
        dtype=dtype,
        nodes=nodes,
        per_node=per_node,
        timeout_s=timeout,
        wait_s=wait,
        inject_fault=inject_fault,
    )
    running.workload(outputs, Request("nccl", "workloads.nccl.driver", [spec.to_json()]), json_file, detach)
