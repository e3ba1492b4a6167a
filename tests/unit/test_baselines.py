"""The published figures: how sure each is follows from who published it, and the outputs carry those that may judge."""

from __future__ import annotations

from infra.catalog.baselines import BASELINES, floors

LINES = [(machine, line) for machine, lines in BASELINES.items() for line in lines]


def test_high_confidence_is_two_publications_that_agree() -> None:
    for machine, line in LINES:
        same = [
            other
            for other in BASELINES[machine]
            if (other.op, other.nodes, other.size, other.algorithm) == (line.op, line.nodes, line.size, line.algorithm)
        ]
        agree = len({other.source for other in same}) > 1 and all(
            abs(other.busbw / line.busbw - 1) < 0.02 for other in same
        )
        assert agree == (line.confidence == "high"), (machine, line)


def test_low_confidence_says_why_and_judges_nobody() -> None:
    for machine, line in LINES:
        assert line.gates == (line.confidence != "low")
        assert bool(line.note) == (line.confidence == "low"), (machine, line)


def test_no_two_figures_are_of_one_thing_from_one_source() -> None:
    keys = [(machine, line.op, line.nodes, line.size, line.algorithm, line.source) for machine, line in LINES]
    assert len(keys) == len(set(keys))


def test_the_outputs_carry_the_network_between_nodes_only() -> None:
    for machine, lines in BASELINES.items():
        carried = floors(machine)
        assert all(floor.nodes > 1 for floor in carried)
        keys = {(floor.op, floor.nodes, floor.bytes) for floor in carried}
        assert len(keys) == len(carried)
        assert keys == {(line.op, line.nodes, line.size) for line in lines if line.gates and line.nodes > 1}
    # Of a slower algorithm's figure and a faster one's the faster is what the library should choose.
    (ring, _) = floors("p5en.48xlarge")
    assert ring.busbw == 328.4
