"""Point to point over gloo: data, injected faults, figures and the table."""

from __future__ import annotations

import pytest
import torch

from tests.workloads.gloo_ranks import on_ranks
from tests.workloads.nccl.point_ranks import RANKS, every_variant
from workloads.nccl.kinds import WINDOW, RankPosition, point_to_point
from workloads.nccl.operations import Operation
from workloads.nccl.point_patterns import Variant, variants

CPU = torch.device("cpu")


def test_every_variant_is_right_and_a_fault_is_detected_on_its_rank_only() -> None:
    """Four ranks in every variant and data type, and with each fault on a rank of each node."""
    assert on_ranks(every_variant, RANKS) == [[]] * RANKS


def test_a_size_is_the_same_for_every_receiver() -> None:
    """An incast's senders share the size, so its time compares with that of a single pair."""
    for rank in range(16):
        for variant in variants(2, 8):
            made = Operation(point_to_point(variant), RankPosition(rank, 16, 8), 1 << 16, torch.float32, CPU)
            received = sum(buffer.numel() for buffer, _ in made.incoming) * 4
            assert received in (0, made.size)
            assert made.size == 1 << 16


@pytest.mark.parametrize(("size", "pieces"), [(1 << 16, WINDOW), (8, 2), (4, 1), (1, 1)])
def test_a_message_moves_in_window_pieces(size: int, pieces: int) -> None:
    """More than one piece before the first wait; a single element is one piece."""
    assert WINDOW >= 2
    made = Operation(point_to_point(Variant("pairs", "duplex")), RankPosition(1, 4, 2), size, torch.float32, CPU)
    [(received, _)], [(sent, _)] = made.incoming, made.outgoing
    assert len(received.chunk(WINDOW)) == len(sent.chunk(WINDOW)) == pieces
    assert made.size == max(4, size)
