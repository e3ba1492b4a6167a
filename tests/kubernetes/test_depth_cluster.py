"""The `kubernetes` provider of depth `cluster`, request by request, before the real API server.

Real: the API server with its field managers, dry runs, validation and finalizers, and the Job and Deployment
controllers. A stand-in: the provider itself, which does what pulumi-kubernetes does (`rehearsal/cluster/provider.py`).
"""

from __future__ import annotations

import base64
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest
from pulumi.runtime.proto import provider_pb2

from infra.catalog.pins import RAY_API
from infra.kubernetes.ray_cluster import FORCE_CONFLICTS
from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.values import from_wire, to_wire
from rehearsal.cluster.provider import ClusterProvider
from rehearsal.workspace import ROOT
from tests.rehearsal.protocol import Client, served
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane

GONE_S = 60.0
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
SECRET = "kubernetes:core/v1:Secret"
SERVICE = "kubernetes:core/v1:Service"


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Api:
    return plane.api


@pytest.fixture(scope="module")
def client(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    state = tmp_path_factory.mktemp("clouds") / "clouds.sqlite"
    # The simulated cluster that the provider would ask for has no part in this.
    cloud = replace(CLOUD, reaches=lambda _config, _state: None)
    with served(cloud, state, {}, lambda cloud, state, engine: ClusterProvider(cloud, state, engine, api)) as client:
        yield client


@pytest.fixture
def here(api: Api) -> Iterator[str]:
    """A namespace of a test's own."""
    name = f"depth-{uuid.uuid4().hex[:8]}"
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("v1", "Namespace", name)


def settings(here: str, **data: str) -> Json:
    return {"metadata": {"name": "settings", "namespace": here}, "data": data}


def deployment(here: str, **spec: object) -> Json:
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    its = {"selector": {"matchLabels": {"app": "a"}}, "template": pod} | spec
    return {"metadata": {"name": "a", "namespace": here, "annotations": {"pulumi.com/skipAwait": "true"}}, "spec": its}


def autoscaled(here: str, most: int, **annotations: str) -> Json:
    """A RayCluster of the shape of a stack's: Ray's autoscaler says how many workers there are."""

    def pod(name: str) -> Json:
        return {"spec": {"nodeSelector": {"test": "nowhere"}, "containers": [{"name": name, "image": "image"}]}}

    workers = {"groupName": "gpu", "minReplicas": 0, "maxReplicas": most, "rayStartParams": {}}
    return {
        "metadata": {"name": "ray", "namespace": here, "annotations": annotations},
        "spec": {
            "rayVersion": "2.60.0",
            "enableInTreeAutoscaling": True,
            "headGroupSpec": {"rayStartParams": {}, "template": pod("ray-head")},
            "workerGroupSpecs": [{**workers, "template": pod("ray-worker")}],
        },
    }


def refusal(problem: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    return str(problem.value.details())


def test_an_object_is_made_once_and_not_adopted(client: Client, api: Api, here: str) -> None:
    id_, live = client.create(CONFIG_MAP, settings(here, a="1"))
    assert id_ == f"{here}/settings"
    assert live["metadata"]["uid"]
    assert "managedFields" not in live["metadata"]
    with pytest.raises(grpc.RpcError) as problem:
        client.create(CONFIG_MAP, settings(here, a="2"))
    assert "409 AlreadyExists" in refusal(problem)
    found = api.get("v1", "ConfigMap", "settings", here)
    assert found is not None
    assert found["data"] == {"a": "1"}


def test_an_unknown_field_is_refused_in_the_first_preview_already(client: Client, api: Api, here: str) -> None:
    wrong = deployment(here, repilcas=2)
    for preview in (True, False):
        with pytest.raises(grpc.RpcError) as problem:
            client.create(DEPLOYMENT, wrong, preview=preview)
        assert 'unknown field "spec.repilcas"' in refusal(problem)
    assert api.get("apps/v1", "Deployment", "a", here) is None


def test_a_preview_shows_what_would_be_made_and_makes_nothing(client: Client, api: Api, here: str) -> None:
    id_, planned = client.create(DEPLOYMENT, deployment(here), preview=True)
    assert id_ == ""
    assert planned["spec"]["replicas"] == 1, "the server's default"
    assert "status" not in planned
    assert api.get("apps/v1", "Deployment", "a", here) is None


def test_a_preview_of_a_kind_or_a_namespace_to_come_says_that_nobody_checked(client: Client) -> None:
    inputs = {"metadata": {"name": "a", "namespace": "depth-not-there"}, "spec": {"wrong": 1}}
    for type_ in ("kubernetes:not.there/v1:Thing", "kubernetes:core/v1:ResourceQuota"):
        given = inputs if "not.there" in type_ else {"metadata": inputs["metadata"]}
        assert client.create(type_, given, preview=True)[1] == given
    with client.state.transaction() as state:
        assert set(state.setting("unchecked")) >= {"kubernetes:not.there/v1:Thing", "kubernetes:core/v1:ResourceQuota"}


def test_what_controllers_write_is_no_difference_and_what_somebody_changes_of_ours_is(
    client: Client, api: Api, here: str
) -> None:
    asked = deployment(here, replicas=1)
    # As a person writes it; the server stores 500m.
    asked["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 0.5}}
    id_, _ = client.create(DEPLOYMENT, asked)

    def seen() -> bool:
        found = api.get("apps/v1", "Deployment", "a", here) or {}
        return bool(
            (found.get("status") or {}).get("observedGeneration")
            and found["metadata"]["annotations"].keys() - {"pulumi.com/skipAwait"}
        )

    api.until("the controller's annotation and status", seen, 30)
    assert not client.diff(DEPLOYMENT, asked, asked, id_=id_).diffs
    api.patch("apps/v1", "Deployment", "a", here, {"metadata": {"labels": {"theirs": "1"}}})
    assert not client.diff(DEPLOYMENT, asked, asked, id_=id_).diffs
    api.patch("apps/v1", "Deployment", "a", here, {"spec": {"replicas": 3}})
    assert dict(client.diff(DEPLOYMENT, asked, asked, id_=id_).detailedDiff).keys() == {"spec.replicas"}
    assert not client.diff(DEPLOYMENT, asked, asked, id_=id_, ignores=["spec.replicas"]).diffs


def test_a_refresh_shows_the_changed_field_and_hides_the_rest(client: Client, api: Api, here: str) -> None:
    asked = settings(here, a="1")
    id_, _ = client.create(CONFIG_MAP, asked)
    api.patch("v1", "ConfigMap", "settings", here, {"data": {"a": "2"}, "metadata": {"labels": {"theirs": "1"}}})
    read = client.read(CONFIG_MAP, id_, asked)
    assert read is not None
    assert read[0] == settings(here, a="2")
    api.delete("v1", "ConfigMap", "settings", here)
    assert client.read(CONFIG_MAP, id_, asked) is None


def test_an_update_takes_away_what_is_no_longer_asked_for(client: Client, api: Api, here: str) -> None:
    """Which shows that the first apply takes over the fields that the creation wrote."""
    before = deployment(here, replicas=1, minReadySeconds=5)
    now = deployment(here, replicas=2)
    id_, _ = client.create(DEPLOYMENT, before)
    assert dict(client.diff(DEPLOYMENT, before, now, id_=id_).detailedDiff).keys() == {
        "spec.replicas",
        "spec.minReadySeconds",
    }
    planned = client.update(DEPLOYMENT, id_, before, now, preview=True)
    assert planned["spec"]["replicas"] == 2
    live = client.update(DEPLOYMENT, id_, before, now)
    assert live["spec"]["replicas"] == 2
    assert "minReadySeconds" not in live["spec"]
    assert not client.diff(DEPLOYMENT, now, now, id_=id_).diffs
    found = api.get("apps/v1", "Deployment", "a", here)
    assert found is not None
    owners = {(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]}
    assert ("pulumi-kubernetes", "Update") not in owners
    assert any(manager.startswith("pulumi-kubernetes-") and how == "Apply" for manager, how in owners)


def test_a_field_of_somebody_else_is_a_conflict_unless_it_is_forced(client: Client, api: Api, here: str) -> None:
    before, now = deployment(here, replicas=1), deployment(here, replicas=2)
    id_, _ = client.create(DEPLOYMENT, before)
    api.patch("apps/v1", "Deployment", "a", here, {"spec": {"replicas": 5}})
    with pytest.raises(grpc.RpcError) as problem:
        client.update(DEPLOYMENT, id_, before, now)
    assert "409 Conflict" in refusal(problem)
    assert ".spec.replicas" in refusal(problem)
    # Ignored, the field stays theirs.
    live = client.update(DEPLOYMENT, id_, before, now, ignores=["spec.replicas"])
    assert live["spec"]["replicas"] == 5
    now["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    assert client.update(DEPLOYMENT, id_, before, now)["spec"]["replicas"] == 2


def test_a_ray_cluster_changes_while_its_autoscaler_has_workers(client: Client, api: Api, here: str) -> None:
    """By the API server, to which the worker groups are one list, and KubeRay's operator, which ends nobody unnamed."""
    before = autoscaled(here, 2)
    id_, _ = client.create(RAY_CLUSTER, before)
    group = "/spec/workerGroupSpecs/0"
    # As Ray's autoscaler writes (ray 2.60: autoscaler/_private/kuberay/node_provider.py).
    wanted = [{"op": "replace", "path": f"{group}/replicas", "value": 2}]
    api.patch(RAY_API, "RayCluster", "ray", here, wanted, type="json")

    def workers() -> list[Json]:
        return api.list("v1", "Pod", here, "ray.io/node-type=worker")

    api.until("two workers", lambda: len(workers()) == 2, 60)
    names = {pod["metadata"]["uid"] for pod in workers()}
    assert not client.diff(RAY_CLUSTER, before, before, id_=id_).diffs
    with pytest.raises(grpc.RpcError) as problem:
        client.update(RAY_CLUSTER, id_, before, autoscaled(here, 3))
    assert ".spec.workerGroupSpecs" in refusal(problem)
    live = client.update(RAY_CLUSTER, id_, before, autoscaled(here, 3, **FORCE_CONFLICTS))
    assert live["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 3

    def seen() -> bool:
        found = api.get(RAY_API, "RayCluster", "ray", here) or {}
        return bool(found["status"].get("observedGeneration") == live["metadata"]["generation"])

    api.until("the operator has seen the change", seen, 60)
    assert {pod["metadata"]["uid"] for pod in workers() if "deletionTimestamp" not in pod["metadata"]} == names


def test_a_daemon_set_updated_on_delete_is_not_ready_before_its_pods_are_replaced(
    client: Client, api: Api, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the DaemonSet controller and kwok's node: so the installer of GKE's stacks is not awaited."""
    label = {"test": here}
    api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": here, "labels": label}})
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    api.patch("v1", "Node", here, None, {"status": {"capacity": room, "allocatable": room}}, subresource="status")

    def installer(image: str, **annotations: str) -> Json:
        spec = {"nodeSelector": label, "containers": [{"name": "a", "image": image}]}
        its = {"selector": {"matchLabels": {"a": "a"}}, "updateStrategy": {"type": "OnDelete"}}
        its |= {"template": {"metadata": {"labels": {"a": "a"}}, "spec": spec}}
        return {"metadata": {"name": "installer", "namespace": here, "annotations": annotations}, "spec": its}

    def ready() -> bool:
        found = api.get("apps/v1", "DaemonSet", "installer", here) or {}
        return bool((found.get("status") or {}).get("numberReady") == 1)

    id_, _ = client.create(DAEMON_SET, installer("one"))
    api.until("its pod", ready, 60)
    monkeypatch.setattr("rehearsal.cluster.provider.PATIENCE_S", 3.0)
    with pytest.raises(grpc.RpcError) as problem:
        client.update(DAEMON_SET, id_, installer("one"), installer("two"))
    assert "updatedNumberScheduled is 0 of 1" in refusal(problem)
    skipped = installer("three", **{"pulumi.com/skipAwait": "true"})
    assert client.update(DAEMON_SET, id_, installer("two"), skipped)["spec"]["template"]["spec"]["containers"]
    api.delete("v1", "Node", here)


def test_what_cannot_change_is_replaced(client: Client, here: str) -> None:
    before = deployment(here)
    now = deployment(here, selector={"matchLabels": {"app": "b"}})
    now["spec"]["template"]["metadata"]["labels"] = {"app": "b"}
    id_, _ = client.create(DEPLOYMENT, before)
    assert "spec" in client.diff(DEPLOYMENT, before, now, id_=id_).replaces


def test_a_secret_of_plain_text_is_stored_encoded_without_a_difference(client: Client, here: str) -> None:
    asked = {"metadata": {"name": "token", "namespace": here}, "stringData": {"token": "ä secret"}}
    id_, live = client.create(SECRET, asked)
    assert base64.b64decode(live["data"]["token"]).decode() == "ä secret"
    assert not client.diff(SECRET, asked, asked, id_=id_).diffs
    read = client.read(SECRET, id_, asked)
    assert read is not None
    assert read[0]["stringData"] == {"token": "ä secret"}
    other = {**asked, "stringData": {"token": "another"}}
    assert "stringData" in client.diff(SECRET, asked, other, id_=id_).replaces


def test_what_an_interrupted_creation_made_is_found_and_left_as_it_is(client: Client, here: str) -> None:
    """As recovery reads it, with inputs and without properties; and an import, without either."""
    asked = {"metadata": {"name": "token", "namespace": here}, "stringData": {"token": "secret"}, "type": "Opaque"}
    id_, _ = client.create(SECRET, asked)
    request = provider_pb2.ReadRequest(id=id_, urn="urn:a", type=SECRET, inputs=to_wire(asked))
    assert from_wire(client.stub.Read(request).inputs) == asked
    request = provider_pb2.ReadRequest(id=id_, urn="urn:a", type=SECRET)
    imported = from_wire(client.stub.Read(request).inputs)
    assert imported["data"] == {"token": base64.b64encode(b"secret").decode()}
    assert "uid" not in imported["metadata"]
    assert not client.diff(SECRET, imported, asked, id_=id_).replaces


def test_a_creation_waits_until_the_object_is_ready_and_keeps_what_is_not(
    client: Client, api: Api, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Service is ready when a pod is behind it."""
    monkeypatch.setattr("rehearsal.cluster.provider.PATIENCE_S", 1.0)
    asked = {
        "metadata": {"name": "head", "namespace": here},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]},
    }
    with pytest.raises(grpc.RpcError) as problem:
        client.create(SERVICE, asked)
    assert "was made, and failed to become ready: not ready in time: it has no pod that is ready" in refusal(problem)
    assert api.get("v1", "Service", "head", here) is not None
    # By this the engine keeps it in the state, as failed.
    assert "grpc-status-details-bin" in [datum.key for datum in problem.value.trailing_metadata()]
    skipped = {
        **asked,
        "metadata": {"name": "other", "namespace": here, "annotations": {"pulumi.com/skipAwait": "true"}},
    }
    assert client.create(SERVICE, skipped)[0] == f"{here}/other"


def test_a_deletion_waits_for_finalizers_and_names_those_that_hold(client: Client, api: Api, here: str) -> None:
    asked = settings(here, a="1")
    id_, _ = client.create(CONFIG_MAP, asked)
    api.patch("v1", "ConfigMap", "settings", here, {"metadata": {"finalizers": ["test.rdma-ray/held"]}})
    with pytest.raises(grpc.RpcError) as problem:
        client.delete(CONFIG_MAP, id_, asked, within_s=1)
    assert "finalizers that hold it: test.rdma-ray/held" in refusal(problem)
    api.patch("v1", "ConfigMap", "settings", here, {"metadata": {"finalizers": None}})
    client.delete(CONFIG_MAP, id_, asked)
    assert api.get("v1", "ConfigMap", "settings", here) is None
    # Gone already is no error; neither is a kind that is gone.
    client.delete(CONFIG_MAP, id_, asked)
    client.delete("kubernetes:not.there/v1:Thing", "a", {})


def test_a_deletion_takes_the_pods_of_a_job_along(client: Client, api: Api, here: str) -> None:
    """In the foreground, as the provider asks: the Job goes last, after the garbage collector has taken its pods."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}], "nodeSelector": {"test": "nowhere"}}
    asked = {
        "metadata": {"name": "job", "namespace": here, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {"template": {"spec": pod}},
    }
    id_, _ = client.create(JOB, asked)
    api.until("the Job's pod", lambda: api.list("v1", "Pod", here) or None, 30)
    client.delete(JOB, id_, asked)
    # As the program does not wait for it, neither does its deletion.
    api.until("no Job", lambda: api.get("batch/v1", "Job", "job", here) is None, 30)
    assert api.list("v1", "Pod", here) == []


def test_faults_strike_here_too(client: Client, api: Api, here: str) -> None:
    client.order(f"{CONFIG_MAP} create 500")
    with pytest.raises(grpc.RpcError) as problem:
        client.create(CONFIG_MAP, settings(here, a="1"))
    assert "500" in refusal(problem)
    assert api.get("v1", "ConfigMap", "settings", here) is None


def test_nothing_runs_on_after_ctrl_c(tmp_path: Path) -> None:
    """Neither the control plane and its controllers, nor the engine and its plugins."""
    command = [sys.executable, "-m", "rehearsal", "--stack", "gke", "--depth", "cluster"]
    folders = ["--workspace", str(tmp_path / "workspace"), "--results", str(tmp_path / "results")]
    run = subprocess.Popen(
        [*command, *folders], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    assert run.stdout is not None
    try:
        said = []
        for line in run.stdout:
            said.append(line)
            if "granted to pool system" in line:
                break
        assert any("apiserver" in line for line in running_in(tmp_path)), "".join(said)
        # As a terminal does it: to the rehearsal, the engine and the plugins at once.
        os.killpg(run.pid, signal.SIGINT)
        rest, _ = run.communicate(timeout=GONE_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130, rest
    assert "interrupted; nothing runs any longer" in rest
    deadline = time.monotonic() + GONE_S
    while running_in(tmp_path):
        assert time.monotonic() < deadline, running_in(tmp_path)
        time.sleep(0.1)
    with sqlite3.connect(tmp_path / "workspace" / "clouds.sqlite") as state:
        assert state.execute("SELECT value FROM settings WHERE name = 'cluster'").fetchall() == [("null",)]


def running_in(folder: Path) -> list[str]:
    """The command lines of processes that have a folder in them, or in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(folder) in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(" ".join(process.cmdline())[:200])
    return found
