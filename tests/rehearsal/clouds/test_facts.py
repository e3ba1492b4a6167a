"""Facts of the simulated clouds: what inputs fail, when, and that the files are what the pinned packages state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds import facts
from rehearsal.clouds.registry import cloud
from rehearsal.engine.kind import value_at
from rehearsal.engine.state import View
from rehearsal.engine.values import UNKNOWN
from rehearsal.engine.values import Path as Keys
from tests.rehearsal.configurations import GONE, accepted, changed, deployed, kind
from tools.facts.machines import gcp_machines
from tools.facts.write import TABLES, shapes

FOLDER = Path(facts.__file__).parent
FACTS = {name: json.loads((FOLDER / name / "facts.json").read_text(encoding="utf-8")) for name in ("gcp", "aws")}
SHAPES = {token: shape for name in FACTS for token, shape in facts.shapes(FOLDER / name / "facts.json").items()}
POOL, FIREWALL, CLUSTER = (
    "gcp:container/nodePool:NodePool",
    "gcp:compute/firewall:Firewall",
    "gcp:container/cluster:Cluster",
)
GROUP = "aws:eks/nodeGroup:NodeGroup"
INPUTS: dict[str, dict[str, Any]] = {
    POOL: {
        "__defaults": [],
        "cluster": "c",
        "name": UNKNOWN,
        "nodeConfig": {
            "diskSizeGb": "100",
            "spot": True,
            "taints": [{"key": "a", "value": "b", "effect": "NO_EXECUTE"}],
        },
    },
    FIREWALL: {
        "network": "n",
        "priority": 1000,
        "allows": [{"protocol": "tcp", "ports": ["22"]}],
        "sourceTags": [UNKNOWN],
    },
    CLUSTER: {
        "name": "c",
        "maintenancePolicy": {"dailyMaintenanceWindow": {"startTime": "03:00"}},
        "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]},
    },
    GROUP: {
        "clusterName": "c",
        "nodeRoleArn": "r",
        "subnetIds": ["s"],
        "scalingConfig": {"desiredSize": 0, "minSize": 0, "maxSize": 1},
        "updateConfig": {"updateStrategy": "MINIMAL"},
    },
}


@pytest.mark.parametrize("token", INPUTS)
def test_valid_inputs_pass(token: str) -> None:
    assert list(SHAPES[token].check(INPUTS[token])) == []
    assert SHAPES[token].refused(INPUTS[token]) is None


@pytest.mark.parametrize(
    ("token", "change", "path", "words"),
    [
        (POOL, {"nodeConfig.diskSizeGB": 1}, "nodeConfig.diskSizeGB", 'Did you mean "diskSizeGb"?'),
        (POOL, {"cluster": GONE}, "cluster", "Missing required argument"),
        (POOL, {"nodeConfig.taints": [{}]}, "nodeConfig.taints[0].effect", "Missing required argument"),
        (POOL, {"nodeConfig.diskSizeGb": "large"}, "nodeConfig.diskSizeGb", "expected type 'integer', got 'large'"),
        (POOL, {"nodeConfig.spot": []}, "nodeConfig.spot", "expected type 'boolean', got a list"),
        (POOL, {"nodeConfig.taints": {}}, "nodeConfig.taints", "expected type 'list<object>', got an object"),
        (POOL, {"nodeConfig.labels": "a"}, "nodeConfig.labels", "expected type 'map<string>', got 'a'"),
        (POOL, {"nodeConfig.taints.0.effect": "no"}, "nodeConfig.taints[0].effect", "expected effect to be one of"),
        (POOL, {"nodeConfig.diskSizeGb": 9}, "nodeConfig.diskSizeGb", "expected diskSizeGb to be in the range"),
        (POOL, {"nodeConfig.effectiveTaints": []}, "nodeConfig.effectiveTaints", "Computed attributes cannot be set"),
        (FIREWALL, {"priority": 65536}, "priority", "in the range (0.0 - 65535.0), got 65536"),
        (FIREWALL, {"name": "A"}, "name", "doesn't match regexp"),
        (FIREWALL, {"denies": [{"protocol": "tcp"}]}, "", "only one of `allows,denies` can be specified"),
        (FIREWALL, {"allows": GONE}, "", "one of `allows,denies` must be specified"),
        (FIREWALL, {"targetServiceAccounts": ["a"] * 11}, "targetServiceAccounts", "requires at most 10 item(s)"),
        (FIREWALL, {"sourceTags": ["a"], "targetServiceAccounts": ["b"]}, "sourceTags", "conflicts with target"),
        (
            CLUSTER,
            {"maintenancePolicy": {"recurringWindow": {}, "dailyMaintenanceWindow": {}}},
            "maintenancePolicy",
            "only",
        ),
        (
            CLUSTER,
            {"masterAuthorizedNetworksConfig.cidrBlocks.0.cidrBlock": "192.0.2.0"},
            "masterAuthorizedNetworksConfig.cidrBlocks[0].cidrBlock",
            "to be a valid cidr",
        ),
        (
            "aws:ec2/subnet:Subnet",
            {"vpcId": "v", "ipv4NetmaskLength": 24},
            "ipv4NetmaskLength",
            "all of `ipv4IpamPoolId`",
        ),
        (GROUP, {"subnetIds": []}, "subnetIds", "requires at least 1 item(s)"),
        (GROUP, {"amiType": "AL3"}, "amiType", '"AL2023_x86_64_NVIDIA"'),
    ],
)
def test_wrong_input_fails_before_the_request(token: str, change: dict[str, Any], path: str, words: str) -> None:
    failures = list(SHAPES[token].check(changed(INPUTS.get(token, {}), change)))
    assert any(failure.path == path and words in failure.reason for failure in failures), failures


def test_limits_of_the_api_are_refused_in_the_request() -> None:
    shape, inputs = SHAPES["aws:cloudwatch/logGroup:LogGroup"], {"name": "a b"}
    assert list(shape.check(inputs)) == []
    assert "Invalid value at 'name'" in str(shape.refused(inputs))


@pytest.mark.parametrize("name", FACTS)
def test_every_kind_has_a_shape(name: str) -> None:
    assert FACTS[name]["shapes"].keys() == cloud(name).kinds.keys()


@pytest.mark.parametrize(
    ("name", "source", "package"),
    [
        ("gcp", "inputs", "pulumi-gcp"),
        ("aws", "inputs", "pulumi-aws"),
        ("aws", "enum and api", "botocore"),
        ("aws", "machines", "moto"),
    ],
)
def test_facts_are_from_the_installed_packages(name: str, source: str, package: str) -> None:
    stated = FACTS[name]["sources"][source]
    assert stated.startswith(f"{package} {version(package)}:"), "run make facts"


def _added(live: Any, inputs: Any, path: Keys = ()) -> Iterator[Keys]:
    if isinstance(live, dict) and isinstance(inputs, dict):
        for name, value in live.items():
            if name in inputs:
                yield from _added(value, inputs[name], (*path, name))
            elif path:
                yield (*path, name)
    elif isinstance(live, list) and isinstance(inputs, list):
        for number, (value, given) in enumerate(zip(live, inputs, strict=False)):
            yield from _added(value, given, (*path, number))


KNOWN_DEFAULTS = {
    "aws:eks/cluster:Cluster": {
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "vpcConfig.endpointPrivateAccess",
        "vpcConfig.endpointPublicAccess",
    },
    POOL: {
        "management.autoUpgrade",
        "nodeConfig.ephemeralStorageLocalSsdConfig.dataCacheCount",
        "nodeConfig.resourceLabels",
    },
}
"""What the clouds add to a given block that the providers' schemas do not state as computed: defaults."""


def test_first_preview_does_not_know_what_the_cloud_adds_to_a_block(empty: View) -> None:
    """In every accepted configuration. The program would read null, and pass it on."""
    known: dict[str, set[str]] = {}
    for configuration in accepted():
        for type_, id_, _ in list(empty.all()):
            empty.remove(type_, id_)
        for type_, inputs, live in deployed(configuration, empty):
            planned = kind(type_).planned(inputs)
            for path in _added(live, inputs) if type_ in SHAPES else ():
                if value_at(planned, path) != UNKNOWN:
                    known.setdefault(type_, set()).add(".".join(part for part in path if isinstance(part, str)))
    assert known == KNOWN_DEFAULTS


def test_machines_are_those_of_the_table() -> None:
    assert FACTS["gcp"]["machines"] == gcp_machines(TABLES["gcp"]["machines"])


def test_property_of_the_provider_that_the_sdk_lacks_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(TABLES["gcp"], "types", {"serviceaccount/account:Account": ["google_service_account"]})
    with pytest.raises(LookupError, match=r"google_service_account\.color has no input"):
        shapes("gcp", {"google_service_account": {"color": {"type": "String"}}}, tmp_path)
