"""The simulated AWS against moto, where moto is accurate: the same request gives the same verdict and values.

moto validates few requests. So the tests use facts that it contains (instance types) and what it stores (launch
templates, subnets, file systems); where it refuses, the simulation must return the same code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from infra.catalog.machines import EKS_CATALOG
from rehearsal.clouds.aws import tokens as t
from rehearsal.clouds.aws.offerings import instance_type
from rehearsal.clouds.kind import Json, Refusal
from rehearsal.clouds.state import State, View
from tests.rehearsal import aws_supporting as land

Ask = Callable[[Any], Any]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """boto3 clients of moto, without network access: the credentials are not valid."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield lambda service: boto3.client(service, region_name=land.REGION)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        yield view


def _code(ask: Callable[[], Any]) -> str | None:
    try:
        ask()
    except ClientError as refused:
        return str(refused.response["Error"]["Code"])
    return None


def _verdict(refusals: list[Refusal]) -> str | None:
    return refusals[0].status.partition(" ")[2] if refusals else None


def _ours(state: View, type_: str, inputs: Json) -> str:
    """Create the object unless a rule refuses it; return the code of the refusal, or ""."""
    found = _verdict(land.refusals(land.call(state, type_, inputs)))
    if found is None:
        land.make(state, type_, inputs)
    return found or ""


@pytest.mark.parametrize("name", EKS_CATALOG)
def test_instance_types_have_the_same_network_cards(name: str, client: Callable[[str], Any]) -> None:
    (theirs,) = client("ec2").describe_instance_types(InstanceTypes=[name])["InstanceTypes"]
    ours = instance_type(name)
    assert ours is not None
    network, cards = theirs["NetworkInfo"], theirs["NetworkInfo"]["NetworkCards"]
    assert ours.cards == network["MaximumNetworkCards"] == len(cards)
    assert ours.efa_max == network["EfaInfo"]["MaximumEfaInterfaces"]
    assert {ours.per_card} == {card["MaximumNetworkInterfaces"] for card in cards}
    assert ours.vcpus == theirs["VCpuInfo"]["DefaultVCpus"]
    assert ours.arm == (theirs["ProcessorInfo"]["SupportedArchitectures"] == ["arm64"])
    assert ours.card_zero_efa == ("efa-only" in cards[0].get("InterfaceTypes", ["efa-only"]))


@pytest.mark.parametrize("name", EKS_CATALOG)
def test_launch_template_keeps_interfaces(name: str, client: Callable[[str], Any]) -> None:
    asked = land.layout(name, ["sg-0123456789abcdef0"])
    data = {
        "NetworkInterfaces": [
            {
                "NetworkCardIndex": one["networkCardIndex"],
                "DeviceIndex": one["deviceIndex"],
                "InterfaceType": one["interfaceType"],
                "Groups": one["securityGroups"],
                "DeleteOnTermination": True,
            }
            for one in asked
        ]
    }
    ec2 = client("ec2")
    made = ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data)["LaunchTemplate"]
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=made["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    read = version["LaunchTemplateData"]["NetworkInterfaces"]
    places = [(one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"]) for one in read]
    assert places == [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in asked]
    assert (made["LatestVersionNumber"], made["DefaultVersionNumber"]) == (1, 1)
    assert re.fullmatch(r"lt-[0-9a-f]{17}", made["LaunchTemplateId"])
    assert re.fullmatch(r"lt-[0-9a-f]{17}", land.TEMPLATE_ID)


def test_versions_of_a_launch_template_count_alike(client: Callable[[str], Any], state: View) -> None:
    ec2 = client("ec2")
    made = ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData={"UserData": "YQ=="})[
        "LaunchTemplate"
    ]
    id_ = made["LaunchTemplateId"]
    ec2.create_launch_template_version(LaunchTemplateId=id_, LaunchTemplateData={"UserData": "Yg=="})
    (theirs,) = ec2.describe_launch_templates(LaunchTemplateIds=[id_])["LaunchTemplates"]
    asked = {"name": "gpu", "userData": "YQ=="}
    ours = land.make(state, t.LAUNCH_TEMPLATE, asked)
    update = land.call(state, t.LAUNCH_TEMPLATE, {**asked, "userData": "Yg=="}, "update", ours)
    computed = land.kind(t.LAUNCH_TEMPLATE).compute(update)
    assert (computed["latestVersion"], computed["defaultVersion"]) == (
        theirs["LatestVersionNumber"],
        theirs["DefaultVersionNumber"],
    )


def test_duplicate_launch_template_name_is_refused_as_in_moto(client: Callable[[str], Any], state: View) -> None:
    ec2, asked = client("ec2"), {"name": "gpu", "userData": "YQ=="}

    def theirs() -> Any:
        return ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData={"UserData": "YQ=="})

    assert [_code(theirs) or "" for _ in range(2)] == [_ours(state, t.LAUNCH_TEMPLATE, asked) for _ in range(2)]


def test_subnets_match_moto(client: Callable[[str], Any], state: View) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    land.make(state, t.VPC, land.VPC)
    for cidr in ("10.0.0.0/20", "10.0.0.0/24", "10.0.16.0/20", "10.1.0.0/24", "10.0.16.0/20"):
        theirs = _code(lambda cidr=cidr: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr))  # type: ignore[misc]
        assert (theirs or "") == _ours(state, t.SUBNET, land.subnet(cidr, land.ZONE, cidr)), cidr
    missing = _code(lambda: ec2.create_subnet(VpcId="vpc-0123456789abcdef0", CidrBlock="10.0.0.0/24"))
    assert missing == _ours(state, t.SUBNET, {"vpcId": "vpc-0123456789abcdef0", "cidrBlock": "10.0.32.0/24"})


def test_security_groups_match_moto(client: Callable[[str], Any], state: View) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    land.make(state, t.VPC, land.VPC)
    for _ in range(2):
        theirs = _code(lambda: ec2.create_security_group(GroupName="ray-efa", Description="EFA", VpcId=vpc))
        assert (theirs or "") == _ours(state, t.SECURITY_GROUP, land.EFA_GROUP)
    filters = [{"Name": "group-name", "Values": ["ray-efa"]}]
    group = ec2.describe_security_groups(Filters=filters)["SecurityGroups"][0]["GroupId"]
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    for _ in range(2):
        theirs = _code(lambda: ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rule))
        assert (theirs or "") == _ours(state, t.INGRESS, land.ITSELF)
    gone = "sg-0123456789abcdef0"
    theirs = _code(lambda: ec2.authorize_security_group_egress(GroupId=gone, IpPermissions=rule))
    assert (theirs or "") == _ours(state, t.EGRESS, {**land.ITSELF, "securityGroupId": gone})


def test_vpc_in_use_is_not_deleted_as_in_moto(client: Callable[[str], Any], state: View) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/20")
    land.make(state, t.VPC, land.VPC)
    land.make(state, t.SUBNET, land.PRIVATE)
    refusals = land.refusals(land.call(state, t.VPC, land.VPC, "delete", land.VPC_ID))
    assert _code(lambda: ec2.delete_vpc(VpcId=vpc)) == _verdict(refusals) == "DependencyViolation"


def test_roles_match_moto(client: Callable[[str], Any], state: View) -> None:
    iam = client("iam")
    for _ in range(2):
        asked = {"name": "nodes", "assumeRolePolicy": land.trust("ec2.amazonaws.com")}
        theirs = _code(lambda: iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=asked["assumeRolePolicy"]))  # noqa: B023
        ours = _ours(state, t.ROLE, asked) if state.get(t.ROLE, "nodes") is None else _taken(t.ROLE, "nodes")
        assert (theirs or "") == ours
    put = {"name": "more", "role": "missing", "policy": land.RIGHTS}
    theirs = _code(lambda: iam.put_role_policy(RoleName="missing", PolicyName="more", PolicyDocument=land.RIGHTS))
    assert theirs == _ours(state, t.ROLE_POLICY, put)
    iam.put_role_policy(RoleName="nodes", PolicyName="more", PolicyDocument=land.RIGHTS)
    land.make(state, t.ROLE_POLICY, {**put, "role": "nodes"})
    refusals = land.refusals(land.call(state, t.ROLE, {}, "delete", "nodes"))
    assert _code(lambda: iam.delete_role(RoleName="nodes")) == _verdict(refusals) == "DeleteConflict"


def _taken(type_: str, id_: str) -> str:
    return land.kind(type_).conflict(type_, id_).status.partition(" ")[2]


def test_cluster_and_node_group_names_are_unique_as_in_moto(client: Callable[[str], Any]) -> None:
    eks, ec2 = client("eks"), client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for cidr, zone in (("10.0.0.0/20", land.ZONE), ("10.0.16.0/20", land.SECOND))
    ]

    def cluster() -> Any:
        return eks.create_cluster(
            name="ray", roleArn=land.role_arn("control"), resourcesVpcConfig={"subnetIds": subnets}
        )

    def group(name: str) -> Any:
        return eks.create_nodegroup(
            clusterName=name, nodegroupName="gpu", subnets=subnets[:1], nodeRole=land.role_arn("nodes")
        )

    assert _code(cluster) is None
    assert _code(cluster) == _taken(t.CLUSTER, "ray")
    assert _code(lambda: group("ray")) is None
    assert _code(lambda: group("ray")) == _taken(t.NODE_GROUP, "ray:gpu")
    assert _code(lambda: group("other")) == "ResourceNotFoundException"
    assert _code(lambda: eks.delete_cluster(name="ray")) == "ResourceInUseException"


def test_file_systems_match_moto(client: Callable[[str], Any], state: View) -> None:
    ec2, fsx = client("ec2"), client("fsx")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/20")["Subnet"]["SubnetId"]
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    made = fsx.create_file_system(
        FileSystemType="LUSTRE", StorageCapacity=2400, SubnetIds=[subnet], LustreConfiguration=lustre
    )["FileSystem"]
    land.landscape(state)
    ours = state.get(t.FILE_SYSTEM, land.FILES_ID) or {}
    # FSx has used 17 digits for years; moto still uses 8.
    assert re.fullmatch(r"fs-[0-9a-f]{8}", made["FileSystemId"])
    assert re.fullmatch(r"fs-[0-9a-f]{17}", land.FILES_ID)
    assert ours["storageCapacity"] == made["StorageCapacity"]
    assert ours["deploymentType"] == made["LustreConfiguration"]["DeploymentType"]
    assert ours["arn"].partition(":file-system/")[0] == made["ResourceARN"].partition(":file-system/")[0]
