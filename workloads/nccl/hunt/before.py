"""Short hunt on the nodes of a run before its ranks start: `rdma-ray run --check`."""

from __future__ import annotations

import time
from collections.abc import Callable

from workloads.exits import WorkloadError
from workloads.gang.placement import Reservation
from workloads.nccl.hunt.driver import HuntGang
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import conclude
from workloads.nccl.hunt.search import hunt
from workloads.nccl.hunt.transport import judged
from workloads.results.events import handled


def check_nodes(request: str, reserved: Reservation, note: Callable[[str], None]) -> None:
    """Test the reserved nodes in pairs. WorkloadError names a node that is slow, silent, wrong or not on its fabric."""
    options, began = HuntOptions.from_json(request), time.monotonic()
    gang = HuntGang(options, reserved)
    # Its events are those of `bench hunt`, which the view of a run does not show.
    with handled(lambda _: None), gang:
        units, verdict = gang.units(), hunt(options, gang.answer)
    verdict = judged(verdict, options, gang.evidence, gang.gone)
    # Two nodes alone have no reference: what remains is whether they answer, with what data, on which path.
    findings = [finding for finding in verdict.findings if finding.kind != "unjudged"]
    code, reason = conclude(verdict.model_copy(update={"findings": findings}), units)
    if code:
        # Which of two nodes is at fault stays undecided; how their test broke says more.
        broken = next((f": {test.broken}: {test.detail}" for test in verdict.tests if test.broken), "")
        raise WorkloadError(f"--check: {reason}{broken}\nnothing was started; `rdma-ray bench hunt` shows more", code)
    note(f"checked {options.nodes} nodes in {time.monotonic() - began:.1f} s: {reason}")
