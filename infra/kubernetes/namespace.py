"""The namespace of Ray's pods, and what those pods may use on their nodes.

Where the stack's GPU pods fit the Pod Security level `baseline`, the namespace enforces it. Where they need
folders of the node or a capability, which the level forbids, a ValidatingAdmissionPolicy admits exactly these and
answers like the level otherwise: the level exempts users, namespaces and runtime classes, but no pod (Kubernetes docs,
concepts/security/pod-security-admission, read 2026-11).
"""

from __future__ import annotations

import pulumi
from pulumi import Alias, ResourceOptions
from pulumi_kubernetes import core

from infra.fabric import GpuPod
from infra.kubernetes.admission import limit_policy, pod_policy, team_policy
from infra.kubernetes.pods import COMPONENTS
from infra.kubernetes.resources import kubernetes_object
from infra.settings.teams import Team, namespace_of

ENFORCE = "pod-security.kubernetes.io/enforce"
"""Label of a namespace with the level that its pods must have."""


class RayNamespace(pulumi.ComponentResource):
    """The namespace, and its admission policies if it needs any. Pods depend on `resources`.

    Args:
        limited: Whether a CronJob may end a workload.
        team: Its team, whose members create jobs; None for the stack's own.
    """

    name: pulumi.Output[str]
    resources: list[pulumi.Resource]

    def __init__(
        self, name: str, pod: GpuPod, opts: ResourceOptions, *, limited: bool, team: Team | None = None
    ) -> None:
        super().__init__("rdma-ray:kubernetes:Namespace", name, {}, opts)
        namespace = namespace_of(team)
        policy = pod_policy(pod, namespace)
        labels = {} if policy else {ENFORCE: "baseline"}
        # Until 2026-11 it was a child of the workload; without aliases, the next `up` would replace it.
        types = [f"rdma-ray:kubernetes:{component}" for component in COMPONENTS.values()]
        made = core.v1.Namespace(
            name,
            metadata={"name": namespace, "labels": labels} if labels else {"name": namespace},
            opts=ResourceOptions(
                parent=self, aliases=[Alias(parent=pulumi.create_urn(name, type_, opts.parent)) for type_ in types]
            ),
        )
        policies = {f"{name}-policy": policy, f"{name}-limits": limit_policy(namespace) if limited else []}
        policies |= {f"{name}-rules": team_policy(namespace)} if team else {}
        objects = [
            kubernetes_object(f"{each}{suffix}", body, ResourceOptions(parent=self))
            for each, bodies in policies.items()
            for suffix, body in zip(("", "-binding"), bodies, strict=False)
        ]
        self.name, self.resources = made.metadata["name"], [made, *objects]
        self.register_outputs({})
