"""State of a killed engine: files are repaired, pending creates become resources to read. No engine runs here."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rehearsal.clouds.registry import cloud
from tests.clone import executable
from tools.recovery import (
    AWS_IMPORTS,
    DISTINGUISHED_BY,
    FOUND_BY_TAGS,
    GOOGLE_IMPORTS,
    PARTS,
    PendingCreate,
    Place,
    Tagged,
    UnclearError,
    found,
    import_id,
    mend_state_folder,
    pending_creates,
    settle,
    to_be_read,
    what_exists,
)

PROJECT = "p1"
PLACE = Place("gke", project=PROJECT)
VPC, KEY = "aws:ec2/vpc:Vpc", "aws:kms/key:Key"
VPC_ARN, OTHER_VPC_ARN = (f"arn:aws:ec2:us-east-2:123456789012:vpc/vpc-{number}" for number in (1, 2))
KEY_ARN = "arn:aws:kms:us-east-2:123456789012:key/12-34"
TAGS = {"rdma-ray-stack": "eks", "rdma-ray-owner": "0a1b", "Name": "eks-x"}
NETWORK, NETWORK_ID = "gcp:compute/network:Network", "projects/p1/global/networks/gke"
OURS = {"name": "gke", "description": "owner 0a1b"}
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
    """An engine that exports a state, imports one, and records its commands. `cloud` has outputs by import ID."""

    def __init__(self, state: dict[str, Any], cloud: Mapping[str, dict[str, Any]] = MappingProxyType({})) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.state = state
        self.cloud = cloud

    def __call__(self, *arguments: str) -> None:
        self.commands.append(arguments)
        if arguments[:2] == ("stack", "import"):
            self.state = json.loads(Path(arguments[3]).read_text())

    def read(self, *arguments: str) -> str:
        if arguments == ("stack", "export"):
            return json.dumps(self.state)
        assert arguments[:2] == ("import", "--preview-only")
        file, log = (Path(arguments[arguments.index(option) + 1]) for option in ("--file", "--event-log"))
        events: list[dict[str, Any]] = []
        for asked in json.loads(file.read_text())["resources"]:
            urn = f"urn:pulumi:gke::rdma-ray::{asked['type']}::{asked['name']}"
            if asked["id"] not in self.cloud:
                problem = {"urn": urn, "severity": "error", "message": f"resource '{asked['id']}' does not exist\n"}
                log.write_text(json.dumps({"diagnosticEvent": problem}))
                raise RuntimeError("import failed")
            found = {"op": "import", "urn": urn, "new": {"outputs": self.cloud[asked["id"]]}}
            events.append({"resOutputsEvent": {"metadata": found}})
        log.write_text("\n".join(map(json.dumps, events)))
        return ""

    def settle(self, place: Place = PLACE) -> int:
        return settle(place, self, self.read)


def test_every_kind_of_the_clouds_can_be_imported() -> None:
    """tests/rehearsal/test_cloud_stacks.py imports those of the stack files."""
    # Google generates the IDs of these, and nothing lists them by the stack: `settle` says to delete one by hand.
    generated = {"gcp:billing/budget:Budget", "gcp:monitoring/notificationChannel:NotificationChannel"}
    assert GOOGLE_IMPORTS.keys() | generated == set(cloud("gcp").kinds)
    assert sorted([*DISTINGUISHED_BY, *PARTS]) == sorted([*GOOGLE_IMPORTS, *AWS_IMPORTS])
    # Reservations are given to a stack, which makes none.
    given = {"aws:ec2/capacityReservation:CapacityReservation"}
    assert AWS_IMPORTS.keys() | FOUND_BY_TAGS.keys() | given == set(cloud("aws").kinds)


@pytest.mark.parametrize("name", ["accessEntry:AccessEntry", "accessPolicyAssociation:AccessPolicyAssociation"])
def test_access_that_no_stack_file_grants_is_imported(name: str) -> None:
    inputs = {"clusterName": "eks", "principalArn": "arn:aws:iam::1:role/ops/admin", "policyArn": "arn:aws:iam::aws:a"}
    kind = cloud("aws").kinds[f"aws:eks/{name}"]
    assert kind.from_import(str(import_id(PendingCreate("urn", kind.type, inputs), None)), {}) == kind.identify(
        inputs, {}
    )


def test_unknown_type_is_unclear_and_not_missing() -> None:
    bucket = operation("aws:s3/bucket:Bucket", {"bucket": "b"})
    pulumi = Pulumi(exported(bucket))
    with pytest.raises(UnclearError, match="how to find aws:s3/bucket:Bucket"):
        pulumi.settle()
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
    network, password = operation(NETWORK, OURS), operation(RANDOM, {"length": 32})
    pulumi = Pulumi(exported(network, password), {NETWORK_ID: OURS})
    assert pulumi.settle() == 2
    assert pulumi.state["version"] == 3
    assert [each["type"] for each in pulumi.state["deployment"]["resources"]] == [
        "pulumi:pulumi:Stack",
        "gcp:compute/network:Network",
    ]
    (_, refresh) = pulumi.commands
    assert refresh[0] == "refresh"
    assert refresh[refresh.index("--target") + 1 :] == (network["resource"]["urn"],)


def test_missing_resources_are_dropped_and_the_others_read() -> None:
    """A missing one ends the engine's import before it has read the others."""
    operations = [operation(NETWORK, {**OURS, "name": name}) for name in ("a", "gke", "z")]
    pulumi = Pulumi(exported(*operations), {NETWORK_ID: OURS})
    assert pulumi.settle() == 3
    assert [each.get("id") for each in pulumi.state["deployment"]["resources"]] == [None, NETWORK_ID]


@pytest.mark.parametrize(
    ("type_", "inputs", "outputs"),
    [
        (NETWORK, OURS, {"description": "owner 2c3d"}),
        (NETWORK, OURS, {}),
        # An engine of an older version, whose stacks had no owner.
        (NETWORK, {"name": "gke"}, {"description": ""}),
        ("gcp:compute/firewall:Firewall", {"name": "gke", "network": "p/n/gke"}, {"network": "https://g/p/n/x-gke"}),
        (
            "gcp:container/cluster:Cluster",
            {"name": "gke", "location": "us", "resourceLabels": TAGS},
            {"resourceLabels": TAGS, "effectiveLabels": {"rdma-ray-owner": "2c3d"}},
        ),
        (
            "gcp:container/nodePool:NodePool",
            {
                "cluster": "theirs",
                "name": "gpu",
                "location": "us-central1",
                "nodeConfig": {"resourceLabels": {"rdma-ray-owner": "0a1b"}},
            },
            {"nodeConfig": {"resourceLabels": {"rdma-ray-owner": "2c3d"}}},
        ),
        ("aws:eks/cluster:Cluster", {"name": "eks", "tags": TAGS}, {"tags": {**TAGS, "rdma-ray-owner": "2c3d"}}),
        ("aws:kms/alias:Alias", {"name": "alias/x", "targetKeyId": "1"}, {"targetKeyId": "2"}),
    ],
)
def test_resource_of_another_clone_is_not_adopted(type_: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    made = operation(type_, inputs)
    id_ = str(import_id(PendingCreate("urn", type_, inputs), PROJECT))
    pulumi = Pulumi(exported(made), {id_: outputs})
    with pytest.raises(UnclearError, match=f"(?s)another owner.*{id_} of .*Nothing was changed"):
        pulumi.settle()
    assert pulumi.commands == []


def test_unreadable_resource_is_unclear() -> None:
    pulumi = Pulumi(exported(operation(NETWORK, OURS)))

    def denied(*arguments: str) -> str:
        if arguments[0] == "import":
            raise RuntimeError("403: permission denied")
        return pulumi.read(*arguments)

    with pytest.raises(UnclearError, match=r"(?s)403: permission denied.*Nothing was changed"):
        settle(PLACE, pulumi, denied)
    assert pulumi.commands == []


def test_random_value_is_dropped_without_a_refresh() -> None:
    pulumi = Pulumi(exported(operation(RANDOM, {"length": 32})))
    assert pulumi.settle() == 1
    assert len(pulumi.commands) == 1
    assert len(pulumi.state["deployment"]["resources"]) == 1


def test_interrupted_settle_continues() -> None:
    """Between the import and the refresh: nothing is pending, and nothing has been read."""
    pulumi = Pulumi(exported(operation(NETWORK, OURS)), {NETWORK_ID: OURS})
    pulumi.settle()
    again = Pulumi(pulumi.state)
    assert again.settle() == 1
    assert again.commands == pulumi.commands[1:]


def test_stack_without_pending_creates_is_unchanged() -> None:
    for state in (exported(), {"version": 3, "deployment": {"manifest": {}}}):
        pulumi = Pulumi(state)
        assert pulumi.settle() == 0
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


def command_line(folder: Path, script: str) -> dict[str, str]:
    """An environment in which `aws` is this script, and the only program besides the system's."""
    executable(folder / "aws", f"#!/bin/sh\n{script}\n")
    return {"PATH": os.pathsep.join([str(folder), "/usr/bin", "/bin"])}


def create(**inputs: Any) -> PendingCreate:
    return PendingCreate("urn", VPC, {"tags": TAGS, **inputs})


def test_resource_of_the_same_kind_and_name_that_the_state_lacks_is_found() -> None:
    """While a resource is replaced there are two, and the state has the old one."""
    others = [Tagged(VPC_ARN, "eks-y", "0a1b"), Tagged(KEY_ARN, "eks-x", "0a1b"), Tagged(VPC_ARN, "eks-x", "another")]
    twice = [*others, Tagged(VPC_ARN, "eks-x", "0a1b"), Tagged(OTHER_VPC_ARN, "eks-x", "0a1b")]
    assert found(create(), others, known=()) is None
    assert found(create(), twice, known={"vpc-1"}) == "vpc-2"
    assert found(create(), twice, known={"vpc-1", "vpc-2"}) is None
    with pytest.raises(UnclearError, match=r"(?s)vpc/vpc-1.*vpc/vpc-2.*Delete those"):
        found(create(), twice, known=())


@pytest.mark.parametrize("missing", [TAGS.keys(), *([key] for key in TAGS)], ids=str)
def test_create_without_tags_is_unclear(missing: Collection[str]) -> None:
    with pytest.raises(UnclearError, match="to find it by"):
        found(create(tags={key: TAGS[key] for key in TAGS if key not in missing}), [], known=())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no AWS CLI here. Install version 2"),
        ("echo 'Unable to locate credentials' >&2; exit 253", "(?s)Unable to locate credentials.*tag:GetResources"),
        ("echo '<html>'", "not the expected list"),
        ("echo '{\"ResourceTagMappingList\": [{}]}'", "not the expected list"),
    ],
)
def test_failed_command_changes_nothing(tmp_path: Path, script: str | None, said: str) -> None:
    environment = {"PATH": str(tmp_path)} if script is None else command_line(tmp_path, script)
    pulumi = Pulumi(exported(operation(VPC, {"tags": TAGS})))
    with pytest.raises(UnclearError, match=said) as unclear:
        pulumi.settle(Place("eks", region="us-east-2", environment=environment))
    assert "Nothing was changed." in str(unclear.value)
    assert "aws resourcegroupstaggingapi get-resources" in str(unclear.value)
    assert pulumi.commands == []


def test_existing_resources_are_read_and_others_dropped(tmp_path: Path) -> None:
    tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    listed = json.dumps({"ResourceTagMappingList": [{"ResourceARN": VPC_ARN, "Tags": tags}]})
    environment = command_line(tmp_path, f"cat <<'END'\n{listed}\nEND")
    vpc, key = operation(VPC, {"name": "v", "tags": TAGS}), operation(KEY, {"name": "k", "tags": TAGS})
    pulumi = Pulumi(exported(vpc, key))
    assert pulumi.settle(Place("eks", region="us-east-2", environment=environment)) == 2
    _, read = pulumi.state["deployment"]["resources"]
    assert (read["type"], read["id"], read["outputs"]) == (VPC, "vpc-1", {})
    assert pulumi.state["deployment"]["pending_operations"] == []


def test_resource_with_a_fixed_name_needs_no_listing(tmp_path: Path) -> None:
    cluster = operation("aws:eks/cluster:Cluster", {"name": "eks", "tags": TAGS})
    nowhere = Place("eks", region="us-east-2", environment={"PATH": str(tmp_path)})
    pulumi = Pulumi(exported(cluster), {"eks": {"tags": TAGS}})
    assert pulumi.settle(nowhere) == 1
    assert pulumi.state["deployment"]["resources"][-1]["id"] == "eks"
