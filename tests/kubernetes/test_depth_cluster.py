"""The `kubernetes` provider of depth `cluster`, request by request, with the real API server.

Real: the API server with its field managers, dry runs, validation and finalizers, and the Job and Deployment
controllers. Simulated: the provider, which does what pulumi-kubernetes does (`rehearsal/cluster/provider.py`).
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2

from infra.catalog.pins import RAY, RAY_API
from infra.kubernetes.workload import FORCE_CONFLICTS
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.cluster.provider import ClusterProvider
from rehearsal.engine.kind import Json
from rehearsal.engine.values import from_wire, to_wire
from tests.rehearsal.protocol import Client, served
from tools.kubernetes.api import Api
from tools.kubernetes.control_plane import ControlPlane

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
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
    # The provider would check the simulated cluster, which these tests do not use.
    cloud = replace(CLOUD, reaches=lambda _config, _state: None)
    state = tmp_path_factory.mktemp("clouds") / "clouds.sqlite"
    with served(cloud, state, {}, lambda cloud, state, engine: ClusterProvider(cloud, state, engine, api)) as client:
        yield client


@pytest.fixture
def here(api: Api) -> Iterator[str]:
    """A namespace for one test."""
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
    """Return a RayCluster like a stack's: Ray's autoscaler sets the number of workers."""

    def pod(name: str) -> Json:
        return {"spec": {"nodeSelector": {"test": "nowhere"}, "containers": [{"name": name, "image": "image"}]}}

    workers = {"groupName": "gpu", "minReplicas": 0, "maxReplicas": most, "rayStartParams": {}}
    return {
        "metadata": {"name": "ray", "namespace": here, **({"annotations": annotations} if annotations else {})},
        "spec": {
            "rayVersion": RAY,
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"version": "v2"},
            "headGroupSpec": {"rayStartParams": {}, "template": pod("ray-head")},
            "workerGroupSpecs": [{**workers, "template": pod("ray-worker")}],
        },
    }


@contextmanager
def refused(*words: str) -> Iterator[pytest.ExceptionInfo[grpc.RpcError]]:
    """Expect an error whose message contains these words."""
    with pytest.raises(grpc.RpcError) as problem:
        yield problem
    assert [word for word in words if word not in str(problem.value.details())] == []


def inputs(client: Client, type_: str, id_: str, asked: Json) -> Json:
    """Return the inputs as a refresh reads them."""
    found = client.read(type_, id_, asked)
    assert found is not None
    return found[0]


def test_existing_object_is_not_adopted(client: Client, api: Api, here: str) -> None:
    id_, live = client.create(CONFIG_MAP, settings(here, a="1"))
    assert id_ == f"{here}/settings"
    assert live["metadata"]["uid"]
    assert "managedFields" not in live["metadata"]
    with refused("409 AlreadyExists"):
        client.create(CONFIG_MAP, settings(here, a="2"))
    assert (api.get("v1", "ConfigMap", "settings", here) or {})["data"] == {"a": "1"}


def test_first_preview_refuses_unknown_field_and_creates_nothing(client: Client, api: Api, here: str) -> None:
    for preview in (True, False):
        with refused('unknown field "spec.repilcas"'):
            client.create(DEPLOYMENT, deployment(here, repilcas=2), preview=preview)
    id_, planned = client.create(DEPLOYMENT, deployment(here), preview=True)
    assert id_ == ""
    assert planned["spec"]["replicas"] == 1, "the server's default"
    assert "status" not in planned
    assert api.get("apps/v1", "Deployment", "a", here) is None


def test_preview_reports_unchecked_kinds(client: Client) -> None:
    inputs = {"metadata": {"name": "a", "namespace": "depth-not-there"}, "spec": {"wrong": 1}}
    for type_ in ("kubernetes:not.there/v1:Thing", "kubernetes:core/v1:ResourceQuota"):
        given = inputs if "not.there" in type_ else {"metadata": inputs["metadata"]}
        assert client.create(type_, given, preview=True)[1] == given
    with client.state.transaction() as state:
        assert set(state.setting("unchecked")) >= {"kubernetes:not.there/v1:Thing", "kubernetes:core/v1:ResourceQuota"}


def test_only_changes_of_our_fields_are_differences(client: Client, api: Api, here: str) -> None:
    asked = deployment(here, replicas=1)
    # As a user writes it; the server stores 500m.
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


def test_refresh_shows_only_changed_field(client: Client, api: Api, here: str) -> None:
    asked = settings(here, a="1")
    id_, _ = client.create(CONFIG_MAP, asked)
    api.patch("v1", "ConfigMap", "settings", here, {"data": {"a": "2"}, "metadata": {"labels": {"theirs": "1"}}})
    assert inputs(client, CONFIG_MAP, id_, asked) == settings(here, a="2")
    api.delete("v1", "ConfigMap", "settings", here)
    assert client.read(CONFIG_MAP, id_, asked) is None


def test_update_removes_dropped_fields(client: Client, api: Api, here: str) -> None:
    """This shows that the first apply takes over the fields of the creation."""
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
    found = api.get("apps/v1", "Deployment", "a", here) or {}
    owners = {(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]}
    assert ("pulumi-kubernetes", "Update") not in owners
    assert any(manager.startswith("pulumi-kubernetes-") and how == "Apply" for manager, how in owners)


def test_foreign_field_conflicts_without_force(client: Client, api: Api, here: str) -> None:
    before, now = deployment(here, replicas=1), deployment(here, replicas=2)
    id_, _ = client.create(DEPLOYMENT, before)
    api.patch("apps/v1", "Deployment", "a", here, {"spec": {"replicas": 5}})
    with refused("409 Conflict", ".spec.replicas"):
        client.update(DEPLOYMENT, id_, before, now)
    # Ignored, the field stays theirs.
    live = client.update(DEPLOYMENT, id_, before, now, ignores=["spec.replicas"])
    assert live["spec"]["replicas"] == 5
    now["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"
    assert client.update(DEPLOYMENT, id_, before, now)["spec"]["replicas"] == 2


def test_ray_cluster_updates_while_autoscaled(client: Client, api: Api, here: str) -> None:
    """By the API server, for which the worker groups are one list, and KubeRay's operator, which deletes only named
    pods."""
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
    with refused(".spec.workerGroupSpecs"):
        client.update(RAY_CLUSTER, id_, before, autoscaled(here, 3))
    live = client.update(RAY_CLUSTER, id_, before, autoscaled(here, 3, **FORCE_CONFLICTS))
    assert live["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 3

    def seen() -> bool:
        found = api.get(RAY_API, "RayCluster", "ray", here) or {}
        return bool(found["status"].get("observedGeneration") == live["metadata"]["generation"])

    api.until("the operator has seen the change", seen, 60)
    assert {pod["metadata"]["uid"] for pod in workers() if "deletionTimestamp" not in pod["metadata"]} == names


def test_immutable_change_replaces(client: Client, here: str) -> None:
    before = deployment(here)
    now = deployment(here, selector={"matchLabels": {"app": "b"}})
    now["spec"]["template"]["metadata"]["labels"] = {"app": "b"}
    id_, _ = client.create(DEPLOYMENT, before)
    assert "spec" in client.diff(DEPLOYMENT, before, now, id_=id_).replaces


def test_plain_text_secret_shows_no_difference(client: Client, here: str) -> None:
    asked = {"metadata": {"name": "token", "namespace": here}, "stringData": {"token": "ä secret"}}
    id_, live = client.create(SECRET, asked)
    assert base64.b64decode(live["data"]["token"]).decode() == "ä secret"
    assert not client.diff(SECRET, asked, asked, id_=id_).diffs
    read = inputs(client, SECRET, id_, asked)
    assert "stringData" not in read
    assert read["data"] == {"token": base64.b64encode("ä secret".encode()).decode()}
    assert not client.diff(SECRET, read, asked, id_=id_).diffs
    other = {**asked, "stringData": {"token": "another"}}
    assert client.diff(SECRET, asked, other, id_=id_).replaces == ["data"]


def test_empty_metadata_of_a_custom_object_is_a_difference_for_ever(client: Client, here: str) -> None:
    """The API server does not keep it, and the provider compares the inputs of custom objects as they are."""
    empty: Json = {"labels": {}, "annotations": {"pulumi.com/skipAwait": "true"}}
    queue = autoscaled(here, 1)
    asked = {**queue, "metadata": {**queue["metadata"], **empty, "name": "empty"}}
    id_, _ = client.create(RAY_CLUSTER, asked)
    for _ in range(2):
        (difference,) = client.diff(RAY_CLUSTER, asked, asked, id_=id_).detailedDiff
        assert difference == "metadata.labels"
        client.update(RAY_CLUSTER, id_, asked, asked)
    built_in = settings(here, a="1")
    built_in["metadata"] |= {"labels": {}}
    id_, _ = client.create(CONFIG_MAP, built_in)
    assert not client.diff(CONFIG_MAP, built_in, built_in, id_=id_).diffs


def test_interrupted_creation_is_read_unchanged(client: Client, here: str) -> None:
    """As recovery reads it, with inputs and without properties; and an import, without either."""
    asked = {"metadata": {"name": "token", "namespace": here}, "stringData": {"token": "secret"}, "type": "Opaque"}
    id_, _ = client.create(SECRET, asked)
    request = provider_pb2.ReadRequest(id=id_, urn="urn:a", type=SECRET, inputs=to_wire(asked))
    encoded = {"data": {"token": base64.b64encode(b"secret").decode()}}
    assert from_wire(client.stub.Read(request).inputs) == {
        **{key: asked[key] for key in ("metadata", "type")},
        **encoded,
    }
    request = provider_pb2.ReadRequest(id=id_, urn="urn:a", type=SECRET)
    imported = from_wire(client.stub.Read(request).inputs)
    assert imported["data"] == {"token": base64.b64encode(b"secret").decode()}
    assert "uid" not in imported["metadata"]
    assert not client.diff(SECRET, imported, asked, id_=id_).replaces


def test_create_waits_for_readiness_and_keeps_unready_object(
    client: Client, api: Api, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer is ready when it has an address; another Service 10 s after its endpoints, also without one."""
    asked: Json = {"metadata": {"name": "without-pods", "namespace": here}}
    asked["spec"] = {"selector": {"app": "a"}, "ports": [{"port": 80}]}
    began = time.monotonic()
    client.create(SERVICE, asked)
    assert 9 < time.monotonic() - began < 30
    monkeypatch.setattr("rehearsal.cluster.provider.PATIENCE_S", 1.0)
    asked["metadata"] |= {"name": "head"}
    asked["spec"] |= {"type": "LoadBalancer"}
    with refused("was created and did not become ready: not ready in time: it has no address") as problem:
        client.create(SERVICE, asked)
    assert api.get("v1", "Service", "head", here) is not None
    # Therefore the engine keeps it in the state, as failed.
    assert "grpc-status-details-bin" in [datum.key for datum in problem.value.trailing_metadata()]
    asked["metadata"] |= {"name": "other", "annotations": {"pulumi.com/skipAwait": "true"}}
    assert client.create(SERVICE, asked)[0] == f"{here}/other"


def test_delete_waits_for_finalizers_and_reports_them(client: Client, api: Api, here: str) -> None:
    asked = settings(here, a="1")
    id_, _ = client.create(CONFIG_MAP, asked)
    api.patch("v1", "ConfigMap", "settings", here, {"metadata": {"finalizers": ["test.rdma-ray/held"]}})
    with refused("finalizers: test.rdma-ray/held"):
        client.delete(CONFIG_MAP, id_, asked, within_s=1)
    api.patch("v1", "ConfigMap", "settings", here, {"metadata": {"finalizers": None}})
    client.delete(CONFIG_MAP, id_, asked)
    assert api.get("v1", "ConfigMap", "settings", here) is None
    # A missing object is no error; neither is a missing kind.
    client.delete(CONFIG_MAP, id_, asked)
    client.delete("kubernetes:not.there/v1:Thing", "a", {})


def test_job_deletion_cascades_to_pods(client: Client, api: Api, here: str) -> None:
    """In the foreground, as the provider requests: the Job is deleted last, after the garbage collector has deleted its
    pods."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}], "nodeSelector": {"test": "nowhere"}}
    asked = {
        "metadata": {"name": "job", "namespace": here, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {"template": {"spec": pod}},
    }
    id_, _ = client.create(JOB, asked)
    api.until("the Job's pod", lambda: api.list("v1", "Pod", here) or None, 30)
    client.delete(JOB, id_, asked)
    # The program does not wait for it, and neither does its deletion.
    api.until("no Job", lambda: api.get("batch/v1", "Job", "job", here) is None, 30)
    assert api.list("v1", "Pod", here) == []


def test_faults_are_injected_at_depth_cluster(client: Client, api: Api, here: str) -> None:
    client.order(f"{CONFIG_MAP} create 500")
    with refused("500"):
        client.create(CONFIG_MAP, settings(here, a="1"))
    assert api.get("v1", "ConfigMap", "settings", here) is None
