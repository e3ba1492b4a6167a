"""Published bus bandwidths: confidence follows from the sources, and the outputs carry the floors that gate."""

from __future__ import annotations

from infra.catalog.baselines import BASELINES
from infra.outputs import floors

LINES = [(machine, line) for machine, lines in BASELINES.items() for line in lines]


def test_high_confidence_requires_two_agreeing_publications() -> None:
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


def test_low_confidence_has_note_and_does_not_gate() -> None:
    for machine, line in LINES:
        assert line.gates == (line.confidence != "low")
        assert bool(line.note) == (line.confidence == "low"), (machine, line)


def test_figures_are_unique_per_source() -> None:
    keys = [(machine, line.op, line.nodes, line.size, line.algorithm, line.source) for machine, line in LINES]
    assert len(keys) == len(set(keys))


def test_floors_cover_networks_between_nodes_only() -> None:
    for machine, lines in BASELINES.items():
        carried = floors(machine)
        assert all(floor.nodes > 1 for floor in carried)
        keys = {(floor.op, floor.nodes, floor.bytes) for floor in carried}
        assert len(keys) == len(carried)
        assert keys == {(line.op, line.nodes, line.size) for line in lines if line.gates and line.nodes > 1}
    # Of two algorithms, the floor follows the faster one.
    (ring, _) = floors("p5en.48xlarge")
    assert ring.busbw == 328.4
