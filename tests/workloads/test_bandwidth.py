"""Formulas, sizes and percentiles against hand-made numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.nccl.bandwidth import BUSBW_FACTORS, algbw, busbw
from workloads.nccl.operations import OPERATIONS
from workloads.nccl.sizes import format_size, parse_size, sweep
from workloads.statistics import percentile


def test_all_reduce_of_4_gib_on_16_ranks_in_23_ms_is_350_gb_per_s() -> None:
    assert busbw("all_reduce", 2**32, 23.0e-3, 16) == pytest.approx(350.1, abs=0.1)


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_to_all"])
def test_busbw_of_what_leaves_one_share_at_home(op: str) -> None:
    assert busbw(op, 1000, 1e-6, 4) == pytest.approx(0.75)


@pytest.mark.parametrize("op", ["broadcast", "sendrecv"])
def test_busbw_is_algbw_where_everything_travels_once(op: str) -> None:
    assert busbw(op, 2**32, 92.4e-3, 16) == algbw(2**32, 92.4e-3) == pytest.approx(46.5, abs=0.05)


def test_every_operation_has_a_factor() -> None:
    assert list(OPERATIONS) == list(BUSBW_FACTORS)


@pytest.mark.parametrize(("text", "size"), [("1K", 1024), ("16M", 2**24), ("8g", 2**33), ("100", 100), ("4KiB", 4096)])
def test_sizes_are_binary(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5K", "1T", "K"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_sweep_ends_at_or_below_its_end() -> None:
    assert sweep(1024, 5000, 2) == [1024, 2048, 4096]
    assert sweep(7, 7, 2) == [7]


@pytest.mark.parametrize(("begin", "end", "factor"), [(2, 1, 2), (1, 2, 1), (1, 2, 0)])
def test_a_sweep_that_would_be_empty_or_endless_is_refused(begin: int, end: int, factor: int) -> None:
    with pytest.raises(ValueError, match=r"swap|never end"):
        sweep(begin, end, factor)


def test_format_size() -> None:
    assert [format_size(size) for size in (1, 1536, 2**24, 2**33)] == ["1 B", "1.5 KiB", "16 MiB", "8 GiB"]


def test_percentiles_are_values_that_were_measured() -> None:
    assert [percentile([3, 1, 2, 4], percent) for percent in (25, 50, 75, 76, 100)] == [1, 2, 3, 4, 4]
    assert percentile(list(range(1, 21)), 95) == 19


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 100))
def test_percentile_has_its_share_below_it(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values) * (1 - 1e-9)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
