"""Security groups and their rules: EFA traffic between GPU nodes, and the rules that other components add.

EFA traffic must be allowed in both directions by rules that name the security group itself as the peer; 0.0.0.0/0 does
not cover it. Without the outbound rule the senders' counters rise, the receivers' stay at zero, and NCCL hangs
(awsome-distributed-ai #546; gardener-extension-provider-aws #1832).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions
from pulumi_aws.vpc import SecurityGroupEgressRule, SecurityGroupIngressRule

from infra.catalog.aws import HTTPS_PORT
from infra.eks.names import EksNames

ALL_PROTOCOLS = "-1"


class EfaSecurityGroup(pulumi.ComponentResource):
    """Security group of every interface of every GPU node, in addition to the cluster's; nodes depend on `rules`.

    From Kubernetes 1.33 on, EKS adds such rules to the cluster's security group (eksctl PR #8509). These rules do not
    depend on the version.
    """

    id: pulumi.Output[str]

    def __init__(self, name: str, names: EksNames, opts: ResourceOptions, *, vpc: pulumi.Input[str]) -> None:
        super().__init__("rdma-ray:eks:EfaSecurityGroup", name, {}, opts)
        opts = ResourceOptions(parent=self)
        self.id = security_group(name, "efa", "EFA between the GPU nodes", names, opts, vpc=vpc).id
        self.rules = rules_between(
            name, names, opts, group=self.id, peer=self.id, inbound="EFA, in", outbound="EFA, out"
        )
        self.register_outputs({"id": self.id})


def security_group(
    name: str,
    purpose: str,
    description: str,
    names: EksNames,
    opts: ResourceOptions,
    *,
    vpc: pulumi.Input[str],
    tags: Mapping[str, str] | None = None,
) -> aws.ec2.SecurityGroup:
    """Register a security group without rules; `purpose` is the end of its name and of its tag, `tags` are more."""
    tagged = {**names.tags(purpose), **(tags or {})}
    return aws.ec2.SecurityGroup(
        name, name=names.named(purpose), description=description, vpc_id=vpc, tags=tagged, opts=opts
    )


def rules_between(
    name: str,
    names: EksNames,
    opts: ResourceOptions,
    *,
    group: pulumi.Input[str],
    peer: pulumi.Input[str],
    inbound: str,
    outbound: str | None,
    ports: Sequence[tuple[int, int]] = (),
) -> list[pulumi.Resource]:
    """Register rules of `group` that allow traffic from and to `peer`.

    Args:
        name: Prefix of the rules' names.
        group: Id of the security group that gets the rules.
        peer: Id of the security group at the other end, which may be the same.
        inbound: Description of the inbound rules.
        outbound: Description of the outbound rules; None for no outbound rules.
        ports: First and last TCP port of each range; all protocols and ports by default.
    """
    rules: list[pulumi.Resource] = []
    ranges: Sequence[tuple[int | None, int | None]] = ports or [(None, None)]
    directions: list[tuple[str, type[SecurityGroupIngressRule | SecurityGroupEgressRule], str | None]] = [
        ("in", SecurityGroupIngressRule, inbound),
        ("out", SecurityGroupEgressRule, outbound),
    ]
    for direction, rule, description in directions:
        if description is None:
            continue
        for low, high in ranges:
            unique = f"{name}-{direction}" if low is None else f"{name}-{direction}-{low}"
            rules.append(
                rule(
                    unique,
                    security_group_id=group,
                    referenced_security_group_id=peer,
                    ip_protocol=ALL_PROTOCOLS if low is None else "tcp",
                    from_port=low,
                    to_port=high,
                    description=description,
                    tags=names.tags(unique),
                    opts=opts,
                )
            )
    return rules


def https_rule(
    name: str,
    tags: dict[str, pulumi.Input[str]],
    description: str,
    opts: ResourceOptions,
    *,
    group: pulumi.Input[str],
    cidr: str,
) -> SecurityGroupIngressRule:
    """Register the inbound rule of a security group that allows HTTPS from a range of addresses."""
    return SecurityGroupIngressRule(
        name,
        security_group_id=group,
        description=description,
        ip_protocol="tcp",
        from_port=HTTPS_PORT,
        to_port=HTTPS_PORT,
        cidr_ipv4=cidr,
        tags=tags,
        opts=opts,
    )
