"""`rdma-ray bench …`: measure the network, and judge, report and compare the results.

Heavy imports (ray, torch, rich) stay inside the commands to keep help fast.
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
from workloads.nccl.options import BenchOptions, MultiGpuOptions
from workloads.options import Flat, JobOptions, JsonFile

bench = App(name="bench", help="Measure the network between the ranks.")
bench.command(bench_judge, name="judge")
bench.command(bench_floors, name="floors")
bench.command(bench_hunt, name="hunt")
bench.command(bench_job, name="job")


@bench.command(name="nccl")
def bench_nccl(
    *,
    options: Flat[BenchOptions] = BenchOptions(),
    logs: Annotated[
        Path | None, Parameter(metavar="DIR", help="Write NCCL's own log of each rank to this folder.")
    ] = None,
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Write report.html, report.png and result.json to this folder.")
    ] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Measure collectives and point to point between the cluster's ranks, verify the data, and judge the result.

    NCCL with one rank per GPU, or gloo with one rank per CPU. A run on machines
    with RDMA NICs is checked against NCCL's log and published bandwidths (see
    `rdma-ray bench judge`); without NICs only the data counts.

    Exit codes: 0 pass, 1 error, 2 below the floor or no baseline, 3 wrong data,
    4 no answer within --timeout, 5 something else was measured (sockets, no
    GPUDirect RDMA, a NIC missing, one host).
    """
    from workloads.client.run import Request
    from workloads.client.stack import limits_of
    from workloads.nccl.evidence.raw_log import LogFolder

    outputs = running.read_outputs(job)
    request = options.resolve(outputs, limits_of(outputs.machine), logs=logs is not None)
    if job.detach and (logs or out):
        raise WorkloadError("--detach does not wait for logs and result: leave out --logs and --out, or --detach")

    def finish(result: Any) -> None:
        from workloads.nccl.page.page import write_report

        for path in write_report(result, out) if out is not None else []:
            print(path, file=sys.stderr)

    folder = LogFolder(logs) if logs else None
    listener = folder.take if folder else None
    try:
        submission = Request("nccl", "workloads.nccl.driver", [request.to_json()], listener=listener)
        return running.workload(outputs, submission, job, finish)
    finally:
        if folder is not None and not job.detach:
            print(folder.summary(), file=sys.stderr)


@bench.command(name="multigpu")
def bench_multigpu(*, options: Flat[MultiGpuOptions] = MultiGpuOptions(), job: Flat[JobOptions] = JobOptions()) -> int:
    """Check ray.util.collective on several GPUs in each of several workers: 24 everywhere on 2 nodes of 8.

    Tensors hold ones on even devices and twos on odd devices; every element of
    the sum is checked. Exit codes: 0 right, 1 error, 3 wrong data, 4 no answer
    within --timeout.
    """
    from workloads.client.run import Request

    outputs = running.read_outputs(job)
    request = options.resolve(outputs)
    return running.workload(outputs, Request("multigpu", "workloads.nccl.multigpu", [request.to_json()]), job)


@bench.command(name="report")
def bench_report(
    result_file: Annotated[Path, Parameter(metavar="RESULT.json", help="Result of `bench nccl --json FILE`.")],
    /,
    *,
    output: Annotated[
        Path | None, Parameter(alias="-o", metavar="FILE", help="HTML file. [default: the result's name with .html]")
    ] = None,
    png: Annotated[Path | None, Parameter(metavar="FILE", help="PNG file with a summary.")] = None,
    json_file: JsonFile = None,
    machine: Annotated[str | None, Parameter(help="Judge the run as this machine type.")] = None,
) -> None:
    """Write a result as a self-contained HTML page: verdict, plots, evidence.

    Exit codes: 0 written, whatever the verdict; 1 not readable or not writable.
    """
    from workloads.client.run import write_file, write_json
    from workloads.nccl.judge.verdict import verdict_of
    from workloads.nccl.page.page import page
    from workloads.nccl.page.plots import picture
    from workloads.nccl.result import Result

    result = Result.read(result_file)
    if machine is not None:
        result = result.model_copy(update={"verdict": verdict_of(result, machine=machine)})
    target = output or result_file.with_suffix(".html")
    if target.resolve() == result_file.resolve():
        raise WorkloadError(f"-o {target} would overwrite the result: name another file")
    written = [write_file(target, page(result, machine))]
    if png is not None:
        written.append(write_file(png, picture(result, machine)))
    if json_file is not None:
        write_json(result.model_dump(mode="json", by_alias=True), json_file)
    for path in written:
        print(path, file=sys.stderr)


@bench.command(name="compare")
def bench_compare(
    a: Annotated[Path, Parameter(metavar="A", help="Result of the reference run.")],
    b: Annotated[Path, Parameter(metavar="B", help="Result of the run that may be slower.")],
    /,
    *,
    threshold: Annotated[
        float, Parameter(validator=Number(gte=0, lte=99), help="Percent by which a row may be slower.")
    ] = 5.0,
    anyway: Annotated[
        bool, Parameter(help="Compare runs even if their machines, numbers of ranks or types differ.")
    ] = False,
    json_file: JsonFile = None,
) -> int:
    """Compare two results row by row, and fail if B is slower than A.

    Rows of 1 MiB and more are compared by busbw; smaller ones, and those in
    latency mode, by the median run, because a single late run would change the
    mean. Both are printed. Two rows match if their operation, variant, mode,
    type and size are equal.

    Exit codes: 0 none slower, 1 not readable or not comparable, 2 a row slower
    than allowed or missing in B, 3 wrong data in either.
    """
    from workloads.client.run import write_json
    from workloads.nccl.page.compare import compare, show
    from workloads.nccl.result import Result

    compared = compare(Result.read(a), Result.read(b), threshold, anyway=anyway)
    show(compared, running.console(stderr=json_file == "-"))
    if json_file:
        write_json(compared.model_dump(mode="json"), json_file)
    return compared.code
