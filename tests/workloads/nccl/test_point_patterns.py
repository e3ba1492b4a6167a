"""Senders and receivers of every pattern, the names of variants, and the choice of patterns."""

from __future__ import annotations

import pytest

from workloads.nccl.point_patterns import DIRECTIONS, PATTERNS, Variant, choose, flows, variants


@pytest.mark.parametrize(
    ("name", "nodes", "per_node", "expected"),
    [
        ("pairs up", 2, 2, [(0, 2), (1, 3)]),
        ("pairs down", 2, 2, [(2, 0), (3, 1)]),
        ("pairs up", 5, 1, [(0, 1), (2, 3)]),
        ("single duplex", 2, 8, [(0, 8), (8, 0)]),
        ("pairs duplex", 4, 1, [(0, 1), (2, 3), (1, 0), (3, 2)]),
        ("rail 3 up", 2, 4, [(3, 7)]),
        ("rail 1 down", 5, 2, [(3, 1), (7, 5)]),
        ("shift up", 2, 3, [(0, 4), (1, 5), (2, 3)]),
        ("shift up", 5, 2, [(0, 3), (1, 2), (4, 7), (5, 6)]),
        ("shift down", 2, 2, [(3, 0), (2, 1)]),
        ("incast up", 2, 3, [(0, 3), (1, 3), (2, 3)]),
        ("incast duplex", 2, 2, [(0, 2), (1, 2), (2, 0), (3, 0)]),
        ("incast down", 5, 2, [(2, 0), (3, 0), (6, 4), (7, 4)]),
        ("intra up", 2, 3, [(0, 1), (3, 4)]),
        ("intra down", 1, 4, [(1, 0), (3, 2)]),
    ],
)
def test_senders_and_receivers(name: str, nodes: int, per_node: int, expected: list[tuple[int, int]]) -> None:
    found = flows(Variant.parse(name), nodes, per_node)
    assert [(flow.sender, flow.receiver) for flow in found] == expected


def test_names_parse_to_their_variant_and_are_distinct() -> None:
    found = variants(3, 12)
    assert [Variant.parse(variant.name) for variant in found] == found
    assert len({variant.name for variant in found}) == len(found)
    assert [v.direction for v in found] == list(DIRECTIONS) * (len(found) // 3)


@pytest.mark.parametrize("name", ["", "pairs", "pairs sideways", "rail up", "pairs 1 up", "rail x up", "up", "a b c d"])
def test_parse_rejects_other_names(name: str) -> None:
    with pytest.raises(ValueError, match="not a point-to-point measurement"):
        Variant.parse(name)


def test_the_default_is_the_basic_pattern() -> None:
    assert choose([], 2, 8) == ["pairs"]
    assert choose([], 1, 2) == ["intra"]
    assert choose(["shift", "pairs", "shift"], 2, 2) == ["shift", "pairs"]
    assert choose(["all"], 2, 1) == ["pairs", "single", "rail"]
    assert choose(["all"], 1, 2) == ["intra"]
    assert choose(["all"], 3, 2) == list(PATTERNS)


@pytest.mark.parametrize(
    ("name", "nodes", "per_node", "message"),
    [
        ("circle", 2, 2, "choose from all, pairs"),
        *[(name, 1, 2, "at least 2 nodes") for name in PATTERNS if name != "intra"],
        ("shift", 2, 1, "at least 2 ranks per node: this run has 2 nodes with 1 ranks each"),
        ("incast", 2, 1, "at least 2 ranks per node"),
        ("intra", 2, 1, "at least 2 ranks per node"),
    ],
)
def test_choose_rejects_impossible_patterns(name: str, nodes: int, per_node: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose([name], nodes, per_node)
