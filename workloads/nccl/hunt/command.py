"""`rdma-ray bench hunt`: find the slow node or NIC, on a cluster or in a simulation.

Heavy imports stay inside the command, so that help is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from workloads import running
from workloads.exits import Exit, WorkloadError
from workloads.options import Flat, JobOptions


def bench_hunt(
    *,
    nodes: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Nodes. [default: those the stack keeps]")
    ] = None,
    per_node: Annotated[
        int | None, Parameter(validator=Number(gte=1), help="Ranks per node. [default: its GPUs, else its CPUs]")
    ] = None,
    unit: Annotated[str, Parameter(help="What is looked for: node, or rank (one GPU, on one node too).")] = "node",
    size: Annotated[str | None, Parameter(help="Size of each all_gather. [default: 1G on GPUs, 4M on CPUs]")] = None,
    iterations: Annotated[
        int | None, Parameter(alias="-n", validator=Number(gte=1), help="Runs per sample. [default: 20, 5 on CPUs]")
    ] = None,
    samples: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="Samples per test; the median counts. [default: 5, 3 on CPUs]"),
    ] = None,
    threshold: Annotated[
        float | None,
        Parameter(
            validator=Number(gte=0.05, lte=0.99),
            help="Fail below this share of the fleet's own. [default: 0.9, 0.5 on CPUs]",
        ),
    ] = None,
    floor: Annotated[
        float | None, Parameter(validator=Number(gte=0), help="What healthy nodes give, GB/s busbw; two nodes need it.")
    ] = None,
    full: Annotated[bool, Parameter(help="Measure every pair (up to 32 units).")] = False,
    burn: Annotated[bool, Parameter(negative="--no-burn", help="First measure each unit on its own.")] = True,
    out: Annotated[Path | None, Parameter(help="Folder for the heat map: CSV, text and SVG.")] = None,
    timeout: Annotated[
        float, Parameter(validator=Number(gte=1), help="Seconds a test may take before it counts as a hang.")
    ] = 120,
    wait: Annotated[float, Parameter(validator=Number(gte=1), help="Seconds to wait for the nodes.")] = 1800,
    seed: Annotated[int, Parameter(help="Who meets whom; with --simulate, the first seed.")] = 0,
    inject_fault: Annotated[
        str | None,
        Parameter(show=False, help="Rehearse a failure: slow-node:1, slow-rail:1.0, hang-node:1 and more."),
    ] = None,
    simulate: Annotated[bool, Parameter(help="No cluster: play against planted faults.")] = False,
    bad: Annotated[int, Parameter(validator=Number(gte=0), help="With --simulate: units at fault.")] = 5,
    fault: Annotated[str, Parameter(help="With --simulate: nic, node, flapping or spine.")] = "nic",
    noise: Annotated[
        float, Parameter(validator=Number(gte=0, lte=0.5), help="With --simulate: noise of a sample.")
    ] = 0.03,
    seeds: Annotated[int, Parameter(validator=Number(gte=1), help="With --simulate: hunts to play.")] = 1000,
    max_tests: Annotated[
        int | None,
        Parameter(validator=Number(gte=1), help="With --simulate: exit with 2 where a hunt takes more tests."),
    ] = None,
    curve: Annotated[bool, Parameter(help="With --simulate: the cost curve to 4,096 nodes.")] = False,
    job: Flat[JobOptions] = JobOptions(),
) -> int:
    """Find the slow node or NIC: groups or pairs side by side, suspects with two known-good partners, rail by rail.

    Exit codes: 0 nobody is accused, 1 error, 2 something is slow, 3 wrong data, 4 no answer within --timeout.
    """
    if simulate:
        from workloads.nccl.hunt.simulation import run

        return run(nodes or 232, bad, fault, noise, seeds, seed, samples or 1, max_tests, curve, out, job.json_file)
    from workloads.client.run import Request
    from workloads.nccl.hunt.request import Options, request

    outputs = running.read_outputs(job)
    spec = request(
        outputs,
        Options(
            nodes=nodes,
            per_node=per_node,
            unit=unit,
            size=size,
            iterations=iterations,
            samples=samples,
            threshold=threshold,
            floor=floor,
            full=full,
            single=burn,
            timeout_s=timeout,
            wait_s=wait,
            seed=seed,
            inject_fault=inject_fault,
        ),
    )
    if out is not None and job.detach:
        raise WorkloadError("--detach does not wait for a result: get it later by `rdma-ray logs ID --json FILE`")
    wanted = Request("hunt", "workloads.nccl.hunt.driver", [spec.to_json()])
    return running.workload(outputs, wanted, job, finish=lambda result: _pictures(result, out))


def _pictures(result: dict[str, Any], out: Path | None) -> None:
    if out is None:
        return
    from workloads.nccl.hunt import heatmap
    from workloads.nccl.hunt.result import HuntResult

    try:
        for file in heatmap.write(HuntResult.model_validate(result), out):
            print(f"written: {file}", file=sys.stderr)
    except OSError as error:
        raise WorkloadError(f"cannot write the heat map to {out}: {error.strerror}", Exit.ERROR) from error
