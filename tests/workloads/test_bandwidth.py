"""Bandwidth formulas, sizes and percentiles against worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.nccl.operations import COLLECTIVES
from workloads.nccl.result import Iterations
from workloads.nccl.units import (
    BUSBW_FACTORS,
    HIERARCHICAL,
    REDUCTIONS,
    algbw,
    busbw,
    format_size,
    nic_bandwidth,
    parse_size,
    sweep,
)
from workloads.results import percentile


def test_all_reduce_of_4_gib_on_16_ranks_in_23_ms_is_350_gb_per_s() -> None:
    assert busbw("all_reduce", 2**32, 23.0e-3, 16) == pytest.approx(350.1, abs=0.1)


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"])
def test_busbw_leaves_out_the_local_share(op: str) -> None:
    assert busbw(op, 1000, 1e-6, 4) == pytest.approx(0.75)


@pytest.mark.parametrize("op", ["broadcast", "reduce", "sendrecv", "p2p"])
def test_busbw_is_algbw_if_all_data_moves_once(op: str) -> None:
    assert busbw(op, 2**32, 92.4e-3, 16) == algbw(2**32, 92.4e-3) == pytest.approx(46.5, abs=0.05)


def test_every_operation_has_a_factor() -> None:
    assert [*COLLECTIVES, "p2p"] == list(BUSBW_FACTORS)
    assert set(REDUCTIONS) <= set(COLLECTIVES)


@pytest.mark.parametrize(
    ("ranks", "bus", "nic"),
    [(16, 683.5, 45.6), (16, 487.1, 32.5), (16, 337.1, 22.5)],
)
def test_busbw_of_two_nodes_may_exceed_their_nics(ranks: int, bus: float, nic: float) -> None:
    """A4 with 50 GB/s per NIC, p5, A3 Mega with 25: the arithmetic of workloads.md §1.1, 21 Nov 2026."""
    assert nic_bandwidth("all_reduce", bus, ranks, 2) == pytest.approx(nic, abs=0.05)


@given(st.sampled_from(HIERARCHICAL), st.integers(2, 64), st.integers(1, 16), st.floats(1e-6, 10))
def test_nic_bandwidth_is_the_minimal_traffic_of_a_node(op: str, nodes: int, per_node: int, seconds: float) -> None:
    """The other nodes' data once, in equal shares; for all_reduce also the sums."""
    size, ranks = 2**30, nodes * per_node
    must = size * (nodes - 1) / nodes / per_node * (2 if op == "all_reduce" else 1)
    found = nic_bandwidth(op, busbw(op, size, seconds, ranks), ranks, nodes)
    assert found == pytest.approx(must / seconds / 1e9)


def test_nic_bandwidth_is_none_outside_the_formula() -> None:
    assert nic_bandwidth("all_reduce", 400.0, 8, 1) is None
    for op in set(BUSBW_FACTORS) - set(HIERARCHICAL):
        assert nic_bandwidth(op, 40.0, 16, 2) is None


@pytest.mark.parametrize(("text", "size"), [("1K", 1024), ("16M", 2**24), ("8g", 2**33), ("100", 100), ("4KiB", 4096)])
def test_sizes_are_binary(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "1T", "K"])
def test_parse_size_rejects_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_sweep_ends_at_or_below_its_end() -> None:
    assert sweep(1024, 5000, 2) == [1024, 2048, 4096]
    assert sweep(7, 7, 2) == [7]


@pytest.mark.parametrize(("begin", "end", "factor"), [(2, 1, 2), (1, 2, 1), (1, 2, 0)])
def test_sweep_rejects_empty_and_endless(begin: int, end: int, factor: int) -> None:
    with pytest.raises(ValueError, match=r"swap|never reaches"):
        sweep(begin, end, factor)


def test_sweep_by_step() -> None:
    assert sweep(1024, 5000, step=1024) == [1024, 2048, 3072, 4096]
    assert sweep(7, 7, step=1) == [7]


@pytest.mark.parametrize("steps", [{}, {"factor": 2, "step": 2}])
def test_sweep_needs_exactly_one_growth(steps: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="one of the two"):
        sweep(1, 2, **steps)


def test_sweep_rejects_too_many_sizes() -> None:
    assert len(sweep(1, 1000, step=1)) == 1000
    with pytest.raises(ValueError, match="1001 sizes"):
        sweep(1, 1001, step=1)


def test_format_size() -> None:
    assert [format_size(size) for size in (1, 1536, 2**24, 2**33)] == ["1 B", "1.5 KiB", "16 MiB", "8 GiB"]


def test_percentiles_are_measured_values() -> None:
    assert [percentile([3, 1, 2, 4], percent) for percent in (25, 50, 75, 76, 100)] == [1, 2, 3, 4, 4]
    assert percentile(list(range(1, 21)), 95) == 19


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 100))
def test_percentile_has_its_share_below_it(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values) * (1 - 1e-9)


def test_percentile_and_single_runs_reject_no_values() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="no values"):
        Iterations.of([])


def test_single_runs_have_percentiles_in_microseconds_and_a_relative_spread() -> None:
    found = Iterations.of([9e-6, 11e-6])
    assert (found.p50, found.p95, found.p99, found.max) == (9, 11, 11, 11)
    assert found.cv == Iterations.of([90.0, 110.0]).cv == pytest.approx(0.1)
    assert Iterations.of([5.0, 5.0]).cv == 0
