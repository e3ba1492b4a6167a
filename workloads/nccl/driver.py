"""The benchmark's driver: runs on the cluster as a Ray job, forms the gang, measures every row, prints the result.

python -m workloads.nccl.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.bandwidth import REDUCTIONS
from workloads.nccl.gang import Gang
from workloads.nccl.limits import Limits, guarded
from workloads.nccl.loop import Measurement
from workloads.nccl.operation import Operation, Place
from workloads.nccl.operations import selected
from workloads.nccl.result import Member, Result, Row, World
from workloads.nccl.rows import summarise
from workloads.nccl.sizes import format_size
from workloads.nccl.spec import Spec

ONE_HOST = "all ranks on one host: a functional proof, not a fabric measurement"


def main(text: str) -> int:
    """Run the spec; the process's exit code."""
    spec = Spec.from_json(text)
    ray.init(logging_level=logging.WARNING)
    started = time.time()
    found: dict[str, Any] = {}
    rows: list[Row] = []
    gang = Gang(spec, on_event=emit)
    try:
        with gang:
            found |= describe(gang)
            began = time.monotonic()
            for row in measure_all(spec, gang):
                rows.append(row)
                emit("row", **row.model_dump(mode="json", exclude={"ranks", "pairs"}))
            found["seconds"] = gang.seconds | {"sweep": round(time.monotonic() - began, 3)}
        code, reason = conclude(rows)
    except WorkloadError as error:
        code, reason = error.code, str(error)
    except (RayTaskError, RayActorError) as error:
        # The rank's own traceback has been printed where it happened; here its last line is the reason.
        code, reason = Exit.ERROR, f"a rank failed: {last_line(error)}"
    measured = Result(
        started=started,
        finished=time.time(),
        spec=asdict(spec),
        exit_code=int(code),
        reason=reason,
        rows=rows,
        evidence=gang.evidence,
        injected_fault=spec.inject_fault,
        **found,
    )
    result = guarded(measured)
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return result.exit_code


def describe(gang: Gang) -> dict[str, Any]:
    """What was measured on: versions, placement, environment, and what the figures may be taken for."""
    spec = gang.spec
    notice = None
    if not gang.fabric:
        notice = ONE_HOST if gang.machines == 1 else f"{spec.nodes} nodes on only {gang.machines} machines"
    environments = gang.call("environment", what="asking for the environment")
    return {
        "backend": "nccl" if spec.use_gpu else "gloo",
        "world": World(nodes=spec.nodes, per_node=spec.per_node, ranks=len(gang.actors), machines=gang.machines),
        "proves": "fabric" if gang.fabric else "function",
        "notice": notice,
        "versions": gang.call("versions", what="asking for versions")[0],
        "environment": environments[0],
        # Ranks that were told something else than rank 0 are the first suspects of a slow run.
        "environment_differs_on": [rank for rank, found in enumerate(environments) if found != environments[0]],
        "ranks": [Member.model_validate(member) for member in gang.members],
    }


def measure_all(spec: Spec, gang: Gang) -> Iterator[Row]:
    """Every row of the sweep, as it is measured."""
    place = Place(0, len(gang.actors), spec.per_node)
    limits = Limits(**spec.limits) if spec.limits else None
    todo = list(plan(spec, place))
    emit("plan", rows=len(todo), ranks=len(gang.actors))
    for operation, asked in todo:
        name = f"{operation.op} {operation.variant or ''}".strip()
        what = f"{name} {format_size(asked.size)} {asked.dtype} in {asked.mode} mode"
        answers = gang.call("measure", asked, what=what)
        yield summarise(operation, asked, answers, place, fabric=gang.fabric, limits=limits)


def plan(spec: Spec, place: Place) -> Iterator[tuple[type[Operation], Measurement]]:
    """Every row to come, in order. Sums of uint8 are not among them: the request says what was left out."""
    for index, operation in selected(spec.ops, spec.patterns, place):
        for mode in spec.modes:
            for dtype in spec.dtypes:
                if dtype == "uint8" and operation.op in REDUCTIONS:
                    continue
                for size in spec.sizes:
                    yield (
                        operation,
                        Measurement(
                            op=operation.op,
                            index=index,
                            size=size,
                            dtype=dtype,
                            mode=mode,
                            iterations=spec.iterations,
                            warmup=spec.warmup,
                            check=spec.check,
                        ),
                    )


def conclude(rows: Sequence[Row]) -> tuple[Exit, str]:
    """The verdict over all rows: only wrong data fails a run that has no baseline to meet."""
    bad = [row for row in rows if row.wrong]
    if bad:
        first = bad[0]
        where = f"{first.op} at {format_size(first.size)} ({first.wrong} elements)"
        return Exit.WRONG_DATA, (
            f"wrong data in {len(bad)} of {len(rows)} rows, first in {where}:"
            " the figures of this run mean nothing until that is found"
        )
    if unchecked := sum(row.wrong is None for row in rows):
        return Exit.OK, f"{len(rows)} rows, the data of {unchecked} of them not checked"
    return Exit.OK, f"{len(rows)} rows, every element right"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
