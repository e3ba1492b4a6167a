"""Find what AWS has made for a stack by its tags: AWS gives most things an id that nothing in the program tells.

Everything of an EKS stack is tagged with the stack's name and with a name that no other resource of its kind in the
stack has (`infra.eks.names`). One question to the AWS CLI lists them all; whoever has an EKS stack has the CLI, since
the stack's kubeconfig runs it. Where the answer is not clear nothing is assumed: a wrong guess would be made twice, or
deleted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.imports import PendingCreate

STACK_TAG, NAME_TAG = "rdma-ray-stack", "Name"

FOUND_BY_TAGS: Mapping[str, str] = {
    "aws:ec2/vpc:Vpc": "ec2:vpc",
    "aws:ec2/subnet:Subnet": "ec2:subnet",
    "aws:ec2/internetGateway:InternetGateway": "ec2:internet-gateway",
    "aws:ec2/eip:Eip": "ec2:elastic-ip",
    "aws:ec2/natGateway:NatGateway": "ec2:natgateway",
    "aws:ec2/routeTable:RouteTable": "ec2:route-table",
    "aws:ec2/securityGroup:SecurityGroup": "ec2:security-group",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "ec2:security-group-rule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "ec2:security-group-rule",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "ec2:vpc-endpoint",
    "aws:ec2/launchTemplate:LaunchTemplate": "ec2:launch-template",
    "aws:kms/key:Key": "kms:key",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fsx:file-system",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "fsx:association",
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": "eks:podidentityassociation",
}
"""The service and the resource type in the ARN of each kind (Service Authorization Reference, "Resource types defined
by" EC2, KMS, FSx and EKS; from memory, 2026-11). GetResources answers for every type but IAM's users and roles and Auto
Scaling groups (Resource Groups Tagging API, supported services; read 2026-11), and those are found by name."""

_IMPORTED_AS: Mapping[str, str] = {"aws:eks/podIdentityAssociation:PodIdentityAssociation": "{clusterName},{id}"}
"""What is imported by more than its id (pulumi-aws 7.51.1, the Import section of each of the others; read 2026-11)."""

_TAKES_S = 120.0


class UnclearError(RuntimeError):
    """What an interrupted run had made cannot be told; the message says what to do. Nothing has been changed."""


@dataclass(frozen=True)
class Tagged:
    """One resource in AWS: its ARN and its name tag."""

    arn: str
    name: str

    @property
    def type(self) -> str:
        """The service and resource type ("ec2:vpc")."""
        # An ARN has five colons before the resource; EC2, KMS, FSx and EKS write TYPE/ID after them.
        service, resource = self.arn.split(":", 5)[2::3]
        return f"{service}:{resource.partition('/')[0]}"

    @property
    def id(self) -> str:
        """The last part of the ARN, which is what AWS calls the resource by."""
        return self.arn.rpartition("/")[2]


def question(stack: str, region: str) -> list[str]:
    """The command that lists everything with the stack's tag; the CLI asks for further pages by itself."""
    return [
        *("aws", "resourcegroupstaggingapi", "get-resources", "--region", region),
        *("--tag-filters", f"Key={STACK_TAG},Values={stack}", "--output", "json"),
    ]


def tagged(stack: str, region: str, environment: Mapping[str, str] | None = None) -> list[Tagged]:
    """Everything in AWS that has the stack's tag. `environment` is the command's, if not that of this process.

    Raises:
        UnclearError: there is no AWS CLI, or it gave no answer.
    """
    command = question(stack, region)
    doing = (
        f"An interrupted run was making something in AWS. To find out whether it did, this asks:\n  {_line(command)}"
    )
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TAKES_S
        )
    except FileNotFoundError:
        raise UnclearError(
            f"{doing}\nThere is no AWS CLI here. Install its version 2, sign in (aws sts get-caller-identity), and run"
            " this again. Nothing was changed."
        ) from None
    except subprocess.TimeoutExpired:
        raise UnclearError(f"{doing}\nThere was no answer for {_TAKES_S:.0f} s. Nothing was changed.") from None
    if done.returncode:
        raise UnclearError(
            f"{doing}\nThe answer was:\n{done.stderr.strip()}\nSign in as whoever brings the stack up, with the"
            " right to tag:GetResources, and run this again. Nothing was changed."
        )
    try:
        listed = json.loads(done.stdout)["ResourceTagMappingList"]
        return [
            Tagged(each["ResourceARN"], {tag["Key"]: tag["Value"] for tag in each["Tags"]}.get(NAME_TAG, ""))
            for each in listed
        ]
    except (ValueError, KeyError, TypeError):
        raise UnclearError(f"{doing}\nThe answer is not the list that it should be. Nothing was changed.") from None


def found(create: PendingCreate, resources: Sequence[Tagged], known: Collection[str]) -> str | None:
    """What a resource is imported by, if it is among these; None if it is not, and so was never made.

    `known` are the ids that the state has: of what is being replaced there are two with one name, and the one in the
    state is not the new one.

    Raises:
        UnclearError: several could be it.
    """
    name = _name(create)
    candidates = [
        each
        for each in resources
        if each.type == FOUND_BY_TAGS[create.type] and each.name == name and each.id not in known
    ]
    if len(candidates) > 1:
        arns = "\n".join(f"  {each.arn}" for each in candidates)
        raise UnclearError(
            f"An interrupted run was making {create.urn}.\nSeveral resources have its tags:\n{arns}\n"
            "AWS lists deleted ones, too, for a while. Delete those that the stack does not need, or take the tag"
            f" {STACK_TAG} off them, and run this again. Nothing was changed."
        )
    if not candidates:
        return None
    return _IMPORTED_AS.get(create.type, "{id}").format_map({**create.inputs, "id": candidates[0].id})


def _name(create: PendingCreate) -> str:
    tags: Mapping[str, Any] = create.inputs.get("tags") or {}
    if not tags.get(NAME_TAG) or STACK_TAG not in tags:
        raise UnclearError(
            f"An interrupted run was making {create.urn}, which has no tags to find it by. If AWS has it, delete it;"
            " then take it out of the pending operations: bin/pulumi stack export, edit, bin/pulumi stack import."
        )
    return str(tags[NAME_TAG])


def _line(command: Sequence[str]) -> str:
    return " ".join(command)
