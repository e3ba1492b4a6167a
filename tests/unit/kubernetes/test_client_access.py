"""The Role of a stack's users has what `rdma-ray` calls in Ray's namespace, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from infra.kubernetes.client_access import client_role, client_rules
from infra.kubernetes.workload_objects import every_object
from tests.unit.kubernetes.test_ray import args_of
from tests.unit.stacks import GKE
from workloads.client.head import KUBERNETES_KINDS
from workloads.doctor.state import OWN

ARGS = args_of(GKE, {"access.outputsSecret": True})
CALLED = {"secrets", "pods/log", "pods/portforward", "pods/exec", "services"}
"""What commands call besides the kinds that `doctor` reads: the outputs, logs of `inspect`, the way to the head."""


def granted() -> dict[str, list[Any]]:
    """Return the rules by resource, with the group where `doctor` names it."""
    return {
        f"{kind}.{rule['apiGroups'][0]}".rstrip("."): [rule["verbs"], rule.get("resourceNames")]
        for rule in client_rules(ARGS)
        for kind in rule["resources"]
    }


def test_the_role_has_what_commands_call_and_nothing_more() -> None:
    rights = granted()
    assert rights.keys() == {*OWN.values()} | CALLED
    assert [kind for kind, (verbs, _) in rights.items() if verbs == ["get", "list"]] == [
        kind for kind in rights if kind in {*OWN.values(), "services"}
    ]
    assert rights["secrets"] == [["get"], [f"{ARGS.name}-outputs"]]
    assert {kind for kind, (verbs, _) in rights.items() if verbs == ["create"]} == {"pods/portforward", "pods/exec"}
    assert {f"{kind}s" for kind in KUBERNETES_KINDS.values()} <= {kind.partition(".")[0] for kind in rights}


@pytest.mark.parametrize("on", [True, False])
def test_a_users_cluster_is_asked_for_both_objects(on: bool) -> None:
    args = args_of(GKE, {"access.outputsSecret": on})
    name = client_role(args)["metadata"]["name"]
    found = [body["kind"] for body in every_object(args) if body["metadata"]["name"] == name]
    assert sorted(found) == (["Role", "Secret"] if on else [])
