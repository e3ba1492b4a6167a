"""The simulated Google Cloud: ids, computed outputs, replacement, cascading deletion and drift."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.gcp import offerings, tokens
from rehearsal.clouds.gcp.cloud import CLOUD
from rehearsal.clouds.gcp.functions import FUNCTIONS
from rehearsal.clouds.gcp.references import project_number
from rehearsal.clouds.kind import Call, Json, value_at
from rehearsal.clouds.state import State, View
from rehearsal.clouds.values import applied, as_asked, covers, differences, merged
from tests.rehearsal import gcp_supporting as land
from tests.rehearsal.supporting import GONE

N, S, C, P = tokens.NETWORK, tokens.SUBNETWORK, tokens.CLUSTER, tokens.NODE_POOL
POOL_ID = f"{land.CLUSTER_ID}/nodePools/fresh"

IGNORED: Mapping[str, tuple[str, ...]] = {
    C: ("minMasterVersion", "nodePools", "nodeConfig", "initialNodeCount"),
    P: ("initialNodeCount", "nodeCount", "nodeConfig.labels"),
}
"""Properties that the reference ignores ("Drift to ignore"; cluster-toolkit, lifecycle), by kind."""


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        land.landscape(view)
        yield view


def created(state: View, type_: str, inputs: Json | None = None) -> Json:
    """Return the live value of a new object."""
    id_ = land.make(state, type_, inputs or land.RIGHT[type_])
    live = state.get(type_, id_)
    assert live is not None
    return live


@pytest.mark.parametrize(
    ("type_", "id_"),
    [
        (N, "projects/acme-ml/global/networks/fresh"),
        (S, "projects/acme-ml/regions/us-central1/subnetworks/fresh"),
        (tokens.FIREWALL, "projects/acme-ml/global/firewalls/fresh"),
        (tokens.ROUTER, "projects/acme-ml/regions/us-central1/routers/fresh"),
        (tokens.NAT, "acme-ml/us-central1/out/fresh"),
        (tokens.ACCOUNT, "projects/acme-ml/serviceAccounts/fresh-account@acme-ml.iam.gserviceaccount.com"),
        (tokens.PROJECT_MEMBER, f"acme-ml/roles/logging.logWriter/serviceAccount:{land.ACCOUNT}"),
        (tokens.BUCKET_MEMBER, f"b/acme-data/roles/storage.objectUser/{land.BUCKET_MEMBER['member']}"),
        (C, "projects/acme-ml/locations/us-central1/clusters/fresh"),
        (P, POOL_ID),
    ],
)
def test_ids_match_real_apis(type_: str, id_: str) -> None:
    assert land.kind(type_).identify(land.RIGHT[type_], land.CONFIG) == id_


@pytest.mark.parametrize("cluster", ["ray", land.CLUSTER_ID, f"//container.googleapis.com/{land.CLUSTER_ID}"])
def test_pool_accepts_cluster_name_or_id(cluster: str) -> None:
    assert land.kind(P).identify({**land.POOL, "cluster": cluster}, land.CONFIG) == POOL_ID


def test_project_and_region_default_to_provider() -> None:
    assert land.kind(S).identify({"name": "a"}, land.CONFIG) == "projects/acme-ml/regions/us-central1/subnetworks/a"
    given = {"name": "a", "project": "other", "region": "us-east4"}
    assert land.kind(S).identify(given, land.CONFIG) == "projects/other/regions/us-east4/subnetworks/a"


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_refresh_returns_the_inputs(type_: str, state: View) -> None:
    asked = land.RIGHT[type_]
    live = created(state, type_, asked)
    assert list(differences(asked, as_asked(asked, live, land.kind(type_).maps))) == []


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_computed_outputs_are_deterministic(type_: str, state: View) -> None:
    request = land.call(state, type_, land.RIGHT[type_])
    assert land.kind(type_).compute(request) == land.kind(type_).compute(request)
    json.dumps(land.kind(type_).compute(request))


def _inputs_of(type_: str) -> set[str]:
    """Return the SDK's properties of a type, as on the wire."""
    spec = find_spec("pulumi_gcp")
    assert spec is not None
    assert spec.origin is not None
    package = type_.removeprefix("gcp:").partition("/")[0]
    files = (Path(spec.origin).parent / package).glob("*.py")
    (text,) = (text for file in files if f"'{type_}'" in (text := file.read_text()) and "@pulumi.type_token" in text)
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            getters = [each for each in node.decorator_list if "getter" in ast.unparse(each)]
            for getter in getters:
                named = [each.value for each in getattr(getter, "keywords", []) if each.arg == "name"]
                found.add(str(named[0].value) if named and isinstance(named[0], ast.Constant) else node.name)
    return found


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_sdk_has_every_property(type_: str, state: View) -> None:
    known = _inputs_of(type_)
    kind = land.kind(type_)
    names = {*land.RIGHT[type_], *kind.compute(land.call(state, type_, land.RIGHT[type_]))}
    names |= {path.partition(".")[0] for path in kind.replace_on | kind.maps}
    assert names - known == set()


@pytest.mark.parametrize(
    ("type_", "path", "replaces"),
    [
        (N, "networkProfile", True),
        (N, "mtu", False),
        (S, "ipCidrRange", True),
        (S, "secondaryIpRanges.0.ipCidrRange", False),
        (C, "datapathProvider", True),
        (C, "enableMultiNetworking", False),
        (C, "minMasterVersion", False),
        (C, "nodeConfig.serviceAccount", True),
        (C, "privateClusterConfig.masterIpv4CidrBlock", True),
        (C, "masterAuthorizedNetworksConfig.cidrBlocks.0.cidrBlock", False),
        (P, "initialNodeCount", True),
        (P, "autoscaling.totalMaxNodeCount", False),
        (P, "nodeConfig.flexStart", True),
        (P, "nodeConfig.maxRunDuration", True),
        (P, "nodeConfig.reservationAffinity.consumeReservationType", True),
        (P, "nodeConfig.guestAccelerators.0.gpuDriverInstallationConfig.gpuDriverVersion", True),
        (P, "nodeConfig.machineType", False),
        (P, "nodeConfig.labels.team", False),
        (P, "networkConfig.additionalNodeNetworkConfigs.0.subnetwork", True),
        (P, "queuedProvisioning.enabled", True),
        (P, "management.autoUpgrade", False),
    ],
)
def test_replacement_properties(type_: str, path: str, replaces: bool) -> None:
    parts = tuple(int(part) if part.isdigit() else part for part in path.split("."))
    assert covers(land.kind(type_).replace_on, parts) is replaces


def test_outputs_of_a_network_and_its_subnetwork(state: View) -> None:
    network, subnetwork = created(state, N), created(state, S)
    assert network["selfLink"] == "https://www.googleapis.com/compute/v1/projects/acme-ml/global/networks/fresh"
    assert network["project"] == "acme-ml"
    assert subnetwork["gatewayAddress"] == "10.60.0.1"
    assert created(state, N, {"name": "plain"})["mtu"] == 1460
    assert created(state, N, {"name": "roce", "networkProfile": land.PROFILE})["mtu"] == 8896


def test_outputs_of_an_account(state: View) -> None:
    account = created(state, tokens.ACCOUNT)
    assert account["email"] == "fresh-account@acme-ml.iam.gserviceaccount.com"
    assert account["member"] == f"serviceAccount:{account['email']}"
    assert re.fullmatch(r"[1-9]\d{20}", account["uniqueId"])


def test_outputs_of_a_cluster(state: View) -> None:
    cluster = created(state, C)
    dns = value_at(cluster, "controlPlaneEndpointsConfig.dnsEndpointConfig.endpoint")
    assert re.fullmatch(rf"gke-[0-9a-f]{{36}}-{project_number('acme-ml')}\.us-central1\.gke\.goog", dns)
    assert cluster["endpoint"].startswith("203.0.113.")
    assert base64.b64decode(value_at(cluster, "masterAuth.clusterCaCertificate")).startswith(b"-----BEGIN CERTIFICATE")
    assert cluster["masterVersion"] == cluster["nodeVersion"] == "1.35.2-gke.1485000"
    assert cluster["clusterIpv4Cidr"] == "10.0.0.0/16"
    assert cluster["servicesIpv4Cidr"] == "10.1.0.0/20"
    private = {"enablePrivateEndpoint": True, "masterIpv4CidrBlock": "172.16.0.32/28"}
    assert (
        created(state, C, {**land.CLUSTER, "name": "shut", "privateClusterConfig": private})["endpoint"]
        == "172.16.0.34"
    )


@pytest.mark.parametrize(
    ("asked", "gets"),
    [
        (None, "1.35.2-gke.1485000"),
        ("1.34", "1.34.4-gke.1193000"),
        ("1.34.3", "1.34.3-gke.1318000"),
        ("latest", "1.35.3-gke.1389000"),
        ("1.3", None),
    ],
)
def test_versions_are_resolved(asked: str | None, gets: str | None, state: View) -> None:
    assert offerings.resolve(asked, "REGULAR", state) == gets


def test_outputs_of_a_pool(state: View) -> None:
    pool = created(state, P)
    assert pool["version"] == "1.35.2-gke.1485000"
    assert (pool["nodeCount"], pool["initialNodeCount"], pool["nodeLocations"]) == (0, 0, [land.ZONE])
    (manager,), (group,) = pool["instanceGroupUrls"], pool["managedInstanceGroupUrls"]
    assert "/us-central1-b/instanceGroupManagers/gke-ray-fresh-" in manager
    assert "/us-central1-b/instanceGroups/gke-ray-fresh-" in group
    assert pool["upgradeSettings"] == {"strategy": "SHORT_LIVED"}
    assert value_at(pool, "nodeConfig.resourceLabels.goog-gke-node-pool-provisioning-model") == "flex-start"
    assert value_at(pool, "nodeConfig.effectiveTaints.0.key") == "nvidia.com/gpu"
    bare = land.changed(land.POOL, {"name": "bare", "nodeConfig.ephemeralStorageLocalSsdConfig": GONE})
    assert value_at(created(state, P, bare), "nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount") == 32


@pytest.mark.parametrize("type_", [N, S, C, P])
def test_update_keeps_computed_values(type_: str, state: View) -> None:
    before = land.RIGHT[type_]
    live = created(state, type_, before)
    after = {
        N: {**before, "routingMode": "GLOBAL"},
        S: {**before, "privateIpGoogleAccess": True},
        C: land.changed(before, {"controlPlaneEndpointsConfig.dnsEndpointConfig.allowExternalTraffic": True}),
        P: land.changed(before, {"autoscaling.totalMaxNodeCount": 8, "nodeConfig.labels.team": "ml"}),
    }[type_]
    asked = applied(live, before, after)
    id_ = land.kind(type_).identify(after, land.CONFIG)
    update = Call(
        verb="update", type=type_, id=id_, inputs=after, live=live, config=land.CONFIG, state=state, now=asked
    )
    assert land.refusals(update) == []
    now = {**asked, **land.kind(type_).compute(update)}
    assert as_asked(after, now, frozenset()) == after
    changed = {path[0] for path, _ in differences(live, now)}
    allowed = {*(key for key in after if after[key] != before.get(key)), "fingerprint"}
    assert changed <= allowed


def test_control_plane_is_never_downgraded(state: View) -> None:
    live = created(state, C)
    for asked, gets in (("1.35.3-gke.1389000", "1.35.3-gke.1389000"), ("1.34.4-gke.1193000", "1.35.2-gke.1485000")):
        inputs = {**land.CLUSTER, "minMasterVersion": asked}
        update = land.call(state, C, inputs, "update")
        assert land.kind(C).compute(update)["masterVersion"] == gets
    assert live["masterVersion"] == "1.35.2-gke.1485000"


def test_cluster_deletion_cascades_to_pools_and_objects(state: View) -> None:
    created(state, C)
    created(state, P)
    stay = land.make(state, P, {**land.POOL, "cluster": "fresh"})
    for name, cluster in (("a", land.CLUSTER_ID), ("b", f"{land.CLUSTER_ID}-2")):
        state.put("kubernetes:core/v1:Secret", name, {"__cluster": cluster})
    live = state.get(C, land.CLUSTER_ID)
    assert live is not None
    delete = land.call(state, C, live, "delete")
    gone = {id_ for type_, id_, other in state.all() if land.kind(C).cascade(delete, type_, other)}
    assert gone == {POOL_ID, f"{land.CLUSTER_ID}/nodePools/system", "a"}
    assert stay not in gone


@pytest.mark.parametrize("type_", [N, S, tokens.FIREWALL, tokens.ACCOUNT, P])
def test_other_deletions_do_not_cascade(type_: str, state: View) -> None:
    delete = land.call(state, type_, land.RIGHT[type_], "delete")
    assert not any(land.kind(type_).cascade(delete, other, live) for other, _, live in state.all())


def test_router_deletion_cascades_to_nat(state: View) -> None:
    nat = land.make(state, tokens.NAT, land.NAT)
    delete = land.call(state, tokens.ROUTER, {**land.ROUTER, "name": "out"}, "delete")
    gone = {id_ for type_, id_, live in state.all() if land.kind(tokens.ROUTER).cascade(delete, type_, live)}
    assert gone == {nat}


def _after_a_while(state: View, type_: str, asked: Json) -> list[str]:
    """Return the paths that a refresh shows as different after two rounds of drift."""
    id_ = land.kind(type_).identify(asked, land.CONFIG)
    for _ in range(2):
        live = state.get(type_, id_)
        assert live is not None
        state.put(type_, id_, merged(live, land.kind(type_).drift(live, state)))
    live = state.get(type_, id_)
    shown = differences(as_asked(asked, live, land.kind(type_).maps), asked)
    return [".".join(str(part) for part in path) for path, _ in shown]


def _not_ignored(type_: str, paths: list[str]) -> list[str]:
    ignored = IGNORED.get(type_, ())
    return [path for path in paths if not any(path == name or path.startswith(f"{name}.") for name in ignored)]


@pytest.mark.parametrize("type_", CLOUD.kinds)
def test_drift_shows_only_properties_to_ignore(type_: str, state: View) -> None:
    created(state, P)
    if type_ != P:
        created(state, type_)
    assert _not_ignored(type_, _after_a_while(state, type_, land.RIGHT[type_])) == []


def test_cluster_drift_shows_without_ignore_changes(state: View) -> None:
    created(state, P, {**land.POOL, "cluster": "fresh"})
    created(state, C)
    assert "nodeConfig.machineType" in _after_a_while(state, C, land.CLUSTER)
    cluster = state.get(C, f"{land.CLUSTER_ID.removesuffix('ray')}fresh") or {}
    assert cluster["masterVersion"] == offerings.LATER
    assert cluster["nodePools"][0]["name"] == "fresh"


def test_pool_drift_shows_without_ignore_changes(state: View) -> None:
    created(state, P)
    shown = _after_a_while(state, P, land.POOL)
    assert "initialNodeCount" in shown
    assert any(path.startswith("nodeConfig.labels.") for path in shown)
    pool = state.get(P, POOL_ID) or {}
    assert pool["nodeCount"] == 2
    assert pool["version"] == offerings.LATER


def test_engine_versions_change_over_time(state: View) -> None:
    ask = FUNCTIONS["gcp:container/getEngineVersions:getEngineVersions"]
    before = ask({"location": land.REGION}, land.CONFIG, state)
    _after_a_while(state, C, {**land.CLUSTER, "name": "ray"})
    after = ask({"location": land.REGION}, land.CONFIG, state)
    assert before["releaseChannelDefaultVersion"]["REGULAR"] == "1.35.2-gke.1485000"
    assert after["releaseChannelDefaultVersion"]["REGULAR"] == after["validMasterVersions"][0] == offerings.LATER


def test_maintenance_exclusion_prevents_upgrades(state: View) -> None:
    exclusion = {"exclusionName": "no", "exclusionOptions": {"scope": "NO_MINOR_OR_NODE_UPGRADES"}}
    cluster = {**land.CLUSTER, "name": "ray", "maintenancePolicy": {"maintenanceExclusions": [exclusion]}}
    created(state, C, cluster)
    created(state, P)
    assert _not_ignored(C, _after_a_while(state, C, cluster)) == []
    _after_a_while(state, P, land.POOL)
    live, pool = state.get(C, land.CLUSTER_ID) or {}, state.get(P, POOL_ID) or {}
    assert (live["masterVersion"], live["nodeVersion"]) == (offerings.LATER, "1.35.2-gke.1485000")
    assert pool["version"] == "1.35.2-gke.1485000"


def test_cluster_without_ranges_gets_secondary_ranges(state: View) -> None:
    created(state, S)
    cluster = land.changed(land.CLUSTER, {"subnetwork": "fresh", "ipAllocationPolicy": {}})
    created(state, C, cluster)
    assert _after_a_while(state, S, land.SUBNETWORK) == ["secondaryIpRanges.1"]


@pytest.mark.parametrize(
    ("zone", "machine", "there"),
    [
        ("us-central1-b", "a3-ultragpu-8g", True),
        ("us-central1-a", "a3-ultragpu-8g", False),
        ("us-west8-c", "a4-highgpu-8g", True),
        ("us-central1-a", "e2-standard-8", True),
        ("us-central1-b", "a3-ultragpu-9g", False),
    ],
)
def test_machine_types_of_a_zone(zone: str, machine: str, there: bool, state: View) -> None:
    ask = FUNCTIONS["gcp:compute/getMachineTypes:getMachineTypes"]
    found = ask({"zone": zone, "filter": f'name = "{machine}"'}, land.CONFIG, state)["machineTypes"]
    assert [one["name"] for one in found] == ([machine] if there else [])


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        (N, "The resource 'projects/acme-ml/global/networks/fresh' already exists"),
        (tokens.ACCOUNT, "Service account fresh-account already exists within project projects/acme-ml."),
        (C, "Already exists: projects/acme-ml/locations/us-central1/clusters/fresh."),
        (P, f"resource - {POOL_ID} - already exists"),
    ],
)
def test_name_in_use_is_refused_in_api_wording(type_: str, says: str) -> None:
    kind = land.kind(type_)
    assert kind.conflict(type_, kind.identify(land.RIGHT[type_], land.CONFIG)).message == says
    assert not kind.repeatable


def test_repeated_grant_is_no_conflict() -> None:
    assert all(land.kind(type_).repeatable for type_ in (tokens.PROJECT_MEMBER, tokens.BUCKET_MEMBER))


def test_project_and_client(state: View) -> None:
    project = FUNCTIONS["gcp:organizations/getProject:getProject"]({}, land.CONFIG, state)
    assert (project["projectId"], project["number"]) == ("acme-ml", project_number("acme-ml"))
    client: dict[str, Any] = FUNCTIONS["gcp:organizations/getClientConfig:getClientConfig"]({}, land.CONFIG, state)
    assert (client["project"], client["region"]) == ("acme-ml", "us-central1")


def test_engine_versions_with_a_prefix(state: View) -> None:
    ask = FUNCTIONS["gcp:container/getEngineVersions:getEngineVersions"]
    offered = ask({"location": land.REGION, "versionPrefix": "1.34."}, land.CONFIG, state)
    assert offered["validMasterVersions"] == ["1.34.4-gke.1193000", "1.34.3-gke.1318000"]
