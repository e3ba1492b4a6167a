"""`rdma-ray bench hunt`: find the slow node or NIC of a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from workloads import running
from workloads.exits import WorkloadError
from workloads.nccl.hunt.options import HuntOptions
from workloads.options import Flat, JobOptions, option

if TYPE_CHECKING:
    from workloads.nccl.hunt.result import HuntResult


def bench_hunt(
    *,
    options: Flat[HuntOptions] = HuntOptions(),
    out: Annotated[Path | None, option(metavar="DIR", help="Folder for the heat map: CSV, text and SVG.")] = None,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Find the slow node or NIC: groups or pairs side by side, suspects with two known-good partners, rail by rail.

    Exit codes: 0 no unit is accused, 1 error, 2 something is slow, 3 wrong data,
    4 no answer within --timeout.
    """
    from workloads.client.run import Request

    outputs = running.read_outputs(job)
    request = options.resolve(outputs)
    if out is not None and job.detach:
        raise WorkloadError("--detach does not wait for a result: get it later by `rdma-ray logs ID --json FILE`")

    def write_heat_map(result: HuntResult) -> None:
        from workloads.nccl.hunt import report

        if out is None:
            return
        try:
            for file in report.write(result, out):
                print(f"written: {file}", file=sys.stderr)
        except OSError as error:
            raise WorkloadError(f"cannot write the heat map to {out}: {error.strerror}") from error

    submission = Request("hunt", "workloads.nccl.hunt.driver", [request.to_json()])
    return running.workload(outputs, submission, job, write_heat_map)
