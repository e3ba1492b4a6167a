"""Bandwidth formulas, sizes and percentiles against worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.nccl.result import Iterations
from workloads.nccl.units import BUSBW_FACTORS, HIERARCHICAL, busbw, format_size, nic_bandwidth, parse_size, sweep
from workloads.results.documents import percentile


def test_all_reduce_of_4_gib_on_16_ranks_in_23_ms_is_350_gb_per_s() -> None:
    assert busbw("all_reduce", 2**32, 23.0e-3, 16) == pytest.approx(350.1, abs=0.1)


@pytest.mark.parametrize("op", sorted(BUSBW_FACTORS.keys() - {"all_reduce"}))
def test_busbw_counts_what_each_rank_sends(op: str) -> None:
    """All data once, or all but the local share."""
    whole = op in ("broadcast", "reduce", "sendrecv", "p2p")
    assert busbw(op, 1000, 1e-6, 4) == pytest.approx(1.0 if whole else 0.75)


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


def test_sizes_are_binary() -> None:
    sizes = [parse_size(text) for text in ("1K", "16M", "8g", "100", "4KiB")]
    assert sizes == [1024, 2**24, 2**33, 100, 4096]
    assert [format_size(size) for size in (1, 1536, 2**24, 2**33)] == ["1 B", "1.5 KiB", "16 MiB", "8 GiB"]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "1T", "K"])
def test_parse_size_rejects_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_sweep_ends_at_or_below_its_end() -> None:
    assert sweep(1024, 5000, 2) == [1024, 2048, 4096]
    assert sweep(7, 7, 2) == [7]
    assert len(sweep(1, 1000, step=1)) == 1000


@pytest.mark.parametrize(
    ("begin", "end", "growth", "message"),
    [
        (2, 1, {"factor": 2}, "swap"),
        (1, 2, {"factor": 1}, "never reaches"),
        (1, 2, {}, "only one of them"),
        (1, 2, {"factor": 2, "step": 2}, "only one of them"),
        (1, 1001, {"step": 1}, "1001 sizes"),
    ],
)
def test_sweep_rejects_empty_endless_and_long(begin: int, end: int, growth: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(begin, end, **growth)


def test_percentiles_are_measured_values() -> None:
    assert [percentile([3, 1, 2, 4], percent) for percent in (25, 50, 75, 76, 100)] == [1, 2, 3, 4, 4]
    assert percentile(list(range(1, 21)), 95) == 19


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
