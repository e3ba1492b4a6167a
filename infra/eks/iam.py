"""IAM roles of the stack with their trust and permissions. There is no IAM user, access key or OIDC provider.

Pods get their permissions from EKS Pod Identity: an association of a ServiceAccount with a role, and an agent on the
node that issues credentials. A node's own credentials never reach a pod (`launch_template.METADATA_HOPS`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.eks.names import EksNames

POLICY_VERSION = "2012-10-17"
"""Version of IAM's policy language."""

CLUSTER_POLICIES = ("AmazonEKSClusterPolicy",)
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore")
"""Permissions to join the cluster, to pull images, and to open a shell with Session Manager, which needs no open port.
The CNI has its own role to manage addresses (EKS docs create-node-role; unverified, 2026-11)."""
CNI_POLICIES = ("AmazonEKS_CNI_Policy",)

POD_IDENTITY = "pods.eks.amazonaws.com"
"""Service that assumes the roles of pods."""


class Role(pulumi.ComponentResource):
    """An IAM role with its policies.

    Users of the role depend on `grants`: AWS lets a service assume a role before its policies are attached.
    """

    arn: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        names: EksNames,
        opts: ResourceOptions,
        *,
        service: str,
        purpose: str | None = None,
        policies: Sequence[str] = (),
        statements: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Register the role.

        Args:
            service: AWS service that assumes the role, such as ec2.amazonaws.com.
            purpose: Suffix of the role's name; the component's name by default.
            policies: Names of AWS managed policies, or ARNs of any others.
            statements: Statements of an inline policy, as IAM's JSON.
        """
        super().__init__("rdma-ray:eks:Role", name, {}, opts)
        opts = ResourceOptions(parent=self)
        role = aws.iam.Role(
            name,
            name=names.role(purpose or name),
            assume_role_policy=trust_policy(service),
            tags=names.tags(),
            opts=opts,
        )
        self.grants: list[pulumi.Resource] = [
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=policy if ":" in policy else f"arn:aws:iam::aws:policy/{policy}",
                opts=opts,
            )
            for policy in policies
        ]
        if statements:
            policy = policy_document(statements)
            self.grants.append(aws.iam.RolePolicy(name, name=name, role=role.name, policy=policy, opts=opts))
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


class PodRole(pulumi.ComponentResource):
    """An IAM role of pods and its associations with their ServiceAccounts.

    A pod gets its role when it is created, so resources that create pods depend on `grants`.
    """

    def __init__(
        self,
        type_: str,
        name: str,
        names: EksNames,
        opts: ResourceOptions,
        *,
        cluster: pulumi.Input[str],
        namespace: str,
        accounts: Mapping[str, str],
        policies: Sequence[str] = (),
        statements: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Register the role; `accounts` has the ServiceAccounts by the names of their associations."""
        super().__init__(f"rdma-ray:eks:{type_}", name, {}, opts)
        opts = ResourceOptions(parent=self)
        role = Role(name, names, opts, service=POD_IDENTITY, policies=policies, statements=statements)
        self.grants: list[pulumi.Resource] = [
            aws.eks.PodIdentityAssociation(
                each,
                cluster_name=cluster,
                namespace=namespace,
                service_account=account,
                role_arn=role.arn,
                tags=names.tags(each),
                opts=ResourceOptions(parent=self, depends_on=role.grants),
            )
            for each, account in accounts.items()
        ]
        self.register_outputs({})


def trust_policy(service: str) -> str:
    """Return the policy that lets an AWS service assume a role; for pods, with their session tags."""
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == POD_IDENTITY else ["sts:AssumeRole"]
    return policy_document([{"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}])


def policy_document(statements: Sequence[dict[str, Any]]) -> str:
    """Return the statements as a policy document."""
    return json.dumps({"Version": POLICY_VERSION, "Statement": list(statements)})
