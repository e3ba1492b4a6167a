"""`rdma-ray bench judge` and `rdma-ray bench floors`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from workloads.exits import WorkloadError
from workloads.options import JsonFile
from workloads.running import console


def bench_judge(
    *more_logs: Annotated[str, Parameter(show=False)],
    machine: Annotated[str, Parameter(help="The machine type that was paid for, such as a3-ultragpu-8g.")],
    nodes: Annotated[int, Parameter(validator=Number(gte=1), help="How many of them took part.")],
    op: Annotated[
        list[str] | None,
        Parameter(
            help="Operation that must be there and meet its floor; may be given more than once. Names the operation"
            " of nccl-tests' output where that does not. [default: what was measured]"
        ),
    ] = None,
    results: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            allow_leading_hyphen=True,
            help="What was measured: a result of `bench nccl --json`, nccl-tests' output, or its -J report; `-` is"
            " stdin.",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        Parameter(metavar="FILE …", allow_leading_hyphen=True, help="Output of NCCL_DEBUG=INFO; several may follow."),
    ] = None,
    no_floor: Annotated[bool, Parameter(help="Do without a published figure; all other checks hold.")] = False,
    no_log: Annotated[
        bool, Parameter(help="Do without evidence of the transport; a log that is there still counts.")
    ] = False,
    no_check: Annotated[bool, Parameter(help="Do without the check of the data (-c 0).")] = False,
    json_file: JsonFile = None,
) -> int:
    """Judge a measurement, whoever made it: was it the fabric, right and fast.

    The largest row of at least 1 GiB counts, out of place, against published
    figures (`rdma-ray bench floors`): below 90 % fails, below 95 % warns.
    Without evidence in NCCL's log, without a check of the data and without a
    published figure nothing passes, unless --no-log, --no-check or --no-floor
    says so.

    Exit codes: 0 pass, 1 usage or unreadable, 2 below the floor or no baseline,
    3 wrong data, 4 hang or time-out, 5 not what was asked (sockets, no GPUDirect
    RDMA, a NIC missing, one host, too few ranks, no evidence). Where several
    hold, 1 comes first, then 3, 5, 4, 2.
    """
    from workloads.client.run import write_json
    from workloads.nccl.judge import view
    from workloads.nccl.judge.expectation import expectation_of
    from workloads.nccl.judge.reading import read_file
    from workloads.nccl.judge.verdict import judge_texts

    if more_logs and not log:
        raise WorkloadError(f"{more_logs[0]}: say what it is, --results {more_logs[0]} or --log {more_logs[0]}")
    if results is None and not log:
        raise WorkloadError("nothing to judge: give --results FILE, and NCCL's output with --log FILE …")
    logs = [*(log or ()), *more_logs]
    if [results, *logs].count("-") > 1:
        raise WorkloadError("stdin (`-`) can be read only once")
    expectation = expectation_of(
        machine, nodes, op or (), need_floor=not no_floor, need_log=not no_log, need_check=not no_check
    )
    verdict = judge_texts(
        None if results is None else read_file(results), [read_file(path) for path in logs], expectation
    )
    view.show(verdict, console(stderr=json_file == "-"))
    if json_file:
        write_json(verdict.model_dump(), json_file)
    return verdict.code


def bench_floors(
    *,
    machine: Annotated[str | None, Parameter(help="Of this machine type only.")] = None,
) -> None:
    """The published bandwidths that the judge knows, with their sources."""
    from infra.catalog.machines import CATALOG
    from workloads.nccl.judge import view

    if machine is not None and machine not in CATALOG:
        raise WorkloadError(f"--machine {machine}: no such type in the catalog; there are {', '.join(CATALOG)}")
    view.show_floors(machine, console(stderr=False))
