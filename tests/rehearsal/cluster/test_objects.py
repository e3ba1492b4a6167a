"""Objects between program and API server: what is sent and shown, field ownership, readiness."""

from __future__ import annotations

import base64
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.catalog.pins import KUEUE_API, RAY_API
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.kubernetes.identity import VOLUME
from rehearsal.cluster import objects
from rehearsal.cluster.phases import failed, keeps, started
from rehearsal.cluster.provider import ClusterProvider
from rehearsal.cluster.readiness import NeverReadyError, unready
from rehearsal.cluster.timeline import status_words
from rehearsal.engine.kind import Json, RefusedError
from rehearsal.engine.state import State
from rehearsal.engine.values import Path as Keys
from tests.rehearsal.protocol import NO_PROCESS
from tools.kubernetes.api import Api

SECRET = "kubernetes:core/v1:Secret"


def test_manifest_has_identity_without_server_fields() -> None:
    inputs = {"metadata": {"name": "a", "uid": "1", "resourceVersion": "2", "labels": {"b": "c"}}, "spec": {"d": 1}}
    assert objects.manifest("kubernetes:ray.io/v1:RayCluster", inputs, "ray") == {
        "apiVersion": RAY_API,
        "kind": "RayCluster",
        "metadata": {"name": "a", "labels": {"b": "c"}, "namespace": "ray"},
        "spec": {"d": 1},
    }
    own = {"metadata": {"name": "a", "namespace": "its own"}}
    assert objects.manifest("kubernetes:core/v1:Pod", own, "default")["metadata"]["namespace"] == "its own"
    assert "namespace" not in objects.manifest("kubernetes:core/v1:Namespace", own, None)["metadata"]


def test_unset_fields_are_hidden() -> None:
    live = {"a": 2, "b": 3, "list": [{"x": 1, "y": 2}, {"x": 3}], "map": {"k": "v", "more": "w"}}
    assert objects.pruned(live, {"a": 1, "list": [{"x": 0}], "map": {"k": ""}, "gone": 1}) == {
        "a": 2,
        "list": [{"x": 1}],
        "map": {"k": "v"},
    }


def test_plain_text_of_a_secret_is_shown_in_its_data() -> None:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in {"a": "1", "b": "2", "c": "3"}.items()}
    live = {"data": data, "type": "Opaque"}
    asked = {"stringData": {"a": ""}, "data": {"b": ""}}
    assert objects.shown(SECRET, live, asked) == {"data": {"a": data["a"], "b": data["b"]}}


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("spec.replicas", ("spec", "replicas")),
        ("spec.workerGroupSpecs[0].replicas", ("spec", "workerGroupSpecs", 0, "replicas")),
        ('metadata.annotations["a.b/c"]', ("metadata", "annotations", "a.b/c")),
        ("spec.list[*].x", ("spec", "list", "*", "x")),
    ],
)
def test_property_paths_are_parsed(path: str, parts: Keys) -> None:
    assert objects.parsed(path) == parts


def test_ignored_path_includes_descendants() -> None:
    assert objects.ignored(("spec", "list", 3, "x", "y"), ["spec.list[*].x"])
    assert not objects.ignored(("spec", "list"), ["spec.list[*].x"])
    assert not objects.ignored(("spec", "other"), ["spec.list"])


def owned(manager: str, fields: Json, operation: str = "Apply") -> Json:
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}


def live_with(*entries: Json, **more: Any) -> Json:
    return {"metadata": {"name": "a", "managedFields": list(entries)}, **more}


def test_ignored_foreign_field_is_dropped_and_own_kept() -> None:
    body = {"spec": {"theirs": 1, "own": 1, "list": [{"x": 1}]}}
    spec = {"theirs": 5, "own": 6, "list": [{"x": 7}]}
    live = live_with(
        owned("ours", {"f:spec": {"f:own": {}}}), owned("other", {"f:spec": {"f:theirs": {}, "f:list": {}}}), spec=spec
    )
    sent = objects.without_ignored(body, live, ["spec.theirs", "spec.own", "spec.list[0].x", "spec.missing"], "ours")
    # The provider ignores a path through a list.
    assert sent == {"spec": {"own": 6, "list": [{"x": 1}]}}
    assert body["spec"]["own"] == 1, "what was asked for is not touched"


def test_first_update_takes_over_created_fields() -> None:
    created = owned(objects.CREATOR, {"f:spec": {"f:a": {}, "f:b": {}}}, "Update")
    status = {**owned("kubectl", {"f:status": {}}, "Update"), "subresource": "status"}
    other = owned("controller", {"f:spec": {"f:c": {}}}, "Update")
    entries = objects.taken_over(live_with(created, status, other), "ours")
    assert entries is not None
    assert entries[:2] == [status, other]
    assert entries[2] == owned("ours", {"f:spec": {"f:a": {}, "f:b": {}}})
    assert objects.taken_over(live_with(*entries), "ours") is None


def nothing(*_: object) -> list[Json]:
    return []


def condition(type_: str, status: str = "True", reason: str = "") -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": "because"}


def live_of(kind: str, spec: Json | None = None, generation: int = 1, **status: Any) -> Json:
    api_version, _, name = kind.rpartition("/")
    metadata = {"name": "a", "namespace": "b", "generation": generation}
    return {"apiVersion": api_version, "kind": name, "metadata": metadata, "spec": spec or {}, "status": status}


RAY_CLUSTER = live_of(f"{RAY_API}/RayCluster")
COUNTS = "desiredNumberScheduled currentNumberScheduled updatedNumberScheduled numberAvailable numberReady"


def counts(number: int) -> Json:
    return dict.fromkeys(COUNTS.split(), number)


@pytest.mark.parametrize(
    "live",
    [
        live_of("apps/v1/DaemonSet", observedGeneration=1, **counts(0)),
        live_of("apps/v1/DaemonSet", observedGeneration=1, **counts(3)),
        live_of("v1/Service"),
        live_of("v1/PersistentVolume", phase="Available"),
        live_of("v1/PersistentVolumeClaim", phase="Bound"),
        live_of("v1/PersistentVolumeClaim", {"storageClassName": "late"}, phase="Pending"),
        live_of("v1/Service", {"type": "ExternalName", "selector": {"a": "b"}}),
        live_of("v1/Service", {"clusterIP": "None", "selector": {"a": "b"}}),
        live_of(f"{RAY_API}/RayCluster", state="unready"),
    ],
)
def test_ready_objects_are_not_awaited(live: Json) -> None:
    late = {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    assert unready({}, live, lambda _api, kind, *_: [late] if kind == "StorageClass" else [], existed=False) is None


def endpoints(age_s: int, **subset: Any) -> Json:
    written = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": "a", "creationTimestamp": "2026-11-01T00:00:00Z", "managedFields": [{"time": written}]}
    return {"metadata": metadata, "subsets": [subset] if subset else []}


READY, PENDING = {"addresses": [{"ip": "10.0.0.1"}]}, {"notReadyAddresses": [{"ip": "10.0.0.2"}]}


@pytest.mark.parametrize(
    ("points", "existed", "why"),
    [
        ([], False, "have not been unchanged"),
        ([(2, {})], False, "have not been unchanged"),
        ([(2, READY)], False, "have not been unchanged"),
        ([(60, {})], False, None),
        ([(60, READY)], False, None),
        ([(60, READY | PENDING)], False, "pods that are not ready"),
        ([(2, {})], True, None),
        ([], True, None),
        ([(60, PENDING)], True, "pods that are not ready"),
    ],
)
def test_service_waits_for_its_endpoints_to_settle_not_for_a_pod(
    points: list[tuple[int, Json]], existed: bool, why: str | None
) -> None:
    live = live_of("v1/Service", {"selector": {"a": "b"}})
    other = endpoints(60, **PENDING) | {"metadata": {"name": "another"}}
    there = [other, *(endpoints(age_s, **subset) for age_s, subset in points)]
    said = unready({}, live, lambda _api, kind, *_: there if kind == "Endpoints" else [], existed=existed)
    assert said is None if why is None else why in str(said)


def test_fixed_waits_do_not_follow_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume is awaited for five minutes, with any timeout; other objects as long as the program wants."""
    clock = [0.0]
    monkeypatch.setattr(
        "rehearsal.cluster.provider.time",
        SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _s: clock.__setitem__(0, clock[0] + 1)),
    )
    live = live_of("v1/PersistentVolume", phase="Pending")
    server = SimpleNamespace(get=lambda *_: live, list=lambda *_: [], kind=lambda *_: SimpleNamespace(namespaced=False))
    provider = ClusterProvider(CLOUD, State(tmp_path / "clouds.sqlite"), NO_PROCESS, cast(Api, server))
    monkeypatch.setattr("rehearsal.cluster.provider.PATIENCE_S", 3600.0)
    with pytest.raises(RefusedError, match="not ready in time: its phase is Pending"):
        provider._ready(VOLUME, {}, live, 1800.0, existed=False)
    assert 300 <= clock[0] <= 302


@pytest.mark.parametrize(
    ("config", "reached"),
    [({"context": "company"}, True), ({}, False), ({"context": "company", "kubeconfig": "{}"}, False)],
)
def test_users_cluster_is_there_without_a_simulated_cloud(config: Json, reached: bool, tmp_path: Path) -> None:
    provider = ClusterProvider(CLOUD, State(tmp_path / "clouds.sqlite"), NO_PROCESS, cast(Api, None))
    provider._config = config
    assert provider._reachable() is reached
    with nullcontext() if reached else pytest.raises(RefusedError, match="unreachable"):
        provider._reached()


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (live_of("apps/v1/DaemonSet", observedGeneration=1), "not seen"),
        (live_of("apps/v1/DaemonSet", observedGeneration=1, desiredNumberScheduled=2), "currentNumberScheduled is 0"),
        (
            live_of("apps/v1/DaemonSet", observedGeneration=1, **counts(2) | {"updatedNumberScheduled": 0}),
            "updatedNumberScheduled is 0 of 2",
        ),
        (live_of("v1/Service", {"type": "LoadBalancer", "selector": {"a": "b"}}), "no address of a load balancer"),
        (live_of("v1/PersistentVolumeClaim", phase="Pending"), "Pending"),
    ],
)
def test_unready_object_reports_reason(live: Json, why: str) -> None:
    assert why in str(unready({}, live, nothing, existed=False))
    skipped = {"metadata": {"annotations": {"pulumi.com/skipAwait": "true"}}}
    assert unready(skipped, live, nothing, existed=False) is None


@pytest.mark.parametrize(
    ("live", "asked", "why"),
    [
        (live_of("apps/v1/Deployment"), {}, "apps/v1/Deployment: the rehearsal does not know"),
        (live_of("networking.k8s.io/v1/Ingress"), {}, "networking.k8s.io/v1/Ingress: the rehearsal does not know"),
        (live_of("v1/ResourceQuota"), {}, "v1/ResourceQuota: the rehearsal does not know"),
        (live_of("v1/Secret"), {"pulumi.com/waitFor": "condition=Ready"}, "use skipAwait"),
    ],
)
def test_unknown_objects_are_not_awaited(live: Json, asked: Json, why: str) -> None:
    with pytest.raises(NeverReadyError, match=why):
        unready({"metadata": {"annotations": asked}}, live, nothing, existed=False)


@pytest.mark.parametrize(
    ("live", "words"),
    [
        (live_of("v1/Pod"), "waits for a node"),
        (live_of("v1/Pod", {"schedulingGates": [{"name": "x"}]}), "waits for its gates"),
        (live_of("v1/Pod", {"nodeName": "n"}, phase="Running"), "is Running on n"),
        (RAY_CLUSTER | {"status": {"state": "ready", "desiredWorkerReplicas": 2}}, "is ready, 0 of 2 workers"),
        (live_of(f"{RAY_API}/RayJob", jobDeploymentStatus="Running", jobStatus="RUNNING"), "is Running, RUNNING"),
        (live_of(f"{KUEUE_API}/Workload", conditions=[condition("Admitted"), condition("Suspended")]), "is Admitted"),
    ],
)
def test_timeline_summarizes_status(live: Json, words: str) -> None:
    assert status_words(live) == words


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (live_of(f"{RAY_API}/RayCluster", {"enableInTreeAutoscaling": True}), ""),
        (live_of(f"{RAY_API}/RayCluster"), "keeps its nodes until it is deleted"),
        (live_of(f"{RAY_API}/RayJob"), "keeps its nodes after its end"),
        (
            live_of(f"{RAY_API}/RayJob", {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 300}),
            "keeps its nodes for 300 s after its end",
        ),
        (live_of(f"{RAY_API}/RayJob", {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 0}), ""),
        (live_of("batch/v1/Job"), "keeps its nodes until its end"),
        (live_of("batch/v1/Job", conditions=[condition("Complete")]), ""),
    ],
)
def test_workload_that_keeps_nodes_is_reported(live: Json, why: str) -> None:
    assert keeps(live) == why


@pytest.mark.parametrize(
    ("live", "runs", "trouble"),
    [
        (live_of(f"{RAY_API}/RayCluster"), False, ""),
        (live_of(f"{RAY_API}/RayCluster", state="ready"), True, ""),
        (live_of(f"{RAY_API}/RayCluster", state="failed", reason="no quota"), False, "no quota"),
        (live_of(f"{RAY_API}/RayJob", jobDeploymentStatus="Suspended"), False, ""),
        (live_of(f"{RAY_API}/RayJob", jobDeploymentStatus="Complete"), True, ""),
        (live_of(f"{RAY_API}/RayJob", jobDeploymentStatus="Failed", message="deadline"), False, "deadline"),
        (live_of("batch/v1/Job", active=2), False, ""),
        (live_of("batch/v1/Job", active=2, ready=2), True, ""),
        (live_of("batch/v1/Job", conditions=[condition("Failed")]), False, "Failed condition"),
    ],
)
def test_started_workloads_are_distinguished(live: Json, runs: bool, trouble: str) -> None:
    assert started(live) is runs
    assert trouble in failed(live)
    assert bool(trouble) == bool(failed(live))
