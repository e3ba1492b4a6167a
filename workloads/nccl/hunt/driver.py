"""Driver of a hunt: runs on the cluster as a Ray job, forms the gang, runs round after round, prints the result.

python -m workloads.nccl.hunt.driver OPTIONS_JSON
"""

from __future__ import annotations

import logging
import sys
import time

import ray
from ray.exceptions import RayActorError, RayTaskError

from workloads.events import emit
from workloads.exits import Exit, WorkloadError, last_line
from workloads.nccl.driver import describe
from workloads.nccl.hunt.gang import HuntGang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.plan import Answer, Round
from workloads.nccl.hunt.result import HuntResult, Unit
from workloads.nccl.hunt.search import play

DESCRIBED = ("backend", "proves", "notice", "versions")


def main(text: str) -> int:
    """Run the hunt with these options, and return the process's exit code."""
    options = HuntOptions.from_json(text)
    ray.init(logging_level=logging.WARNING)
    now = time.time()
    result = HuntResult(
        started=now, finished=now, spec=options, exit_code=0, reason="", injected_fault=options.inject_fault
    )
    gang = HuntGang(options, emit)

    def answer(tests: Round) -> list[Answer]:
        stages = sorted({probe.stage for probe in tests})
        emit("round", stages=stages, kind_of=tests[0].kind, tests=len(tests), units=tests[0].units)
        return gang.answer(tests)

    try:
        with gang:
            described = describe(gang)
            result = result.model_copy(update={name: described[name] for name in DESCRIBED})
            began = time.monotonic()
            result = result.concluded(play(options.units, options.settings, answer), units(gang))
            seconds = gang.seconds | {"search": round(time.monotonic() - began, 3)}
            result = result.model_copy(update={"seconds": seconds})
    except WorkloadError as error:
        result = result.model_copy(update={"exit_code": int(error.code), "reason": str(error)})
    except (RayTaskError, RayActorError) as error:
        reason = f"a rank failed outside of a test: {last_line(error)}"
        result = result.model_copy(update={"exit_code": int(Exit.ERROR), "reason": reason})
    result = result.model_copy(update={"finished": time.time()})
    emit("result", result=result.model_dump(mode="json", by_alias=True))
    return result.exit_code


def units(gang: HuntGang) -> list[Unit]:
    """Return what can be accused, with names: host and address of the node, and the rank or GPU if units are ranks."""
    rails, by_rank = gang.options.rails, gang.options.unit == "rank"
    found = []
    for unit, member in enumerate(gang.members[::rails]):
        name = f"{member.host} ({member.ip})"
        if by_rank:
            name = f"rank {unit} on {name}" + (f", GPU {member.gpu}" if member.gpu is not None else "")
        place = member.model_dump(include={"host", "ip", "machine", "node_id"})
        gpu = member.gpu if by_rank else None
        found.append(Unit(unit=unit, name=name, gpu=gpu, nics=gang.nics[unit * rails], **place))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
