"""The check's driver: runs on the cluster as a Ray job, places a worker per node, reduces, looks at every element.

python -m workloads.nccl.multigpu.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.multigpu.spec import Spec, parse_fault
from workloads.nccl.multigpu.values import ELEMENTS, count_wrong, expected
from workloads.nccl.multigpu.workers import Workers

SCHEMA = "rdma-ray/multigpu/1"
RAN = {
    "nccl": "ray.util.collective.allreduce_multigpu over NCCL, with one tensor on each GPU",
    "gloo": "ray.util.collective.allreduce over gloo between the nodes; each worker added up its own tensors",
}


def main(text: str) -> int:
    """Run the spec; the process's exit code."""
    spec = Spec.from_json(text)
    ray.init(logging_level=logging.WARNING)
    result: dict[str, Any] = {"schema": SCHEMA, "started": time.time(), "spec": asdict(spec), "workers": []}
    try:
        with Workers(spec) as workers:
            result |= check(spec, workers)
        code, reason = judge(spec, result["workers"], result["backend"])
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except (RayTaskError, RayActorError) as error:
        code, reason = Exit.ERROR, f"a worker failed: {last_line(error)}"
    result |= {"finished": time.time(), "exit_code": int(code), "reason": reason}
    emit("result", result=result)
    return code


def check(spec: Spec, workers: Workers) -> dict[str, Any]:
    """Form the group, reduce, read, destroy the group; everything that the result says of it."""
    backend, notice = choose(spec, workers.members)
    group = f"multigpu-{secrets.token_hex(4)}"  # of this run alone: a name that an earlier run left would be met again
    # The workers' own patience is longer, so that this side's decides and names who is silent.
    patience = spec.timeout_s + 30
    emit("phase", name="rendezvous")
    workers.call(
        "join",
        [(backend, spec.nodes, rank, group, member["ip"], patience) for rank, member in enumerate(workers.members)],
    )
    emit("phase", name="reduce")
    tensors = workers.call("allreduce_multigpu" if backend == "nccl" else "allreduce_over_nodes")
    if (spoiled := parse_fault(spec.inject_fault, spec.nodes)) is not None:
        tensors[spoiled][-1]["values"][-1] += 1
    logs = workers.call("log") if backend == "nccl" else [None] * spec.nodes
    destroyed = workers.call("leave")
    value = expected(spec.nodes, spec.devices)
    return {
        "backend": backend,
        "ran": RAN[backend],
        "notice": notice,
        "machines": len({member["machine"] for member in workers.members}),
        "expected": value,
        "versions": workers.call("versions")[0],
        "group": group,
        "injected_fault": spec.inject_fault,
        "workers": [
            member
            | {
                "rank": rank,
                "tensors": tensors[rank],
                "wrong": count_wrong([tensor["values"] for tensor in tensors[rank]], value),
                "log": logs[rank],
                "group_destroyed": destroyed[rank],
            }
            for rank, member in enumerate(workers.members)
        ],
    }


def choose(spec: Spec, members: Sequence[dict[str, Any]]) -> tuple[str, str | None]:
    """(`nccl` or `gloo`, what was therefore not tested). WorkloadError where NCCL was asked for and cannot be had."""
    if spec.backend == "gloo":
        return "gloo", "gloo was asked for: neither NCCL nor a GPU took part"
    missing = [f"{member['host']} ({member['ip']}): {member['no_nccl']}" for member in members if member["no_nccl"]]
    if not missing:
        return "nccl", None
    where = "\n".join(f"  {line}" for line in missing)
    fix = "install cupy-cuda12x or cupy-cuda13x, after the image's CUDA, into the image that ray.image names"
    if spec.backend == "nccl":
        raise WorkloadError(f"--backend nccl: allreduce_multigpu cannot run on\n{where}\n{fix}")
    if not spec.use_gpu:
        return "gloo", "the nodes have no GPUs: the same numbers over gloo; neither NCCL nor a GPU was tested"
    return "gloo", f"allreduce_multigpu was NOT tested, the same numbers over gloo instead:\n{where}\n{fix}"


def judge(spec: Spec, workers: Sequence[dict[str, Any]], backend: str) -> tuple[Exit, str]:
    """Right where every element of every tensor on every worker is the expected value."""
    value = expected(spec.nodes, spec.devices)
    elements = spec.nodes * spec.devices * ELEMENTS
    if len(workers) != spec.nodes or any(len(worker["tensors"]) != spec.devices for worker in workers):
        return Exit.ERROR, f"not every tensor was read: {spec.nodes} workers of {spec.devices} were asked for"
    if wrong := sum(worker["wrong"] for worker in workers):
        ranks = ", ".join(str(worker["rank"]) for worker in workers if worker["wrong"])
        return Exit.WRONG_DATA, f"{wrong} of {elements} elements are not {value:g}, on worker {ranks} ({backend})"
    if not all(worker["group_destroyed"] for worker in workers):
        return Exit.ERROR, "every element is right, but a worker could not destroy its group"
    return Exit.OK, f"{value:g} everywhere: {elements} elements of {spec.nodes * spec.devices} tensors ({backend})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
