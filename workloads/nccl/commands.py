"""`rdma-ray bench …`: the commands that measure the network and judge what was measured.

Heavy imports (ray, torch, rich, pydantic) stay inside the commands, so that help is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from workloads import running
from workloads.exits import WorkloadError
from workloads.nccl.hunt.command import bench_hunt
from workloads.nccl.job import bench_job
from workloads.nccl.judge.command import bench_floors, bench_judge
from workloads.nccl.multigpu.command import bench_multigpu
from workloads.nccl.page.command import bench_compare, bench_report
from workloads.options import Flat, JobOptions

bench = App(name="bench", help="Measure the network between the ranks.")


@bench.command(name="nccl")
def bench_nccl(
    *,
    preset: Annotated[
        str | None,
        Parameter(help="What to measure: quick, acceptance or full; explicit options win."),
    ] = None,
    op: Annotated[
        list[str] | None, Parameter(help="Operation to measure; may be given more than once. [default: all]")
    ] = None,
    pattern: Annotated[
        list[str] | None,
        Parameter(
            help="What p2p measures: pairs, single, rail, shift, incast, intra or all; may be given more than once."
            " [default: pairs]"
        ),
    ] = None,
    begin: Annotated[str | None, Parameter(alias="-b", help="Smallest size. [default: 1K]")] = None,
    end: Annotated[str | None, Parameter(alias="-e", help="Largest size. [default: 4M on CPUs, 8G on GPUs]")] = None,
    factor: Annotated[
        int | None, Parameter(alias="-f", help="From one size to the next. [default: 8 on CPUs, 2 on GPUs]")
    ] = None,
    step: Annotated[str | None, Parameter(alias="-i", help="A fixed step between sizes instead of a factor.")] = None,
    iterations: Annotated[
        int | None, Parameter(alias="-n", validator=Number(gte=1), help="Timed runs of each row. [default: 20]")
    ] = None,
    warmup: Annotated[
        int | None, Parameter(alias="-w", validator=Number(gte=0), help="Untimed runs before each row. [default: 5]")
    ] = None,
    check: Annotated[
        int | None,
        Parameter(
            alias="-c",
            validator=Number(gte=0),
            help="Verified runs before and after the timed ones; 0 checks nothing. [default: 1]",
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        Parameter(help="fp32, fp16, bf16, or uint8 where nothing is added; more than once. [default: fp32]"),
    ] = None,
    mode: Annotated[
        list[str] | None,
        Parameter(
            help="throughput (back to back), latency (a barrier before each run) or graph (CUDA graph replays);"
            " more than once. [default: throughput]"
        ),
    ] = None,
    algo: Annotated[
        str | None,
        Parameter(help="NCCL's algorithm: ring (the fabric mode), tree, nvls or nvlstree. [default: NCCL's choice]"),
    ] = None,
    env: Annotated[
        list[str] | None,
        Parameter(metavar="NAME=VALUE", help="A variable for NCCL or gloo on every rank; more than once."),
    ] = None,
    nodes: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Nodes. [default: those the stack keeps]")
    ] = None,
    per_node: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Ranks per node. [default: its GPUs, else its CPUs]")
    ] = None,
    timeout: Annotated[
        float, Parameter(validator=Number(gte=1), help="Seconds a row may take before it counts as a hang.")
    ] = 300,
    wait: Annotated[float, Parameter(validator=Number(gte=1), help="Seconds to wait for the nodes.")] = 1800,
    logs: Annotated[
        Path | None, Parameter(metavar="DIR", help="Bring NCCL's own log of each rank into this folder.")
    ] = None,
    inject_fault: Annotated[
        str | None, Parameter(show=False, help="Rehearse a failure: corrupt:RANK, stale:RANK or hang:RANK.")
    ] = None,
    no_floor: Annotated[bool, Parameter(help="Do without a published figure; all other checks hold.")] = False,
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Write report.html, report.png and result.json into this folder.")
    ] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
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

    outputs = running.read_outputs(job)
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
    if job.detach and (logs or out):
        raise WorkloadError("--detach does not wait for logs and result: leave out --logs and --out, or --detach")
    folder = LogFolder(logs) if logs else None
    wanted = Request("nccl", "workloads.nccl.driver", [spec.to_json()], listener=folder.take if folder else None)
    try:
        return running.workload(outputs, wanted, job, finish=lambda result: _write(result, out))
    finally:
        if folder is not None and not job.detach:
            print(folder.summary(), file=sys.stderr)


def _write(result: dict[str, Any], out: Path | None) -> None:
    if out is None:
        return
    from workloads.nccl.page.write import write_report
    from workloads.nccl.result import Result

    for path in write_report(Result.model_validate(result), out):
        print(path, file=sys.stderr)


bench.command(bench_judge, name="judge")
bench.command(bench_floors, name="floors")
bench.command(bench_report, name="report")
bench.command(bench_compare, name="compare")
bench.command(bench_hunt, name="hunt")
bench.command(bench_multigpu, name="multigpu")
bench.command(bench_job, name="job")
