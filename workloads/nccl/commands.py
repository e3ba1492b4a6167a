"""`rdma-ray bench …`: the commands that measure the network and judge what was measured.

Heavy imports (ray, torch, rich, pydantic) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from workloads import running
from workloads.exits import WorkloadError
from workloads.nccl.hunt.command import bench_hunt
from workloads.nccl.job.command import bench_job
from workloads.nccl.judge.command import JsonOrFile, bench_floors, bench_judge
from workloads.nccl.multigpu.command import bench_multigpu
from workloads.nccl.page.command import bench_compare, bench_report
from workloads.options import Detach, JsonFile, OutputsFile, Stack

bench = typer.Typer(name="bench", help="Measure the network between the ranks.", no_args_is_help=True)


@bench.command("nccl")
def bench_nccl(
    preset: Annotated[
        str | None,
        typer.Option(help="What to measure: quick, acceptance or full; explicit options win.", show_default=False),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option(help="Operation to measure; may be given more than once.  \\[default: all]")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            help="What p2p measures: pairs, single, rail, shift, incast, intra or all; may be given more than once."
            "  \\[default: pairs]"
        ),
    ] = None,
    begin: Annotated[str | None, typer.Option("-b", "--begin", help="Smallest size.  \\[default: 1K]")] = None,
    end: Annotated[
        str | None, typer.Option("-e", "--end", help="Largest size.  \\[default: 4M on CPUs, 8G on GPUs]")
    ] = None,
    factor: Annotated[
        int | None, typer.Option("-f", "--factor", help="From one size to the next.  \\[default: 8 on CPUs, 2 on GPUs]")
    ] = None,
    step: Annotated[
        str | None, typer.Option("-i", "--step", help="A fixed step between sizes instead of a factor.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("-n", "--iterations", min=1, help="Timed runs of each row.  \\[default: 20]")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option("-w", "--warmup", min=0, help="Untimed runs before each row.  \\[default: 5]")
    ] = None,
    check: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--check",
            min=0,
            help="Verified runs before and after the timed ones; 0 checks nothing.  \\[default: 1]",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="fp32, fp16, bf16, or uint8 where nothing is added; more than once.  \\[default: fp32]"),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="throughput (back to back), latency (a barrier before each run) or graph (CUDA graph replays);"
            " more than once.  \\[default: throughput]"
        ),
    ] = None,
    algo: Annotated[
        str | None,
        typer.Option(
            help="NCCL's algorithm: ring (the fabric mode), tree, nvls or nvlstree.  \\[default: NCCL's choice]"
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="A variable for NCCL or gloo on every rank; more than once.", metavar="NAME=VALUE"),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes.  \\[default: those the stack keeps]")] = None,
    per_node: Annotated[
        int | None, typer.Option(min=1, help="Ranks per node.  \\[default: its GPUs, else its CPUs]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds a row may take before it counts as a hang.")] = 300,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the nodes.")] = 1800,
    logs: Annotated[
        Path | None, typer.Option(help="Bring NCCL's own log of each rank into this folder.", metavar="DIR")
    ] = None,
    inject_fault: Annotated[
        str | None, typer.Option(hidden=True, help="Rehearse a failure: corrupt:RANK, stale:RANK or hang:RANK.")
    ] = None,
    no_floor: Annotated[
        bool, typer.Option("--no-floor", help="Do without a published figure; all other checks hold.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write report.html, report.png and result.json into this folder.", metavar="DIR")
    ] = None,
    json_file: JsonFile = None,
    detach: Detach = False,
    stack: Stack = None,
    outputs_file: OutputsFile = None,
) -> None:
    """Collectives and point to point between the ranks of the cluster, every element checked, and judged.

    NCCL with a rank per GPU, gloo with a rank per CPU where there are none. What
    ran on machines with RDMA NICs is held to NCCL's log and to published figures
    (`rdma-ray bench judge` tells how); without NICs only the data counts.

    Exit codes: 0 pass, 1 error, 2 below the floor or no baseline, 3 wrong data,
    4 no answer within --timeout, 5 not what was asked (sockets, no GPUDirect
    RDMA, a NIC missing, one host).
    """
    from workloads.client.run import Request
    from workloads.nccl.evidence.raw_log import LogFolder
    from workloads.nccl.request import Options, request

    outputs = running.read_outputs(stack, outputs_file)
    spec = request(
        outputs,
        Options(
            preset=preset,
            ops=op or (),
            patterns=pattern or (),
            begin=begin,
            end=end,
            factor=factor,
            step=step,
            iterations=iterations,
            warmup=warmup,
            check=check,
            dtypes=dtype or (),
            modes=mode or (),
            algo=algo,
            variables=env or (),
            nodes=nodes,
            per_node=per_node,
            timeout_s=timeout,
            wait_s=wait,
            logs=logs is not None,
            no_floor=no_floor,
            inject_fault=inject_fault,
        ),
    )
    if detach and (logs or out):
        raise WorkloadError("--detach does not wait for logs and result: leave out --logs and --out, or --detach")
    folder = LogFolder(logs) if logs else None
    wanted = Request("nccl", "workloads.nccl.driver", [spec.to_json()], listener=folder.take if folder else None)
    try:
        running.workload(outputs, wanted, json_file, detach, finish=lambda result: _write(result, out))
    finally:
        if folder is not None and not detach:
            typer.echo(folder.summary(), err=True)


def _write(result: dict[str, Any], out: Path | None) -> None:
    if out is None:
        return
    from workloads.nccl.page.write import write_report
    from workloads.nccl.result import Result

    for path in write_report(Result.model_validate(result), out):
        typer.echo(path, err=True)


bench.command("judge", cls=JsonOrFile)(bench_judge)
bench.command("floors")(bench_floors)
bench.command("report")(bench_report)
bench.command("compare", cls=JsonOrFile)(bench_compare)
bench.command("hunt")(bench_hunt)
bench.command("multigpu")(bench_multigpu)
bench.command("job")(bench_job)
