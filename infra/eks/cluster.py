"""The EKS control plane, who may use it, and what it keeps: a key for its Secrets and its logs.

Nodes are `node_groups`, add-ons `addons`; what runs in the cluster is `infra.kubernetes`. No Auto Mode: its nodes take
no launch template, and with it no interface layout and no reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws import eks

from infra.catalog.pins import EKS
from infra.eks.iam import CLUSTER_POLICIES, Role, RoleArgs
from infra.eks.kubeconfig import kubeconfig
from infra.eks.names import EksNames

LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")
LOG_DAYS = 30
KEY_WINDOW_DAYS = 30
"""How long a deleted key can still be brought back, the longest that KMS offers (KMS docs; from memory, 2026-11)."""

ADMINISTRATOR = "cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """What a cluster is made from.

    subnets: in two zones. public_endpoint: whether the API server also has a public address, which then answers
    authorized_networks only; without one they may reach the private address. administrators: ARNs of IAM roles and
    users. protect: whether AWS refuses to delete the cluster.
    """

    names: EksNames
    partition: str
    subnets: Sequence[pulumi.Input[str]]
    public_endpoint: bool
    authorized_networks: Sequence[str]
    administrators: Sequence[str]
    protect: bool


class EksCluster(pulumi.ComponentResource):
    """A control plane in two zones. kubeconfig holds no secret; resource is the cluster itself, for what dies with it.

    security_group: the one that EKS makes, which every node and every control plane interface has.
    """

    kubeconfig: pulumi.Output[str]
    security_group: pulumi.Output[str]

    def __init__(self, name: str, args: EksClusterArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:EksCluster", name, {}, opts)
        self._args = args
        own = ResourceOptions(parent=self)
        key = aws.kms.Key(
            f"{name}-secrets",
            description=f"Secrets of EKS cluster {args.names.cluster}",
            enable_key_rotation=True,
            deletion_window_in_days=KEY_WINDOW_DAYS,
            tags=args.names.tags("secrets"),
            opts=own,
        )
        aws.kms.Alias(f"{name}-secrets", name=args.names.secrets_key, target_key_id=key.key_id, opts=own)
        logs = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            name=args.names.control_plane_logs,
            retention_in_days=LOG_DAYS,
            tags=args.names.tags("logs"),
            opts=own,
        )
        role = Role(
            f"{name}-role",
            RoleArgs(
                name=args.names.role("cluster"),
                service="eks.amazonaws.com",
                partition=args.partition,
                policies=CLUSTER_POLICIES,
                statements=(),
                tags=args.names.tags(),
            ),
            own,
        )
        self.resource = self._cluster(name, role, key, logs)
        self.security_group = self.resource.vpc_config.cluster_security_group_id
        for arn in args.administrators:
            self._administrator(arn)
        if not args.public_endpoint:
            self._private_access(name)
        self.kubeconfig = pulumi.Output.all(
            self.resource.name, self.resource.endpoint, self.resource.certificate_authority.data
        ).apply(self._kubeconfig)
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def _cluster(self, name: str, role: Role, key: aws.kms.Key, logs: aws.cloudwatch.LogGroup) -> eks.Cluster:
        args = self._args
        return eks.Cluster(
            name,
            name=args.names.cluster,
            role_arn=role.arn,
            version=EKS,
            deletion_protection=args.protect,
            vpc_config=eks.ClusterVpcConfigArgs(
                subnet_ids=args.subnets,
                # Nodes and whoever is connected to the VPC come this way, with or without the public address.
                endpoint_private_access=True,
                endpoint_public_access=args.public_endpoint,
                public_access_cidrs=args.authorized_networks if args.public_endpoint else None,
            ),
            access_config=eks.ClusterAccessConfigArgs(
                # Access entries alone, no ConfigMap that somebody can break from the inside.
                authentication_mode="API",
                # Written out because it cannot be changed: whoever creates the cluster makes what runs in it.
                bootstrap_cluster_creator_admin_permissions=True,
            ),
            # The add-ons are resources of their own, with versions and settings of ours.
            bootstrap_self_managed_addons=False,
            encryption_config=eks.ClusterEncryptionConfigArgs(
                provider=eks.ClusterEncryptionConfigProviderArgs(key_arn=key.arn), resources=["secrets"]
            ),
            enabled_cluster_log_types=list(LOGS),
            # At the end of standard support EKS upgrades the control plane. The other choice is extended support, which
            # costs six times as much without anybody having asked for it (EKS docs; from memory, 2026-11).
            upgrade_policy=eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            tags=args.names.tags(),
            opts=ResourceOptions(
                parent=self,
                # Without its rights the control plane can make no interface in the subnets, nor take them away again.
                # The log group is made first because EKS otherwise makes one that keeps everything for ever.
                depends_on=[*role.grants, logs],
                # A control plane takes 7 to 15 minutes; the default waits 30.
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="30m"),
            ),
        )

    def _administrator(self, arn: str) -> None:
        # By the path after the account, which is unique among the names and says who it is.
        who = arn.partition(":iam::")[2].replace(":", "-").replace("/", "-")
        own = ResourceOptions(parent=self)
        entry = eks.AccessEntry(
            who,
            cluster_name=self.resource.name,
            principal_arn=arn,
            type="STANDARD",
            tags=self._args.names.tags(),
            opts=own,
        )
        eks.AccessPolicyAssociation(
            who,
            cluster_name=self.resource.name,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{self._args.partition}:eks::aws:{ADMINISTRATOR}",
            access_scope=eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=own,
        )

    def _private_access(self, name: str) -> None:
        """Let the networks of a VPN or a peering reach the private address; the nodes do so anyway."""
        for cidr in self._args.authorized_networks:
            rule = f"{name}-api-{cidr.replace('/', '-')}"
            aws.vpc.SecurityGroupIngressRule(
                rule,
                security_group_id=self.security_group,
                description="Kubernetes API from an authorized network",
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                cidr_ipv4=cidr,
                tags=self._args.names.tags(rule),
                opts=ResourceOptions(parent=self),
            )

    def _kubeconfig(self, values: Sequence[str]) -> str:
        name, endpoint, ca = values
        return kubeconfig(name, self._args.names.region, endpoint, ca)
