"""Result of a hunt: the driver writes it on the cluster; the client shows and draws it.

Bandwidths in GB/s busbw (decimal), burns in TFLOP/s. A field that does not apply is None, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from workloads.exits import Exit
from workloads.nccl.hunt import plan
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.plan import Broken, Fault, Finding, Kind, Severity, Verdict
from workloads.nccl.result import NcclResult
from workloads.results import Part

SCHEMA = "rdma-ray/hunt/1"
ISOLATE_BELOW = 0.5  # share of the reference below which a unit slows every job that uses it

FAULTS: dict[Fault, str] = {
    "slow": "slow on the network",
    "unsteady": "slow on the network from time to time",
    "hang": "does not answer in time",
    "wrong": "delivers wrong data",
    "error": "breaks the tests that it is in",
    "burn": "computes too slowly",
    "intra": "slow among its own ranks",
}


class Unit(Part):
    """Unit that a hunt can accuse: a node with its ranks, or one rank. `nics` are the RDMA devices of its node."""

    unit: int
    name: str
    host: str
    ip: str
    machine: str
    node_id: str
    gpu: str | None
    nics: list[str]

    def nic(self, rail: int) -> str | None:
        """Return the rail's RDMA device; None unless the node has 8 or 16 devices, whose order is that of the rails."""
        return self.nics[rail] if rail < len(self.nics) and len(self.nics) in (8, 16) else None


class Test(Part):
    """One test of one process group; `share` is the median of `samples` over `reference`, and fails below `limit`."""

    number: int
    round: int
    kind: Kind
    stage: str
    units: list[int]
    rail: int | None
    shifted: bool
    alone: bool
    samples: list[float]
    value: float | None
    reference: float | None
    share: float | None
    limit: float | None
    failed: bool | None
    unsteady: bool
    broken: Broken | None
    detail: str


class Accused(Part):
    """An accused unit. `tests` are the numbers of the tests against it, `partners` the other units in them."""

    unit: int
    name: str
    fault: Fault
    severity: Severity
    share: float | None
    rails: list[int] | None
    nics: list[str]
    tests: list[int]
    partners: list[list[int]]
    text: str
    action: str


class HuntResult(NcclResult):
    """A whole hunt."""

    schema_: str = SCHEMA
    spec: HuntOptions
    units: list[Unit] = Field(default_factory=list)
    tests: list[Test] = Field(default_factory=list)
    accused: list[Accused] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list)
    network_tests: int = 0
    rail_tests: int = 0
    rounds: int = 0
    proves: Literal["fabric", "function"] | None = None
    seconds: dict[str, float] | None = None


def fields_of(verdict: Verdict, units: Sequence[Unit]) -> dict[str, Any]:
    """Return the fields of a HuntResult that come from a search's verdict."""
    return {
        "units": list(units),
        "tests": [_test(outcome) for outcome in verdict.outcomes],
        "accused": [_accused(one, units[one.unit]) for one in verdict.accused],
        "findings": verdict.findings,
        "network_tests": verdict.tests,
        "rail_tests": verdict.rail_tests,
        "rounds": verdict.rounds,
    }


def conclude(verdict: Verdict, units: Sequence[Unit]) -> tuple[Exit, str]:
    """Return exit code and reason. The most severe fault decides: wrong data, then a hang, then slow units."""
    names = [unit.name for unit in units]
    cost = f"{verdict.tests} tests in {verdict.rounds} rounds"
    if verdict.clean:
        remark = f", {len(verdict.findings)} that failed once and not again" if verdict.findings else ""
        return Exit.OK, f"no unit is accused: {len(names)} units, {cost}{remark}"
    parts = [f"{names[one.unit]} {FAULTS[one.fault]}" for one in verdict.accused]
    parts += [
        f"{finding.kind}: {', '.join(names[unit] for unit in finding.units[:4]) or 'the whole fleet'}"
        for finding in verdict.findings
        if finding.kind != "intermittent"
    ]
    undecided = {number for finding in verdict.findings if finding.kind == "undecided" for number in finding.tests}
    faults: set[str | None] = {one.fault for one in verdict.accused}
    faults |= {outcome.broken for outcome in verdict.outcomes if outcome.number in undecided}
    code = Exit.WRONG_DATA if "wrong" in faults else Exit.HANG if faults & {"hang", "error"} else Exit.BELOW
    return code, f"{'; '.join(parts)} ({cost})"


def severity(accused: plan.Accused) -> Severity:
    """Return `isolate` for a unit that no job may use, `drain` for one whose jobs may finish."""
    if accused.fault in ("wrong", "hang", "error") or (accused.share is not None and accused.share < ISOLATE_BELOW):
        return "isolate"
    return "drain"


def _action(accused: plan.Accused, unit: Unit) -> str:
    """Return the next step for the operator of the cluster."""
    first = "cordon it now" if severity(accused) == "isolate" else "drain it"
    match accused.fault:
        case "burn":
            then = "look for throttling and ECC errors (nvidia-smi -q -d PERFORMANCE,ECC), then replace it"
        case "intra":
            then = "check NVLink (nvidia-smi nvlink -s) and the PCIe topology (nvidia-smi topo -m), then replace it"
        case _ if accused.rails:
            rails = ", ".join(f"{rail} ({nic})" if (nic := unit.nic(rail)) else str(rail) for rail in accused.rails)
            then = f"check link, cable and error counters of rail {rails}, then replace the node"
        case _ if accused.rails == []:
            then = (
                "each rail alone is healthy: check PCIe (lspci -vv, link width), IOMMU and ACS, then replace the node"
            )
        case _:
            then = "check its NICs' links and error counters and its driver's log, then replace it"
    return f"{first}; {then}"


def _accused(one: plan.Accused, unit: Unit) -> Accused:
    return Accused(
        unit=one.unit,
        name=unit.name,
        fault=one.fault,
        severity=severity(one),
        share=None if one.share is None else round(one.share, 4),
        rails=one.rails,
        nics=[nic for rail in one.rails or [] if (nic := unit.nic(rail))],
        tests=[outcome.number for outcome in one.evidence],
        partners=[list(partners) for partners in one.partners if partners],
        text=FAULTS[one.fault],
        action=_action(one, unit),
    )


def _test(outcome: plan.Outcome) -> Test:
    probe = outcome.probe
    return Test(
        number=outcome.number,
        round=outcome.round,
        kind=probe.kind,
        stage=probe.stage,
        units=list(probe.units),
        rail=probe.rail,
        shifted=probe.shifted,
        alone=outcome.alone,
        samples=[_rounded(sample) for sample in outcome.samples],
        value=None if outcome.value is None else _rounded(outcome.value),
        reference=None if outcome.reference is None else _rounded(outcome.reference),
        share=None if outcome.share is None else round(outcome.share, 4),
        limit=outcome.limit or None,
        failed=outcome.failed,
        unsteady=outcome.unsteady,
        broken=outcome.broken,
        detail=outcome.detail,
    )


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
