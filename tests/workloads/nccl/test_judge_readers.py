"""The judge's readers: layouts of the tools, and truncated, damaged or invented files, which must not pass."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.catalog.baselines import GIB, Baseline
from tests.workloads.nccl.corpus.cases import FOLDER
from tests.workloads.nccl.test_evidence_log import facts
from tests.workloads.nccl.test_judge import text
from workloads.exits import Exit, WorkloadError
from workloads.nccl.judge import reading
from workloads.nccl.judge.expectation import Expectation, ceiling, floor_of, limits_of, line_rate
from workloads.nccl.judge.measurement import RowFigures
from workloads.nccl.judge.reading import measurement_of
from workloads.nccl.judge.verdict import judge_texts, verdict_of
from workloads.nccl.result import BenchResult

ULTRA = Expectation(machine="a3-ultragpu-8g", nodes=2)
NAN_TIME = {"time": "nan", "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0}


def scaled(clock: float, rate: float, table: str = "gib-good.txt") -> str:
    """Return a table with times multiplied by `clock` and bandwidths by `rate`."""

    def row(found: re.Match[str]) -> str:
        factors = itertools.cycle((clock, rate, rate))

        def cell(at: re.Match[str]) -> str:
            value, width = float(at[0]) * next(factors), len(at[0])
            shown = f"{value:.2f}"
            return (shown if len(shown) + 2 <= width else f"{value:.0f}").rjust(width)

        return re.sub(r" *\d+\.\d+", cell, found[0])

    return re.sub(r"^ +\d+ .*$", row, text(table), flags=re.MULTILINE)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("gib-good-[!u]*")))
def test_launcher_prefixes_are_ignored(name: str) -> None:
    assert measurement_of(text(name)).runs == measurement_of(text("gib-good.txt")).runs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"results": [{"size": 8}]}, "does not have the form"),
        ({"config": {"devices": [{}]}}, "does not have the form"),
        ({"results": [{"size": 8, "type": "float", "out_of_place": {"cpu_time": 1.0}}]}, "CPU time"),
        ({"results": [{"size": 8, "type": "float", "out_of_place": NAN_TIME}]}, "not numbers"),
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
    table = text("gib-good.txt").replace(row, row[:48] + " " * 34 + row[82:])
    (run,) = measurement_of(table).runs
    assert run.rows[-1].out_of_place is None
    assert run.rows[-1].in_place == RowFigures(24086.2, 356.63, 334.34, 0)
    found = judge_texts(table, [text("gib.log")], ULTRA)
    assert (found.code, found.findings[-1].kind) == (Exit.BELOW, "no-baseline")


def test_gzipped_and_damaged_files_are_read(tmp_path: Path) -> None:
    packed = tmp_path / "results"
    packed.write_bytes(gzip.compress(text("gib-good.txt").encode()))
    assert reading.read_file(str(packed)) == text("gib-good.txt")
    packed.write_bytes(packed.read_bytes()[:100])
    with pytest.raises(WorkloadError, match="is truncated"):
        reading.read_file(str(packed))
    with pytest.raises(WorkloadError, match=r"cannot read .*: Is a directory"):
        reading.read_file(str(tmp_path))
    packed.write_bytes(b"\xef\xbb\xbfhello \xff")
    assert reading.read_file(str(packed)) == "hello �"


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
    assert judge_texts(scaled(1, scale), [text("gib.log")], ULTRA).code == Exit.ERROR


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(text("gib-good-mpirun.txt").splitlines()) | st.text(max_size=60), max_size=30))
def test_any_text_is_judged(lines: list[str]) -> None:
    found = judge_texts("\n".join(lines), ["\n".join(lines)], ULTRA)
    assert found.code != 0 or "Out of bounds values" in "\n".join(lines)


def test_floor_is_the_lower_publication_of_the_algorithm() -> None:
    """The corpus has the other parts of the rule."""

    def figure(busbw: float, **algorithm: Any) -> Baseline:
        return Baseline("all_reduce", 2, GIB, busbw, "a source, 2026-01", **algorithm)

    def floor(lines: list[Baseline], *algorithms: str) -> Baseline | None:
        return floor_of(lines, "all_reduce", 2, GIB, frozenset(algorithms))

    assert floor([figure(120.0), figure(118.0)]) == figure(118.0)
    lines = [figure(365.0, algorithm="ring"), figure(310.0, algorithm="nvlstree")]
    assert [floor(lines), floor(lines, "ring"), floor(lines, "nvlstree")] == [lines[0], *lines]
    assert floor(lines, "tree") is None


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


def test_single_node_needs_no_network_evidence() -> None:
    # The published figure is that of 16 GiB, so the largest row becomes one of twice the size and time.
    table = scaled(2, 1, "one-host.txt").replace(f"{8 * GIB:12d}", f"{16 * GIB:12d}")
    rows = [line for line in table.splitlines(keepends=True) if line.startswith("#") or str(16 * GIB) in line]
    found = judge_texts("".join(rows), [], Expectation(machine="a3-ultragpu-8g", nodes=1))
    assert (found.code, found.outcome) == (0, "pass"), found
    assert found.comparisons[0].share == pytest.approx(0.9975, abs=1e-3)


def own(name: str) -> BenchResult:
    return BenchResult.model_validate_json((FOLDER / name).read_bytes())


def test_without_fabric_correctness_decides() -> None:
    good = verdict_of(own("own-function.json"), machine=None)
    assert (good.code, good.outcome) == (0, "pass")
    assert "no fabric to judge" in good.reason
    bad = verdict_of(own("own-wrong.json"), machine=None)
    assert (bad.code, bad.outcome) == (Exit.WRONG_DATA, "fail")
    unknown = verdict_of(own("own-good.json"), machine=None)
    assert (unknown.code, unknown.outcome) == (Exit.BELOW, "fail")
    assert verdict_of(own("own-good.json"), machine=None, no_floor=True).code == 0
    # A machine without RDMA NICs has no fabric that figures could be published of, and no limit of its NICs.
    sockets = verdict_of(own("own-good.json"), machine="g2-standard-8")
    assert (sockets.code, sockets.machine, limits_of("g2-standard-8")) == (0, None, None)
    assert sockets.reason.endswith("no fabric to judge: a g2-standard-8 has no RDMA NIC")
    cpus = verdict_of(own("own-function.json"), machine="n2d-standard-8")
    assert (cpus.code, cpus.reason.endswith("no fabric to judge: a n2d-standard-8 has no RDMA NIC")) == (0, True)
    assert verdict_of(own("own-wrong.json"), machine="g2-standard-8").code == bad.code
    with pytest.raises(WorkloadError, match="it has no RDMA NIC"):
        Expectation(machine="g2-standard-8", nodes=2)
    # The nodes have RDMA NICs, which `own-good.json` was measured on; then its evidence is lost.
    on_rdma = own("own-good.json").spec.model_copy(update={"transport": "ib"})
    shown = own("own-good.json").model_copy(update={"spec": on_rdma})
    assert verdict_of(shown, machine=None, no_floor=True).code == 0
    for log, kind in (("tcp-fallback", "socket-transport"), ("gib-no-gdrdma", "no-gdrdma")):
        assert shown.evidence is not None
        ranks = [each.model_copy(update={"log": None}) for each in shown.evidence.ranks]
        ranks[0] = ranks[0].model_copy(update={"log": facts(log)})
        other = shown.evidence.model_copy(update={"ranks": ranks})
        bad = verdict_of(shown.model_copy(update={"evidence": other}), machine=None, no_floor=True)
        assert (bad.code, kind in {each.kind for each in bad.findings}) == (Exit.NOT_AS_ASKED, True)
    lost = verdict_of(shown.model_copy(update={"evidence": None}), machine=None, no_floor=True)
    assert (lost.code, lost.findings[0].kind) == (Exit.NOT_AS_ASKED, "no-log")
    broken = own("own-broken.json").model_copy(update={"world": None})
    assert verdict_of(broken, machine="a3-ultragpu-8g").code == Exit.ERROR
