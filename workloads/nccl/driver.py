"""The benchmark's driver: runs on the cluster as a Ray job, forms the gang, measures every row, prints the result.

python -m workloads.nccl.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError
from workloads.nccl.bandwidth import algbw, busbw
from workloads.nccl.gang import Gang
from workloads.nccl.operations import OPERATIONS
from workloads.nccl.points import SendReceive
from workloads.nccl.sizes import format_size
from workloads.nccl.spec import Spec

SCHEMA = "rdma-ray/nccl/1"
ONE_HOST = "all ranks on one host: a functional proof, not a fabric measurement"


def main(text: str) -> int:
    """Run the spec; the process's exit code."""
    spec = Spec.from_json(text)
    ray.init(logging_level=logging.WARNING)
    result: dict[str, Any] = {"schema": SCHEMA, "started": time.time(), "spec": vars(spec), "rows": []}
    try:
        with Gang(spec, on_phase=lambda name: emit("phase", name=name)) as gang:
            result |= describe(gang)
            began = time.monotonic()
            for row in measure_all(spec, gang):
                result["rows"].append(row)
                emit("row", **{key: value for key, value in row.items() if key != "ranks"})
            result["seconds"] = gang.seconds | {"sweep": round(time.monotonic() - began, 3)}
        code, reason = judge(result["rows"])
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except (RayTaskError, RayActorError) as error:
        # The rank's own traceback has been printed where it happened; here its last line is the reason.
        code, reason = Exit.ERROR, f"a rank failed: {str(error).strip().splitlines()[-1]}"
    result |= {"finished": time.time(), "exit_code": int(code), "reason": reason}
    emit("result", result=result)
    return code


def describe(gang: Gang) -> dict[str, Any]:
    """What was measured on: versions, placement, environment, and what the figures may be taken for."""
    spec = gang.spec
    # Pods of one machine have their own host names and addresses; only different kernels make a network.
    fabric = spec.nodes > 1 and gang.machines == spec.nodes
    notice = None
    if not fabric:
        notice = ONE_HOST if gang.machines == 1 else f"{spec.nodes} nodes on only {gang.machines} machines"
    environments = gang.call("environment", what="asking for the environment")
    return {
        "backend": "nccl" if spec.use_gpu else "gloo",
        "world": {"nodes": spec.nodes, "per_node": spec.per_node, "ranks": len(gang.actors), "machines": gang.machines},
        "proves": "fabric" if fabric else "function",
        "notice": notice,
        "versions": gang.call("versions", what="asking for versions")[0],
        "environment": environments[0],
        # Ranks that were told something else than rank 0 are the first suspects of a slow run.
        "environment_differs_on": [rank for rank, found in enumerate(environments) if found != environments[0]],
        "ranks": gang.members,
        "injected_fault": spec.inject_fault,
    }


def measure_all(spec: Spec, gang: Gang) -> Any:
    """Every row of the sweep, as it is measured."""
    emit("plan", rows=len(spec.sizes) * sum(len(OPERATIONS[op]) for op in spec.ops), ranks=len(gang.actors))
    for op in spec.ops:
        for index, operation in enumerate(OPERATIONS[op]):
            for size in spec.sizes:
                name = f"{op} {operation.variant or ''}".strip()
                answers = gang.call(
                    "measure",
                    op,
                    index,
                    size,
                    spec.dtype,
                    spec.iterations,
                    spec.warmup,
                    what=f"{name} {format_size(size)}",
                )
                yield summarise(op, operation.variant, operation.algorithm, answers)


def summarise(op: str, variant: str | None, algorithm: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """One row from all ranks' answers: times in µs, bandwidths in GB/s (decimal), by the slowest rank."""
    active = [answer for answer in answers if answer["takes_part"]]
    times = [answer["time"] for answer in active]
    slowest = max(active, key=lambda answer: answer["time"])
    size = slowest["size"]
    row = {
        "op": op,
        "variant": variant,
        "algorithm": algorithm,
        "size": size,
        "count": slowest["count"],
        "time_us": {"max": micro(max(times)), "avg": micro(sum(times) / len(times)), "min": micro(min(times))},
        "iteration_us": {key: micro(slowest[key]) for key in ("p50", "p95", "p99")},
        "algbw": round(algbw(size, max(times)), 6),
        "busbw": round(busbw(op, size, max(times), len(answers)), 6),
        "wrong": sum(answer["wrong"] for answer in answers),
        "warnings": [
            f"rank {rank}: device clock {micro(answer['time'])} µs, wall clock {micro(answer['wall'])} µs"
            for rank, answer in enumerate(answers)
            if answer["clocks_disagree"]
        ],
        "ranks": [
            {"rank": rank, "time_us": micro(answer["time"]), "wrong": answer["wrong"]}
            for rank, answer in enumerate(answers)
            if answer["takes_part"]
        ],
    }
    if op == SendReceive.op:
        # All pairs run at once, so that their sum is what crosses between the two sides.
        pairs = len(active) // 2
        row["pairs"] = pairs
        row["total"] = round(pairs * (2 if variant == "duplex" else 1) * algbw(size, max(times)), 6)
    return row


def judge(rows: list[dict[str, Any]]) -> tuple[Exit, str]:
    """The verdict over all rows: only wrong data fails a run that has no baseline to meet."""
    bad = [row for row in rows if row["wrong"]]
    if bad:
        first = bad[0]
        where = f"{first['op']} at {format_size(first['size'])} ({first['wrong']} elements)"
        return Exit.WRONG_DATA, (
            f"wrong data in {len(bad)} of {len(rows)} rows, first in {where}:"
            " the figures of this run mean nothing until that is found"
        )
    return Exit.OK, f"{len(rows)} rows, every element right"


def micro(seconds: float) -> float:
    return round(seconds * 1e6, 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
