"""The hunt's driver: runs on the cluster as a Ray job, forms the crew, runs round after round, prints the result.

python -m workloads.nccl.hunt.driver SPEC_JSON
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.driver import ONE_HOST
from workloads.nccl.hunt.crew import Crew
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.plan import Verdict
from workloads.nccl.hunt.result import HuntResult, Unit
from workloads.nccl.hunt.search import hunt


def main(text: str) -> int:
    """Run the spec; the process's exit code."""
    spec = HuntOptions.model_validate_json(text)
    ray.init(logging_level=logging.WARNING)
    started = time.time()
    result = HuntResult(
        started=started,
        finished=started,
        spec=spec,
        exit_code=Exit.ERROR,
        reason="",
        injected_fault=spec.inject_fault,
    )
    crew = Crew(spec, on_event=emit)
    try:
        with crew:
            result = result.model_copy(update=describe(crew))
            began = time.monotonic()
            result = result.concluded(search(spec, crew), units(crew))
            seconds = crew.seconds | {"search": round(time.monotonic() - began, 3)}
            result = result.model_copy(update={"seconds": seconds})
    except WorkloadError as error:
        result = result.model_copy(update={"exit_code": int(error.code), "reason": str(error)})
    except (RayTaskError, RayActorError) as error:
        reason = f"a rank failed outside of a test: {last_line(error)}"
        result = result.model_copy(update={"exit_code": int(Exit.ERROR), "reason": reason})
    result = result.model_copy(update={"finished": time.time()})
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return result.exit_code


def search(spec: HuntOptions, crew: Crew) -> Verdict:
    """Play the search against the crew."""
    steps = hunt(spec.units, spec.settings)
    try:
        tests = next(steps)
        while True:
            stages = sorted({probe.stage for probe in tests})
            emit("round", stages=stages, kind_of=tests[0].kind, tests=len(tests), units=tests[0].units)
            tests = steps.send(crew.answer(tests))
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict


def units(crew: Crew) -> list[Unit]:
    """Who can be accused, by name: the node's host and address, and the rank or GPU where units are ranks."""
    rails = crew.hunt.rails
    found = []
    for unit in range(crew.hunt.units):
        member = crew.members[unit * rails]
        name = f"{member.host} ({member.ip})"
        if crew.hunt.unit == "rank":
            name = f"rank {unit} on {name}" + (f", GPU {member.gpu}" if member.gpu is not None else "")
        found.append(
            Unit(
                unit=unit,
                name=name,
                host=member.host,
                ip=member.ip,
                machine=member.machine,
                node_id=member.node_id,
                gpu=member.gpu if crew.hunt.unit == "rank" else None,
                nics=crew.nics[unit * rails],
            )
        )
    return found


def describe(crew: Crew) -> dict[str, Any]:
    """What the hunt ran on, and what its figures may be taken for."""
    spec = crew.hunt
    notice = None
    if not crew.fabric:
        notice = ONE_HOST if crew.machines == 1 else f"{spec.nodes} nodes on only {crew.machines} machines"
    return {
        "backend": "nccl" if spec.use_gpu else "gloo",
        "proves": "fabric" if crew.fabric else "function",
        "notice": notice,
        "versions": crew.call("versions", what="asking for versions")[0],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
