"""EKS' own add-ons, in two steps: what a node needs to become ready, and what needs a node to run on.

DNS without a node is DEGRADED for ever, and a node without an address for its pods never becomes ready.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi import ResourceOptions
from pulumi_aws import eks

from infra.catalog.pins import EKS_ADDONS
from infra.eks.iam import Role
from infra.eks.names import EksNames

BEFORE_NODES = ("eks-pod-identity-agent", "kube-proxy", "vpc-cni")

CNI_ACCOUNT = "aws-node"

CONFIGURATION: Mapping[str, Mapping[str, Any]] = {
    "vpc-cni": {
        # Without it a NetworkPolicy is an object that nobody reads, and Ray's ports are open to every pod.
        "enableNetworkPolicy": "true",
        # Addresses in prefixes of 16: a p5 has one card for IP, and 51 pods without (the address plan counts on it).
        "env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"},
    },
}


@dataclass(frozen=True, kw_only=True)
class AddonsArgs:
    """addons: names. roles: those of their ServiceAccounts, by add-on and ServiceAccount. needs: what has to be there
    before any of them: the nodes, for those that run on one."""

    names: EksNames
    cluster: pulumi.Input[str]
    addons: Sequence[str]
    needs: Sequence[pulumi.Resource] = ()
    roles: Mapping[tuple[str, str], Role] = field(default_factory=dict)


class Addons(pulumi.ComponentResource):
    """Some of the add-ons, all at once; `addons` are what others wait for, by their names."""

    def __init__(self, name: str, args: AddonsArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:Addons", name, {}, opts)
        self.addons: dict[str, pulumi.Resource] = {addon: self._addon(addon, args) for addon in args.addons}
        self.register_outputs({"addons": list(args.addons)})

    def _addon(self, addon: str, args: AddonsArgs) -> eks.Addon:
        roles = {account: role for (of, account), role in args.roles.items() if of == addon}
        return eks.Addon(
            addon,
            addon_name=addon,
            cluster_name=args.cluster,
            addon_version=EKS_ADDONS[addon],
            configuration_values=json.dumps(CONFIGURATION[addon]) if addon in CONFIGURATION else None,
            pod_identity_associations=[
                eks.AddonPodIdentityAssociationArgs(service_account=account, role_arn=role.arn)
                for account, role in roles.items()
            ]
            or None,
            # What is written here holds, whatever is found in the cluster.
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=args.names.tags(addon),
            opts=ResourceOptions(
                parent=self,
                # Nodes for what runs on them; and rights for whoever takes a role: the CNI finds no address without.
                depends_on=[*args.needs, *(grant for role in roles.values() for grant in role.grants)],
            ),
        )
