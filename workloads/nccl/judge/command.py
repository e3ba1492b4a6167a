"""`rdma-ray bench judge` and `rdma-ray bench floors`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workloads.exits import WorkloadError
from workloads.nccl.judge.expectation import Expectation, machine_named
from workloads.options import Flat, JsonFile, option
from workloads.running import console


class JudgeOptions(Expectation):
    """Options of `bench judge`: what is expected, and the files to judge."""

    results: Annotated[str | None, option(metavar="FILE", allow_leading_hyphen=True)] = Field(
        None,
        description="Measurement: a result of `bench nccl --json`, nccl-tests' output, or its -J report; `-` is stdin.",
    )
    log: Annotated[tuple[str, ...], option(metavar="FILE …", allow_leading_hyphen=True)] = Field(
        (), description="Output of NCCL_DEBUG=INFO; more files may follow."
    )


def bench_judge(
    *more_logs: Annotated[str, option(show=False)], options: Flat[JudgeOptions], json_file: JsonFile = None
) -> int:
    """Judge a measurement from any tool: was it the fabric, right and fast.

    The largest row of at least 1 GiB counts, out of place, against published
    figures (`rdma-ray bench floors`): below 90 % fails, below 95 % warns.
    Without evidence in NCCL's log, without checked data and without a published
    figure nothing passes, unless --no-log, --no-check or --no-floor allows it.

    Exit codes: 0 pass, 1 usage or unreadable, 2 below the floor or no baseline,
    3 wrong data, 4 hang or time-out, 5 not what was requested (sockets, no
    GPUDirect RDMA, a NIC missing, one host, too few ranks, no evidence). If
    several apply, 1 comes first, then 3, 5, 4, 2.
    """
    from workloads.client.run import write_json
    from workloads.nccl.judge import view
    from workloads.nccl.judge.reading import read_file
    from workloads.nccl.judge.verdict import judge_texts

    results, logs = options.results, [*options.log, *more_logs]
    if more_logs and not options.log:
        raise WorkloadError(f"{more_logs[0]}: pass it as --results {more_logs[0]} or --log {more_logs[0]}")
    if results is None and not logs:
        raise WorkloadError("nothing to judge: pass --results FILE, and NCCL's output with --log FILE …")
    if [results, *logs].count("-") > 1:
        raise WorkloadError("stdin (`-`) can be read only once")
    text = None if results is None else read_file(results)
    verdict = judge_texts(text, [read_file(path) for path in logs], options)
    view.show(verdict, console(stderr=json_file == "-"))
    if json_file:
        write_json(verdict.model_dump(), json_file)
    return verdict.code


def bench_floors(*, machine: Annotated[str | None, option(help="Show this machine type only.")] = None) -> None:
    """Show the published bandwidths that the judge uses, with their sources."""
    from infra.catalog.machines import CATALOG
    from workloads.nccl.judge import view

    view.show_floors(list(CATALOG.values()) if machine is None else [machine_named(machine)], console(stderr=False))
