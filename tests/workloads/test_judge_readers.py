"""The judge's readers: layouts of the tools, and truncated, damaged or invented files, which must not pass."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.baselines import Baseline
from tests.workloads.corpus.build import FOLDER
from tests.workloads.corpus.formats import A3U, GIB, Output, Row, sweep
from tests.workloads.corpus.formats import text as written
from tests.workloads.test_judge import text
from workloads.exits import Exit, WorkloadError
from workloads.nccl.judge import reading
from workloads.nccl.judge.expectation import Expectation, ceiling, floor_of, line_rate
from workloads.nccl.judge.measurement import Figures, Measurement
from workloads.nccl.judge.reading import measurement_of, measurement_of_texts
from workloads.nccl.judge.verdict import ORDER, deciding, judge, judge_texts, verdict_of
from workloads.nccl.result import Finding, Result

ULTRA = Expectation(machine="a3-ultragpu-8g", nodes=2)


def test_table_is_read_completely() -> None:
    (run,) = measurement_of(text("gib-good.txt")).runs
    assert (run.ranks, len(set(run.hosts))) == (16, 2)
    assert {(member.gpu, member.group) for member in run.members} == {("NVIDIA H200", 0)}
    assert [row.size for row in run.rows] == [2**20 * 4**n for n in range(7)] + [8 * GIB]
    assert {(row.op, row.dtype) for row in run.rows} == {("all_gather", "float")}
    assert run.rows[-1].out_of_place == Figures(24329.5, 353.07, 331.0, 0)
    assert run.rows[-1].in_place == Figures(24086.2, 356.63, 334.34, 0)
    assert (run.ended, run.stated_wrong, run.damaged) == (True, 0, [])


@pytest.mark.parametrize(
    "name",
    [
        f"gib-good-{kind}.txt"
        for kind in ("mpirun", "ansi-crlf", "pdsh", "skypilot", "mpi-build", "version", "per-iteration")
    ],
)
def test_launcher_prefixes_are_ignored(name: str) -> None:
    assert measurement_of(text(name)).runs == measurement_of(text("gib-good.txt")).runs


def test_json_report_equals_table() -> None:
    (run,) = measurement_of(text("efa-good.json")).runs
    assert (run.ranks, len(set(run.hosts)), run.ended) == (16, 2, True)
    assert run.rows[-1].out_of_place is not None
    assert run.rows[-1].out_of_place.busbw == pytest.approx(341.2)
    assert measurement_of(text("unchecked.json")).runs[0].rows[0].out_of_place.wrong is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"results": [{"size": 8}]}, "another form"),
        ({"config": {"devices": [{}]}}, "another form"),
        ({"results": [{"size": 8, "type": "float", "out_of_place": {"cpu_time": 1.0}}]}, "CPU time"),
        (
            {
                "results": [
                    {"size": 8, "type": "float"}
                    | {"out_of_place": {"time": "nan", "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0}}
                ]
            },
            "no figures",
        ),
    ],
)
def test_invalid_json_report_is_unreadable(change: dict[str, Any], message: str) -> None:
    document = json.loads(text("efa-good.json"))
    with pytest.raises(WorkloadError, match=message):
        measurement_of(json.dumps(document | change))


def test_algorithm_is_read_from_environment() -> None:
    document = json.loads(text("efa-good.json")) | {"env": ["NCCL_ALGO=Ring", "HOME=/root"]}
    assert measurement_of(json.dumps(document)).runs[0].algorithm == "ring"
    assert measurement_of("+ export NCCL_ALGO=Tree\n" + text("gib-good.txt")).runs[0].algorithm == "tree"


def test_in_place_row_has_no_out_of_place_column() -> None:
    lines = text("gib-good.txt").splitlines()
    row = next(line for line in lines if line.split()[:1] == [str(8 * GIB)])
    (run,) = measurement_of(text("gib-good.txt").replace(row, row[:48] + " " * 34 + row[82:])).runs
    assert run.rows[-1].out_of_place is None
    assert run.rows[-1].in_place == Figures(24086.2, 356.63, 334.34, 0)
    found = judge_texts(text("gib-good.txt").replace(row, row[:48] + " " * 34 + row[82:]), [text("gib.log")], ULTRA)
    assert (found.code, found.findings[-1].kind) == (Exit.BELOW, "no-baseline")


def test_gzipped_files_and_stdin_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "results"
    packed.write_bytes(gzip.compress(text("gib-good.txt").encode()))
    assert reading.read_file(str(packed)) == text("gib-good.txt")
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(WorkloadError, match="is truncated"):
        reading.read_file(str(packed))
    with pytest.raises(WorkloadError, match=r"cannot read .*: Is a directory"):
        reading.read_file(str(tmp_path))
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfhello \xff"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert reading.read_file("-") == "hello �"


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1))
def test_truncated_table_never_passes(share: float) -> None:
    whole = text("gib-good.txt")
    end = int(share * (whole.index("Out of bounds values") - 1))
    assert judge_texts(whole[:end], [text("gib.log")], ULTRA).code == Exit.ERROR


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["efa-good.json", "own-good.json"]), st.floats(0, 0.999))
def test_truncated_json_never_passes(name: str, share: float) -> None:
    assert judge_texts(text(name)[: int(share * len(text(name)))], [text("gib.log")], ULTRA).code == Exit.ERROR


@settings(max_examples=40, deadline=None)
@given(st.floats(0.001, 1000).filter(lambda scale: abs(scale - 1) > 0.03))
def test_inconsistent_bandwidths_are_rejected(scale: float) -> None:
    output = Output("all_gather", A3U, sweep("all_gather", 16, 331.0), scale=scale)
    assert judge_texts(written(output), [text("gib.log")], ULTRA).code == Exit.ERROR


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(text("gib-good-mpirun.txt").splitlines()) | st.text(max_size=60), max_size=30))
def test_any_text_is_judged(lines: list[str]) -> None:
    found = judge_texts("\n".join(lines), ["\n".join(lines)], ULTRA)
    assert found.code != 0 or "Out of bounds values" in "\n".join(lines)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 1.1), st.floats(0.5, 1.1))
def test_slower_run_never_has_better_verdict(one: float, other: float) -> None:
    rank = {"fail": 0, "warn": 1, "pass": 2}
    outcomes = [
        rank[
            judge_texts(
                written(Output("all_gather", A3U, sweep("all_gather", 16, share * 325.7))), [text("gib.log")], ULTRA
            ).outcome
        ]
        for share in sorted((one, other))
    ]
    assert outcomes[0] <= outcomes[1]


@given(st.lists(st.sampled_from([0, *ORDER])))
def test_worst_finding_sets_exit_code(codes: list[int]) -> None:
    found = deciding([Finding(code=code, kind="k", text="t") for code in codes])
    failing = [code for code in codes if code]
    assert found == min(failing, key=ORDER.index, default=0)


def baseline(size: int, busbw: float, **changes: Any) -> Baseline:
    return Baseline("all_reduce", 2, size * GIB, busbw, "a source, 2026-01", **changes)


def test_floor_is_nearest_smaller_size() -> None:
    lines = [baseline(2, 100.0), baseline(8, 120.0), baseline(8, 118.0), baseline(16, 150.0, confidence="low")]

    def expected(size: int, op: str = "all_reduce", nodes: int = 2) -> float | None:
        floor = floor_of(lines, op, nodes, size * GIB, frozenset())
        return floor.busbw if floor else None

    assert [expected(size) for size in (1, 2, 4, 8, 64)] == [None, 100.0, 100.0, 118.0, 118.0]
    assert expected(8, op="all_gather") is None
    assert expected(8, nodes=4) is None


def test_floor_matches_algorithm() -> None:
    lines = [baseline(4, 365.0, algorithm="ring"), baseline(4, 310.0, algorithm="nvlstree")]
    for known, busbw in (({"ring"}, 365.0), ({"nvlstree"}, 310.0), ((), 365.0)):
        floor = floor_of(lines, "all_reduce", 2, 4 * GIB, frozenset(known))
        assert floor is not None
        assert floor.busbw == busbw
    assert floor_of(lines, "all_reduce", 2, 4 * GIB, frozenset({"tree"})) is None


def test_ceilings_match_manual_calculation() -> None:
    none: frozenset[str] = frozenset()
    assert line_rate(ULTRA.row) == 400.0
    assert ceiling("all_gather", ULTRA, none) == 400.0
    # The published 683.5 of A4 is 45.6 of each NIC's 50 GB/s.
    assert ceiling("all_reduce", ULTRA, none) == pytest.approx(50 * 15)
    assert ceiling("all_reduce", ULTRA, frozenset({"ring"})) == 400.0
    assert ceiling("all_to_all", ULTRA, none) == pytest.approx(93.75)
    assert ceiling("sendrecv", ULTRA, none) == 50.0
    assert ceiling("sendrecv", Expectation(machine="p4d.24xlarge", nodes=2), none) == 12.5
    assert ceiling("sendrecv", Expectation(machine="p5.48xlarge", nodes=2), none) == 50.0
    assert ceiling("broadcast", ULTRA, none) == 400.0
    assert ceiling("gather", ULTRA, none) == pytest.approx(750.0)
    assert ceiling("hypercube", ULTRA, none) is None
    assert ceiling("all_gather", Expectation(machine="a3-ultragpu-8g", nodes=1), none) is None


def test_published_figures_are_below_ceilings() -> None:
    from infra.catalog.baselines import BASELINES

    for machine, lines in BASELINES.items():
        for line in lines:
            known = frozenset({line.algorithm} if line.algorithm else set())
            limit = ceiling(line.op, Expectation(machine=machine, nodes=line.nodes), known)
            assert limit is None or line.busbw < limit, (machine, line)


def test_single_node_needs_no_network_evidence() -> None:
    one = Output("all_gather", A3U, [Row(16 * GIB, 16 * GIB * 0.875 / 360.0 / 1e3)], ranks=A3U.ranks[:8])
    found = judge_texts(written(one), [], Expectation(machine="a3-ultragpu-8g", nodes=1))
    assert (found.code, found.outcome) == (0, "pass"), found
    assert found.comparisons[0].share == pytest.approx(0.996, abs=1e-3)


@pytest.mark.parametrize("machine", ["a3-ultra", "a4x-highgpu-4g"])
def test_unsupported_machines_are_rejected(machine: str) -> None:
    with pytest.raises(WorkloadError, match=machine):
        Expectation(machine=machine, nodes=2)


def own(name: str) -> Result:
    return Result.model_validate_json((FOLDER / name).read_bytes())


def test_own_result_is_judged() -> None:
    found = verdict_of(own("own-good.json"), machine="a3-ultragpu-8g")
    assert (found.code, found.outcome, found.machine) == (0, "pass", "a3-ultragpu-8g")
    assert verdict_of(own("own-one-kernel.json"), machine="a3-ultragpu-8g").code == Exit.NOT_AS_ASKED
    assert verdict_of(own("own-good.json"), machine="p5en.48xlarge").code == Exit.NOT_AS_ASKED


def test_without_fabric_correctness_decides() -> None:
    good = verdict_of(own("own-function.json"), machine=None)
    assert (good.code, good.outcome) == (0, "pass")
    assert "no fabric to judge" in good.reason
    bad = verdict_of(own("own-wrong.json"), machine=None)
    assert (bad.code, bad.outcome) == (Exit.WRONG_DATA, "fail")
    unknown = verdict_of(own("own-good.json"), machine=None)
    assert (unknown.code, unknown.outcome) == (Exit.BELOW, "fail")
    assert verdict_of(own("own-good.json"), machine=None, no_floor=True).code == 0
    broken = own("own-broken.json").model_copy(update={"world": None})
    assert verdict_of(broken, machine="a3-ultragpu-8g").code == Exit.ERROR


def test_rows_without_published_figure_require_data_check() -> None:
    result = own("own-good.json")
    latency = [row.model_copy(update={"mode": "latency", "wrong": None}) for row in result.rows]
    found = verdict_of(result.model_copy(update={"rows": latency}), machine="a3-ultragpu-8g", no_floor=True)
    assert (found.code, {finding.kind for finding in found.findings if finding.code}) == (5, {"unchecked"})
    checked = [row.model_copy(update={"wrong": 0}) for row in latency]
    found = verdict_of(result.model_copy(update={"rows": checked}), machine="a3-ultragpu-8g")
    assert (found.code, [finding.kind for finding in found.findings if finding.code]) == (2, ["no-baseline"])


def test_empty_measurement_does_not_pass() -> None:
    assert judge(Measurement("nccl-tests", ()), ULTRA).code == Exit.ERROR
    assert judge(measurement_of_texts(None, []), ULTRA).code == Exit.NOT_AS_ASKED
