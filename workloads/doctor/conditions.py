"""Check of Kubernetes nodes: every condition must be as on a healthy node, and no node is cordoned.

The types are an open set: the kubelet, node-problem-detector, a cloud's agents and operators add their own. So a rule
says what a type's good status is, and a status that is neither True nor False is never good.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from workloads.doctor.check import Problem, Severity, check
from workloads.doctor.objects import condition, name_of
from workloads.doctor.state import State

Json = dict[str, Any]
NOT_READY_S = 120
"""Seconds that a node has to become ready, and a component to report its first status."""
GOOD = re.compile(r"(?<!Not)(?<!not)(?:Ready|Healthy|Available|Reachable|OK|Ok)$")
"""Types that are True on a healthy node: Kubernetes' Ready, and those of EKS' agent such as NetworkingReady (EKS docs,
learn-status-conditions). All others name a fault and are False, as NetworkUnavailable is, the pressures, and all 25 of
GKE's node-problem-detector (its config/*.json; `kubectl describe node` of GKE 1.35.7, public, 2026-09-15)."""
EITHER = ("SysctlChanged", "EtcdIsVoter")
"""Types that are True or False on healthy nodes: SysctlChanged is True on each GKE node of that listing, for
`kernel.cad_pid`; EtcdIsVoter is one or the other on K3s and RKE2 (k3s-io/k3s: pkg/etcd/etcd.go). Read 2026-11-26."""
ADVICE = re.compile(r"^(?:Deprecated|Unsupported|DPv2Migration)|Changed$")
"""Types of node-problem-detector on GKE that are about an upgrade to come, and stop nothing now."""
STARTING = ("Ready", "NetworkUnavailable")
"""Types that are bad on every new node (kubernetes: pkg/kubelet, and the cloud's route controller)."""
REPAIRS = {
    "Ready": 30,
    "AcceleratedHardwareReady": 10,
    "ContainerRuntimeReady": 30,
    "KernelReady": 30,
    "NetworkingReady": 30,
    "StorageReady": 30,
}
"""Minutes after which EKS' node repair acts on a condition (EKS docs, node-repair, read 2026-11-26)."""
PRESSURES = {
    "DiskPressure": "the kubelet evicts pods of this node: delete what fills its disk (/tmp/ray, logs, caches), or move"
    " it to the stack's storage",
    "MemoryPressure": "the kubelet evicts pods of this node: stop what uses its memory, or lower the pods' memory",
    "PIDPressure": "the kubelet evicts pods of this node: end the job that starts so many processes",
}
"""Fixes for the kubelet's pressure conditions, which a new node does not fix."""
SILENT = "its reporter is silent: see the pods of DaemonSets on that node (`daemons`), and its agents' logs"
REPLACE = "write checkpoints, then kubectl cordon NODE and delete the node, which ends its jobs: the pool replaces it"


@check(
    "nodes",
    "nodes",
    cure="kubectl describe node NODE shows its conditions; delete one that does not recover, and the pool replaces it",
)
def nodes(state: State) -> Iterator[Problem]:
    """A condition of a node is not as on a healthy one, or no pod may be placed on the node."""
    for node in state.objects("nodes"):
        problems = list(_wrong(state, node))
        yield from problems
        if not problems and node["spec"].get("unschedulable"):
            cure = f"kubectl uncordon {name_of(node)}, unless it is under repair"
            yield Problem(f"node {name_of(node)}", "the node is cordoned", "spec.unschedulable: true", cure, "warning")


def _wrong(state: State, node: Json) -> Iterator[Problem]:
    where, ready = f"node {name_of(node)}", condition(node, "Ready")
    reported = (node.get("status") or {}).get("conditions") or []
    for each in reported if ready else [*reported, {"type": "Ready", "status": "Unknown", "reason": "no condition"}]:
        type_, status = str(each.get("type")), str(each.get("status"))
        if is_good(type_, status):
            continue
        since = each.get("lastTransitionTime") or node["metadata"].get("creationTimestamp")
        age = state.age(since) if since else math.inf
        if age <= NOT_READY_S and (type_ in STARTING or status == "Unknown"):
            continue
        if type_ != "Ready" and status == "Unknown" and ready.get("status") == "Unknown":
            continue  # the node controller sets all of the kubelet's conditions when the kubelet is silent
        cause = "the node is not ready" if type_ == "Ready" else f"the node's condition {type_} is {status}"
        text = f"{each.get('reason') or 'no reason'}: {each.get('message') or ''}".rstrip(": ")
        severity: Severity = "warning" if ADVICE.search(type_) and status == "True" else "error"
        cure = SILENT if type_ != "Ready" and status == "Unknown" else _cure(state, type_, str(each.get("reason")))
        yield Problem(where, cause, text, cure, severity)


def is_good(type_: str, status: str) -> bool:
    """Return whether a condition of this type has this status on a healthy node."""
    if type_ in EITHER:
        return status in ("True", "False")
    return status == ("True" if GOOD.search(type_) else "False")


def _cure(state: State, type_: str, reason: str) -> str | None:
    """Return the cure of a condition; None for that of the check."""
    if state.outputs.target == "eks" and type_ in REPAIRS:
        does = "replaces or reboots" if type_ == "AcceleratedHardwareReady" else "replaces"
        cure = f"EKS {does} this node {REPAIRS[type_]} minutes after the change, and its job ends: write checkpoints"
        cure += " now, and run the job again with --resume (docs/eks.md)"
        if reason == "DCGMError":
            cure += (
                ". If nvidia-smi finds no fault there, delete the pod of eks-node-monitoring-agent on the node: the"
                " agent does not take this reason back (aws/eks-node-monitoring-agent#266)"
            )
        return cure
    if type_ == "Ready":
        return None
    if ADVICE.search(type_):
        return "the message says what a later version does not support: change it before the upgrade"
    return PRESSURES.get(type_, REPLACE)
