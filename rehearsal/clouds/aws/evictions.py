"""Drains of managed node groups: an update of image or template evicts every pod, and a budget can forbid it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rehearsal.clouds.aws.references import desired
from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.kubernetes import pods
from rehearsal.clouds.kubernetes.connection import OWNER, POOL_LABELS
from rehearsal.engine.kind import Call, Json, value_at

RECREATES = frozenset({"launchTemplate.version", "releaseVersion", "version"})
"""Inputs of UpdateNodegroupVersion, which replaces every node (hashicorp/terraform-provider-aws: node_group.go)."""
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"


@rule(
    "update",
    refused="convox/convox#889, 2025-05-07",
    accepted="hashicorp/terraform-provider-aws 012e0a32, TestAccEKSNodeGroup_forceUpdateVersion",
    status="failed PodEvictionFailure",
)
def evictions_forbidden(call: Call) -> str | None:
    """An update drains the nodes. After 15 minutes without an eviction it fails, unless it is forced."""
    changed = (path for path in RECREATES if value_at(call.inputs, path) not in (None, value_at(call.live, path)))
    if call.inputs.get("forceUpdateVersion") or not desired(call.live) or not any(changed):
        return None
    cluster, _, name = call.id.partition(":")
    for _, id_, budget in call.state.all(BUDGET):
        if budget.get(OWNER) == cluster and _forbids(budget["spec"], list(_pods_of(call, cluster, name))):
            return f"Reached max retries while trying to evict pods from nodes in node group {name} ({id_} forbids it)"
    return None


def _forbids(budget: Json, labels: list[Mapping[str, str]]) -> bool:
    """Return whether a budget allows no eviction of the pods that it selects, given by their labels."""
    wanted = value_at(budget, "selector.matchLabels") or {}
    count = sum(wanted.items() <= each.items() for each in labels)
    # Percentages other than these allow some.
    return count > 0 and (
        budget.get("maxUnavailable") in (0, "0%")
        or budget.get("minAvailable") == "100%"
        or (isinstance(least := budget.get("minAvailable"), int) and least >= count)
    )


def _pods_of(call: Call, cluster: str, group: str) -> Iterator[Mapping[str, str]]:
    """Yield the labels of each pod that may run on the nodes of a group."""
    nodes = {**(call.live.get("labels") or {}), POOL_LABELS[1]: group}
    taints = {taint["key"] for taint in call.live.get("taints") or () if taint.get("effect") != "PREFER_NO_SCHEDULE"}
    for type_, _, live in call.state.all():
        if not type_.startswith("kubernetes:") or live.get(OWNER) != cluster:
            continue
        for labels, spec in pods.running(type_, live):
            tolerated: set[Any] = {each.get("key") for each in spec.get("tolerations") or ()}
            if (spec.get("nodeSelector") or {}).items() <= nodes.items() and taints <= tolerated:
                yield labels


RULES = rules_of(globals())
