"""Driver of a hunt: runs on the cluster as a Ray job, forms the gang, runs round after round, prints the result.

python -m workloads.nccl.hunt.driver OPTIONS_JSON
"""

from __future__ import annotations

import sys
import time
from typing import Any

from workloads.events import emit
from workloads.exits import Exit
from workloads.nccl.driver import describe, run
from workloads.nccl.hunt.gang import HuntGang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Answer, HuntResult, Round, Unit, conclude, fields_of
from workloads.nccl.hunt.search import play

DESCRIBED = ("backend", "proves", "notice", "versions")


def main(text: str) -> int:
    """Run the hunt with these options, and return the process's exit code."""
    options = HuntOptions.from_json(text)
    gang = HuntGang(options, emit)

    def answer(tests: Round) -> list[Answer]:
        stages = sorted({probe.stage for probe in tests})
        emit("round", stages=stages, kind_of=tests[0].kind, tests=len(tests), units=tests[0].units)
        return gang.answer(tests)

    def measure(found: dict[str, Any]) -> tuple[Exit, str]:
        with gang:
            described = describe(gang)
            found |= {name: described[name] for name in DESCRIBED}
            began = time.monotonic()
            verdict, units = play(options.units, options.settings, answer), units_of(gang)
            found |= fields_of(verdict, units)
            found["seconds"] = gang.seconds | {"search": round(time.monotonic() - began, 3)}
        return conclude(verdict, units)

    def result(**found: Any) -> HuntResult:
        return HuntResult(spec=options, injected_fault=options.inject_fault, **found)

    return run(measure, result)


def units_of(gang: HuntGang) -> list[Unit]:
    """Return the units, each named by its node's host and address, and by rank and GPU if units are ranks."""
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
