"""Mutations: what notices an input that is taken out or changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from infra.settings import from_stack_file
from rehearsal.__main__ import cloud_stacks
from rehearsal.engine.workspace import ROOT
from rehearsal.invariants.invariant import Stack
from rehearsal.mutations import FREE, another, changed, inputs_of, mutate, table, without
from rehearsal.report.golden import listed
from rehearsal.report.outcome import Outcome

POOL, QUEUE = "gcp:container/nodePool:NodePool", "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"


@pytest.mark.parametrize("stack", cloud_stacks())
def test_golden_list_has_every_input(rehearse: Callable[..., Outcome], stack: str) -> None:
    """Whatever else notices it, an input that is taken out is a difference of the list, unless a reason is given."""
    free = {pattern.partition("#")[0] for pattern in FREE}
    for node in rehearse(stack).graph.managed:
        for path, _ in inputs_of(node.inputs):
            rest = type(node)(**{**vars(node), "inputs": without(node.inputs, path)})
            assert listed(rest) != listed(node) or (node.type in free and len(path) > 1), (node.type, path)


def test_clouds_and_invariants_notice_most_inputs(rehearse: Callable[..., Outcome]) -> None:
    stack = Stack(rehearse("gke-dws").graph, from_stack_file(ROOT / "Pulumi.gke-dws.yaml"))
    mutations = list(mutate(stack, {POOL, QUEUE}))
    counts = Counter(mutation.by for mutation in mutations)
    assert counts["nothing"] == 0
    assert counts["golden"] < counts["refusal"] + counts["invariant"]
    assert min(counts[by] for by in ("refusal", "invariant", "golden")) > 5
    assert [row.split(" | ")[0] for row in table(mutations)][2:] == [f"| `{POOL}`", f"| `{QUEUE}`", "| all"]


@pytest.mark.parametrize(
    ("value", "other"), [(True, False), (3, 4), ("3", "4"), ("a", "ax"), ([1], None), ({"a": 1}, None)]
)
def test_changed_value_keeps_its_type(value: object, other: object) -> None:
    assert another(value) == other


def test_inputs_change_at_any_depth() -> None:
    inputs = {"a": [{"b": 1}, {"b": 2}], "__defaults": []}
    assert [path for path, _ in inputs_of(inputs)] == [("a",), ("a", 0), ("a", 0, "b"), ("a", 1), ("a", 1, "b")]
    assert without(inputs, ("a", 0)) == {"a": [{"b": 2}], "__defaults": []}
    assert changed(inputs, ("a", 1, "b"), 3)["a"] == [{"b": 1}, {"b": 3}]
