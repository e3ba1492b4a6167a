"""Link limits, and the findings of rows that exceed them or have both ranks of a pair on one host."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.catalog.machines import CATALOG
from tests.workloads import results
from workloads.client.stack import limits_of
from workloads.nccl.limits import guarded, pair_figures, violations
from workloads.nccl.options import BenchOptions
from workloads.nccl.point_patterns import Limits, Variant, flows, limit_of, variants
from workloads.nccl.result import Pair, Result, Row

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


@pytest.mark.parametrize("machine", CATALOG)
def test_no_limit_exceeds_the_nics_of_the_nodes(machine: str) -> None:
    row = CATALOG[machine]
    whole = row.nics * row.gbps_per_nic / 8
    for variant in variants(2, row.gpus):
        found = limit(machine, variant.name, per_node=row.gpus)
        if variant.across:
            assert found is not None
            assert row.gbps_per_nic / 8 <= found <= whole * (2 if variant.direction == "duplex" else 1)


@given(st.integers(2, 6), st.integers(1, 8), st.floats(1e-4, 10), st.data())
def test_totals_are_the_bytes_over_the_slowest_pairs_time(
    nodes: int, per_node: int, seconds: float, data: st.DataObject
) -> None:
    variant = data.draw(st.sampled_from(variants(nodes, per_node)))
    slow = data.draw(st.integers(0, nodes * per_node - 1))
    times = [seconds * (2 if rank == slow else 1) for rank in range(nodes * per_node)]
    pairs, total, limit = pair_figures(variant, GIB, times, nodes, per_node, None)
    assert limit is None
    shares = {"incast": per_node}.get(variant.pattern, 1)
    for pair in pairs:
        slowed = slow in (pair.sender, pair.receiver)
        assert pair.bandwidth == pytest.approx(GIB / shares / seconds / (2 if slowed else 1) / 1e9, rel=1e-3)
    directions = {True: 0.0, False: 0.0}
    for up in directions:
        mine = [p for p in pairs if (p.sender < p.receiver) is up]
        directions[up] = len(mine) * min([p.bandwidth for p in mine], default=0)
    assert total == pytest.approx(sum(directions.values()), rel=1e-3, abs=1e-4)


def test_the_worked_example_of_eight_pairs() -> None:
    """4 GiB per pair in 92.4 ms is 8 times 46.5 GB/s, 2975.94 Gbit/s: 93 % of 3200."""
    _, total, limit = pair_figures(Variant.parse("pairs up"), 4 * GIB, [0.0923654] * 16, 2, 8, A3)
    assert total * 8 == pytest.approx(2975.94, rel=1e-4)
    assert limit == 400
    assert total / limit == pytest.approx(0.93, abs=0.001)


FABRIC = results.fabric(sizes=[GIB])


def a_row(name: str, seconds: float | list[float], per_node: int = 8, limits: Limits | None = A3) -> Row:
    times = [seconds] * (2 * per_node) if isinstance(seconds, float) else seconds
    pairs, total, limit = pair_figures(Variant.parse(name), GIB, times, 2, per_node, limits)
    bare = results.row("p2p", GIB, 1.0, 2 * per_node, variant=name)
    slowest = bare.time_us.model_copy(update={"max": max(times) * 1e6})
    return bare.model_copy(update={"pairs": pairs, "total": total, "limit": limit, "time_us": slowest})


def a_result(*rows: Row, limits: Limits | None = A3, **changes: Any) -> Result:
    """Two nodes of 8 ranks, each on a host and a machine of its own."""
    spec = BenchOptions.model_validate({"limits": asdict(limits) if limits else None})
    return FABRIC.model_copy(update={"rows": list(rows), "spec": spec, "exit_code": 0, "reason": ""} | changes)


def found(result: Result, limits: Limits | None = None) -> list[tuple[int, str]]:
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


def test_a_duplex_sum_is_checked_against_twice_the_line_rate() -> None:
    row = a_row("pairs duplex", seconds_for(45))
    assert row.total == pytest.approx(720, rel=1e-3)
    assert row.limit == 800
    assert found(a_result(row)) == []


def test_one_pair_on_another_path_is_found_among_slow_ones() -> None:
    times = [seconds_for(371 if rank in (3, 11) else 20) for rank in range(16)]
    row = a_row("pairs up", times)
    assert row.total is not None
    assert row.total < 400
    [finding] = violations(a_result(row))
    assert (finding.code, "rank 3 to rank 11" in finding.text) == (5, True)


def test_an_incast_is_checked_against_one_receiver() -> None:
    assert found(a_result(a_row("incast up", seconds_for(48)))) == []
    assert found(a_result(a_row("incast up", seconds_for(372)))) == [(5, "over-limit")]


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


def with_members(result: Result, **changes: str) -> Result:
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


def test_neighbors_within_a_node_may_share_it() -> None:
    assert found(a_result(a_row("intra up", seconds_for(372)))) == []


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


def test_other_operations_have_no_findings() -> None:
    row = a_row("pairs up", seconds_for(400)).model_copy(update={"op": "sendrecv", "variant": None, "pairs": None})
    assert violations(a_result(row)) == []


def test_pair_figures_are_the_results_pairs() -> None:
    [pair] = a_row("single up", seconds_for(46.5)).pairs or []
    assert isinstance(pair, Pair)
    assert (pair.sender, pair.receiver) == (0, 8)
    assert pair.time_us == pytest.approx(23091.22, abs=0.1)
    assert pair.bandwidth == pytest.approx(46.5, rel=1e-4)


def test_guarded_sets_exit_code_5_and_a_warning_at_the_row() -> None:
    bad = a_result(a_row("pairs up", seconds_for(46.5)), a_row("single up", seconds_for(371.58)))
    said = guarded(bad)
    assert said.exit_code == 5
    assert "did not go through the NIC" in said.reason
    assert [len(row.warnings) for row in said.rows] == [0, 1]
    assert guarded(GOOD) is GOOD


@pytest.mark.parametrize(("code", "expected"), [(0, 5), (1, 1), (2, 5), (3, 3), (4, 5)])
def test_guarded_keeps_an_error_and_wrong_data(code: int, expected: int) -> None:
    bad = a_result(a_row("single up", seconds_for(371.58)), exit_code=code, reason="as it was")
    said = guarded(bad)
    assert said.exit_code == expected
    assert (said.reason == "as it was") is (code == expected)
    assert said.rows[0].warnings
