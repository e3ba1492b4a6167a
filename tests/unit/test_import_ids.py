"""Resources with generated AWS IDs are found by their tags, or recovery reports why not and changes nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.registry import cloud
from tests.unit.test_recovery import Pulumi, exported, operation
from tools.recovery import (
    FOUND_BY_TAGS,
    PendingCreate,
    Place,
    Tagged,
    UnclearError,
    found,
    list_command,
    settle,
    tagged,
)

EC2 = "arn:aws:ec2:us-east-2:123456789012:"
VPC, SUBNET, KEY = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:kms/key:Key"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
UUID = "1234abcd-12ab-34cd-56ef-1234567890ab"
ARNS = {
    VPC: (f"{EC2}vpc/vpc-1", "vpc-1"),
    SUBNET: (f"{EC2}subnet/subnet-1", "subnet-1"),
    "aws:ec2/internetGateway:InternetGateway": (f"{EC2}internet-gateway/igw-1", "igw-1"),
    "aws:ec2/eip:Eip": (f"{EC2}elastic-ip/eipalloc-1", "eipalloc-1"),
    "aws:ec2/natGateway:NatGateway": (f"{EC2}natgateway/nat-1", "nat-1"),
    "aws:ec2/routeTable:RouteTable": (f"{EC2}route-table/rtb-1", "rtb-1"),
    "aws:ec2/securityGroup:SecurityGroup": (f"{EC2}security-group/sg-1", "sg-1"),
    INGRESS: (f"{EC2}security-group-rule/sgr-1", "sgr-1"),
    EGRESS: (f"{EC2}security-group-rule/sgr-1", "sgr-1"),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (f"{EC2}vpc-endpoint/vpce-1", "vpce-1"),
    "aws:ec2/launchTemplate:LaunchTemplate": (f"{EC2}launch-template/lt-1", "lt-1"),
    KEY: (f"arn:aws:kms:us-east-2:123456789012:key/{UUID}", UUID),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("arn:aws:fsx:us-east-2:123456789012:file-system/fs-1", "fs-1"),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "arn:aws:fsx:us-east-2:123456789012:association/fs-1/dra-1",
        "dra-1",
    ),
    POD_IDENTITY: ("arn:aws:eks:us-east-2:123456789012:podidentityassociation/eks/a-1", "eks,a-1"),
}
TAGS = {"rdma-ray-stack": "eks", "Name": "eks-x"}


def create(type_: str, **inputs: Any) -> PendingCreate:
    return PendingCreate("urn", type_, {"clusterName": "eks", "tags": TAGS, **inputs})


def everything() -> list[Tagged]:
    """One of each kind under one name, as the stack's VPC, cluster and gateway have it."""
    return [Tagged(arn, "eks-x") for arn in dict.fromkeys(arn for arn, _ in ARNS.values())]


def command_line(folder: Path, script: str) -> dict[str, str]:
    """An environment in which `aws` is this script, and the only program besides the system's."""
    program = folder / "aws"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": os.pathsep.join([str(folder), "/usr/bin", "/bin"])}


def answer(*arns: str) -> str:
    """Script that prints these as the CLI does."""
    tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    listed = {"ResourceTagMappingList": [{"ResourceARN": arn, "Tags": tags} for arn in arns]}
    return f"cat <<'END'\n{json.dumps(listed)}\nEND"


@pytest.mark.parametrize("type_", FOUND_BY_TAGS)
def test_each_kind_is_found_among_all_others(type_: str) -> None:
    assert found(create(type_), everything(), known=()) == ARNS[type_][1]


@pytest.mark.parametrize("type_", FOUND_BY_TAGS)
def test_simulated_cloud_accepts_the_id(type_: str) -> None:
    kind = cloud("aws").kind(type_)
    assert kind is not None
    assert kind.generated_ids, "an id that AWS makes up"
    arn, written = ARNS[type_]
    assert kind.from_import(written, {}) == arn.rpartition("/")[2]


def test_every_kind_with_a_generated_id_is_found_by_tags() -> None:
    generated = {type_ for type_, kind in cloud("aws").kinds.items() if kind.generated_ids}
    # Reservations are given to a stack, which makes none.
    assert generated == {*FOUND_BY_TAGS, "aws:ec2/capacityReservation:CapacityReservation"} == {*ARNS, *generated}


def test_other_name_or_kind_does_not_match() -> None:
    others = [Tagged(f"{EC2}subnet/subnet-1", "eks-y"), Tagged(f"{EC2}vpc/vpc-1", "eks-x")]
    assert found(create(SUBNET), others, known=()) is None


def test_two_resources_with_one_name_are_unclear() -> None:
    twice = [Tagged(f"{EC2}vpc/vpc-1", "eks-x"), Tagged(f"{EC2}vpc/vpc-2", "eks-x")]
    with pytest.raises(UnclearError, match=r"(?s)vpc/vpc-1.*vpc/vpc-2.*Delete those"):
        found(create(VPC), twice, known=())


def test_resource_in_the_state_does_not_match() -> None:
    """While a resource is replaced there are two, and the state has the old one."""
    twice = [Tagged(f"{EC2}vpc/vpc-1", "eks-x"), Tagged(f"{EC2}vpc/vpc-2", "eks-x")]
    assert found(create(VPC), twice, known={"vpc-1"}) == "vpc-2"
    assert found(create(VPC), twice, known={"vpc-1", "vpc-2"}) is None


@pytest.mark.parametrize("tags", [None, {}, {"Name": "eks-x"}, {"rdma-ray-stack": "eks"}])
def test_create_without_tags_is_unclear(tags: dict[str, str] | None) -> None:
    with pytest.raises(UnclearError, match="no tags to find it by"):
        found(create(VPC, tags=tags), everything(), known=())


def test_one_command_lists_everything() -> None:
    assert " ".join(list_command("eks", "us-east-2")) == (
        "aws resourcegroupstaggingapi get-resources --region us-east-2"
        " --tag-filters Key=rdma-ray-stack,Values=eks --output json"
    )


def test_output_of_the_cli_is_read(tmp_path: Path) -> None:
    environment = command_line(tmp_path, answer(ARNS[VPC][0], ARNS[KEY][0]))
    assert tagged("eks", "us-east-2", environment) == [Tagged(ARNS[VPC][0], "eks-x"), Tagged(ARNS[KEY][0], "eks-x")]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no AWS CLI here. Install its version 2"),
        ("echo 'Unable to locate credentials' >&2; exit 253", "(?s)Unable to locate credentials.*tag:GetResources"),
        ("echo '<html>'", "not the expected list"),
        ("echo '{\"ResourceTagMappingList\": [{}]}'", "not the expected list"),
    ],
)
def test_failed_command_changes_nothing(tmp_path: Path, script: str | None, said: str) -> None:
    environment = {"PATH": str(tmp_path)} if script is None else command_line(tmp_path, script)
    pulumi = Pulumi()
    vpc = operation(VPC, {"tags": TAGS})
    with pytest.raises(UnclearError, match=said) as unclear:
        settle(exported(vpc), Place("eks", region="us-east-2", environment=environment), pulumi)
    assert "Nothing was changed." in str(unclear.value)
    assert "aws resourcegroupstaggingapi get-resources" in str(unclear.value)
    assert pulumi.commands == []


def test_existing_resources_are_read_and_others_dropped(tmp_path: Path) -> None:
    environment = command_line(tmp_path, answer(ARNS[VPC][0]))
    vpc, key = operation(VPC, {"name": "v", "tags": TAGS}), operation(KEY, {"name": "k", "tags": TAGS})
    pulumi = Pulumi()
    assert settle(exported(vpc, key), Place("eks", region="us-east-2", environment=environment), pulumi) == 2
    _, read = pulumi.imported["deployment"]["resources"]
    assert (read["type"], read["id"], read["outputs"]) == (VPC, "vpc-1", {})
    assert pulumi.imported["deployment"]["pending_operations"] == []


def test_resource_with_a_fixed_name_needs_no_listing(tmp_path: Path) -> None:
    cluster = operation("aws:eks/cluster:Cluster", {"name": "eks"})
    nowhere = Place("eks", region="us-east-2", environment={"PATH": str(tmp_path)})
    pulumi = Pulumi()
    assert settle(exported(cluster), nowhere, pulumi) == 1
    assert pulumi.imported["deployment"]["resources"][-1]["id"] == "eks"
