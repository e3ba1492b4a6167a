"""`rdma-ray bench report` and `rdma-ray bench compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from workloads.exits import WorkloadError
from workloads.options import JsonFile
from workloads.running import console

ResultFile = Annotated[Path, Parameter(help="A result of `bench nccl --json FILE`.", metavar="RESULT.json")]


def bench_report(
    result_file: ResultFile,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(alias="-o", metavar="FILE", help="The page. [default: beside the result, as .html]"),
    ] = None,
    png: Annotated[Path | None, Parameter(metavar="FILE", help="Also a summary as a picture.")] = None,
    json_file: JsonFile = None,
    machine: Annotated[
        str | None, Parameter(help="Judge it as this machine type, instead of as the run was judged.")
    ] = None,
) -> None:
    """A result as one HTML page: verdict, plots, evidence. It loads nothing, so it can be sent as it is.

    Exit codes: 0 written, whatever the verdict; 1 unreadable, or it cannot be written.
    """
    from workloads.client.run import write_json
    from workloads.nccl.judge.verdict import verdict_of
    from workloads.nccl.page.html import page
    from workloads.nccl.page.picture import picture
    from workloads.nccl.page.read import read_result
    from workloads.nccl.page.reference import machine_of
    from workloads.nccl.page.write import write

    result = read_result(result_file)
    if machine is not None:
        machine_of(result, machine)  # an unknown one is told before anything is judged
        result = result.model_copy(update={"verdict": verdict_of(result, machine=machine)})
    target = output or result_file.with_suffix(".html")
    if target.resolve() == result_file.resolve():
        raise WorkloadError(f"-o {target} would replace the result itself: name another file")
    written = [write(target, page(result, machine))]
    if png is not None:
        written.append(write(png, picture(result, machine)))
    if json_file is not None:
        write_json(result.model_dump(mode="json", by_alias=True), json_file)
    for path in written:
        print(path, file=sys.stderr)


def bench_compare(
    a: Annotated[Path, Parameter(metavar="A", help="The run to hold to.")],
    b: Annotated[Path, Parameter(metavar="B", help="The run that may have become slower.")],
    /,
    *,
    threshold: Annotated[
        float,
        Parameter(validator=Number(gte=0, lte=99), help="A row that is slower by more than this fails, in percent."),
    ] = 5.0,
    anyway: Annotated[
        bool, Parameter(help="Compare runs on different machines, worlds or types nevertheless.")
    ] = False,
    json_file: JsonFile = None,
) -> int:
    """Compare two results row by row, and fail where B is slower than A.

    From 1 MiB up busbw counts, below it and in latency mode the median run: a
    single late run would move the mean there. Both are printed. Rows are the
    same where operation, variant, mode, type and size are.

    Exit codes: 0 none slower, 1 unreadable or not comparable, 2 a row slower
    than allowed or missing in B, 3 wrong data in either.
    """
    from workloads.client.run import write_json
    from workloads.nccl.page import show
    from workloads.nccl.page.compare import as_json, compare
    from workloads.nccl.page.read import read_result

    compared = compare(read_result(a), read_result(b), threshold, anyway=anyway)
    show.show(compared, console(stderr=json_file == "-"))
    if json_file:
        write_json(as_json(compared, threshold), json_file)
    return compared.code
