"""Results of a hunt: exit codes, evidence, the next step, the heat map; and invalid options."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from rich.console import Console

from infra.catalog.pins import RAY
from infra.outputs import Outputs
from tests.workloads.hunt_simulator import Fabric, Fault, play, search_options
from workloads.cli import main
from workloads.exits import Exit, WorkloadError
from workloads.nccl.hunt import report
from workloads.nccl.hunt.options import HuntOptions
from workloads.nccl.hunt.result import Accused, Answer, Finding, HuntResult, Probe, Unit, Verdict, conclude, fields_of


def units(count: int, nics: int = 8) -> list[Unit]:
    return [
        Unit(
            unit=unit,
            name=f"node-{unit} (10.0.0.{unit})",
            host=f"node-{unit}",
            ip=f"10.0.0.{unit}",
            machine=str(unit),
            node_id=str(unit),
            gpu=None,
            nics=[f"mlx5_{nic}" for nic in range(nics)],
        )
        for unit in range(count)
    ]


EMPTY = HuntResult(started=0, finished=1, spec=HuntOptions(), exit_code=1, reason="no room")


def concluded(verdict: Verdict, units: list[Unit]) -> HuntResult:
    code, reason = conclude(verdict, units)
    found = fields_of(verdict, units)
    return HuntResult(started=0, finished=1, spec=HuntOptions(), exit_code=int(code), reason=reason, **found)


def as_result(verdict: Verdict, count: int) -> HuntResult:
    return concluded(verdict, units(count))


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


def test_result_round_trips_through_json(found: HuntResult) -> None:
    text = found.model_dump_json(by_alias=True)
    assert '"schema":"rdma-ray/hunt/1"' in text
    assert HuntResult.model_validate_json(text).model_dump_json(by_alias=True) == text


def test_terminal_shows_accused_unit_and_evidence(found: HuntResult) -> None:
    console = Console(record=True, width=100, file=io.StringIO())
    report.show(found, console)
    output = console.export_text()
    assert "ACCUSED unit 4, node-4 (10.0.0.4): slow on the network" in output
    assert "nothing else running" in output
    assert "slow rails: 3" in output
    assert "next: drain it; check link, cable and error counters of rail 3 (mlx5_3)" in output


def failed(share: float | None = None, broken: str | None = None) -> Probe:
    return Probe("pair", (0, 1), "t", share=share, broken=broken, failed=True)  # type: ignore[arg-type]


def accused(fault: str, share: float, unit: int = 0) -> Accused:
    return Accused.of(unit, fault, [failed(share)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        (["slow"], Exit.BELOW),
        (["burn"], Exit.BELOW),
        (["unsteady", "hang"], Exit.HANG),
        (["error"], Exit.HANG),
        (["hang", "wrong", "slow"], Exit.WRONG_DATA),
        ([], Exit.OK),
    ],
)
def test_most_severe_fault_sets_exit_code(faults: list[str], code: Exit) -> None:
    verdict = Verdict(accused=[accused(fault, 0.5, unit) for unit, fault in enumerate(faults)])
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
        ("intermittent", None, Exit.OK),
    ],
)
def test_findings_without_accused_unit_set_exit_code(kind: str, broken: str | None, code: Exit) -> None:
    finding = Finding.model_validate({"kind": kind, "units": [0, 1], "tests": [0], "text": "text"})
    found = as_result(Verdict(findings=[finding], tests=[failed(broken=broken)]), 4)
    assert found.exit_code == code
    assert "no unit is accused" in found.reason or kind in found.reason


def test_broken_unit_is_isolated_and_slow_unit_drained() -> None:
    def severity(fault: str, share: float) -> str:
        [one] = as_result(Verdict(accused=[accused(fault, share)]), 2).accused
        assert one.action.startswith("cordon" if one.severity == "isolate" else "drain")
        return one.severity

    assert severity("slow", 0.8) == "drain"
    assert severity("slow", 0.3) == "isolate"
    assert severity("hang", 0.99) == "isolate"
    assert severity("wrong", 0.99) == "isolate"


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
    assert {(row["rail"], row["failed"]) for row in rails if row["unit"].startswith("node-2")} == {
        ("0", "true"),
        ("1", "true"),
    }


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
    class Hanging(Fabric):
        def answer(self, tests):  # type: ignore[no-untyped-def]
            return [Answer(broken="hang", detail="x") if 1 in probe.units else Answer((5.0,)) for probe in tests]

    search = play(4, Hanging([], 0, 1), search_options(single=False))
    crafted = [unit.model_copy(update={"name": f"<{unit.host}>"}) for unit in units(4)]
    result = concluded(search, crafted)
    assert "hang" in report.pairs_csv(result)
    assert "hang" in report.as_text(result).plain
    assert report.BROKEN.encode() in report.as_svg(result)
    assert b"<node-1>" not in report.as_svg(result)


def test_hunt_without_pairs_has_empty_heat_map() -> None:
    assert report.as_text(EMPTY).plain == ""
    ElementTree.fromstring(report.as_svg(EMPTY))
    assert report.pairs_csv(EMPTY) == "GB/s busbw\n"


OUTPUTS = Outputs.model_validate(
    {
        "target": "local",
        "nodes": {"min": 2, "max": 4, "gpusPerNode": 0, "cpusPerNode": 2},
        "fabric": {"transport": "socket", "nics": None, "gbpsPerNic": None, "floors": []},
        "ray": {
            "cluster": "local",
            "version": RAY,
            "dashboard": "http://127.0.0.1:1",
            "jobs": "http://127.0.0.1:1",
            "client": "ray://127.0.0.1:1",
            "token": "hush",
        },
    }
)


def test_options_resolve_against_stack_outputs() -> None:
    request = HuntOptions().resolve(OUTPUTS)
    assert (request.nodes, request.per_node, request.units, request.rails, request.threshold) == (2, 2, 2, 2, 0.5)
    assert HuntOptions.from_json(request.to_json()) == request
    ranks = HuntOptions(unit="rank", nodes=4).resolve(OUTPUTS)
    assert (ranks.units, ranks.rails) == (8, 1)
    assert request.world == (2, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (HuntOptions(nodes=5), "--nodes 5"),
        (HuntOptions(per_node=3), "--per-node 3"),
        (HuntOptions(nodes=1), "has no unit to be compared with"),
        (HuntOptions(size="big"), "--size"),
        (HuntOptions(inject_fault="slow-node:2"), "--inject-fault"),
    ],
)
def test_invalid_option_is_named(options: HuntOptions, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        options.resolve(OUTPUTS)


def test_unknown_unit_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "hunt", "--unit", "rack"]) == Exit.ERROR
    assert "--unit rack" in capsys.readouterr().err


def test_injected_fault_hits_named_unit() -> None:
    def faulty(fault: str) -> list[int]:
        options = HuntOptions(nodes=2, per_node=8, inject_fault=fault)
        return [rank for rank in range(16) if options.fault_of(rank) == fault.partition(":")[0]]

    assert faulty("slow-rail:1.3") == [11]
    assert faulty("hang-node:0") == list(range(8))
    assert HuntOptions(nodes=2, per_node=8).fault_of(0) is None
    for text in ("slow-rail:1", "slow-node:1.2", "slow-node:2", "slow-rail:1.8", "slow-node", "x:1"):
        with pytest.raises(ValueError, match="is no fault"):
            faulty(text)
