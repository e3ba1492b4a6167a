"""State of a killed engine: files are repaired, pending creates become resources to read. No engine runs here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.registry import cloud
from tools.recovery import (
    AWS_IMPORTS,
    GOOGLE_IMPORTS,
    PendingCreate,
    Place,
    UnclearError,
    import_id,
    mend_state_folder,
    pending_creates,
    settle,
    to_be_read,
    what_exists,
)

PROJECT = "p1"
PLACE = Place("gke", project=PROJECT)
ROLE_ARN = "arn:aws:iam::123456789012:role/ops/admin"
POLICY_ARN = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
ACCOUNT = "serviceAccount:gke-nodes@p1.iam.gserviceaccount.com"
IDS: dict[str, tuple[dict[str, Any], str]] = {
    "gcp:compute/network:Network": ({"name": "gke"}, "projects/p1/global/networks/gke"),
    "gcp:compute/subnetwork:Subnetwork": (
        {"name": "gke-rdma-0", "region": "us-central1"},
        "projects/p1/regions/us-central1/subnetworks/gke-rdma-0",
    ),
    "gcp:compute/firewall:Firewall": ({"name": "gke-inside"}, "projects/p1/global/firewalls/gke-inside"),
    "gcp:compute/router:Router": (
        {"name": "gke-nat", "region": "us-central1"},
        "projects/p1/regions/us-central1/routers/gke-nat",
    ),
    "gcp:compute/routerNat:RouterNat": (
        {"name": "gke-nat", "region": "us-central1", "router": "gke-nat"},
        "p1/us-central1/gke-nat/gke-nat",
    ),
    "gcp:container/cluster:Cluster": (
        {"name": "gke", "location": "us-central1"},
        "projects/p1/locations/us-central1/clusters/gke",
    ),
    "gcp:container/nodePool:NodePool": (
        {"name": "system", "location": "us-central1", "cluster": "gke"},
        "p1/us-central1/gke/system",
    ),
    "gcp:serviceaccount/account:Account": (
        {"accountId": "gke-nodes"},
        "projects/p1/serviceAccounts/gke-nodes@p1.iam.gserviceaccount.com",
    ),
    "gcp:projects/iAMMember:IAMMember": (
        {"role": "roles/logging.logWriter", "member": ACCOUNT},
        f"p1 roles/logging.logWriter {ACCOUNT}",
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": (
        {"bucket": "b1", "role": "roles/storage.objectUser", "member": ACCOUNT},
        f"b/b1 roles/storage.objectUser {ACCOUNT}",
    ),
    "aws:ec2/placementGroup:PlacementGroup": ({"name": "eks-gpu"}, "eks-gpu"),
    "aws:ec2/route:Route": ({"routeTableId": "rtb-1", "destinationCidrBlock": "0.0.0.0/0"}, "rtb-1_0.0.0.0/0"),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (
        {"subnetId": "subnet-1", "routeTableId": "rtb-1"},
        "subnet-1/rtb-1",
    ),
    "aws:autoscaling/schedule:Schedule": (
        {"autoscalingGroupName": "eks-gpu-1", "scheduledActionName": "drain-20261203-1045"},
        "eks-gpu-1/drain-20261203-1045",
    ),
    "aws:autoscaling/tag:Tag": (
        {"autoscalingGroupName": "eks-gpu-1", "tag": {"key": "a/b", "value": "8", "propagateAtLaunch": False}},
        "eks-gpu-1,a/b",
    ),
    "aws:eks/cluster:Cluster": ({"name": "eks"}, "eks"),
    "aws:eks/nodeGroup:NodeGroup": ({"clusterName": "eks", "nodeGroupName": "gpu"}, "eks:gpu"),
    "aws:eks/addon:Addon": ({"clusterName": "eks", "addonName": "vpc-cni"}, "eks:vpc-cni"),
    "aws:eks/accessEntry:AccessEntry": ({"clusterName": "eks", "principalArn": ROLE_ARN}, f"eks:{ROLE_ARN}"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        {"clusterName": "eks", "principalArn": ROLE_ARN, "policyArn": POLICY_ARN},
        f"eks#{ROLE_ARN}#{POLICY_ARN}",
    ),
    "aws:iam/role:Role": ({"name": "eks-nodes"}, "eks-nodes"),
    "aws:iam/rolePolicy:RolePolicy": ({"role": "eks-autoscaler", "name": "autoscaler"}, "eks-autoscaler:autoscaler"),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        {"role": "eks-nodes", "policyArn": POLICY_ARN},
        f"eks-nodes/{POLICY_ARN}",
    ),
    "aws:kms/alias:Alias": ({"name": "alias/eks-secrets"}, "alias/eks-secrets"),
    "aws:cloudwatch/logGroup:LogGroup": ({"name": "/aws/eks/eks/cluster"}, "/aws/eks/eks/cluster"),
    "kubernetes:core/v1:Namespace": ({"metadata": {"name": "ray"}}, "ray"),
    "kubernetes:core/v1:Secret": ({"metadata": {"name": "token", "namespace": "ray"}}, "ray/token"),
    "kubernetes:networking.gke.io/v1:Network": ({"metadata": {"name": "rdma-0"}}, "rdma-0"),
    "kubernetes:ray.io/v1:RayCluster": ({"metadata": {"name": "ray", "namespace": "ray"}}, "ray/ray"),
    "kubernetes:helm.sh/v3:Release": ({"name": "kuberay", "namespace": "ray"}, "ray/kuberay"),
}
RANDOM = "random:index/randomPassword:RandomPassword"


def operation(type_: str, inputs: dict[str, Any], kind: str = "creating") -> dict[str, Any]:
    """A pending operation as `pulumi stack export` writes it."""
    urn = f"urn:pulumi:gke::rdma-ray::{type_}::{inputs.get('name', 'x')}"
    return {"type": kind, "resource": {"urn": urn, "type": type_, "custom": True, "inputs": inputs, "parent": "urn"}}


def exported(*operations: dict[str, Any]) -> dict[str, Any]:
    """A stack with one resource and these pending operations."""
    there = {"urn": "urn:pulumi:gke::rdma-ray::pulumi:pulumi:Stack::s", "type": "pulumi:pulumi:Stack", "custom": False}
    return {"version": 3, "deployment": {"resources": [there], "pending_operations": list(operations)}}


class Pulumi:
    """Records the commands of the engine and the imported state."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.imported: dict[str, Any] = {}

    def __call__(self, *arguments: str) -> None:
        self.commands.append(arguments)
        if arguments[:2] == ("stack", "import"):
            self.imported = json.loads(Path(arguments[3]).read_text())


@pytest.mark.parametrize("type_", IDS)
def test_import_id_follows_from_the_inputs(type_: str) -> None:
    inputs, expected = IDS[type_]
    assert import_id(PendingCreate("urn", type_, inputs), PROJECT) == expected


@pytest.mark.parametrize("type_", IDS)
def test_simulated_cloud_accepts_the_import_id(type_: str) -> None:
    """The import leads to the id that a create would have given."""
    inputs, written = IDS[type_]
    kind = cloud(type_.partition(":")[0]).kind(type_)
    assert kind is not None
    config = {"project": PROJECT}
    assert kind.from_import(written, config) == kind.identify(inputs, config)


def test_every_google_resource_is_in_the_table() -> None:
    simulated = set(cloud("gcp").kinds)
    assert set(GOOGLE_IMPORTS) == simulated == {type_ for type_ in IDS if type_.startswith("gcp:")}


def test_every_aws_import_is_tried() -> None:
    """tests/components checks that no resource of an EKS stack is missing, which depends on the settings."""
    assert set(AWS_IMPORTS) == {type_ for type_ in IDS if type_.startswith("aws:")}


def test_unknown_type_is_unclear_and_not_missing() -> None:
    bucket = operation("aws:s3/bucket:Bucket", {"bucket": "b"})
    pulumi = Pulumi()
    with pytest.raises(UnclearError, match="how to find aws:s3/bucket:Bucket"):
        settle(exported(bucket), PLACE, pulumi)
    assert pulumi.commands == []


def test_resource_in_another_project_is_imported_from_there() -> None:
    create = PendingCreate("urn", "gcp:compute/network:Network", {"name": "n", "project": "p2"})
    assert import_id(create, PROJECT) == "projects/p2/global/networks/n"


def test_pending_creates_become_resources_to_be_read() -> None:
    """Without outputs, which makes the provider import them; the rest is unchanged."""
    create = operation("gcp:compute/network:Network", {"name": "gke"})
    before = exported(create)["deployment"]
    after = to_be_read(before, what_exists(before, PLACE))
    assert after["pending_operations"] == []
    made = {**create["resource"], "id": "projects/p1/global/networks/gke", "outputs": {}}
    assert after["resources"] == [*before["resources"], made]


def test_other_pending_operations_stay() -> None:
    delete = operation("gcp:compute/network:Network", {"name": "gke"}, "deleting")
    deployment = exported(delete)["deployment"]
    assert pending_creates(deployment) == []
    assert to_be_read(deployment, {}) == deployment


def test_settle_refreshes_only_pending_creates() -> None:
    network, password = operation("gcp:compute/network:Network", {"name": "gke"}), operation(RANDOM, {"length": 32})
    pulumi = Pulumi()
    assert settle(exported(network, password), PLACE, pulumi) == 2
    assert pulumi.imported["version"] == 3
    assert [each["type"] for each in pulumi.imported["deployment"]["resources"]] == [
        "pulumi:pulumi:Stack",
        "gcp:compute/network:Network",
    ]
    (_, refresh) = pulumi.commands
    assert refresh[0] == "refresh"
    assert refresh[refresh.index("--target") + 1 :] == (network["resource"]["urn"],)


def test_random_value_is_dropped_without_a_refresh() -> None:
    pulumi = Pulumi()
    assert settle(exported(operation(RANDOM, {"length": 32})), PLACE, pulumi) == 1
    assert len(pulumi.commands) == 1
    assert len(pulumi.imported["deployment"]["resources"]) == 1


def test_interrupted_settle_continues() -> None:
    """Between the import and the refresh: nothing is pending, and nothing has been read."""
    network = operation("gcp:compute/network:Network", {"name": "gke"})
    pulumi = Pulumi()
    settle(exported(network), PLACE, pulumi)
    again = Pulumi()
    assert settle(pulumi.imported, PLACE, again) == 1
    assert again.commands == pulumi.commands[1:]


def test_stack_without_pending_creates_is_unchanged() -> None:
    pulumi = Pulumi()
    assert settle(exported(), PLACE, pulumi) == 0
    assert settle({"version": 3, "deployment": {"manifest": {}}}, PLACE, pulumi) == 0
    assert pulumi.commands == []


def test_half_written_attrs_files_are_removed(tmp_path: Path) -> None:
    stacks = tmp_path / ".pulumi" / "stacks"
    stacks.mkdir(parents=True)
    (stacks / "a.json").write_text("")
    (stacks / "a.json.attrs").write_text("")
    (stacks / "b.json.attrs").write_text('{"md5": "x')
    (stacks / "c.json.attrs").write_text('{"md5": "x"}')
    assert mend_state_folder(tmp_path) == 2
    assert sorted(file.name for file in stacks.iterdir()) == ["a.json", "c.json.attrs"]


def test_missing_state_folder_has_no_broken_files(tmp_path: Path) -> None:
    assert mend_state_folder(tmp_path / "none") == 0
