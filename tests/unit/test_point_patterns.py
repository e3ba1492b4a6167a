"""Senders and receivers of every pattern on 1 to 8 nodes of 1 to 8 ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.nccl.point_patterns import (
    DIRECTIONS,
    PATTERNS,
    Variant,
    choose,
    fan_in,
    flows,
    possible,
    variants,
)

shapes = st.tuples(st.integers(1, 8), st.integers(1, 8))
ACROSS = [name for name in PATTERNS if name != "intra"]


def as_pairs(name: str, nodes: int, per_node: int) -> list[tuple[int, int]]:
    return [(flow.sender, flow.receiver) for flow in flows(Variant.parse(name), nodes, per_node)]


@given(shapes)
def test_invariants_of_every_variant(shape: tuple[int, int]) -> None:
    nodes, per_node = shape
    for variant in variants(nodes, per_node):
        found = flows(variant, nodes, per_node)
        assert found, variant
        assert len(set(found)) == len(found)
        for flow in found:
            assert 0 <= flow.sender < nodes * per_node
            assert 0 <= flow.receiver < nodes * per_node
            one, other = flow.sender // per_node, flow.receiver // per_node
            assert abs(one - other) == (1 if variant.across else 0)
            if variant.across:
                assert min(one, other) % 2 == 0  # neighbours pair up: 0 and 1, 2 and 3
        receiving = Counter(flow.receiver for flow in found)
        assert set(receiving.values()) == {fan_in(variant, per_node)}
        # A rank sends once in one direction; in both it may, in an incast, be sender and receiver.
        for up in (True, False):
            senders = [flow.sender for flow in found if flow.up is up]
            assert len(set(senders)) == len(senders)


@given(shapes)
def test_duplex_is_the_sum_of_both_directions(shape: tuple[int, int]) -> None:
    for variant in variants(*shape):
        found = flows(variant, *shape)
        by_direction = {name: flows(Variant(variant.pattern, name, variant.rail), *shape) for name in DIRECTIONS}
        assert by_direction["duplex"] == by_direction["up"] + by_direction["down"]
        assert all(flow.up for flow in by_direction["up"])
        assert not any(flow.up for flow in by_direction["down"])
        assert len(by_direction["up"]) == len(by_direction["down"])
        if variant.pattern != "incast":
            assert {(f.receiver, f.sender) for f in by_direction["up"]} == {
                (f.sender, f.receiver) for f in by_direction["down"]
            }
        assert found == by_direction[variant.direction]


@given(st.integers(2, 8), st.integers(1, 8))
def test_pairs_use_every_rail_and_rails_are_their_parts(nodes: int, per_node: int) -> None:
    together = flows(Variant("pairs", "up"), nodes, per_node)
    assert {rank for f in together for rank in (f.sender, f.receiver)} == set(range(nodes // 2 * 2 * per_node))
    assert all(f.sender % per_node == f.receiver % per_node for f in together)
    rails = [flows(Variant("rail", "up", rail), nodes, per_node) for rail in range(per_node)]
    assert sorted(flow for rail in rails for flow in rail) == sorted(together)
    for rail, found in enumerate(rails):
        assert {rank % per_node for f in found for rank in (f.sender, f.receiver)} == {rail}
    assert flows(Variant("single", "up"), nodes, per_node) == rails[0]


@given(st.integers(2, 8), st.integers(2, 8))
def test_a_shift_crosses_every_rail_once(nodes: int, per_node: int) -> None:
    found = flows(Variant("shift", "up"), nodes, per_node)
    assert all((f.sender + 1) % per_node == f.receiver % per_node for f in found)
    assert Counter(f.sender % per_node for f in found) == Counter(dict.fromkeys(range(per_node), nodes // 2))


@pytest.mark.parametrize(
    ("name", "nodes", "per_node", "expected"),
    [
        ("pairs up", 2, 2, [(0, 2), (1, 3)]),
        ("pairs down", 2, 2, [(2, 0), (3, 1)]),
        ("pairs up", 5, 1, [(0, 1), (2, 3)]),
        ("single duplex", 2, 8, [(0, 8), (8, 0)]),
        ("rail 3 up", 2, 4, [(3, 7)]),
        ("shift up", 2, 3, [(0, 4), (1, 5), (2, 3)]),
        ("shift down", 2, 2, [(3, 0), (2, 1)]),
        ("incast up", 2, 3, [(0, 3), (1, 3), (2, 3)]),
        ("incast down", 2, 3, [(3, 0), (4, 0), (5, 0)]),
        ("intra up", 2, 3, [(0, 1), (3, 4)]),
        ("intra down", 1, 4, [(1, 0), (3, 2)]),
    ],
)
def test_small_cases(name: str, nodes: int, per_node: int, expected: list[tuple[int, int]]) -> None:
    assert as_pairs(name, nodes, per_node) == expected


@given(shapes)
def test_names_parse_to_their_variant_and_are_distinct(shape: tuple[int, int]) -> None:
    found = variants(*shape)
    assert [Variant.parse(variant.name) for variant in found] == found
    assert len({variant.name for variant in found}) == len(found)
    assert [v.direction for v in found] == list(DIRECTIONS) * (len(found) // 3)


@pytest.mark.parametrize("name", ["", "pairs", "pairs sideways", "rail up", "pairs 1 up", "rail x up", "up", "a b c d"])
def test_parse_rejects_other_names(name: str) -> None:
    with pytest.raises(ValueError, match="no point-to-point measurement"):
        Variant.parse(name)


def test_eight_rails_have_24_measurements() -> None:
    assert len(variants(2, 8)) == 3 * (5 + 8)
    assert [v.name for v in variants(2, 2) if v.pattern == "rail"][:4] == [
        "rail 0 up",
        "rail 0 down",
        "rail 0 duplex",
        "rail 1 up",
    ]


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
        *[(name, 1, 2, "at least 2 nodes") for name in ACROSS],
        ("shift", 2, 1, "at least 2 ranks per node: this run has 2 nodes with 1 ranks each"),
        ("incast", 2, 1, "at least 2 ranks per node"),
        ("intra", 2, 1, "at least 2 ranks per node"),
    ],
)
def test_choose_rejects_impossible_patterns(name: str, nodes: int, per_node: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose([name], nodes, per_node)
    assert name not in PATTERNS or not possible(name, nodes, per_node)
