"""Launch template of every instance type, sent to a simulated EC2, read back, and compared with EC2's instance types.

The request has the inputs that the program registers under Pulumi's mocks; boto3 sends it to moto. The instance types
are moto's copy of EC2's DescribeInstanceTypes, independent of this project's catalog.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.catalog.machines import EKS_CATALOG
from tests.components.cloud_mocks import deployed
from tests.unit.stacks import EKS, changed

REGION = "us-east-1"
RESERVATION = "cr-0123456789abcdef0"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
WIDE = {"network.interfaces": "bandwidth-optimised"}
LAYOUTS = [*((name, {}) for name in EKS_CATALOG), ("p5.48xlarge", WIDE), ("p5e.48xlarge", WIDE)]
IDS = [f"{name}{'-wide' if changes else ''}" for name, changes in LAYOUTS]


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a client of the simulated EC2, with dummy credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        yield boto3.client("ec2", region_name=REGION)


def registered(machine: str, changes: Mapping[str, Any], group: str = "gpu") -> Mapping[str, Any]:
    """Return the inputs of a group's launch template, as the provider receives them."""
    return _templates(machine, tuple(sorted(changes.items())))[group]


@cache
def _templates(machine: str, changes: tuple[tuple[str, Any], ...]) -> dict[str, Mapping[str, Any]]:
    made = deployed(changed(EKS, {"nodes.machine": machine, **dict(changes)})).made
    return {name: one.inputs for (kind, name), one in made.items() if kind == TEMPLATE}


def request(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provider's inputs as a request of the EC2 API: in EC2's spelling, with booleans."""
    data: dict[str, Any] = {
        "NetworkInterfaces": [
            {
                "NetworkCardIndex": one["networkCardIndex"],
                "DeviceIndex": one["deviceIndex"],
                "InterfaceType": one["interfaceType"],
                "Groups": one["securityGroups"],
                "DeleteOnTermination": one["deleteOnTermination"] == "true",
            }
            for one in inputs.get("networkInterfaces", ())
        ],
        "MetadataOptions": {
            "HttpEndpoint": inputs["metadataOptions"]["httpEndpoint"],
            "HttpTokens": inputs["metadataOptions"]["httpTokens"],
            "HttpPutResponseHopLimit": inputs["metadataOptions"]["httpPutResponseHopLimit"],
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": one["deviceName"],
                "Ebs": {
                    "VolumeSize": one["ebs"]["volumeSize"],
                    "VolumeType": one["ebs"]["volumeType"],
                    "Encrypted": one["ebs"]["encrypted"] == "true",
                },
            }
            for one in inputs["blockDeviceMappings"]
        ],
        "TagSpecifications": [
            {
                "ResourceType": one["resourceType"],
                "Tags": [{"Key": key, "Value": value} for key, value in one["tags"].items()],
            }
            for one in inputs["tagSpecifications"]
        ],
    }
    if "userData" in inputs:
        data["UserData"] = inputs["userData"]
    if "instanceType" in inputs:
        data["InstanceType"] = inputs["instanceType"]
    if "instanceMarketOptions" in inputs:
        data["InstanceMarketOptions"] = {"MarketType": inputs["instanceMarketOptions"]["marketType"]}
    if "placement" in inputs:
        data["Placement"] = {"GroupName": inputs["placement"]["groupName"]}
    if "capacityReservationSpecification" in inputs:
        target = inputs["capacityReservationSpecification"]["capacityReservationTarget"]
        data["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": target["capacityReservationId"]}
        }
    return data


def read_back(ec2: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what EC2 stores for these inputs."""
    data = request(inputs)
    ec2.create_launch_template(LaunchTemplateName=inputs["name"], LaunchTemplateData=data)
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateName=inputs["name"])["LaunchTemplateVersions"]
    found: dict[str, Any] = version["LaunchTemplateData"]
    return found


def places(interfaces: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [(one["NetworkCardIndex"], one["DeviceIndex"], one["InterfaceType"]) for one in interfaces]


@pytest.mark.parametrize(("machine", "changes"), LAYOUTS, ids=IDS)
def test_interfaces_are_stored_as_sent(ec2: Any, machine: str, changes: dict[str, Any]) -> None:
    inputs = registered(machine, changes)
    found = read_back(ec2, inputs)["NetworkInterfaces"]
    sent = inputs["networkInterfaces"]
    assert places(found) == [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in sent]
    assert all(one["Groups"] == ["sg-cluster", "efa-id"] for one in found)
    assert all(one["DeleteOnTermination"] is True for one in found)
    assert not any("SubnetId" in one for one in found)


@pytest.mark.parametrize(("machine", "changes"), LAYOUTS, ids=IDS)
def test_interfaces_fit_instance_type(ec2: Any, machine: str, changes: dict[str, Any]) -> None:
    (facts,) = ec2.describe_instance_types(InstanceTypes=[machine])["InstanceTypes"]
    network = facts["NetworkInfo"]
    room = {card["NetworkCardIndex"]: card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]}
    layout = places(read_back(ec2, registered(machine, changes))["NetworkInterfaces"])
    efas = [card for card, _, kind in layout if kind in ("efa", "efa-only")]
    assert len(efas) == network["EfaInfo"]["MaximumEfaInterfaces"]
    assert len(efas) == len(set(efas)), "a network card has one EFA"
    assert len(room) == network["MaximumNetworkCards"]
    for card, device, _ in layout:
        assert device < room[card], f"card {card} has no device index {device}"
    assert layout[0][:2] == (network["DefaultNetworkCardIndex"], 0)
    assert layout[0][2] != "efa-only"
    # EC2 numbers the devices of a card without gaps. In the older layout of p4d, they start at 1.
    if machine.startswith("p4"):
        assert {device for card, device, _ in layout if card} == {1}
    else:
        for card in room:
            devices = sorted(device for on, device, _ in layout if on == card)
            assert devices == list(range(len(devices)))


def test_capacity_block_sets_market_and_target(ec2: Any) -> None:
    changes = {"nodes.capacity": "capacity-block", "nodes.reservation": RESERVATION}
    found = read_back(ec2, registered("p5en.48xlarge", changes))
    assert found["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert found["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
        "CapacityReservationId": RESERVATION
    }
    assert found["InstanceType"] == "p5en.48xlarge"
    assert "Placement" not in found


def test_on_demand_nodes_share_placement_group(ec2: Any) -> None:
    found = read_back(ec2, registered("p5en.48xlarge", {}))
    assert found["Placement"] == {"GroupName": "test-gpu"}
    assert "CapacityReservationSpecification" not in found
    assert "InstanceMarketOptions" not in found


@pytest.mark.parametrize("group", ["gpu", "system"])
def test_metadata_disks_and_user_data_are_stored(ec2: Any, group: str) -> None:
    inputs = registered("p5en.48xlarge", {}, group)
    found = read_back(ec2, inputs)
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert found["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert ("UserData" in found) == (group == "gpu")
    if group == "gpu":
        assert b"kind: NodeConfig" in base64.b64decode(found["UserData"])
    assert "ImageId" not in found
