"""What somebody who runs jobs needs of Kubernetes: the stack's outputs in a Secret, and a Role. Imports no Pulumi.

Only a team's group is bound by the stack: an administrator binds other users, whom the stack does not know
(docs/install.md).
"""

from __future__ import annotations

from typing import Any

from infra.catalog.names import outputs_secret
from infra.catalog.pins import OPERATOR_API, POD_MONITORING_API
from infra.kubernetes.pods import RBAC, RayArgs

READ = {
    "": ("events", "persistentvolumeclaims", "pods", "services"),
    "autoscaling.x-k8s.io": ("provisioningrequests",),
    "batch": ("jobs",),
    "kueue.x-k8s.io": ("localqueues", "workloads"),
    "networking.k8s.io": ("networkpolicies",),
    "ray.io": ("rayclusters", "rayjobs", "rayservices"),
    "resource.k8s.io": ("resourceclaims",),
}
"""Kinds that commands read, by API group: the head and its Service, and what `doctor` reads of Ray's namespace
(workloads/doctor/state.py, OWN). It reads nodes and other namespaces only for an administrator."""


RENDERED = {
    "": ("configmaps", "services"),
    "batch": ("jobs",),
    "networking.k8s.io": ("networkpolicies",),
    "policy": ("poddisruptionbudgets",),
    RBAC: ("roles", "rolebindings"),
    "ray.io": ("rayjobs",),
}
"""Kinds of the objects that `rdma-ray render` prints. A team's members create and delete them, and change none: a
change could take a job out of its queue. Of roles they create only what they may do themselves (Kubernetes docs,
reference/access-authn-authz/rbac, privilege escalation prevention, read 2026-11-29), which excludes the role of a time
limit."""


def client_rules(args: RayArgs) -> list[dict[str, Any]]:
    """Return the rights of the Role, all of them in Ray's namespace.

    RBAC knows no labels: in a namespace with other pods, the rights reach those too.
    """
    return [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [outputs_secret(args.name)], "verbs": ["get"]},
        *({"apiGroups": [group], "resources": [*kinds], "verbs": ["get", "list"]} for group, kinds in READ.items()),
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        # To reach the head, and for `rdma-ray shell`.
        {"apiGroups": [""], "resources": ["pods/portforward", "pods/exec"], "verbs": ["create"]},
        *(_members_rules(args) if args.settings.team else ()),
    ]


def _members_rules(args: RayArgs) -> list[dict[str, Any]]:
    """Return the further rights of a team's members; `admission.team_policy` restricts what they create."""
    kinds = dict(RENDERED)
    if args.pod_monitoring:
        kinds[POD_MONITORING_API.partition("/")[0]] = ("podmonitorings",)
    if args.settings.monitoring == "operator":
        kinds[OPERATOR_API.partition("/")[0]] = ("podmonitors",)
    verbs = ["get", "create", "delete"]
    return [{"apiGroups": [group], "resources": [*names], "verbs": verbs} for group, names in kinds.items()]


def client_role(args: RayArgs) -> dict[str, Any]:
    """Return the Role of the stack's users."""
    name = outputs_secret(args.name)
    return {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name}, "rules": client_rules(args)}


def client_bindings(args: RayArgs) -> list[dict[str, Any]]:
    """Return the RoleBinding of a team's group to the Role; [] without a group."""
    team, name = args.settings.team, outputs_secret(args.name)
    if team is None or team.group is None:
        return []
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"apiGroup": RBAC, "kind": "Group", "name": team.group}
    common = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": name}}
    return [{**common, "roleRef": reference, "subjects": [subject]}]
