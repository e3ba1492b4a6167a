"""Results of a hunt: exit codes, evidence, the next step, the heat map; and invalid options."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from infra.outputs import Outputs
from tests.workloads.nccl.hunt_simulator import Fabric, Fault, play, search_options
from tests.workloads.stack_outputs import GKE, outputs
from workloads.exits import Exit, WorkloadError
from workloads.nccl.hunt import report
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import (
    Accused,
    Answer,
    GroupProbe,
    HuntFinding,
    HuntResult,
    HuntVerdict,
    Rail,
    Unit,
    conclude,
    fields_of,
)
from workloads.nccl.hunt.search import hunt


def as_result(verdict: HuntVerdict, count: int, host: str = "node-{}") -> HuntResult:
    units = [
        Unit(
            unit=unit,
            name=f"{host.format(unit)} (10.0.0.{unit})",
            host=host.format(unit),
            ip=f"10.0.0.{unit}",
            machine=str(unit),
            node_id=str(unit),
            gpu=None,
            rails=[Rail(nics=[f"mlx5_{nic}"]) for nic in range(8)],
        )
        for unit in range(count)
    ]
    code, reason = conclude(verdict, units)
    found = fields_of(verdict, units)
    return HuntResult(started=0, finished=1, spec=HuntOptions(), exit_code=int(code), reason=reason, **found)


@pytest.fixture(scope="module")
def found() -> HuntResult:
    """Return a hunt among six nodes; a NIC of node 4 is at 0.6 of its rate."""
    fabric = Fabric([Fault("nic", 4, 0.6, rail=3)], 0.01, 7)
    return as_result(play(6, fabric, search_options(rails=8, full=True)), 6)


def test_verdict_names_node_nic_evidence_and_action(found: HuntResult) -> None:
    assert found.exit_code == Exit.BELOW
    [accused] = found.accused
    assert (accused.name, accused.fault, accused.rails, accused.nics) == ("node-4 (10.0.0.4)", "slow", [3], ["mlx5_3"])
    assert accused.share == pytest.approx(0.6, abs=0.03)
    assert "rail 3 (mlx5_3)" in accused.action
    assert len(accused.partners) >= 2
    for number in accused.tests:
        assert found.tests[number].failed
        assert 4 in found.tests[number].units
    assert found.reason.startswith("node-4 (10.0.0.4) slow on the network")


def failed(share: float | None = None, broken: str | None = None) -> GroupProbe:
    return GroupProbe("pair", (0, 1), "t", share=share, broken=broken, failed=True)  # type: ignore[arg-type]


def accused(fault: str, share: float, unit: int = 0) -> Accused:
    return Accused.of(unit, fault, [failed(share)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (["slow"], Exit.BELOW),
        (["burn"], Exit.BELOW),
        (["unsteady", "hang"], Exit.HANG),
        (["error"], Exit.HANG),
        (["hang", "wrong", "transport"], Exit.WRONG_DATA),
        (["hang", "transport", "slow"], Exit.NOT_AS_ASKED),
        ([], Exit.OK),
    ],
)
def test_most_severe_fault_sets_exit_code(faults: list[str], code: Exit) -> None:
    verdict = HuntVerdict(accused=[accused(fault, 0.5, unit) for unit, fault in enumerate(faults)])
    assert as_result(verdict, 4).exit_code == code


@pytest.mark.parametrize(
    ("kind", "broken", "code"),
    [
        ("undecided", None, Exit.BELOW),
        ("undecided", "hang", Exit.HANG),
        ("undecided", "wrong", Exit.WRONG_DATA),
        ("fabric", None, Exit.BELOW),
        ("fleet", None, Exit.BELOW),
        ("unjudged", None, Exit.BELOW),
        ("transport", None, Exit.NOT_AS_ASKED),
        ("intermittent", None, Exit.OK),
        ("intermittent", "hang", Exit.OK),
        ("intermittent", "wrong", Exit.WRONG_DATA),  # wrong data is a fault, even once
        ("node", None, Exit.OK),
    ],
)
def test_findings_without_accused_unit_set_exit_code(kind: str, broken: str | None, code: Exit) -> None:
    finding = HuntFinding.model_validate({"kind": kind, "units": [0, 1], "tests": [0], "text": "text"})
    found = as_result(HuntVerdict(findings=[finding], tests=[failed(broken=broken)]), 4)
    assert found.exit_code == code
    assert any(part in found.reason for part in ("no unit is accused", "wrong data in one test", kind))


def test_broken_unit_is_isolated_and_slow_unit_drained() -> None:
    units = [accused("slow", 0.8), accused("slow", 0.3, 1), accused("hang", 0.99, 2), accused("wrong", 0.99, 3)]
    found = as_result(HuntVerdict(accused=units), 4).accused
    assert [one.severity for one in found] == ["drain", "isolate", "isolate", "isolate"]
    assert [one.action.split()[0] for one in found] == ["drain", "cordon", "cordon", "cordon"]


def test_csv_has_measured_pairs_only() -> None:
    fabric = Fabric([Fault("node", 2, 0.5)], 0.0, 1)
    result = as_result(play(8, fabric, search_options(rails=2)), 8)
    matrix = list(csv.reader(io.StringIO(report.pairs_csv(result))))
    assert matrix[0] == ["GB/s busbw", *(f"node-{unit} (10.0.0.{unit})" for unit in range(8))]
    met = {tuple(sorted(test.units)) for test in result.tests if test.kind == "pair"}
    assert 0 < len(met) < 28
    for i in range(8):
        for j in range(8):
            text = matrix[i + 1][j + 1]
            assert bool(text) == (tuple(sorted((i, j))) in met)
            assert not text or float(text) == pytest.approx(162.5 if 2 in (i, j) else 325)
    rails = list(csv.DictReader(io.StringIO(report.rails_csv(result))))
    failed = {(row["rail"], row["failed"]) for row in rails if row["unit"].startswith("node-2")}
    assert failed == {("0", "true"), ("1", "true")}


def test_svg_has_cell_per_pair_colored_by_share(found: HuntResult, tmp_path: Path) -> None:
    files = report.write(found, tmp_path / "out")
    assert [file.name for file in files] == ["pairs.csv", "rails.csv", "pairs.txt", "pairs.svg"]
    cells = {
        cell.attrib["id"]: re.findall(r"fill: (#\w+)", cell[0].attrib["style"])[0]
        for cell in ElementTree.fromstring(files[-1].read_text()).iter("{http://www.w3.org/2000/svg}g")
        if cell.attrib.get("id", "").startswith("pair-")
    }
    assert len(cells) == 36
    red = {pair for pair, color in cells.items() if color in ("#b2182b", "#ef8a62")}
    assert red == {f"pair-{a}-{b}" for a in range(6) for b in range(6) if a != b and 4 in (a, b)}
    assert cells["pair-0-0"] == report.EMPTY
    assert cells["pair-0-1"] not in (report.EMPTY, *red)


def test_broken_pair_is_named_and_names_are_escaped() -> None:
    hang, good, options = Answer(broken="hang"), Answer((5.0,)), search_options(nodes=4, single=False)
    found = hunt(options, lambda tests: [hang if 1 in test.units else good for test in tests])
    result = as_result(found, 4, "<node-{}>")
    assert "hang" in report.pairs_csv(result)
    assert "hang" in report.as_text(result).plain
    assert report.BROKEN.encode() in report.as_svg(result)
    assert b"<node-1>" not in report.as_svg(result)


def test_options_resolve_against_stack_outputs() -> None:
    request = HuntOptions().resolve(outputs(most=4))
    assert (request.nodes, request.per_node, request.units, request.rails, request.threshold) == (2, 2, 2, 2, 0.5)
    assert HuntOptions.from_json(request.to_json()) == request
    assert (request.transport, request.nics) == (None, None)
    gke = HuntOptions().resolve(Outputs.model_validate(GKE))
    assert (gke.transport, gke.nics) == ("gib", 8)
    ranks = HuntOptions(unit="rank", nodes=4).resolve(outputs(most=4))
    assert (ranks.units, ranks.rails) == (8, 1)
    assert request.world == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (HuntOptions(nodes=5), "--nodes 5"),
        (HuntOptions(per_node=3), "--per-node 3"),
        (HuntOptions(nodes=1), "has nothing to be compared with"),
        (HuntOptions(size="big"), "--size"),
    ],
)
def test_invalid_option_is_named(options: HuntOptions, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        options.resolve(outputs(most=4))
