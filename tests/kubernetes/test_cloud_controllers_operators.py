"""Helm releases of the cloud state: the real KubeRay operator (1.6.2), which submits to the stub of Ray's dashboard.

And EKS, where devices and growth depend on releases.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from infra.catalog.pins import RAY, RAY_API
from infra.settings import from_stack_file
from rehearsal.clouds.state import State
from rehearsal.cluster import release_status
from rehearsal.cluster.controllers.cloud_controllers import CloudControllers
from rehearsal.cluster.controllers.events import (
    ClusterEmptied,
    ClusterOpened,
    ControllerReady,
    NodeGranted,
    NodesWanted,
)
from rehearsal.cluster.controllers.snapshot import Delays
from tests.kubernetes import simulated_clouds as clouds
from tools.kubernetes.api import Api, Json
from tools.kubernetes.control_plane import ControlPlane

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 120.0
OPERATOR = "kuberay-system/kuberay-operator"
TOKEN = "a-token-of-the-test"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.start_kwok()
        yield plane


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "clouds.sqlite")


@pytest.fixture
def controllers(plane: ControlPlane, state: State) -> Iterator[CloudControllers]:
    settings = from_stack_file(ROOT / "Pulumi.gke.yaml")
    with CloudControllers(plane, state, settings, lambda _: None, Delays(grant=0.5, idle=2.0)) as controllers:
        yield controllers
        controllers.check()
        clouds.nothing(state)
        _events_of(plane.api, controllers, ClusterEmptied)
        assert controllers.leftovers() == []


def test_operator_runs_ray_job_with_token(plane: ControlPlane, state: State, controllers: CloudControllers) -> None:
    api = plane.api
    clouds.gke(state)
    _events_of(api, controllers, ClusterOpened)
    clouds.release(
        state, OPERATOR, "kuberay-operator", {"featureGates": [{"name": "RayJobDeletionPolicy", "enabled": True}]}
    )
    (ready,) = _events_of(api, controllers, ControllerReady)
    assert ready.real
    assert _said(state) == "ready"
    assert "ray-operator" in plane.running()
    controllers.dashboard.manual = True
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "default"}}
    api.apply({**secret, "data": {"auth_token": base64.b64encode(TOKEN.encode()).decode()}})
    api.create(_ray_job())
    (job,) = api.until("the job submitted", lambda: controllers.dashboard.jobs or None, WITHIN_S)
    assert job.request["entrypoint"] == "python train.py"
    assert controllers.dashboard.refused == []
    api.until("it waits", lambda: _status(api).get("jobStatus") == "PENDING", WITHIN_S)
    controllers.dashboard.change(job.id, "RUNNING")
    api.until("it runs", lambda: _status(api).get("jobStatus") == "RUNNING", WITHIN_S)
    # A token other than the cluster's is refused.
    jobs = f"http://{_status(api)['dashboardURL']}/api/jobs/"
    shown = {"x-ray-authorization": f"Bearer {TOKEN}"}
    for headers, status in (({}, 401), ({"x-ray-authorization": "Bearer another"}, 401), (shown, 200)):
        answered = requests.get(jobs, headers=headers, proxies={"http": controllers.dashboard.url}, timeout=10)
        assert answered.status_code == status
    controllers.dashboard.change(job.id, "SUCCEEDED", "Job finished successfully.")
    api.until("it is complete", lambda: _status(api).get("jobDeploymentStatus") == "Complete", WITHIN_S)
    clouds.without_release(state, OPERATOR)
    api.until("the operator stopped", lambda: "ray-operator" not in plane.running(), WITHIN_S)
    api.until("the release said to be stopped", lambda: _said(state) == "stopped", WITHIN_S)


def test_eks_devices_and_scaling_need_releases(
    plane: ControlPlane, state: State, controllers: CloudControllers
) -> None:
    api = plane.api
    clouds.eks(state, most=2)
    _events_of(api, controllers, ClusterOpened)
    api.create(_efa_pod())
    api.until("unschedulable", lambda: _unschedulable(api), WITHIN_S)
    # Without an autoscaler the group does not grow.
    assert [event.pool for event in _events_of(api, controllers, NodeGranted)] == ["system"]
    clouds.release(
        state, "kube-system/cluster-autoscaler", "cluster-autoscaler", {"autoDiscovery": {"clusterName": clouds.EKS}}
    )
    _events_of(api, controllers, NodeGranted, 2)
    (node,) = api.list("v1", "Node", selector="eks.amazonaws.com/nodegroup=gpu")
    assert "vpc.amazonaws.com/efa" not in node["status"]["allocatable"]
    keys = {"keys": ["node.kubernetes.io/instance-type"], "values": ["p5en.48xlarge"]}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    values = {"supportedInstanceLabels": keys, "tolerations": tolerations}
    clouds.release(state, "kube-system/efa", "aws-efa-k8s-device-plugin", values)
    clouds.release(state, "kube-system/nvidia-device-plugin", "nvidia-device-plugin")
    api.until("the pod runs", lambda: _pod(api).get("status", {}).get("phase") == "Running", WITHIN_S)
    # The pod waited for its devices, and got no second node meanwhile.
    assert len(_events_of(api, controllers, NodesWanted)) == 1
    assert all(not event.real for event in _events_of(api, controllers, ControllerReady, 3))


def _events_of(api: Api, controllers: CloudControllers, kind: type[Any], count: int = 1) -> list[Any]:
    def look() -> list[Any] | None:
        controllers.check()
        found = [event for event in controllers.events if isinstance(event, kind)]
        return found if len(found) >= count else None

    return api.until(f"{count} × {kind.__name__}", look, WITHIN_S)


def _said(state: State) -> str:
    with state.transaction() as view:
        return release_status.status_of(view, OPERATOR).status


def _status(api: Api) -> Json:
    its: Json = (api.get(RAY_API, "RayJob", "train", "default") or {}).get("status") or {}
    return its


def _ray_job() -> Json:
    container = {"name": "ray-head", "image": f"rayproject/ray:{RAY}", "resources": {"requests": {"cpu": "1"}}}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": RAY_API,
        "kind": "RayJob",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {
            "entrypoint": "python train.py",
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {
                "rayVersion": RAY,
                "authOptions": {"mode": "token", "secretName": "token"},
                "headGroupSpec": head,
            },
        },
    }


def _efa_pod() -> Json:
    devices = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16", "cpu": "184", "memory": "1800Gi"}
    container = {"name": "work", "image": "work", "resources": {"requests": devices, "limits": devices}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "efa", "namespace": "default"},
        "spec": {
            "nodeSelector": {"node.kubernetes.io/instance-type": "p5en.48xlarge"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        },
    }


def _pod(api: Api) -> Json:
    return api.get("v1", "Pod", "efa", "default") or {}


def _unschedulable(api: Api) -> bool:
    conditions = (_pod(api).get("status") or {}).get("conditions") or ()
    return any(each.get("reason") == "Unschedulable" for each in conditions)
