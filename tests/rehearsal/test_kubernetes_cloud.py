"""The simulated Kubernetes API: shapes of objects, the connection, and creation, deletion and drift."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2

from rehearsal.clouds.kind import Json
from rehearsal.clouds.kubernetes import charts, helm, quantities
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.kubernetes.connection import cluster, reaches
from rehearsal.clouds.kubernetes.custom_shapes import custom
from rehearsal.clouds.kubernetes.identity import DEFINITION, NAMESPACE, RELEASE, api
from rehearsal.clouds.kubernetes.kueue_shapes import CLUSTER_QUEUE
from rehearsal.clouds.kubernetes.sdk_shapes import built_in
from rehearsal.clouds.kubernetes.shapes import ANY, TEXT, Shape, listed, misfits, thing
from rehearsal.clouds.state import State, View
from rehearsal.clouds.values import as_asked, merged
from tests.rehearsal.kubernetes_objects import (
    CLUSTER_ID,
    COMPUTE_CLASS,
    CONFIG,
    DAEMON_SET,
    HOST,
    JOB,
    NETWORK,
    RAY_CLUSTER,
    RIGHT,
    SECRET,
    call,
    first_refusal,
    furnish,
    kubeconfig,
    named,
    with_,
)
from tests.rehearsal.protocol import Client, served


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    """The cloud state of the valid objects."""
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        furnish(view)
        yield view


WORKERS = "spec/workerGroupSpecs/0"


# Shapes


def test_shapes_of_built_in_kinds_come_from_the_sdk() -> None:
    shape = built_in(api(DAEMON_SET))
    assert shape is not None
    assert shape.fields["spec"].required == {"selector", "template"}
    container = shape.fields["spec"].fields["template"].fields["spec"].fields["containers"].item
    assert container is not None
    assert container.fields["livenessProbe"].fields["httpGet"].fields["port"].sort == "integer or text"


@pytest.mark.parametrize(
    "token", [NETWORK, RAY_CLUSTER, "kubernetes:core/v1:Container", "kubernetes:core/v9:Pod", "kubernetes:nowhere/v1:X"]
)
def test_custom_kinds_have_no_built_in_shape(token: str) -> None:
    assert built_in(api(token)) is None


@pytest.mark.parametrize("token", [token for token in RIGHT if built_in(api(token)) is None and token != RELEASE])
def test_custom_kinds_have_dated_sources(token: str) -> None:
    table = custom(api(token))
    assert table is not None
    assert re.search(r"20\d\d-\d\d", table[1])


def test_mismatches_are_reported_with_path() -> None:
    shape = thing("a", a=TEXT, b=listed(thing(c=Shape("integer"))), d=Shape("map", item=TEXT), e=ANY, f=Shape("number"))
    value = {"b": [{"c": 1}, {"c": True, "x": 1}], "d": {"k": 2}, "e": object(), "f": 1.5, "g": None}
    assert {(each.path, each.how) for each in misfits(shape, value)} == {
        ("a", "missing"),
        ("b[1].c", "type"),
        ("b[1].x", "unknown"),
        ("d.k", "type"),
        ("g", "unknown"),
    }


# Connection


@pytest.mark.parametrize("host", [HOST, f"{HOST}:443", "gke-1.us-central1.gke.goog"])
def test_kubeconfig_selects_cluster_by_endpoint(state: View, host: str) -> None:
    found = cluster({"kubeconfig": kubeconfig(host)}, state)
    assert found is not None
    assert found[0] == CLUSTER_ID
    assert reaches({"kubeconfig": kubeconfig(host)}, state) is None


@pytest.mark.parametrize(
    "config", [{}, {"kubeconfig": "{"}, {"kubeconfig": "[]"}, {"kubeconfig": kubeconfig("10.9.9.9")}]
)
def test_provider_without_cluster_is_unreachable(state: View, config: Json) -> None:
    refusal = reaches(config, state)
    assert refusal is not None
    assert "configured Kubernetes cluster is unreachable" in refusal.message


# Creation, deletion, drift


def test_ids_match_real_provider(state: View) -> None:
    assert call(state, SECRET, named("a", None)).id == "default/a"
    assert call(state, SECRET, named("a", None), config={**CONFIG, "namespace": "n"}).id == "n/a"
    assert call(state, NETWORK, named("a", None)).id == "a"
    assert call(state, RELEASE, RIGHT[RELEASE]).id == "kuberay-system/kuberay-operator"


def test_release_creates_and_keeps_namespace_and_crds(state: View) -> None:
    state.remove(DEFINITION, "rayclusters.ray.io")
    request = call(state, RELEASE, RIGHT[RELEASE])
    live = helm.installed(request)
    assert live["status"] == {
        "status": "deployed",
        "name": "kuberay-operator",
        "namespace": "kuberay-system",
        "chart": "kuberay-operator",
        "version": "1.6.2",
        "appVersion": "v1.6.2",
        "revision": 1,
    }
    assert state.get(NAMESPACE, "kuberay-system") is not None
    definition = state.get(DEFINITION, "rayclusters.ray.io")
    assert definition is not None
    assert not helm.goes_too(request, DEFINITION, definition)
    assert not helm.goes_too(request, RAY_CLUSTER, RIGHT[RAY_CLUSTER])
    again = helm.installed(call(state, RELEASE, RIGHT[RELEASE], "update", live))
    assert again["status"]["revision"] == 2


def test_kueue_deletion_cascades_to_crds_and_objects(state: View) -> None:
    inputs = {
        "name": "kueue",
        "namespace": "kueue-system",
        "createNamespace": True,
        "chart": "oci://registry.k8s.io/kueue/charts/kueue",
        "version": "0.19.2",
    }
    request = call(state, RELEASE, inputs)
    assert first_refusal(request) is None
    state.remove(DEFINITION, "clusterqueues.kueue.x-k8s.io")
    helm.installed(request)
    definition = state.get(DEFINITION, "clusterqueues.kueue.x-k8s.io")
    assert definition is not None
    assert helm.goes_too(request, DEFINITION, definition)
    assert helm.goes_too(request, CLUSTER_QUEUE, RIGHT[CLUSTER_QUEUE])
    assert not helm.goes_too(request, RAY_CLUSTER, RIGHT[RAY_CLUSTER])


def test_charts_have_dated_sources() -> None:
    assert all(re.search(r"20\d\d-\d\d", chart.source) for chart in charts.CHARTS)


def test_namespace_deletion_cascades(state: View) -> None:
    kind = CLOUD.kind(NAMESPACE)
    assert kind is not None
    request = call(state, NAMESPACE, named("ray", None), "delete")
    assert kind.cascade(request, SECRET, named("a", "ray"))
    assert kind.cascade(request, RELEASE, {"namespace": "ray"})
    assert not kind.cascade(request, SECRET, named("a", "other"))
    assert not kind.cascade(request, NETWORK, named("a", None))
    assert not kind.cascade(request, "gcp:storage/bucket:Bucket", {"namespace": "ray"})


def test_server_metadata_survives_updates(state: View) -> None:
    kind = CLOUD.kind(RAY_CLUSTER)
    assert kind is not None
    inputs = RIGHT[RAY_CLUSTER]
    first = {**inputs, **kind.compute(call(state, RAY_CLUSTER, inputs))}
    assert first["metadata"]["generation"] == 1
    assert first["spec"]["workerGroupSpecs"][0]["replicas"] == 0
    same = kind.compute(call(state, RAY_CLUSTER, first, "update", first))
    assert same["metadata"]["generation"] == 1
    assert same["metadata"]["uid"] == first["metadata"]["uid"]
    changed = with_(first, "spec/rayVersion", "2.61.0")
    later = kind.compute(call(state, RAY_CLUSTER, changed, "update", first))
    assert later["metadata"]["generation"] == 2
    assert int(later["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


def test_secret_is_encoded_and_namespace_labeled(state: View) -> None:
    secret, namespace = CLOUD.kind(SECRET), CLOUD.kind(NAMESPACE)
    assert secret is not None
    assert namespace is not None
    assert secret.compute(call(state, SECRET, RIGHT[SECRET]))["data"] == {"auth_token": "eA==", "more": "eA=="}
    labels = namespace.compute(call(state, NAMESPACE, RIGHT[NAMESPACE]))["metadata"]["labels"]
    assert labels == {"kubernetes.io/metadata.name": "ray-2"}


@pytest.mark.parametrize("type_", [type_ for type_ in RIGHT if type_ != RELEASE])
def test_controller_changes_show_only_in_set_fields(state: View, type_: str) -> None:
    kind = CLOUD.kind(type_)
    assert kind is not None
    inputs = RIGHT[type_]
    live = {**inputs, **kind.compute(call(state, type_, inputs))}
    drifted = merged(live, kind.drift(live, state))
    assert as_asked(inputs, drifted, kind.maps) == inputs


def test_replicas_of_autoscaled_group_drift(state: View) -> None:
    kind = CLOUD.kind(RAY_CLUSTER)
    assert kind is not None
    inputs = with_(RIGHT[RAY_CLUSTER], f"{WORKERS}/replicas", 0)
    live = {**inputs, **kind.compute(call(state, RAY_CLUSTER, inputs))}
    drifted = merged(live, kind.drift(live, state))
    assert as_asked(inputs, drifted, kind.maps)["spec"]["workerGroupSpecs"][0]["replicas"] == 1
    fixed = with_(live, "spec/enableInTreeAutoscaling", False)
    assert merged(fixed, kind.drift(fixed, state))["spec"]["workerGroupSpecs"][0]["replicas"] == 0


@pytest.mark.parametrize(
    ("quantity", "number"), [("500m", "0.5"), ("16Gi", str(16 * 2**30)), ("1e3", "1000"), (8, "8"), ("2k", "2000")]
)
def test_quantities_are_numbers(quantity: Any, number: str) -> None:
    assert str(quantities.amount(quantity).normalize()) == str(quantities.amount(number).normalize())


def test_name_in_use_has_api_server_message(state: View) -> None:
    del state
    kind, release = CLOUD.kind(DAEMON_SET), CLOUD.kind(RELEASE)
    assert kind is not None
    assert release is not None
    assert kind.conflict(DAEMON_SET, "kube-system/x").message == 'daemonsets.apps "x" already exists'
    assert "still in use" in release.conflict(RELEASE, "a/b").message


# Over the protocol


@pytest.mark.parametrize("type_", [type_ for type_ in RIGHT if type_ != COMPUTE_CLASS])
def test_valid_object_create_update_delete(tmp_path: Path, type_: str) -> None:
    with served(CLOUD, tmp_path / "clouds.sqlite", CONFIG) as client:
        with client.state.transaction() as view:
            furnish(view)
        asked = RIGHT[type_]
        id_, _ = client.create(type_, asked)
        _drift(client, type_, id_)
        found = client.read(type_, id_, asked)
        assert found is not None
        assert found[0] == asked
        later = with_(asked, "values/replicas" if type_ == RELEASE else "metadata/labels/changed", "yes")
        live = client.update(type_, id_, asked, later)
        assert live["__cluster"] == CLUSTER_ID
        again = client.read(type_, id_, later)
        assert again is not None
        assert again[0] == later
        assert client.diff(type_, again[0], later).changes == provider_pb2.DiffResponse.DIFF_NONE
        client.delete(type_, id_, later)
        assert client.read(type_, id_, later) is None
        assert client.outcomes() == ["done"] * 3


def test_immutable_update_is_refused_or_replaces(tmp_path: Path) -> None:
    with served(CLOUD, tmp_path / "clouds.sqlite", CONFIG) as client:
        with client.state.transaction() as view:
            furnish(view)
        asked = RIGHT[JOB]
        client.create(JOB, asked)
        later = with_(asked, "spec/template/spec/priority", 1)
        assert list(client.diff(JOB, asked, later).replaces) == ["spec"]
        with pytest.raises(grpc.RpcError, match="field is immutable"):
            client.update(JOB, "ray/job", asked, later)
        secret = RIGHT[SECRET]
        assert client.diff(SECRET, secret, with_(secret, "stringData/auth_token", "y")).deleteBeforeReplace
        scripts = {"metadata": {"name": "scripts", "namespace": "ray"}, "data": {"start.py": "x"}}
        differs = client.diff("kubernetes:core/v1:ConfigMap", scripts, with_(scripts, "data", {"start.py": "y"}))
        assert (list(differs.replaces), differs.deleteBeforeReplace) == (["data"], True)


def _drift(client: Client, type_: str, id_: str) -> None:
    """Apply the drift of one object."""
    kind = CLOUD.kind(type_)
    assert kind is not None
    with client.state.transaction() as view:
        live = view.get(type_, id_)
        assert live is not None
        view.put(type_, id_, merged(live, kind.drift(live, view)))
