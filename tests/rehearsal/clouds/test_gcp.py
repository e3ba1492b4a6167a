"""The simulated Google Cloud: ids, computed outputs, deletion, drift and functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rehearsal.clouds.gcp import offerings
from rehearsal.clouds.gcp import references as gcp
from rehearsal.clouds.gcp.functions import FUNCTIONS
from rehearsal.clouds.kubernetes.connection import OWNER
from rehearsal.engine.kind import Json, value_at
from rehearsal.engine.protocol import compared
from rehearsal.engine.state import View
from rehearsal.engine.values import as_asked
from tests.rehearsal.configurations import Accepted, accepted, changed, deploy, drift, kind, request

CORPUS = {one.name: one for one in accepted() if one.name.startswith("gcp-")}
ULTRA = CORPUS["gcp-toolkit-a3-ultra-flex-start"]
CONFIG = ULTRA.config
PROJECT, REGION = "acme-research", "europe-west4"
CLUSTER = f"projects/{PROJECT}/locations/{REGION}/clusters/training"
POOL = f"{CLUSTER}/nodePools/a3-ultragpu-8g-a3-ultragpu-pool"
NETWORK = f"projects/{PROJECT}/global/networks/gpu-net-0"
SUBNETWORK = f"projects/{PROJECT}/regions/{REGION}/subnetworks/gpu-sub-0"
STABLE = offerings.CHANNELS["STABLE"]
EMAIL = f"gke-np-sa@{PROJECT}.iam.gserviceaccount.com"
ACCOUNT = f"projects/{PROJECT}/serviceAccounts/{EMAIL}"


@pytest.fixture
def state(empty: View) -> View:
    assert deploy(ULTRA, empty) is None
    return empty


def live(state: View, type_: str, id_: str) -> Json:
    found = state.get(type_, id_)
    assert found is not None
    return found


def deploy_changed(state: View, name: str, changes: Mapping[str, Any]) -> None:
    resource = {**ULTRA.resources[name], "inputs": changed(ULTRA.resources[name]["inputs"], changes)}
    resources = {**ULTRA.resources, name: resource}
    assert deploy(Accepted(name="changed", origin="tests", resources=resources, config=CONFIG), state) is None


def test_outputs_of_a_cluster(state: View) -> None:
    cluster = live(state, gcp.CLUSTER, CLUSTER)
    assert (cluster["clusterIpv4Cidr"], cluster["servicesIpv4Cidr"]) == ("10.4.0.0/14", "10.0.32.0/20")
    assert cluster["masterVersion"] == cluster["nodeVersion"] == "1.35.3-gke.1389000"
    private = {"privateClusterConfig.enablePrivateEndpoint": True, "masterAuthorizedNetworksConfig": {}}
    deploy_changed(state, "cluster", private)
    assert live(state, gcp.CLUSTER, CLUSTER)["endpoint"] == "172.16.0.34"


def test_flex_start_pool_has_short_lived_upgrades_whatever_it_sets(state: View) -> None:
    pool = live(state, gcp.NODE_POOL, POOL)
    assert pool["upgradeSettings"] == {"strategy": "SHORT_LIVED"}
    assert ULTRA.resources["pool"]["inputs"]["upgradeSettings"]["strategy"] == "SURGE"
    assert value_at(pool, "nodeConfig.resourceLabels.goog-gke-node-pool-provisioning-model") == "flex-start"
    assert [taint["key"] for taint in value_at(pool, "nodeConfig.effectiveTaints")] == ["nvidia.com/gpu"]


def test_pool_answers_with_names_of_networks(state: View) -> None:
    path = "networkConfig.additionalNodeNetworkConfigs.0.network"
    deploy_changed(state, "pool", {path: "${second_network.id}"})
    pool = live(state, gcp.NODE_POOL, POOL)
    assert value_at(pool, path) == "gpu-net-1"
    link = changed(pool, {path: f"projects/{PROJECT}/global/networks/gpu-net-1"})
    assert list(compared(pool, link, kind(gcp.NODE_POOL).replace_on).replaces) == ["networkConfig"]


def test_network_profile_fills_in_the_networks(empty: View) -> None:
    assert deploy(CORPUS["gcp-toolkit-a3-ultra-managed-dranet"], empty) is None
    network = live(empty, gcp.NODE_POOL, POOL)["networkConfig"]
    assert network["acceleratorNetworkProfile"] == "auto"
    assert len(network["additionalNodeNetworkConfigs"]) == 9


def test_control_plane_gets_the_newest_patch_and_is_never_downgraded(state: View) -> None:
    assert [offerings.resolve(asked, "STABLE", state) for asked in ("1.34", None, "1.3")] == [STABLE, STABLE, None]
    update = request(
        state, gcp.CLUSTER, {"name": "training", "minMasterVersion": "1.34"}, CONFIG, "update", id_=CLUSTER
    )
    assert kind(gcp.CLUSTER).compute(update)["masterVersion"] == "1.35.3-gke.1389000"


def test_deleted_with_a_cluster_and_with_a_router(state: View) -> None:
    state.put("kubernetes:core/v1:Secret", "inside", {OWNER: CLUSTER})
    state.put("kubernetes:core/v1:Secret", "elsewhere", {OWNER: f"{CLUSTER}-2"})
    router = f"projects/{PROJECT}/regions/{REGION}/routers/gpu-net-0-router"
    in_cluster = {POOL, f"{CLUSTER}/nodePools/system", "inside"}
    nat = f"{PROJECT}/{REGION}/gpu-net-0-router/cloud-nat-{REGION}"
    for type_, id_, gone in ((gcp.CLUSTER, CLUSTER, in_cluster), (gcp.ROUTER, router, {nat})):
        delete = request(state, type_, {}, CONFIG, "delete", id_=id_)
        assert {other for of, other, its in list(state.all()) if kind(type_).cascade(delete, of, its)} == gone


def test_cluster_is_replaced_once_its_default_pool_is_gone_unless_ignored(state: View) -> None:
    before = ULTRA.resources["cluster"]["inputs"]
    drift(state)
    cluster = live(state, gcp.CLUSTER, CLUSTER)
    now = as_asked(before, cluster, kind(gcp.CLUSTER).maps)
    assert value_at(now, "nodeConfig.flexStart") is True
    assert "nodeConfig" in compared(now, before, kind(gcp.CLUSTER).replace_on).replaces
    assert cluster["masterVersion"] == offerings.LATER
    assert cluster["nodeVersion"] == "1.35.3-gke.1389000", "the exclusion stops upgrades of nodes"


def test_engine_versions_follow_the_channel(state: View) -> None:
    ask = FUNCTIONS["gcp:container/getEngineVersions:getEngineVersions"]
    before = ask({"location": REGION, "versionPrefix": "1.34."}, CONFIG, state)
    assert before["validMasterVersions"] == ["1.34.4-gke.1193000", "1.34.3-gke.1318000"]
    drift(state)
    after = ask({"location": REGION}, CONFIG, state)
    assert after["releaseChannelDefaultVersion"]["REGULAR"] == after["validMasterVersions"][0] == offerings.LATER


@pytest.mark.parametrize(("machine", "zones"), [("a3-ultragpu-8g", "b"), ("e2-small", "abcf"), ("a3-ultragpu-9g", "")])
def test_machine_types_of_a_zone(machine: str, zones: str, empty: View) -> None:
    ask = FUNCTIONS["gcp:compute/getMachineTypes:getMachineTypes"]
    for zone in "abcf":
        request = {"zone": f"us-central1-{zone}", "filter": f'name = "{machine}"'}
        names = [one["name"] for one in ask(request, CONFIG, empty)["machineTypes"]]
        assert names == ([machine] if zone in zones else [])
