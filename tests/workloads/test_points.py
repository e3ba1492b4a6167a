"""Point to point over gloo: data, injected faults, figures and the table."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
import torch

from tests.workloads.conftest import Cluster
from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.point_ranks import FAULTS, RANKS, SHAPES, SIZE, every_variant
from workloads.exits import Exit
from workloads.nccl.operations import DTYPES, WINDOW, Operation, Place, point_to_point
from workloads.nccl.point_patterns import Variant, fan_in, flows, variants
from workloads.nccl.result import Result

CPU = torch.device("cpu")
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found() -> list[Found]:
    """Return what each of four ranks measures in every variant, without a fault and with each."""
    return on_ranks(every_variant, RANKS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_of_every_variant_is_right(found: list[Found], dtype: str) -> None:
    measured = defaultdict(list)
    for rank, rows in enumerate(found):
        for row in rows:
            if row["dtype"] != dtype or row["fault"]:
                continue
            assert row["wrong"] == 0
            assert row["before"] == row["expected"]  # poisoned: nothing is right before it has run
            nodes, per_node = row["shape"]
            variant = Variant.parse(row["variant"])
            senders = [f.sender for f in flows(variant, nodes, per_node) if f.receiver == rank]
            whole = SIZE // DTYPES[dtype].itemsize // fan_in(variant, per_node)
            assert row["expected"] == len(senders) * whole
            measured[nodes, per_node].append(row["variant"])
    for shape in SHAPES:
        assert sorted(measured[shape]) == sorted([v.name for v in variants(*shape)] * RANKS)


def test_only_ranks_without_a_flow_do_not_take_part(found: list[Found]) -> None:
    for rank, rows in enumerate(found):
        for row in rows:
            ends = {end for f in flows(Variant.parse(row["variant"]), *row["shape"]) for end in (f.sender, f.receiver)}
            assert row["takes_part"] is (rank in ends)
            assert row["timing"]["total"] > 0


@pytest.mark.parametrize("fault", [f"{fault.kind}:{fault.rank}" for fault in FAULTS])
def test_a_fault_is_detected_in_every_variant_on_its_rank_only(found: list[Found], fault: str) -> None:
    kind, spoiled = fault.split(":")
    seen = set()
    for rank, rows in enumerate(found):
        for row in (row for row in rows if row["fault"] == fault):
            if rank != int(spoiled) or row["expected"] == 0:
                assert row["wrong"] == 0
            elif kind == "corrupt":
                assert row["wrong"] == 3  # one element each before, in the last timed run and after
                seen.add(row["variant"])
            else:
                assert row["wrong"] == 3 * row["expected"]
                seen.add(row["variant"])
    receiving = {
        variant.name
        for variant in variants(2, 2)
        if any(flow.receiver == int(spoiled) for flow in flows(variant, 2, 2))
    }
    assert seen == receiving != set()


def test_a_size_is_the_same_for_every_receiver() -> None:
    """An incast's senders share the size, so its time compares with that of a single pair."""
    for rank in range(16):
        for variant in variants(2, 8):
            made = Operation(point_to_point(variant), Place(rank, 16, 8), 1 << 16, torch.float32, CPU)
            received = sum(buffer.numel() for buffer, _ in made.incoming) * 4
            assert received in (0, made.size)
            assert made.size == 1 << 16


@pytest.mark.parametrize(("size", "pieces"), [(1 << 16, WINDOW), (8, 2), (4, 1), (1, 1)])
def test_a_message_moves_in_window_pieces(size: int, pieces: int) -> None:
    """More than one piece before the first wait; a single element is one piece."""
    assert WINDOW >= 2
    made = Operation(point_to_point(Variant("pairs", "duplex")), Place(1, 4, 2), size, torch.float32, CPU)
    [(received, _)], [(sent, _)] = made.incoming, made.outgoing
    assert len(received.chunk(WINDOW)) == len(sent.chunk(WINDOW)) == pieces
    assert made.size == max(4, size)


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> tuple[dict[str, Any], str]:
    """Return the result and the terminal output of every pattern on a real cluster."""
    done = cluster.rdma_ray(
        *("bench", "nccl", "--op", "p2p", "--pattern", "all", "-b", "64K", "-e", "64K", "-n", "3", "-w", "1"),
        *("--json", "points.json"),
    )
    assert done.returncode == 0, done.stderr
    return json.loads((cluster.folder / "points.json").read_text()), done.stdout


def test_a_run_measures_every_pattern_in_each_direction(bench: tuple[dict[str, Any], str]) -> None:
    result = Result.model_validate(bench[0])
    assert [row.variant for row in result.rows] == [variant.name for variant in variants(2, 2)]
    for row in result.rows:
        assert (row.op, row.wrong, row.limit, row.nic_bandwidth, row.warnings) == ("p2p", 0, None, None, [])
        assert row.pairs is not None
        assert row.total is not None
        assert row.variant is not None
        expected = flows(Variant.parse(row.variant), 2, 2)
        assert [(p.sender, p.receiver) for p in row.pairs] == [(f.sender, f.receiver) for f in expected]
        for pair in row.pairs:
            times = {rank.rank: rank.time_us for rank in row.ranks}
            assert pair.time_us == pytest.approx(max(times[pair.sender], times[pair.receiver]))
        # Each pair's figure and each direction's total is rounded to six decimals.
        rounding = 0.5e-6 * (len(row.pairs) + 2)
        assert 0 < row.total <= sum(pair.bandwidth for pair in row.pairs) + rounding


def test_the_terminal_shows_every_pair_with_its_hosts_and_both_units(bench: tuple[dict[str, Any], str]) -> None:
    said = bench[1]
    assert "point to point" in said
    assert "Gbit/s" in said
    assert "a functional proof" in said
    for name in ("pairs up", "rail 1 duplex", "incast down", "intra up"):
        assert name in said
    result = Result.model_validate(bench[0])
    for member in result.ranks or []:
        assert member.ip in said


def test_bench_rejects_an_impossible_pattern(cluster: Cluster) -> None:
    done = cluster.rdma_ray("bench", "nccl", "--op", "p2p", "--pattern", "incast", "--per-node", "1")
    assert done.returncode == Exit.ERROR
    assert "pattern incast needs at least 2 ranks per node" in done.stderr
