"""Stack on AWS under Pulumi's mocks: every valid combination registers, with the inputs that are often wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import pytest

from infra.catalog.capacity import EKS_CAPACITIES
from infra.catalog.machines import EKS_CATALOG
from infra.catalog.pins import EFA_PLUGIN, RAY
from infra.eks.addons import BEFORE_NODES
from infra.eks.launch_template import LUSTRE_SETUP
from infra.eks.stack import region_problems
from infra.outputs import Outputs
from tests.components.cloud_mocks import ENDPOINT, Made, deployed
from tests.unit.stacks import EKS, changed, eks, problems_of
from tools.recovery import FOUND_BY_TAGS, PendingCreate, import_id

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CLUSTER = "aws:eks/cluster:Cluster"
ADDON = "aws:eks/addon:Addon"
RELEASE = "kubernetes:helm.sh/v3:Release"
AUTOSCALING_TAG = "aws:autoscaling/tag:Tag"
SUBNET = "aws:ec2/subnet:Subnet"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
SCHEDULE = "aws:autoscaling/schedule:Schedule"
BLOCK = "cr-0123456789abcdef0"
FABRICS = ("efa", "efa-dranet")
Stack = Mapping[tuple[str, str], Made]


def combination(machine: str, capacity: str, fabric: str) -> dict[str, Any]:
    reserved = {"nodes.reservation": BLOCK} if EKS_CAPACITIES[capacity].targets_reservation else {}
    least = 1 if fabric == "efa-dranet" else 0
    return changed(
        EKS,
        {"nodes.machine": machine, "nodes.capacity": capacity, "fabric": fabric, "nodes.min": least, **reserved},
    )


VALID = [cell for cell in product(EKS_CATALOG, EKS_CAPACITIES, FABRICS) if problems_of(combination(*cell)) == ()]
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "private": {"access.authorizedNetworks": ["10.1.0.0/16"]},
    "administrators": {"access.administrators": ["arn:aws:iam::111122223333:role/ops/admin"]},
    "endpoints": {
        "access.egress": "endpoints",
        "access.imageMirror": "1.dkr.ecr.us-east-1.amazonaws.com/mirror",
        "ray.image": f"1.dkr.ecr.us-east-1.amazonaws.com/ray-efa:{RAY}",
    },
    "shared": {"storage.bucket": "ours"},
    "shared-efa": {"storage.bucket": "ours", "storage.efa": True, "storage.capacityGib": 4800},
    "wide": {"nodes.machine": "p5e.48xlarge", "network.interfaces": "bandwidth-optimised"},
    "by-id": {"location": "use1-az1"},
    "open": {"access.publicEndpoint": True, "access.authorizedNetworks": ["203.0.113.7/32"]},
    "unprotected": {"protect": False},
    "block": {
        "nodes.capacity": "capacity-block",
        "nodes.reservation": BLOCK,
        "nodes.blockEnds": "2027-01-01T00:30:00Z",
    },
}


@cache
def plain() -> Stack:
    return deployed(EKS).made


@cache
def with_change(name: str) -> Stack:
    return deployed(changed(EKS, OTHER_SETTINGS[name])).made


def of(stack: Stack, type_: str) -> dict[str, Made]:
    return {name: made for (kind, name), made in stack.items() if kind == type_}


def counted(stack: Stack) -> int:
    """Return the number of resources without components and providers."""
    return sum(not kind.startswith(("rdma-ray:", "pulumi:")) for kind, _ in stack)


def test_number_of_valid_combinations() -> None:
    # efa: 7 machines by 4 capacities, except p6-b300 as spot. Claims: no Capacity Block, which starts empty.
    assert len(VALID) == (7 * 4 - 1) + (7 * 3 - 1)


@pytest.mark.parametrize(("machine", "capacity", "fabric"), VALID)
def test_valid_combination_registers(machine: str, capacity: str, fabric: str) -> None:
    stack = deployed(combination(machine, capacity, fabric)).made
    kind, facts = EKS_CAPACITIES[capacity], EKS_CATALOG[machine]
    group, template = stack[NODE_GROUP, "gpu"].inputs, stack[TEMPLATE, "gpu"].inputs
    assert len(of(stack, "aws:ec2/placementGroup:PlacementGroup")) == kind.placement_group
    assert ("placement" in template) == kind.placement_group
    assert group["capacityType"] == kind.capacity_type
    target = template.get("capacityReservationSpecification", {}).get("capacityReservationTarget")
    assert target == ({"capacityReservationId": BLOCK} if kind.targets_reservation else None)
    assert template.get("instanceMarketOptions") == ({"marketType": kind.market_type} if kind.market_type else None)
    # The type is named once: by the template for a Capacity Block, by the group otherwise.
    assert template.get("instanceType") == (machine if kind.market_type else None)
    assert group.get("instanceTypes") == (None if kind.market_type else [machine])
    least = 1 if fabric == "efa-dranet" else 0
    assert group["scalingConfig"] == {"desiredSize": least, "minSize": least, "maxSize": 2}
    assert sum(one["interfaceType"] != "interface" for one in template["networkInterfaces"]) == facts.nics
    tags = {made.inputs["tag"]["key"].rpartition("resources/")[2] for made in of(stack, AUTOSCALING_TAG).values()}
    assert tags == {"nvidia.com/gpu", *(["vpc.amazonaws.com/efa"] if fabric == "efa" else [])}
    groups = {made.inputs["autoscalingGroupName"] for made in of(stack, AUTOSCALING_TAG).values()}
    assert groups == {"eks-gpu-1"}, "the one that EKS created for the node group"
    plugins = {made.inputs["chart"] for made in of(stack, RELEASE).values()}
    efa = {"efa": "aws-efa-k8s-device-plugin", "efa-dranet": "aws-dranet"}[fabric]
    assert plugins == {"kuberay-operator", "cluster-autoscaler", "nvidia-device-plugin", efa}
    # Either a tag for the plugin's devices or a template for claims, so only the placement group changes the count.
    assert counted(stack) == counted(plain()) - (not kind.placement_group)


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_other_setting_registers(name: str) -> None:
    assert counted(with_change(name)) > 40


@pytest.mark.parametrize("name", [None, *OTHER_SETTINGS])
def test_resources_can_be_found_after_a_crash(name: str | None) -> None:
    """By the inputs, or by tags that are unique among the resources of a kind."""
    stack = plain() if name is None else with_change(name)
    resources = [made for (kind, _), made in stack.items() if kind.startswith("aws:")]
    tagged = []
    for made in resources:
        create = PendingCreate(made.name, made.type, made.inputs)
        if made.type in FOUND_BY_TAGS:
            assert made.inputs["tags"]["rdma-ray-stack"] == "test", made.name
            tagged.append((FOUND_BY_TAGS[made.type], made.inputs["tags"]["Name"]))
        else:
            assert import_id(create, None), made.name
    assert len(tagged) > 15
    assert len(set(tagged)) == len(tagged), sorted(each for each in tagged if tagged.count(each) > 1)


def test_resources_have_one_root() -> None:
    roots = [made for (kind, _), made in plain().items() if kind == "rdma-ray:eks:EksStack"]
    assert [made.name for made in roots] == ["test"]
    orphans = [key for key, made in plain().items() if not made.parent and key[0] != "pulumi:pulumi:Stack"]
    assert orphans == []


def test_protection_covers_every_resource() -> None:
    assert all(made.protect for (kind, _), made in plain().items() if kind != "pulumi:pulumi:Stack")
    assert plain()[CLUSTER, "cluster"].inputs["deletionProtection"] is True
    free = with_change("unprotected")
    assert not any(made.protect for made in free.values())
    assert free[CLUSTER, "cluster"].inputs["deletionProtection"] is False


def test_efa_passes_both_ways_on_every_interface() -> None:
    for rules in (of(plain(), INGRESS), of(plain(), EGRESS)):
        (rule,) = (made.inputs for name, made in rules.items() if name.startswith("efa"))
        assert rule["ipProtocol"] == "-1"
        assert rule["securityGroupId"] == rule["referencedSecurityGroupId"] == "efa-id"
    for interface in plain()[TEMPLATE, "gpu"].inputs["networkInterfaces"]:
        assert interface["securityGroups"] == ["sg-cluster", "efa-id"]
        assert "subnetId" not in interface
    assert "vpcSecurityGroupIds" not in plain()[TEMPLATE, "gpu"].inputs


@pytest.mark.parametrize("group", ["gpu", "system"])
def test_nodes_protect_credentials_and_disks(group: str) -> None:
    template = plain()[TEMPLATE, group].inputs
    assert template["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
    }
    assert all(disk["ebs"]["encrypted"] == "true" for disk in template["blockDeviceMappings"])
    assert "imageId" not in template
    assert plain()[NODE_GROUP, group].inputs["nodeRepairConfig"] == {"enabled": True}


def test_gpu_nodes_are_in_one_zone_and_tainted() -> None:
    group = plain()[NODE_GROUP, "gpu"].inputs
    assert group["subnetIds"] == ["gpu-id"]
    assert plain()[SUBNET, "gpu"].inputs["availabilityZone"] == "us-east-1a"
    assert group["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}]
    assert group["labels"]["nvidia.com/gpu.present"] == group["labels"]["vpc.amazonaws.com/efa.present"] == "true"
    assert group["amiType"] == "AL2023_x86_64_NVIDIA"
    assert group["releaseVersion"]


def test_capacity_block_drains_nodes_and_reopens_group() -> None:
    assert of(plain(), SCHEDULE) == {}
    group = "eks-gpu-1"
    drain, reopen = (made.inputs for _, made in sorted(of(with_change("block"), SCHEDULE).items()))
    assert drain == {
        "scheduledActionName": "drain-20261231-2345",
        "autoscalingGroupName": group,
        "recurrence": "45 23 31 12 *",
        "minSize": 0,
        "maxSize": 0,
        "desiredCapacity": 0,
    }
    assert reopen == {
        "scheduledActionName": "reopen-20270101-0030",
        "autoscalingGroupName": group,
        "recurrence": "30 0 1 1 *",
        "minSize": 0,
        "maxSize": 2,
        "desiredCapacity": -1,
    }


def test_zones_by_name_or_id() -> None:
    by_name, by_id = of(plain(), SUBNET), of(with_change("by-id"), SUBNET)
    assert {made.inputs["availabilityZone"] for made in by_name.values()} == {"us-east-1a", "us-east-1b"}
    assert {made.inputs["availabilityZoneId"] for made in by_id.values()} == {"use1-az1", "use1-az2"}
    assert not any("availabilityZone" in made.inputs for made in by_id.values())
    assert not any(made.inputs["mapPublicIpOnLaunch"] for made in by_name.values())


def test_control_plane_access() -> None:
    cluster = plain()[CLUSTER, "cluster"].inputs
    assert cluster["vpcConfig"]["subnetIds"] == ["private-0-id", "private-1-id"]
    assert cluster["vpcConfig"]["endpointPrivateAccess"] is True
    assert cluster["vpcConfig"]["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in cluster["vpcConfig"]
    assert cluster["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    assert cluster["bootstrapSelfManagedAddons"] is False
    assert cluster["encryptionConfig"] == {"provider": {"keyArn": "arn:aws:cluster-secrets"}, "resources": ["secrets"]}
    public = with_change("open")[CLUSTER, "cluster"].inputs["vpcConfig"]
    assert (public["endpointPublicAccess"], public["publicAccessCidrs"]) == (True, ["203.0.113.7/32"])
    (rule,) = (made.inputs for name, made in of(with_change("private"), INGRESS).items() if "api" in name)
    assert (rule["securityGroupId"], rule["cidrIpv4"], rule["fromPort"]) == ("sg-cluster", "10.1.0.0/16", 443)


def test_administrators_have_access_entries() -> None:
    stack = with_change("administrators")
    (entry,) = of(stack, "aws:eks/accessEntry:AccessEntry").values()
    (policy,) = of(stack, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation").values()
    assert entry.inputs["principalArn"] == policy.inputs["principalArn"] == "arn:aws:iam::111122223333:role/ops/admin"
    assert policy.inputs["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def test_addons_are_ordered_around_nodes() -> None:
    groups = of(plain(), NODE_GROUP)
    for group in groups.values():
        waited = {urn.rpartition("::")[2] for urn in group.waits if "addon" in urn}
        assert waited == set(BEFORE_NODES)
        assert any("rolePolicyAttachment" in urn for urn in group.waits)
        assert any("routeTableAssociation" in urn for urn in group.waits)
    for name in ("coredns", "eks-node-monitoring-agent"):
        assert any("nodeGroup" in urn and urn.endswith("::system") for urn in of(plain(), ADDON)[name].waits)
    cni = json.loads(of(plain(), ADDON)["vpc-cni"].inputs["configurationValues"])
    assert cni["enableNetworkPolicy"] == "true"


def test_device_plugins_do_not_conflict() -> None:
    releases = of(plain(), RELEASE)
    assert releases["nvidia-device-plugin"].inputs["values"]["mofedEnabled"] is False
    efa = releases["aws-efa-k8s-device-plugin"].inputs
    assert efa["version"] == EFA_PLUGIN.version
    assert efa["values"]["supportedInstanceLabels"]["values"] == ["p5en.48xlarge"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in efa["values"]["tolerations"]


def test_endpoints_have_no_internet_and_use_mirror() -> None:
    stack = with_change("endpoints")
    for kind in ("internetGateway:InternetGateway", "natGateway:NatGateway", "eip:Eip", "route:Route"):
        assert of(stack, f"aws:ec2/{kind}") == {}
        assert of(plain(), f"aws:ec2/{kind}") != {}
    endpoints = of(stack, "aws:ec2/vpcEndpoint:VpcEndpoint")
    services = {made.inputs["serviceName"].removeprefix("com.amazonaws.us-east-1.") for made in endpoints.values()}
    assert {"s3", "ec2", "ecr.api", "ecr.dkr", "sts", "logs", "eks", "eks-auth", "fsx", "autoscaling"} <= services
    for release in of(stack, RELEASE).values():
        assert release.inputs["values"]["image"]["repository"].startswith("1.dkr.ecr.us-east-1.amazonaws.com/mirror/")


def test_shared_folder_is_a_file_system_in_the_gpu_zone() -> None:
    stack = with_change("shared")
    (system,) = of(stack, "aws:fsx/lustreFileSystem:LustreFileSystem").values()
    assert system.inputs["subnetIds"] == "gpu-id"
    assert (system.inputs["deploymentType"], system.inputs["storageCapacity"]) == ("PERSISTENT_2", 1200)
    assert "efaEnabled" not in system.inputs
    assert system.protect
    (link,) = of(stack, "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation").values()
    assert link.inputs["dataRepositoryPath"] == "s3://ours"
    (volume,) = of(stack, "kubernetes:core/v1:PersistentVolume").values()
    (claim,) = of(stack, "kubernetes:core/v1:PersistentVolumeClaim").values()
    assert volume.inputs["spec"]["csi"]["volumeHandle"] == "shared-id"
    assert volume.inputs["spec"]["storageClassName"] == claim.inputs["spec"]["storageClassName"] == ""
    assert claim.inputs["spec"]["volumeName"] == volume.inputs["metadata"]["name"] == "test-shared"
    assert any("PersistentVolume::" in urn for urn in claim.waits)
    ports = {(made.inputs.get("fromPort"), made.inputs.get("toPort")) for made in of(stack, INGRESS).values()}
    assert {(988, 988), (1018, 1023)} <= ports
    assert "aws-fsx-csi-driver" in of(stack, ADDON)
    assert "aws-fsx-csi-driver" not in of(plain(), ADDON)


def test_file_system_over_efa_opens_both_ways() -> None:
    stack = with_change("shared-efa")
    (system,) = of(stack, "aws:fsx/lustreFileSystem:LustreFileSystem").values()
    assert (system.inputs["efaEnabled"], system.inputs["perUnitStorageThroughput"]) == (True, 1000)
    assert system.inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}
    for rules in (of(stack, INGRESS), of(stack, EGRESS)):
        everything = {
            (made.inputs["securityGroupId"], made.inputs["referencedSecurityGroupId"])
            for made in rules.values()
            if made.inputs["ipProtocol"] == "-1"
        }
        both = [("shared-id", "shared-id"), ("shared-id", "efa-id"), ("efa-id", "shared-id")]
        assert everything == {("efa-id", "efa-id"), *both}


def test_gpu_nodes_set_up_lustre_over_efa() -> None:
    def script(stack: Stack, group: str) -> bool:
        template = of(stack, TEMPLATE)[group]
        return LUSTRE_SETUP in base64.b64decode(template.inputs.get("userData") or "").decode()

    assert script(with_change("shared-efa"), "gpu")
    assert not script(with_change("shared-efa"), "system"), "the CPU nodes have no EFA device"
    assert not script(with_change("shared"), "gpu")


def test_outputs_match_contract() -> None:
    exported = Outputs.model_validate(deployed(changed(EKS, {"storage.bucket": "ours"})).outputs)
    assert exported.target == "eks"
    assert exported.kubeconfig is not None
    assert ENDPOINT in exported.kubeconfig.get_secret_value()
    assert exported.ray.token.get_secret_value() == "x" * 43
    assert exported.storage is not None
    assert exported.nodes.gpus_per_node == 8
    assert exported.fabric.nics == 16


def test_region_must_be_the_zones() -> None:
    settings = eks()
    assert region_problems(settings, "us-east-1") == []
    assert "aws:region us-east-1" in region_problems(settings, None)[0].fix
    (problem,) = region_problems(settings, "us-west-2")
    assert problem.settings == ("aws:region", "location")
    assert region_problems(eks({"location": "use1-az1"}), "us-west-2") == []
