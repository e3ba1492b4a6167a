"""The measuring loop on real gloo ranks: right data passes, every fault is detected, and the loop costs little."""

from __future__ import annotations

import time

import pytest
import torch.distributed as dist

from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.nccl import overhead
from tests.workloads.nccl.loop_ranks import CASES, CHECK, ITERATIONS, RANKS, SIZE, TIMED, Key, every_case, spoiled
from workloads.nccl.answer import Timing
from workloads.nccl.device import Cpu
from workloads.nccl.loop import faulty_calls
from workloads.nccl.operations import DTYPES
from workloads.nccl.presets import Mode

Found = list[dict[Key, int | None]]
cases = pytest.mark.parametrize(("op", "dtype"), CASES)


@pytest.fixture(scope="module")
def found() -> Found:
    return on_ranks(every_case, RANKS)


def wrong(found: Found, op: str, dtype: str, what: str) -> list[int | None]:
    """Return the number of wrong elements by rank."""
    return [answers[op, dtype, what] for answers in found]


@cases
def test_every_element_of_every_operation_and_type_is_right(found: Found, op: str, dtype: str) -> None:
    assert wrong(found, op, dtype, "throughput") == wrong(found, op, dtype, "latency") == [0] * RANKS
    assert wrong(found, op, dtype, "unchecked") == [None] * RANKS


@cases
def test_a_flipped_bit_is_detected_on_its_rank_each_time(found: Found, op: str, dtype: str) -> None:
    """In each verified run, and in the buffers after the last timed run."""
    seen = wrong(found, op, dtype, "corrupt")
    assert seen.pop(spoiled(op)) == 2 * CHECK + 1
    assert seen == [0] * (RANKS - 1)


@cases
def test_an_unwritten_receive_buffer_is_detected_on_its_rank(found: Found, op: str, dtype: str) -> None:
    seen = wrong(found, op, dtype, "stale")
    elements = SIZE // DTYPES[dtype].itemsize
    received = elements // RANKS if op in ("reduce_scatter", "scatter") else elements
    here = seen.pop(spoiled(op)) or 0
    if op in ("reduce", "all_reduce"):
        # The buffer holds this rank's own share, which is right where the other ranks have zeros.
        assert received * (2 * CHECK + 1) * 0.7 < here <= received * (2 * CHECK + 1)
    else:
        assert here == received * (2 * CHECK + 1)
    assert seen == [0] * (RANKS - 1)


@cases
def test_a_wrong_element_in_the_last_timed_run_is_detected(found: Found, op: str, dtype: str) -> None:
    assert wrong(found, op, dtype, f"run {TIMED[-1]}")[spoiled(op)] == 1


def test_faulty_calls_by_time() -> None:
    """2 verified, 1 warm-up, 3 timed, 2 verified runs."""

    def calls(when: str | None, kind: str) -> list[int]:
        hits = faulty_calls(when, kind, 1, 2, 3)
        return [call for call in range(9) if hits(call)]

    assert calls("before", "corrupt") == [0, 1]
    assert calls("timed", "corrupt") == [5]
    assert calls("timed", "stale") == [3, 4, 5]
    assert calls("after", "corrupt") == [6, 7]
    assert calls(None, "corrupt") == [0, 1, 5, 6, 7]


def test_clocks_disagree_beyond_5_percent_and_launch_cost() -> None:
    assert not Timing([1.0], span=1.0, wall=1.04).clocks_disagree
    assert Timing([1.0], span=1.0, wall=1.06).clocks_disagree
    assert Timing([1.0], span=1.0, wall=0.94).clocks_disagree
    assert not Timing([1e-5], span=1e-5, wall=5e-5).clocks_disagree  # a launch, not a clock


@pytest.mark.parametrize("mode", ["throughput", "latency"])
def test_neither_barrier_nor_restored_input_is_timed(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def untimed(name: str) -> None:
        order.append(name)
        time.sleep(0.2)

    monkeypatch.setattr(dist, "barrier", lambda: untimed("barrier"))
    timing = Cpu().time(lambda: order.append("run"), ITERATIONS, mode, lambda: untimed("restore"))
    assert order == ["restore", "barrier", "run"] * ITERATIONS
    # Nothing but what is not timed takes that long, on a busy machine either.
    assert timing.total < 0.2
    assert len(timing.per_iteration) == ITERATIONS


def test_a_cpu_has_no_graphs() -> None:
    with pytest.raises(ValueError, match="no GPU"):
        Cpu().time(lambda: None, 1, "graph")


def test_loop_against_a_bare_one_on_real_ranks() -> None:
    found = overhead.measure([2**20], pairs=9, ranks=2, iterations=10)
    assert [(each.op, each.size, len(each.ratios)) for each in found] == [(op, 2**20, 9) for op in overhead.OPERATIONS]
    for each in found:
        # The median: single ratios from 0.13 to 3 were measured on a busy machine.
        assert 0.1 < each.ratio < 10, overhead.report(found, 2, 10)


def test_the_loop_adds_microseconds_to_a_run() -> None:
    """0.02 of 1 ms, which 1 MiB takes at least on this kind of machine, are 20 µs. The quickest of many counts."""
    assert 0 < overhead.own_cost() < 5e-6
    slow = Cpu().time(lambda: time.sleep(1e-3), 5)
    assert slow.total >= 5e-3  # the clock runs
