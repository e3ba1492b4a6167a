"""State of a killed engine: files are repaired, pending creates become resources to read. No engine runs here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.registry import cloud
from tools.recovery import (
    AWS_IMPORTS,
    FOUND_BY_TAGS,
    GOOGLE_IMPORTS,
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
TAGS = {"rdma-ray-stack": "eks", "Name": "eks-x"}
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
    """An engine without a cloud: it exports a state, imports one, and records its commands."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.state = state

    def __call__(self, *arguments: str) -> None:
        self.commands.append(arguments)
        if arguments[:2] == ("stack", "import"):
            self.state = json.loads(Path(arguments[3]).read_text())

    def read(self, *arguments: str) -> str:
        assert arguments == ("stack", "export")
        return json.dumps(self.state)

    def settle(self, place: Place = PLACE) -> int:
        return settle(place, self, self.read)


def test_every_kind_of_the_clouds_can_be_imported() -> None:
    """tests/rehearsal/test_cloud_stacks.py imports those of the stack files."""
    assert set(GOOGLE_IMPORTS) == set(cloud("gcp").kinds)
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
    network, password = operation("gcp:compute/network:Network", {"name": "gke"}), operation(RANDOM, {"length": 32})
    pulumi = Pulumi(exported(network, password))
    assert pulumi.settle() == 2
    assert pulumi.state["version"] == 3
    assert [each["type"] for each in pulumi.state["deployment"]["resources"]] == [
        "pulumi:pulumi:Stack",
        "gcp:compute/network:Network",
    ]
    (_, refresh) = pulumi.commands
    assert refresh[0] == "refresh"
    assert refresh[refresh.index("--target") + 1 :] == (network["resource"]["urn"],)


def test_random_value_is_dropped_without_a_refresh() -> None:
    pulumi = Pulumi(exported(operation(RANDOM, {"length": 32})))
    assert pulumi.settle() == 1
    assert len(pulumi.commands) == 1
    assert len(pulumi.state["deployment"]["resources"]) == 1


def test_interrupted_settle_continues() -> None:
    """Between the import and the refresh: nothing is pending, and nothing has been read."""
    network = operation("gcp:compute/network:Network", {"name": "gke"})
    pulumi = Pulumi(exported(network))
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
    program = folder / "aws"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder), "/usr/bin", "/bin"])}


def create(**inputs: Any) -> PendingCreate:
    return PendingCreate("urn", VPC, {"tags": TAGS, **inputs})


def test_resource_of_the_same_kind_and_name_that_the_state_lacks_is_found() -> None:
    """While a resource is replaced there are two, and the state has the old one."""
    others = [Tagged(VPC_ARN, "eks-y"), Tagged(KEY_ARN, "eks-x")]
    twice = [*others, Tagged(VPC_ARN, "eks-x"), Tagged(OTHER_VPC_ARN, "eks-x")]
    assert found(create(), others, known=()) is None
    assert found(create(), twice, known={"vpc-1"}) == "vpc-2"
    assert found(create(), twice, known={"vpc-1", "vpc-2"}) is None
    with pytest.raises(UnclearError, match=r"(?s)vpc/vpc-1.*vpc/vpc-2.*Delete those"):
        found(create(), twice, known=())


@pytest.mark.parametrize("tags", [None, {}, {"Name": "eks-x"}, {"rdma-ray-stack": "eks"}])
def test_create_without_tags_is_unclear(tags: dict[str, str] | None) -> None:
    with pytest.raises(UnclearError, match="no tags to find it by"):
        found(create(tags=tags), [Tagged(VPC_ARN, "eks-x")], known=())


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
    cluster = operation("aws:eks/cluster:Cluster", {"name": "eks"})
    nowhere = Place("eks", region="us-east-2", environment={"PATH": str(tmp_path)})
    pulumi = Pulumi(exported(cluster))
    assert pulumi.settle(nowhere) == 1
    assert pulumi.state["deployment"]["resources"][-1]["id"] == "eks"
