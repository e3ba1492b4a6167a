"""The invariant about the Secret with a stack's outputs holds, and each wrong right or content breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.settings import from_stack_file
from rehearsal.engine.workspace import ROOT
from rehearsal.graph import Graph
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.protection import outputs_are_for_those_whom_an_administrator_binds as invariant
from rehearsal.report.golden import SIGNATURE
from rehearsal.report.outcome import Outcome

FILE, NAME = "gke-dws", "gke-dws-ray-outputs"
RULE = {"resources": ["secrets"], "resourceNames": [NAME], "verbs": ["get"]}


@pytest.mark.parametrize(
    ("outputs", "rule", "bound", "holds"),
    [
        ({"target": "gke"}, RULE, "another", True),
        ({"kubeconfig": "{}"}, RULE, "another", False),
        ({"context": "theirs"}, RULE, "another", False),
        ({}, RULE | {"resourceNames": None}, "another", False),
        ({}, RULE | {"resourceNames": ["gke-dws-ray-token"]}, "another", False),
        ({}, RULE | {"verbs": ["get", "list"]}, "another", False),
        ({}, RULE, NAME, False),
    ],
)
def test_a_wrong_right_or_content_breaks_the_invariant(
    rehearse: Callable[..., Outcome], outputs: Mapping[str, Any], rule: Mapping[str, Any], bound: str, holds: bool
) -> None:
    settings = from_stack_file(ROOT / f"Pulumi.{FILE}.yaml", {"access.outputsSecret": True})
    nodes = dict(rehearse(FILE).graph.nodes)
    stack = Stack(Graph(nodes), settings)
    content = {SIGNATURE: "", "plaintext": json.dumps({"outputs.json": json.dumps(outputs)})}
    changes: dict[str, dict[str, Any]] = {
        "Secret": {"stringData": content},
        "Role": {"rules": [rule]},
        "RoleBinding": {"roleRef": {"name": bound}},
    }
    for kind, inputs in changes.items():
        like = stack.of(kind)[0]
        inputs = {**like.inputs, "metadata": {"name": NAME}, **inputs}
        nodes[f"{like.urn}-outputs"] = replace(like, urn=f"{like.urn}-outputs", inputs=inputs)
    assert (list(invariant(Stack(Graph(nodes), settings))) == []) is holds
