"""`rdma-ray bench …`: measure the network, and judge, report and compare the results.

Heavy imports (ray, matplotlib) stay inside the commands to keep help fast.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from pydantic import Field

from infra.catalog.machines import CATALOG
from workloads.client.connection import Connection
from workloads.client.run import run_job
from workloads.exits import WorkloadError
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.judge import view
from workloads.nccl.judge.expectation import Expectation, has_gpu_direct, limits_of, machine_named
from workloads.nccl.judge.reading import read_file
from workloads.nccl.judge.verdict import judge_texts, verdict_of
from workloads.nccl.options import BenchOptions, MultiGpuOptions
from workloads.nccl.page import compare
from workloads.nccl.result import BenchResult
from workloads.options import Flat, JobOptions, JsonFile, add, option
from workloads.results.files import write_file
from workloads.terminal.console import Terminal, present, write_json

bench = App(name="bench", help="Measure the network between the ranks.")
add(bench, "workloads.nccl.manifest:bench_job", name="job")


@bench.command(name="nccl")
def bench_nccl(
    *,
    options: Flat[BenchOptions] = BenchOptions(),
    logs: Annotated[
        Path | None, Parameter(metavar="DIR", help="Write the NCCL log of each rank to this folder.")
    ] = None,
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Write report.html, report.png and result.json to this folder.")
    ] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Measure collectives and pairs of ranks, verify the data, and judge the result.

    NCCL with one rank per GPU, or gloo with one rank per CPU. A run on machines
    with RDMA NICs is checked against NCCL's log and published bandwidths (see
    `rdma-ray bench judge`); without NICs only the data counts.

    Example: rdma-ray bench nccl --preset acceptance --json result.json
    Exit codes: 0 pass, 1 error, 2 below the floor or no baseline, 3 wrong data,
    4 no answer within --timeout, 5 something else was measured (sockets, no
    GPUDirect RDMA, a NIC missing, one host).
    """
    with Connection(job) as stack:
        request = options.resolve(stack.outputs, limits_of(stack.outputs.machine), logs=logs is not None)
        return run_job(stack, "nccl", request.to_json(), job, out=out, logs=logs)


@bench.command(name="multigpu")
def bench_multigpu(*, options: Flat[MultiGpuOptions] = MultiGpuOptions(), job: Flat[JobOptions] = JobOptions()) -> int:
    """Check ray.util.collective with several GPUs in each of several workers.

    Tensors hold ones on even devices and twos on odd devices; every element of
    the sum is checked: 24 on 2 nodes of 8 GPUs.

    Example: rdma-ray bench multigpu --nodes 2
    Exit codes: 0 right, 1 error, 3 wrong data, 4 no answer within --timeout, 5 a
    node with GPUs cannot use NCCL (no CuPy).
    """
    with Connection(job) as stack:
        return run_job(stack, "multigpu", options.resolve(stack.outputs).to_json(), job)


@bench.command(name="hunt")
def bench_hunt(
    *,
    options: Flat[HuntOptions] = HuntOptions(),
    out: Annotated[Path | None, Parameter(metavar="DIR", help="Folder for the heat map: CSV, text and SVG.")] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Find the slow node or NIC.

    Groups or pairs run side by side, and suspects with two known-good partners,
    rail by rail.

    Example: rdma-ray bench hunt --out hunt
    Exit codes: 0 no unit is accused, 1 error, 2 something is slow, 3 wrong data,
    4 no answer within --timeout, 5 a unit or the whole fleet does not use the
    fabric (sockets, no GPUDirect RDMA, a NIC missing), or nothing shows its path.
    """
    with Connection(job) as stack:
        direct = has_gpu_direct(stack.outputs.machine)
        return run_job(stack, "hunt", options.resolve(stack.outputs, gpu_direct=direct).to_json(), job, out=out)


class JudgeOptions(Expectation):
    """Options of `bench judge`: the expectation, and the files to judge."""

    results: Annotated[str | None, option(metavar="FILE", allow_leading_hyphen=True)] = Field(
        None,
        description="Measurement: a result of `bench nccl --json`, nccl-tests' output, or its -J report; `-` is stdin.",
    )
    log: Annotated[tuple[str, ...], option(metavar="FILE …", allow_leading_hyphen=True)] = Field(
        (), description="Output of NCCL_DEBUG=INFO; more files may follow."
    )


@bench.command(name="judge")
def bench_judge(
    *more_logs: Annotated[str, option(show=False)], options: Flat[JudgeOptions], json_file: JsonFile = None
) -> int:
    """Judge a measurement from any tool: was it the fabric, right and fast.

    The largest row of at least 1 GiB counts, out of place, against published
    figures (`rdma-ray bench floors`): below 90 % fails, below 95 % warns.
    Without evidence in NCCL's log, without checked data and without a published
    figure nothing passes, unless --no-log, --no-check or --no-floor allows it.

    Example: rdma-ray bench judge --machine a3-ultragpu-8g --nodes 2 --results out --log log
    Exit codes: 0 pass, 1 usage or unreadable, 2 below the floor or no baseline,
    3 wrong data, 4 hang or time-out, 5 not what was requested (sockets, no
    GPUDirect RDMA, a NIC missing, one host, too few ranks, no evidence). If
    several apply, 1 comes first, then 3, 5, 4, 2.
    """
    results, logs = options.results, [*options.log, *more_logs]
    if more_logs and not options.log:
        raise WorkloadError(f"{more_logs[0]}: pass it as --results {more_logs[0]} or --log {more_logs[0]}")
    if results is None and not logs:
        raise WorkloadError("nothing to judge: pass --results FILE, and NCCL's output with --log FILE …")
    if [results, *logs].count("-") > 1:
        raise WorkloadError("stdin (`-`) can be read only once")
    text = None if results is None else read_file(results)
    verdict = judge_texts(text, [read_file(path) for path in logs], options)
    present(verdict, view.show, verdict.model_dump(), json_file)
    return verdict.code


@bench.command(name="floors")
def bench_floors(*, machine: Annotated[str | None, option(help="Show this machine type only.")] = None) -> None:
    """Show the published bandwidths that the judge uses, with their sources.

    Example: rdma-ray bench floors --machine a3-ultragpu-8g
    Exit codes: 0 shown, 1 no such machine type.
    """
    view.show_floors(list(CATALOG.values()) if machine is None else [machine_named(machine)], Terminal())


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

    Example: rdma-ray bench report result.json --png result.png
    Exit codes: 0 written, whatever the verdict; 1 not readable or not writable.
    """
    from workloads.nccl.page.page import page, picture

    result = BenchResult.read(result_file)
    if machine is not None:
        result = result.model_copy(update={"verdict": verdict_of(result, machine_named(machine).name)})
    target = output or result_file.with_suffix(".html")
    if os.path.realpath(target) == os.path.realpath(result_file):
        raise WorkloadError(f"-o {target} would overwrite the result: name another file")
    written = [write_file(target, page(result))]
    if png is not None:
        written.append(write_file(png, picture(result)))
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

    Example: rdma-ray bench compare before.json after.json --threshold 3
    Exit codes: 0 none slower, 1 not readable or not comparable, 2 a row slower
    than allowed or missing in B, 3 wrong data in either.
    """
    compared = compare.compare(BenchResult.read(a), BenchResult.read(b), threshold, anyway=anyway)
    present(compared, compare.show, compared.model_dump(mode="json"), json_file)
    return compared.code
