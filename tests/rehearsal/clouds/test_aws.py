"""The simulated AWS: computed outputs, what is deleted with what, and moto's codes where moto validates."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from rehearsal.clouds.aws import tokens as t
from rehearsal.clouds.aws.cloud import CLOUD
from rehearsal.clouds.aws.outputs import ACCOUNT
from rehearsal.clouds.kubernetes.connection import OWNER
from rehearsal.engine.kind import COPY, Call, Json, Refusal, Verb, first_refusal, value_at
from rehearsal.engine.protocol import compared
from rehearsal.engine.state import View
from rehearsal.engine.values import UNKNOWN
from tests.rehearsal.configurations import Accepted, accepted, deploy, deployed, kind, request

CORPUS = [one for one in accepted() if all(each["type"].startswith("aws:") for each in one.resources.values())]
(PLAIN,) = (one for one in CORPUS if one.name == "node-group-plain")
REGION = "us-west-2"
CONFIG: Json = {"region": REGION}


def only(state: View, type_: str) -> tuple[str, Json]:
    """Return the one live object of a type."""
    ((_, id_, live),) = state.all(type_)
    return id_, live


def call(state: View, type_: str, inputs: Json, verb: Verb = "create", id_: str | None = None) -> Call:
    """Return a request in the region."""
    return request(state, type_, inputs, CONFIG, verb, id_=id_)


def refusal(asked: Call) -> Refusal | None:
    """Return the first refusal of a request."""
    return first_refusal(kind(asked.type), asked)


def create(state: View, type_: str, inputs: Json) -> Any:
    """Create an object unless it is refused or its name is in use; return the code of the refusal, or ""."""
    asked = call(state, type_, inputs)
    there = not kind(type_).generated_ids and state.get(type_, asked.id) is not None
    found = kind(type_).conflict(type_, asked.id) if there else refusal(asked)
    if found is None:
        state.put(type_, asked.id, {**inputs, **kind(type_).compute(asked)})
    return found.status.partition(" ")[2] if found else ""


def delete(state: View, type_: str, id_: str) -> None:
    """Delete an object with its cascade."""
    asked = call(state, type_, state.get(type_, id_) or {}, "delete", id_)
    assert refusal(asked) is None
    state.remove(type_, id_)
    for other, its, live in list(state.all()):
        if kind(type_).cascade(asked, other, live):
            state.remove(other, its)


@pytest.fixture
def state(empty: View) -> View:
    """A cluster with a node group, and what they need."""
    assert deploy(PLAIN, empty) is None
    return empty


@pytest.mark.parametrize("configuration", CORPUS, ids=lambda one: one.name)
def test_sdk_has_every_computed_property(configuration: Accepted, empty: View) -> None:
    assert deploy(configuration, empty) is None
    for type_, _, live in empty.all():
        if t.MADE_BY not in live:
            paths = {path.partition(".")[0] for path in kind(type_).replace_on - {"region"}}
            assert {*live, *paths} - _properties(type_) == set(), type_


@cache
def _properties(type_: str) -> set[str]:
    """Return the SDK's properties of a type, as on the wire."""
    spec = find_spec("pulumi_aws")
    assert spec is not None
    assert spec.origin is not None
    files = (Path(spec.origin).parent / type_.removeprefix("aws:").partition("/")[0]).glob("*.py")
    (text,) = (text for file in files if f"'{type_}'" in (text := file.read_text()) and "@pulumi.type_token" in text)
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and any("getter" in ast.unparse(each) for each in node.decorator_list):
            calls = [each for each in node.decorator_list if isinstance(each, ast.Call)]
            named = [one.value for each in calls for one in each.keywords if one.arg == "name"]
            found.add(str(named[0].value) if named and isinstance(named[0], ast.Constant) else node.name)
    return found


@pytest.mark.parametrize("type_", [one.type for one in CLOUD.kinds.values() if one.generated_ids])
def test_generated_ids_differ_by_copy_and_region(type_: str) -> None:
    inputs = {"vpcId": "vpc-1", "tags": {"Name": "a"}}
    first = kind(type_).identify(inputs, CONFIG)
    assert first == kind(type_).identify(dict(reversed(inputs.items())), CONFIG)
    others = {kind(type_).identify({**inputs, **more}, CONFIG) for more in ({COPY: 2}, {"region": "eu-west-1"})}
    assert first not in others
    if type_ not in (t.KEY, t.POD_IDENTITY):
        assert re.fullmatch(r"[a-z]{2,8}-0[0-9a-f]{16}", first)


def test_node_group_brings_an_access_entry_of_its_role(state: View) -> None:
    id_, group = only(state, t.NODE_GROUP)
    assert value_at(group, "resources.0.autoscalingGroups.0.name").startswith("eks-acc-")
    assert group["version"] == only(state, t.CLUSTER)[1]["version"]
    entry = f"acc:{group['nodeRoleArn']}"
    assert (state.get(t.ACCESS_ENTRY, entry) or {})["type"] == "EC2_LINUX"
    assert create(state, t.NODE_GROUP, {**group, "nodeGroupName": "more"}) == ""
    delete(state, t.NODE_GROUP, id_)
    assert state.get(t.ACCESS_ENTRY, entry) is not None, "the other group has the same role"
    delete(state, t.NODE_GROUP, "acc:more")
    assert state.get(t.ACCESS_ENTRY, entry) is None


@pytest.mark.parametrize(
    ("version", "says"), [({}, "not valid for kubernetes version 1.35"), ({"version": "1.36"}, "")]
)
def test_release_is_for_the_version_of_the_group_not_of_the_upgraded_cluster(
    state: View, version: Json, says: str
) -> None:
    """EKS upgrades the control plane first. A request with a release alone is for the version that the group has."""
    id_, live = only(state, t.NODE_GROUP)
    cluster, upgraded = only(state, t.CLUSTER)
    state.put(t.CLUSTER, cluster, {**upgraded, "version": "1.36"})
    group = {**live, "version": "1.35", "releaseVersion": "1.35.6-20260728"}
    state.put(t.NODE_GROUP, id_, group)
    inputs = {key: value for key, value in group.items() if key not in ("version", "resources", "arn")}
    found = refusal(
        call(state, t.NODE_GROUP, {**inputs, "releaseVersion": "1.36.1-20260911", **version}, "update", id_)
    )
    assert says in (found.message if found else "")
    assert bool(found) is bool(says)


def test_cluster_takes_other_subnets_of_its_zones(empty: View) -> None:
    """The accepted neighbor of the refused change (tests/rehearsal/refused)."""
    (more,) = (one for one in CORPUS if one.name == "eks-cluster-with-more-subnets")
    *_, (type_, inputs, _) = deployed(more, empty)
    by_range = {live["cidrBlock"]: id_ for _, id_, live in empty.all(t.SUBNET)}
    others = {"subnetIds": [by_range["10.0.0.0/24"], by_range["10.0.2.0/24"]]}
    assert refusal(call(empty, type_, {**inputs, "vpcConfig": others}, "update", "acc")) is None


def test_everything_is_deleted_in_order_but_the_logs_of_eks(state: View) -> None:
    cluster = {**only(state, t.CLUSTER)[1], "name": "more", "enabledClusterLogTypes": ["api"]}
    assert create(state, t.CLUSTER, cluster) == ""
    state.put("kubernetes:core/v1:Secret", "a", {OWNER: "more"})
    state.put("kubernetes:core/v1:Secret", "b", {OWNER: "other"})
    order = (t.NODE_GROUP, t.CLUSTER, t.ROUTE, t.INTERNET_GATEWAY, t.SUBNET, t.VPC, t.ATTACHMENT, t.ROLE)
    for type_ in order:
        for _, id_, _ in list(state.all(type_)):
            delete(state, type_, id_)
    left = {(type_, id_) for type_, id_, _ in state.all()}
    assert left == {("kubernetes:core/v1:Secret", "b"), (t.LOG_GROUP, "/aws/eks/more/cluster")}


@pytest.mark.parametrize(
    ("kind_of_files", "before", "now", "replaces"),
    [
        ("PERSISTENT_2", 2400, 4800, False),
        ("PERSISTENT_2", 4800, 2400, True),
        ("PERSISTENT_2", 4800, UNKNOWN, False),
        ("SCRATCH_1", 1200, 2400, True),
        (None, 1200, 2400, True),
        (None, 1200, 1200, False),
    ],
)
def test_smaller_file_system_is_another_one(
    kind_of_files: str | None, before: int, now: object, *, replaces: bool
) -> None:
    files = kind(t.FILE_SYSTEM)
    old, new = ({"deploymentType": kind_of_files, "storageCapacity": size} for size in (before, now))
    assert bool(compared(old, new, files.replacing(old, new)).replaces) is replaces


@pytest.mark.parametrize(("follows", "default"), [(True, 2), (False, 1)])
def test_launch_template_update_adds_a_version(follows: bool, default: int, state: View) -> None:
    asked: Json = {"name": "gpu", "userData": "YQ==", "updateDefaultVersion": follows}
    assert create(state, t.LAUNCH_TEMPLATE, asked) == ""
    id_, live = only(state, t.LAUNCH_TEMPLATE)
    assert (live["latestVersion"], live["defaultVersion"]) == (1, 1)
    for change, versions in (({"tags": {"a": "b"}}, (1, 1)), ({"userData": "Yg=="}, (2, default))):
        computed = kind(t.LAUNCH_TEMPLATE).compute(call(state, t.LAUNCH_TEMPLATE, {**asked, **change}, "update", id_))
        assert (computed["latestVersion"], computed["defaultVersion"]) == versions


def test_rule_of_a_group_about_itself_does_not_hold_it(state: View) -> None:
    assert create(state, t.SECURITY_GROUP, {"name": "efa", "vpcId": only(state, t.VPC)[0]}) == ""
    group = next(id_ for _, id_, live in state.all(t.SECURITY_GROUP) if live["name"] == "efa")
    default = only(state, t.VPC)[1]["defaultSecurityGroupId"]
    itself = {"securityGroupId": group, "referencedSecurityGroupId": f"{ACCOUNT}/{group}", "ipProtocol": "-1"}
    assert create(state, t.INGRESS, itself) == ""
    assert refusal(call(state, t.SECURITY_GROUP, {}, "delete", group)) is None
    assert create(state, t.INGRESS, {**itself, "securityGroupId": default}) == ""
    assert refusal(call(state, t.SECURITY_GROUP, {}, "delete", group)) is not None


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """boto3 clients of moto, without network access: the credentials are not valid."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield lambda service: boto3.client(service, region_name=REGION)


def _code(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except ClientError as refused:
        return str(refused.response["Error"]["Code"])
    return ""


def test_subnets_match_moto(client: Callable[[str], Any], empty: View) -> None:
    ec2 = client("ec2")
    theirs = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    assert create(empty, t.VPC, {"cidrBlock": "10.0.0.0/16"}) == ""
    ours, _ = only(empty, t.VPC)
    for number, cidr in enumerate(("10.0.0.0/20", "10.0.0.0/24", "10.0.16.0/20", "10.1.0.0/24", "10.0.16.0/20")):
        asked = {"vpcId": ours, "cidrBlock": cidr, "tags": {"Name": str(number)}}
        code = _code(lambda cidr=cidr: ec2.create_subnet(VpcId=theirs, CidrBlock=cidr))  # type: ignore[misc]
        assert code == create(empty, t.SUBNET, asked), cidr


def test_names_in_use_match_moto(client: Callable[[str], Any], empty: View) -> None:
    ec2 = client("ec2")
    theirs = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    assert create(empty, t.VPC, {"cidrBlock": "10.0.0.0/16"}) == ""
    ours, _ = only(empty, t.VPC)
    data = {"UserData": "YQ=="}
    for number in range(2):
        template: Json = {"name": "gpu", "userData": "YQ==", "tags": {"Name": str(number)}}
        code = _code(lambda: ec2.create_launch_template(LaunchTemplateName="gpu", LaunchTemplateData=data))
        assert code == create(empty, t.LAUNCH_TEMPLATE, template)
        group: Json = {"name": "efa", "vpcId": ours, "tags": {"Name": str(number)}}
        code = _code(lambda: ec2.create_security_group(GroupName="efa", Description="EFA", VpcId=theirs))
        assert code == create(empty, t.SECURITY_GROUP, group)


def test_rules_of_security_groups_match_moto(client: Callable[[str], Any], empty: View) -> None:
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    group = ec2.create_security_group(GroupName="efa", Description="EFA", VpcId=vpc)["GroupId"]
    assert create(empty, t.VPC, {"cidrBlock": "10.0.0.0/16"}) == ""
    rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    default = only(empty, t.VPC)[1]["defaultSecurityGroupId"]
    itself = {"securityGroupId": default, "referencedSecurityGroupId": default, "ipProtocol": "-1"}
    for _ in range(2):
        theirs = _code(lambda: ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rule))
        assert theirs == create(empty, t.INGRESS, itself)
