"""Link limits, findings of rows that exceed them or have both ranks of a pair on one host, and the table of pairs."""

from __future__ import annotations

import io
import math
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from tests.workloads.nccl import results
from workloads.nccl.judge.expectation import limits_of
from workloads.nccl.limits import guarded, pair_figures, violations
from workloads.nccl.options import BenchOptions
from workloads.nccl.point_patterns import Limits, Variant, flows, limit_of
from workloads.nccl.report import MAX_PAIRS, show_pairs
from workloads.nccl.result import BenchResult, Pair, Row

GIB = 2**30
A3 = limits_of("a3-ultragpu-8g")
assert A3 is not None


def limit(machine: str, name: str, nodes: int = 2, per_node: int = 8) -> float | None:
    return limit_of(flows(Variant.parse(name), nodes, per_node), limits_of(machine), per_node)


@pytest.mark.parametrize(
    ("machine", "name", "expected"),
    [
        # GB/s: 8 NICs of 400 Gbit/s are 3200 Gbit/s each way.
        ("a3-ultragpu-8g", "pairs up", 400),
        ("a3-ultragpu-8g", "pairs duplex", 800),
        ("a3-ultragpu-8g", "single up", 50),
        ("a3-ultragpu-8g", "rail 7 down", 50),
        ("a3-ultragpu-8g", "shift up", 400),
        ("a3-ultragpu-8g", "incast up", 50),  # one receiver's NIC, however many send
        ("a3-ultragpu-8g", "incast duplex", 100),
        ("a3-ultragpu-8g", "intra up", 8 * 450),  # four pairs on each of two nodes
        ("p5en.48xlarge", "single up", 50),  # two NICs of 200 Gbit/s per GPU
        ("p5en.48xlarge", "pairs up", 400),
        ("p5.48xlarge", "single up", 50),  # four of 100
        ("p4d.24xlarge", "single up", 12.5),  # two GPUs share one NIC of 100
        ("p4d.24xlarge", "pairs up", 50),
        ("p6-b300.48xlarge", "pairs up", 800),
        ("p6-b300.48xlarge", "intra up", None),  # no published figure
    ],
)
def test_limits_of_real_machines(machine: str, name: str, expected: float | None) -> None:
    assert limit(machine, name) == expected


def test_more_nodes_and_fewer_ranks() -> None:
    assert limit("a3-ultragpu-8g", "pairs up", nodes=4) == 800
    assert limit("a3-ultragpu-8g", "pairs up", nodes=5) == 800
    assert limit("a3-ultragpu-8g", "pairs up", per_node=2) == 100
    assert limits_of(None) is None
    assert limits_of("a-machine-of-tomorrow") is None


@pytest.mark.parametrize(
    ("name", "bandwidths", "total"),
    [
        ("pairs duplex", [20, 5, 20, 5], 20),
        # The senders of an incast share the size. Only the direction of the slow sender is slower.
        ("incast duplex", [10, 2.5, 10, 5], 15),
    ],
)
def test_a_pair_takes_its_slower_ranks_time_and_a_direction_its_slowest_pairs(
    name: str, bandwidths: list[float], total: float
) -> None:
    pairs, found, limit = pair_figures(Variant.parse(name), 10**9, [0.05, 0.2, 0.05, 0.1], 2, 2, None)
    assert ([pair.bandwidth for pair in pairs], found, limit) == (bandwidths, total, None)


FABRIC = results.fabric(sizes=[GIB])


def a_row(name: str, seconds: float | list[float], per_node: int = 8, limits: Limits | None = A3) -> Row:
    times = [seconds] * (2 * per_node) if isinstance(seconds, float) else seconds
    pairs, total, limit = pair_figures(Variant.parse(name), GIB, times, 2, per_node, limits)
    bare = results.row("p2p", GIB, 1.0, 2 * per_node, variant=name)
    slowest = bare.time_us.model_copy(update={"max": max(times) * 1e6})
    return bare.model_copy(update={"pairs": pairs, "total": total, "limit": limit, "time_us": slowest})


def a_result(*rows: Row, limits: Limits | None = A3, **changes: Any) -> BenchResult:
    """Two nodes of 8 ranks, each on a host and a machine of its own."""
    spec = BenchOptions.model_validate({"limits": asdict(limits) if limits else None})
    return FABRIC.model_copy(update={"rows": list(rows), "spec": spec, "exit_code": 0, "reason": ""} | changes)


def found(result: BenchResult, limits: Limits | None = None) -> list[tuple[int, str]]:
    return [(finding.code, finding.kind) for finding in violations(result, limits)]


def seconds_for(bandwidth: float) -> float:
    return GIB / 1e9 / bandwidth


@pytest.mark.parametrize("name", ["pairs up", "pairs duplex", "single down", "shift up", "rail 3 duplex"])
@pytest.mark.parametrize(("share", "code"), [(0.93, None), (1.0, None), (1.019, None), (1.021, 5), (7.4, 5)])
def test_a_row_above_the_nics_limit_fails(name: str, share: float, code: int | None) -> None:
    result = a_result(a_row(name, seconds_for(50 * share)))
    assert found(result) == ([(code, "over-limit")] if code else [])


def test_the_baselines_figure_fails_for_one_pair() -> None:
    """371.58 GB/s for one pair was NVLink; for eight pairs it would be 93 % of the line rate."""
    [finding] = violations(a_result(a_row("single up", seconds_for(371.58))))
    assert finding.code == 5
    assert "371.6 GB/s (2973 Gbit/s) is over the limit of 50 GB/s (400 Gbit/s)" in finding.text
    assert "this did not go through the NIC" in finding.text


def test_one_pair_on_another_path_is_found_among_slow_ones() -> None:
    times = [seconds_for(371 if rank in (3, 11) else 20) for rank in range(16)]
    row = a_row("pairs up", times)
    assert row.total is not None
    assert row.total < 400
    [finding] = violations(a_result(row))
    assert (finding.code, "rank 3 to rank 11" in finding.text) == (5, True)


def test_within_a_node_nvlink_is_the_limit() -> None:
    assert found(a_result(a_row("intra up", seconds_for(372)))) == []
    assert found(a_result(a_row("intra up", seconds_for(460)))) == [(5, "over-limit")]


def test_given_limits_override_those_of_the_run() -> None:
    result = a_result(a_row("single up", seconds_for(371), limits=None), limits=None)
    assert found(result) == [(0, "no-limit")]
    assert found(result, A3) == [(5, "over-limit")]
    assert found(result.model_copy(update={"spec": BenchOptions.model_validate({"limits": {"nics": 8}})})) == [
        (0, "no-limit")
    ]


def with_members(result: BenchResult, **changes: str) -> BenchResult:
    """Return the result with changes to rank 9."""
    members = [m.model_copy(update=changes if m.rank == 9 else {}) for m in result.ranks or []]
    return result.model_copy(update={"ranks": members})


GOOD = a_result(a_row("pairs up", seconds_for(46.5)), a_row("pairs down", seconds_for(46.5)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"node_id": f"{0:056x}"}, "one node"),
        ({"machine": "kernel-0"}, "one machine: gpu-node-0 and gpu-node-1 share a kernel"),
        ({"host": "gpu-node-0"}, "one host, gpu-node-0"),
    ],
)
def test_a_pair_on_one_host_fails_once(changes: dict[str, str], text: str) -> None:
    assert violations(GOOD) == []
    [finding] = violations(with_members(GOOD, **changes))
    assert (finding.code, finding.kind) == (5, "same-host")
    assert "ranks 1 and 9" in finding.text
    assert text in finding.text


def test_a_functional_run_on_one_machine_has_a_remark_and_nccl_fails() -> None:
    members = [member.model_copy(update={"machine": "laptop"}) for member in GOOD.ranks or []]
    local = GOOD.model_copy(update={"ranks": members, "backend": "gloo", "proves": "function", "spec": BenchOptions()})
    assert found(local) == [(0, "same-host")]
    assert found(local.model_copy(update={"backend": "nccl"}))[:1] == [(5, "same-host")]
    assert found(local.model_copy(update={"proves": "fabric"}))[:1] == [(5, "same-host")]


ONE_PAIR = [Pair(sender=0, receiver=8, time_us=1, bandwidth=46.5)]
NEVER_MEASURED = [pair.model_copy(update={"bandwidth": 0.0}) for pair in a_row("pairs up", 1.0).pairs or []]


@pytest.mark.parametrize(
    "changes",
    [
        *[{"pairs": None}, {"pairs": []}, {"total": None}, {"total": math.nan}, {"total": math.inf}],
        *[{"variant": None}, {"variant": "pairs sideways"}, {"variant": "intra up"}, {"variant": "pairs duplex"}],
        *[{"pairs": ONE_PAIR}, {"pairs": NEVER_MEASURED}],
    ],
)
def test_an_incomplete_row_fails(changes: dict[str, Any]) -> None:
    row = a_row("pairs up", seconds_for(46.5)).model_copy(update=changes)
    assert found(a_result(row)) == [(5, "no-pairs")]


def test_a_result_without_members_or_world_fails() -> None:
    assert (5, "same-host") in found(GOOD.model_copy(update={"ranks": None}))
    assert found(GOOD.model_copy(update={"world": None})) == [(5, "no-pairs")]


@pytest.mark.parametrize(("code", "expected"), [(0, 5), (1, 1), (2, 5), (3, 3), (4, 5)])
def test_guarded_sets_exit_code_5_but_keeps_an_error_and_wrong_data(code: int, expected: int) -> None:
    rows = a_row("pairs up", seconds_for(46.5)), a_row("single up", seconds_for(371.58))
    said = guarded(a_result(*rows, exit_code=code, reason="as it was"))
    assert said.exit_code == expected
    assert ("as it was" if code == expected else "did not go through the NIC") in said.reason
    assert [len(row.warnings) for row in said.rows] == [0, 1]
    assert guarded(GOOD) is GOOD


def output(result: BenchResult) -> str:
    text = io.StringIO()
    show_pairs(result, Console(file=text, width=80, color_system=None))
    return text.getvalue()


def test_totals_have_their_limit_and_pairs_their_hosts() -> None:
    rows = a_row("pairs up", seconds_for(46.5)), a_row("single up", seconds_for(47))
    shown = output(a_result(*rows))
    assert "pairs up, 8 at once" in shown
    [total] = [line for line in shown.splitlines() if line.strip().startswith("pairs up")]
    assert total.split()[-5:] == ["23091", "372", "2976", "3200", "93.0%"]
    [pair] = [line for line in shown.splitlines() if line.strip().startswith("7 to 15")]
    assert pair.split()[-3:] == ["23091", "46.5", "372"]
    [alone] = [line for line in shown.splitlines() if "0 to 8" in line and "single" in line]
    assert alone.split()[:5] == ["single", "up,", "0", "to", "8"]
    assert "node 0: gpu-node-0, 10.0.0.2, ranks 0 to 7" in shown
    assert "node 1: gpu-node-1, 10.0.0.3, ranks 8 to 15" in shown
    assert "…" not in shown  # nothing was cut


def test_of_many_pairs_the_slowest_are_shown() -> None:
    times = [0.02 + 0.001 * (rank % 32) for rank in range(64)]
    result = a_result(a_row("pairs duplex", times, per_node=32))
    assert result.world
    result = result.model_copy(update={"world": result.world.model_copy(update={"per_node": 32})})
    shown = output(result)
    listed = [line.strip() for line in shown.splitlines() if " to " in line and line.strip()[0].isdigit()]
    assert len(listed) == MAX_PAIRS
    assert f"pairs duplex: the {MAX_PAIRS} slowest of 64" in shown
    assert listed[0].startswith("24 to 56")
