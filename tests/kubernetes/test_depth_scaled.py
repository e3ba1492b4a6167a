"""The `kubernetes` provider of depth `pods` with the real API server: scaled manifests without a difference.

Real: the API server with KubeRay's CRD of a RayCluster, its dry runs and field managers. Simulated: the provider, as at
depth `cluster`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from infra.catalog.pins import RAY, RAY_API
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.cluster.provider import ClusterProvider
from rehearsal.cluster.scaled import CHANGES
from rehearsal.cluster.scaling import Scale
from tests.rehearsal.protocol import Client, served
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane

RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
SCALE = Scale(seconds={"idleTimeoutSeconds": 20})
GROUP = "spec.workerGroupSpecs[0]"


@pytest.fixture
def api(plane: ControlPlane) -> Api:
    return plane.api


@pytest.fixture
def client(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state = tmp_path_factory.mktemp("clouds") / "clouds.sqlite"
    cloud = replace(CLOUD, reaches=lambda _config, _state: None)

    with served(cloud, state, {}, lambda cloud, state, engine: ClusterProvider(cloud, state, engine, api, SCALE)) as it:
        yield it


@pytest.fixture
def here(api: Api) -> Iterator[str]:
    name = f"scaled-{uuid.uuid4().hex[:8]}"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("v1", "Namespace", name)


def cluster(here: str, most: int = 4, cpus: str = "220") -> Json:
    def pod(name: str, **amounts: str) -> Json:
        container = {"name": name, "image": "ray", "resources": {"requests": amounts, "limits": amounts}}
        # It must not run: the test is about the object.
        return {"spec": {"nodeSelector": {"test": "nowhere"}, "containers": [container]}}

    group = {
        "groupName": "gpu",
        "minReplicas": 0,
        "maxReplicas": most,
        "idleTimeoutSeconds": 900,
        "rayStartParams": {},
        "template": pod("worker", cpu=cpus, memory="2800Gi", **{"nvidia.com/gpu": "8"}),
    }
    return {
        "apiVersion": RAY_API,
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": here, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "rayVersion": RAY,
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": pod("head", cpu="4", memory="16Gi")},
            "workerGroupSpecs": [group],
        },
    }


def test_scaled_object_shows_no_difference(client: Client, api: Api, here: str) -> None:
    """Neither the diff, nor a refresh, nor a diff after it shows the scaling; the inputs stay the program's."""
    asked = cluster(here)
    id_, _ = client.create(RAY_CLUSTER, asked)
    live = api.get(RAY_API, "RayCluster", "ray", here) or {}
    group = live["spec"]["workerGroupSpecs"][0]
    assert group["idleTimeoutSeconds"] == 20
    requests = {"cpu": "500m", "memory": "4Gi", "nvidia.com/gpu": "8"}
    assert group["template"]["spec"]["containers"][0]["resources"]["requests"] == requests
    assert not client.diff(RAY_CLUSTER, asked, asked, id_=id_).diffs
    read = client.read(RAY_CLUSTER, id_, asked)
    assert read is not None
    assert read[0] == asked
    assert not client.diff(RAY_CLUSTER, read[0], asked, id_=id_).diffs
    with client.state.transaction() as view:
        assert any("container worker: requests cpu 220 -> 500m" in change for change in view.setting(CHANGES))


def test_changes_by_program_and_others_are_detected(client: Client, api: Api, here: str) -> None:
    asked = cluster(here)
    id_, _ = client.create(RAY_CLUSTER, asked)
    assert dict(client.diff(RAY_CLUSTER, asked, cluster(here, most=8), id_=id_).detailedDiff).keys() == {
        f"{GROUP}.maxReplicas"
    }
    changed = client.update(RAY_CLUSTER, id_, asked, cluster(here, most=8))["spec"]["workerGroupSpecs"][0]
    assert (changed["maxReplicas"], changed["idleTimeoutSeconds"]) == (8, 20)
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/idleTimeoutSeconds", "value": 77}]
    api.patch(RAY_API, "RayCluster", "ray", here, patch, type="json")
    now = cluster(here, most=8)
    assert f"{GROUP}.idleTimeoutSeconds" in client.diff(RAY_CLUSTER, now, now, id_=id_).detailedDiff
    read = client.read(RAY_CLUSTER, id_, now)
    assert read is not None
    assert read[0]["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] == 77
    assert read[0]["spec"]["workerGroupSpecs"][0]["template"] == now["spec"]["workerGroupSpecs"][0]["template"]


def test_preview_dry_runs_scaled_object(client: Client, api: Api, here: str) -> None:
    _, planned = client.create(RAY_CLUSTER, cluster(here), preview=True)
    assert planned["spec"]["workerGroupSpecs"][0]["idleTimeoutSeconds"] == 20
    assert api.get(RAY_API, "RayCluster", "ray", here) is None
