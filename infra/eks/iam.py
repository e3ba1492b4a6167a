"""IAM roles of the stack: who may take one, and what it may do. No user, no key, no OIDC provider.

Pods get their rights by Pod Identity: an association of a ServiceAccount with a role, and credentials from an agent on
the node. Nodes hand theirs to nobody: a pod's request for them dies at the first hop (`launch_template`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

POLICY_VERSION = "2012-10-17"
"""The version of IAM's policy language, not a date of ours."""

CLUSTER_POLICIES = ("AmazonEKSClusterPolicy",)
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore")
"""What a node needs: join, pull images, and let an engineer in by Session Manager without any open port. The right to
handle addresses is the CNI's own (EKS docs create-node-role, by the EKS reference of this project, 2026-11)."""
CNI_POLICIES = ("AmazonEKS_CNI_Policy",)


@dataclass(frozen=True, kw_only=True)
class RoleArgs:
    """What a role is made from.

    name: in the account. service: who takes it, such as ec2.amazonaws.com. policies: names of AWS' own; statements:
    rights of our own, in IAM's JSON.
    """

    name: str
    service: str
    partition: str
    policies: Sequence[str]
    statements: Sequence[dict[str, Any]]
    tags: dict[str, str]


class Role(pulumi.ComponentResource):
    """A role with its rights. Whoever uses it waits for `grants`: a role can be taken before it may do anything."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, args: RoleArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:Role", name, {}, opts)
        own = ResourceOptions(parent=self)
        role = aws.iam.Role(name, name=args.name, assume_role_policy=trust(args.service), tags=args.tags, opts=own)
        self.grants: list[pulumi.Resource] = [
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=f"arn:{args.partition}:iam::aws:policy/{policy}",
                opts=own,
            )
            for policy in args.policies
        ]
        if args.statements:
            self.grants.append(
                aws.iam.RolePolicy(name, name=name, role=role.name, policy=document(args.statements), opts=own)
            )
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


def trust(service: str) -> str:
    """The policy that lets an AWS service take the role. Pods come with session tags, which is a right of its own."""
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == "pods.eks.amazonaws.com" else ["sts:AssumeRole"]
    return document([{"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}])


def document(statements: Sequence[dict[str, Any]]) -> str:
    """A policy document of these statements."""
    return json.dumps({"Version": POLICY_VERSION, "Statement": list(statements)})
