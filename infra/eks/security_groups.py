"""The security group of EFA: what lets RDMA traffic between the nodes pass.

EFA is let through by rules that name a security group and by no others. All traffic has to be allowed in *and out*
with the group itself as the peer: 0.0.0.0/0 does not cover it. Without the rule out the senders' counters rise, the
receivers' stay at zero, and NCCL hangs (awsome-distributed-ai #546; gardener-extension-provider-aws #1832).
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.eks.names import EksNames

ALL = "-1"
"""Every protocol and port, in EC2's own writing."""


@dataclass(frozen=True, kw_only=True)
class EfaSecurityGroupArgs:
    """vpc: its id."""

    names: EksNames
    vpc: pulumi.Input[str]


class EfaSecurityGroup(pulumi.ComponentResource):
    """A group of its own, for every interface of every GPU node, beside the cluster's.

    EKS gives the cluster's group such rules by itself from Kubernetes 1.33 on (eksctl PR #8509); ours hold whatever a
    version does. `rules` are both of them: GPU nodes wait for them.
    """

    id: pulumi.Output[str]

    def __init__(self, name: str, args: EfaSecurityGroupArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rdma-ray:eks:EfaSecurityGroup", name, {}, opts)
        group = aws.ec2.SecurityGroup(
            name,
            name=args.names.security_group("efa"),
            description="EFA between the GPU nodes",
            vpc_id=args.vpc,
            tags=args.names.tags("efa"),
            opts=ResourceOptions(parent=self),
        )
        self.id = group.id
        self.rules: list[pulumi.Resource] = [
            *everything_between(name, args.names, self.id, self.id, "EFA", ResourceOptions(parent=self))
        ]
        self.register_outputs({"id": self.id})


def everything_between(
    name: str,
    names: EksNames,
    group: pulumi.Input[str],
    peer: pulumi.Input[str],
    what: str,
    opts: ResourceOptions,
) -> tuple[aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule]:
    """Let everything in and out of a group where the other end is in `peer`, which may be the same group."""
    return (
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-in",
            security_group_id=group,
            referenced_security_group_id=peer,
            ip_protocol=ALL,
            description=f"{what}, in",
            tags=names.tags(f"{name}-in"),
            opts=opts,
        ),
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-out",
            security_group_id=group,
            referenced_security_group_id=peer,
            ip_protocol=ALL,
            description=f"{what}, out",
            tags=names.tags(f"{name}-out"),
            opts=opts,
        ),
    )
