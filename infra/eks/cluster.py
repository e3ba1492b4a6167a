"""EKS control plane: endpoints, administrators, the encryption key of its Secrets, and its logs.

Node groups are in `node_groups`, add-ons in `addons`. EKS Auto Mode is off: its nodes take no launch template, so they
cannot have the interface layout of EFA or use a reservation.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws import eks

from infra.catalog.aws import KEY_WINDOW_DAYS, LOG_DAYS
from infra.eks.iam import CLUSTER_POLICIES, Role
from infra.eks.names import EksNames, log_group
from infra.eks.network import VpcPlace
from infra.eks.security_groups import https_rule
from infra.existing.cloud import TheirCluster
from infra.kubernetes import resources
from infra.settings import EksSettings

LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")

ADMINISTRATOR = "cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True, kw_only=True)
class TheirEksCluster(TheirCluster):
    """An EKS cluster that the user has, with the attributes of `EksCluster`, and the place of the stack's nodes."""

    endpoint: str
    security_group: str
    place: VpcPlace
    resource: None = None


class EksCluster(pulumi.ComponentResource):
    """Control plane with subnets in two zones.

    `resource` is the cluster itself, with its `name` and `endpoint`. `security_group` is the one that EKS creates and
    that every node and every interface of the control plane has. `kubeconfig` contains no secret.
    """

    kubeconfig: pulumi.Output[str]
    security_group: pulumi.Output[str]

    def __init__(
        self, name: str, settings: EksSettings, names: EksNames, opts: ResourceOptions, *, place: VpcPlace
    ) -> None:
        super().__init__("rdma-ray:eks:EksCluster", name, {}, opts)
        opts, access = ResourceOptions(parent=self), settings.access
        key = aws.kms.Key(
            f"{name}-secrets",
            description=f"Secrets of EKS cluster {names.stack}",
            enable_key_rotation=True,
            deletion_window_in_days=KEY_WINDOW_DAYS,
            tags=names.tags("secrets"),
            opts=opts,
        )
        aws.kms.Alias(f"{name}-secrets", name=f"alias/{names.named('secrets')}", target_key_id=key.key_id, opts=opts)
        logs = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            name=log_group(names.stack),
            retention_in_days=LOG_DAYS,
            tags=names.tags("logs"),
            opts=opts,
        )
        role = Role(
            f"{name}-role", names, opts, service="eks.amazonaws.com", purpose="cluster", policies=CLUSTER_POLICIES
        )
        self.resource = eks.Cluster(
            name,
            name=names.stack,
            role_arn=role.arn,
            version=settings.cluster.version,
            deletion_protection=settings.protect,
            vpc_config=eks.ClusterVpcConfigArgs(
                subnet_ids=place.private,
                # Nodes and peers of the VPC use the private endpoint, with or without a public one.
                endpoint_private_access=True,
                endpoint_public_access=access.public_endpoint,
                public_access_cidrs=access.authorized_networks if access.public_endpoint else None,
            ),
            access_config={
                # Access entries only: a ConfigMap with administrators can be broken from inside the cluster.
                "authentication_mode": "API",
                # The identity that runs `up` creates the resources in the cluster. This input cannot be changed later.
                "bootstrap_cluster_creator_admin_permissions": True,
            },
            # The add-ons are resources of the stack, with pinned versions and their own settings.
            bootstrap_self_managed_addons=False,
            encryption_config={"provider": {"key_arn": key.arn}, "resources": ["secrets"]},
            enabled_cluster_log_types=list(LOGS),
            # At the end of standard support EKS upgrades the control plane. The alternative, extended support, costs
            # six times as much (EKS docs; unverified, 2026-11).
            upgrade_policy={"support_type": "STANDARD"},
            tags=names.tags(),
            opts=ResourceOptions(
                parent=self,
                # Without its policies the control plane can neither create nor delete its interfaces in the subnets.
                # Without the log group, EKS creates one that keeps logs forever.
                depends_on=[*role.grants, logs],
                # A control plane takes 7 to 15 minutes; the default for create is 30.
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="90m", delete="30m"),
            ),
        )
        self.name, self.endpoint = self.resource.name, self.resource.endpoint
        self.security_group = self.resource.vpc_config.cluster_security_group_id
        for arn in access.administrators:
            # The ARN's path after the account is unique among the administrators and readable.
            who = arn.partition(":iam::")[2].replace(":", "-").replace("/", "-")
            entry = eks.AccessEntry(
                who, cluster_name=self.resource.name, principal_arn=arn, type="STANDARD", tags=names.tags(), opts=opts
            )
            eks.AccessPolicyAssociation(
                who,
                cluster_name=self.resource.name,
                principal_arn=entry.principal_arn,
                policy_arn=f"arn:aws:eks::aws:{ADMINISTRATOR}",
                access_scope={"type": "cluster"},
                opts=opts,
            )
        if not access.public_endpoint:
            # For networks of a VPN or a peering; nodes reach the private endpoint without a rule.
            for cidr in access.authorized_networks:
                rule = f"{name}-api-{cidr.replace('/', '-')}"
                description = "Kubernetes API from an authorized network"
                https_rule(rule, names.tags(rule), description, opts, group=self.security_group, cidr=cidr)
        reached = pulumi.Output.all(self.resource.endpoint, self.resource.certificate_authority.data)
        self.kubeconfig = reached.apply(lambda values: kubeconfig(names.stack, names.region, *values))
        self.register_outputs({"kubeconfig": self.kubeconfig})


def kubeconfig(cluster: str, region: str, endpoint: str, ca: str) -> str:
    """Return the kubeconfig of a cluster as JSON, which is also YAML; `ca` is its certificate authority, base64.

    kubectl gets a token from the AWS CLI 2, which prints credentials of v1beta1 (EKS docs create-kubeconfig;
    unverified, 2026-11).
    """
    command = {
        "command": "aws",
        "args": ["eks", "get-token", "--cluster-name", cluster, "--region", region],
        "installHint": "install the AWS CLI, version 2, and sign in: aws sts get-caller-identity",
    }
    return resources.kubeconfig(cluster, endpoint, ca, command)
