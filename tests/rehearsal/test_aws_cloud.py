"""The simulated AWS: ids, computed outputs, replacement, cascading deletion and drift."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.aws import tokens
from rehearsal.clouds.aws.cloud import CLOUD, FUNCTIONS
from rehearsal.clouds.aws.offerings import instance_type, zone_id
from rehearsal.clouds.aws.outputs import ACCOUNT, CALLER
from rehearsal.clouds.aws.refusals import FAILURES, taken
from rehearsal.clouds.faults import FAILURES as EVERY_FAILURE
from rehearsal.clouds.kind import COPY, Call, Json, value_at
from rehearsal.clouds.state import State, View
from rehearsal.clouds.values import applied, as_asked, covers, differences, merged
from tests.rehearsal import aws_supporting as land

IGNORED = {tokens.NODE_GROUP: ("scalingConfig.desiredSize",)}
"""Properties that the reference ignores (§7.1), by kind."""
MADE_UP = r"(vpc|subnet|igw|eipalloc|nat|rtb|rtbassoc|sg|sgr|vpce|lt|cr|fs|dra)-0[0-9a-f]{16}"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        land.landscape(view)
        yield view


def created(state: View, type_: str, inputs: Json | None = None) -> Json:
    """Return the live value of a new object."""
    id_ = land.make(state, type_, inputs or land.right(state, type_))
    live = state.get(type_, id_)
    assert live is not None
    return live


@pytest.mark.parametrize(
    ("type_", "id_"),
    [
        (tokens.CLUSTER, "fresh"),
        (tokens.NODE_GROUP, "ray:fresh"),
        (tokens.ADDON, "ray:coredns"),
        (tokens.ACCESS_ENTRY, f"ray:{land.role_arn('people')}"),
        (
            tokens.ACCESS_POLICY,
            f"ray#{land.role_arn('nodes')}#arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        ),
        (tokens.ROLE, "fresh"),
        (tokens.ROLE_POLICY, "nodes:more"),
        (tokens.ATTACHMENT, "pods/arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"),
        (tokens.POLICY, f"arn:aws:iam::{ACCOUNT}:policy/fresh"),
        (tokens.PLACEMENT_GROUP, "fresh"),
        (tokens.ALIAS, "alias/fresh"),
        (tokens.LOG_GROUP, "/aws/eks/fresh/cluster"),
        (tokens.BUCKET, "acme-fresh"),
        (tokens.REPOSITORY, "ray-efa"),
    ],
)
def test_ids_that_are_names(type_: str, id_: str) -> None:
    assert land.identify(type_, land.RIGHT[type_]) == id_
    assert not land.kind(type_).generated_ids


@pytest.mark.parametrize("type_", [kind.type for kind in CLOUD.kinds.values() if kind.generated_ids])
def test_generated_ids_differ_by_copy_and_region(type_: str) -> None:
    inputs = land.RIGHT[type_]
    first = land.identify(type_, inputs)
    assert first == land.identify(type_, dict(reversed(inputs.items())))
    others = {land.identify(type_, {**inputs, COPY: 2}), land.identify(type_, {**inputs, "region": "eu-west-1"})}
    assert first not in others
    if type_ not in (tokens.KEY, tokens.POD_IDENTITY):
        assert re.fullmatch(MADE_UP, first)


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_refresh_returns_the_inputs(type_: str, state: View) -> None:
    asked = land.right(state, type_)
    live = created(state, type_, asked)
    assert list(differences(asked, as_asked(asked, live, land.kind(type_).maps))) == []


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_computed_outputs_are_deterministic(type_: str, state: View) -> None:
    request = land.call(state, type_, land.right(state, type_))
    first = land.kind(type_).compute(request)
    assert first == land.kind(type_).compute(request)
    json.dumps(first)


def _inputs_of(type_: str) -> set[str]:
    """Return the SDK's properties of a type, as on the wire."""
    spec = find_spec("pulumi_aws")
    assert spec is not None
    assert spec.origin is not None
    package = type_.removeprefix("aws:").partition("/")[0]
    files = (Path(spec.origin).parent / package).glob("*.py")
    (text,) = (text for file in files if f"'{type_}'" in (text := file.read_text()) and "@pulumi.type_token" in text)
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and any("getter" in ast.unparse(each) for each in node.decorator_list):
            named = [
                one.value for each in node.decorator_list for one in getattr(each, "keywords", []) if one.arg == "name"
            ]
            found.add(str(named[0].value) if named and isinstance(named[0], ast.Constant) else node.name)
    return found


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_sdk_has_every_property(type_: str, state: View) -> None:
    kind = land.kind(type_)
    names = {*land.RIGHT[type_], *kind.compute(land.call(state, type_, land.right(state, type_)))}
    names |= {path.partition(".")[0] for path in kind.replace_on | kind.maps}
    assert names - _inputs_of(type_) - ({"tags"} if "tags" in kind.maps else set()) == set()


@pytest.mark.parametrize(
    ("type_", "path", "replaces"),
    [
        (tokens.VPC, "cidrBlock", True),
        (tokens.VPC, "enableDnsHostnames", False),
        (tokens.SUBNET, "availabilityZone", True),
        (tokens.SUBNET, "tags.Name", False),
        (tokens.LAUNCH_TEMPLATE, "networkInterfaces.0.interfaceType", False),
        (tokens.LAUNCH_TEMPLATE, "name", True),
        (tokens.CLUSTER, "version", False),
        (tokens.CLUSTER, "accessConfig.bootstrapClusterCreatorAdminPermissions", True),
        (tokens.CLUSTER, "accessConfig.authenticationMode", False),
        (tokens.CLUSTER, "bootstrapSelfManagedAddons", True),
        (tokens.NODE_GROUP, "launchTemplate.version", False),
        (tokens.NODE_GROUP, "launchTemplate.id", True),
        (tokens.NODE_GROUP, "amiType", True),
        (tokens.NODE_GROUP, "scalingConfig.maxSize", False),
        (tokens.NODE_GROUP, "releaseVersion", False),
        (tokens.FILE_SYSTEM, "efaEnabled", True),
        (tokens.FILE_SYSTEM, "storageCapacity", False),
    ],
)
def test_replacement_properties(type_: str, path: str, replaces: bool) -> None:
    parts = tuple(int(part) if part.isdigit() else part for part in path.split("."))
    assert covers(land.kind(type_).replace_on, parts) is replaces


def test_outputs_of_a_cluster_and_its_eks_resources(state: View) -> None:
    cluster = created(state, tokens.CLUSTER)
    assert re.fullmatch(r"https://[0-9A-F]{32}\.gr7\.us-east-2\.eks\.amazonaws\.com", cluster["endpoint"])
    assert base64.b64decode(value_at(cluster, "certificateAuthority.data")).startswith(b"-----BEGIN CERTIFICATE")
    assert value_at(cluster, "identities.0.oidcs.0.issuer").startswith("https://oidc.eks.us-east-2.amazonaws.com/id/")
    assert cluster["arn"] == f"arn:aws:eks:us-east-2:{ACCOUNT}:cluster/fresh"
    assert cluster["tagsAll"] == {"team": "ml", "rdma-ray-stack": "ray"}
    group = value_at(cluster, "vpcConfig.clusterSecurityGroupId")
    assert (
        (state.get(tokens.SECURITY_GROUP, group) or {})["vpcId"] == land.VPC_ID == value_at(cluster, "vpcConfig.vpcId")
    )
    assert state.get(tokens.LOG_GROUP, "/aws/eks/fresh/cluster") is not None
    assert state.get(tokens.ACCESS_ENTRY, f"fresh:{CALLER}") is not None


def test_cluster_deletion_keeps_only_eks_logs(state: View) -> None:
    before = {(type_, id_) for type_, id_, _ in state.all()}
    created(state, tokens.CLUSTER)
    state.put("kubernetes:core/v1:Secret", "a", {"__cluster": "fresh"})
    state.put("kubernetes:core/v1:Secret", "b", {"__cluster": "ray"})
    delete = land.call(state, tokens.CLUSTER, land.CLUSTER, "delete")
    assert land.refusals(delete) == []
    state.remove(tokens.CLUSTER, "fresh")
    for type_, id_, live in list(state.all()):
        if land.kind(tokens.CLUSTER).cascade(delete, type_, live):
            state.remove(type_, id_)
    left = {(type_, id_) for type_, id_, _ in state.all()} - before
    assert left == {("kubernetes:core/v1:Secret", "b"), (tokens.LOG_GROUP, "/aws/eks/fresh/cluster")}


def test_outputs_of_a_node_group_and_access_entry(state: View) -> None:
    group = created(state, tokens.NODE_GROUP)
    assert value_at(group, "resources.0.autoscalingGroups.0.name").startswith("eks-fresh-")
    assert group["launchTemplate"] == {"id": land.TEMPLATE_ID, "name": "ray-gpu", "version": "1"}
    assert group["version"] == "1.35"
    entry = f"ray:{land.role_arn('nodes')}"
    assert (state.get(tokens.ACCESS_ENTRY, entry) or {})["type"] == "EC2_LINUX"
    delete = land.call(state, tokens.NODE_GROUP, land.GPU_GROUP, "delete")
    goes = [id_ for type_, id_, live in state.all() if land.kind(tokens.NODE_GROUP).cascade(delete, type_, live)]
    assert goes == [], "the system group has the same role"
    state.remove(tokens.NODE_GROUP, "ray:system")
    goes = [id_ for type_, id_, live in state.all() if land.kind(tokens.NODE_GROUP).cascade(delete, type_, live)]
    assert goes == [entry]


def test_launch_template_update_adds_default_version(state: View) -> None:
    for follows in (True, False):
        asked = {**land.TEMPLATE, "name": f"versions-{follows}", "updateDefaultVersion": follows}
        live = created(state, tokens.LAUNCH_TEMPLATE, asked)
        assert (live["latestVersion"], live["defaultVersion"]) == (1, 1)
        id_ = land.identify(tokens.LAUNCH_TEMPLATE, asked)
        for change, versions in (({"tags": {"a": "b"}}, (1, 1)), ({"userData": "YQ=="}, (2, 2 if follows else 1))):
            inputs = {**asked, **change}
            now = applied(live, asked, inputs)
            update = Call(
                verb="update",
                type=tokens.LAUNCH_TEMPLATE,
                id=id_,
                inputs=inputs,
                live=live,
                config=land.CONFIG,
                state=state,
                now=now,
            )
            computed = land.kind(tokens.LAUNCH_TEMPLATE).compute(update)
            assert (computed["latestVersion"], computed["defaultVersion"]) == versions


def test_outputs_of_a_file_system(state: View) -> None:
    files = created(state, tokens.FILE_SYSTEM)
    assert files["dnsName"].endswith(".fsx.us-east-2.amazonaws.com")
    assert re.fullmatch(r"[0-9a-f]{8}", files["mountName"])
    assert (files["vpcId"], files["metadataConfiguration"]["iops"]) == (land.VPC_ID, 1500)
    assert created(state, tokens.FILE_SYSTEM, {"subnetIds": land.PRIVATE_ID})["mountName"] == "fsx"


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_drift_shows_only_properties_to_ignore(type_: str, state: View) -> None:
    asked = land.right(state, type_)
    id_ = land.make(state, type_, asked)
    for _ in range(2):
        live = state.get(type_, id_) or {}
        state.put(type_, id_, merged(live, land.kind(type_).drift(live, state)))
    live = state.get(type_, id_) or {}
    shown = [".".join(map(str, path)) for path, _ in differences(as_asked(asked, live, land.kind(type_).maps), asked)]
    assert [path for path in shown if path not in IGNORED.get(type_, ())] == []
    assert (type_ == tokens.NODE_GROUP) == bool(shown)


def test_inline_and_separate_rules_show_drift(state: View) -> None:
    group = {**land.EFA_GROUP, "ingress": [], "egress": []}
    table = {**land.TABLE, "routes": []}
    for type_, asked, id_ in ((tokens.SECURITY_GROUP, group, land.EFA_ID), (tokens.ROUTE_TABLE, table, land.TABLE_ID)):
        live = state.get(type_, id_) or {}
        seen = as_asked(asked, merged(live, land.kind(type_).drift(live, state)), frozenset())
        assert list(differences(asked, seen))


def ask(token: str, state: View, **arguments: Any) -> Json:
    """Return the result of a function."""
    return FUNCTIONS[token](arguments, land.CONFIG, state)


def test_caller_and_zones(state: View) -> None:
    assert ask("aws:index/getCallerIdentity:getCallerIdentity", state)["accountId"] == ACCOUNT
    assert ask("aws:index/getPartition:getPartition", state)["partition"] == "aws"
    zones = ask("aws:index/getAvailabilityZones:getAvailabilityZones", state)
    assert (zones["names"][0], zones["zoneIds"][0]) == ("us-east-2a", "use2-az1")
    assert ask("aws:index/getAvailabilityZone:getAvailabilityZone", state, zoneId="use2-az2")["name"] == land.SECOND
    assert ask("aws:index/getRegion:getRegion", state)["region"] == land.REGION
    assert zone_id("ap-northeast-1a") == "apne1-az1"


def test_import_ids_are_converted(state: View) -> None:
    pods = land.make(state, tokens.POD_IDENTITY, land.RIGHT[tokens.POD_IDENTITY])
    for type_, written, id_ in (
        (tokens.ROUTE, f"{land.TABLE_ID}_0.0.0.0/0", land.identify(tokens.ROUTE, land.WAY)),
        (tokens.ASSOCIATION, f"{land.PRIVATE_ID}/{land.TABLE_ID}", land.identify(tokens.ASSOCIATION, land.LINKS[0])),
        (tokens.POD_IDENTITY, f"ray,{pods}", pods),
        (tokens.VPC, land.VPC_ID, land.VPC_ID),
    ):
        assert land.kind(type_).from_import(written, land.CONFIG) == id_
        assert state.get(type_, id_) is not None


def test_offerings(state: View) -> None:
    token = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
    wanted = [{"name": "instance-type", "values": ["p5en.48xlarge", "nonsense"]}]
    state.set("offers", {"p5en.48xlarge": [land.SECOND]})
    found = ask(token, state, filters=wanted, locationType="availability-zone")
    assert (found["instanceTypes"], found["locations"]) == (["p5en.48xlarge"], [land.SECOND])
    asked = ask("aws:ec2/getInstanceType:getInstanceType", state, instanceType="p6-b300.48xlarge")
    assert (asked["maximumNetworkCards"], asked["efaMaximumInterfaces"]) == (17, 16)
    image = ask(
        "aws:ssm/getParameter:getParameter", state, name="/aws/service/eks/optimized-ami/1.34/x/release_version"
    )
    assert image["value"].startswith("1.34.")
    versions = ask("aws:eks/getClusterVersions:getClusterVersions", state, defaultOnly=True)["clusterVersions"]
    assert [one["clusterVersion"] for one in versions] == ["1.35"]
    addon = ask("aws:eks/getAddonVersion:getAddonVersion", state, addonName="kube-proxy", kubernetesVersion="1.34")
    assert addon["version"].startswith("v1.34.")


def test_policy_document_renders_statements(state: View) -> None:
    statement = {
        "actions": ["sts:AssumeRole"],
        "principals": [{"type": "Service", "identifiers": ["ec2.amazonaws.com"]}],
    }
    text = ask("aws:iam/getPolicyDocument:getPolicyDocument", state, statements=[statement])["json"]
    assert json.loads(text) == {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}],
    }


@pytest.mark.parametrize(
    ("name", "there"),
    [("m6i.2xlarge", True), ("m7g.large", True), ("p5.48xlarge", True), ("p5.96xlarge", False), ("q1.large", False)],
)
def test_instance_types(name: str, there: bool) -> None:
    assert (instance_type(name) is not None) is there


def test_faults_and_conflicts_have_aws_messages() -> None:
    assert FAILURES.keys() == EVERY_FAILURE.keys()
    for kind in CLOUD.kinds.values():
        if not kind.generated_ids and not kind.repeatable:
            assert kind.conflict is taken
            assert "Google" not in kind.conflict(kind.type, "a:b").source
