"""The simulated Kueue: flavors, waits and drift; and quantities in Go's canonical form."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rehearsal.clouds.kind import Json, value_at
from rehearsal.clouds.kubernetes.admission import PodSet, Queue, assign, pod_sets
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.kubernetes.identity import RELEASE
from rehearsal.clouds.kubernetes.kueue_shapes import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR
from rehearsal.clouds.kubernetes.quantities import canonical, rewritten
from rehearsal.clouds.kubernetes.queue_drift import admitted
from rehearsal.clouds.kubernetes.queues import QUEUE
from rehearsal.clouds.state import State, View
from rehearsal.clouds.values import UNKNOWN, as_asked, merged
from tests.rehearsal.kubernetes_objects import JOB, RAY_CLUSTER, RAY_JOB, RIGHT, call, furnish, with_
from tests.rehearsal.kubernetes_queues import POOL, RIGHT_QUEUES, quotas

WORKERS = "spec/workerGroupSpecs/0"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    """The cloud state of the valid objects, with the queue."""
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        furnish(view)
        view.put(CLUSTER_QUEUE, "queue", RIGHT_QUEUES[CLUSTER_QUEUE])
        view.put(LOCAL_QUEUE, "ray/lq", RIGHT_QUEUES[LOCAL_QUEUE])
        yield view


def queued_cluster(workers: int = 2) -> Json:
    """Return a RayCluster of fixed size with the queue's label."""
    cluster = with_(RIGHT[RAY_CLUSTER], "metadata/labels", {QUEUE: "lq"})
    cluster = with_(with_(cluster, "spec/enableInTreeAutoscaling", False), f"{WORKERS}/replicas", workers)
    selected: Json = with_(cluster, f"{WORKERS}/template/spec/nodeSelector", {"a": "b"})
    return selected


@pytest.mark.parametrize(
    ("written", "back"),
    [
        ("2048Gi", "2Ti"),
        ("1000", "1k"),
        ("32", "32"),
        (4, "4"),
        ("1500m", "1500m"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("0Gi", "0"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        (UNKNOWN, UNKNOWN),
        ("lots", "lots"),
    ],
)
def test_quantities_are_canonical(written: Any, back: Any) -> None:
    assert canonical(written) == back


def test_only_quantities_are_canonicalized() -> None:
    before = {"limits": {"cpu": 4}, "sizeLimit": "1024Mi", "nominalQuota": 1000, "command": ["1000"], "limit": "1000"}
    assert rewritten([before]) == [
        {"limits": {"cpu": "4"}, "sizeLimit": "1Gi", "nominalQuota": "1k", "command": ["1000"], "limit": "1000"}
    ]


def test_pod_sets_match_kueue() -> None:
    job = with_(RIGHT[RAY_JOB], "spec/rayClusterSpec/workerGroupSpecs/0/replicas", 3)
    head, workers = pod_sets("RayJob", job)
    # The autoscaler's container counts with the head, though no template has it.
    assert (head.name, head.count, head.asks()["cpu"]) == ("head", 1, Decimal("0.5"))
    assert (workers.name, workers.count, workers.asks()["nvidia.com/gpu"]) == ("gpu", 3, Decimal(8))
    submitter = pod_sets("RayJob", with_(job, "spec/submissionMode", "K8sJobMode"))[2]
    assert (submitter.name, submitter.count) == ("submitter", 1)
    assert [(one.name, one.count) for one in pod_sets("Job", RIGHT[JOB])] == [("main", 2)]
    assert pod_sets("DaemonSet", {}) == []


def test_init_containers_and_sidecars_count_towards_requests() -> None:
    def asks(cpu: str, **more: Any) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [asks("2"), asks("1")], "initContainers": [asks("8"), asks("1", restartPolicy="Always")]}
    assert PodSet("a", 1, "", {"spec": spec}).asks() == {"cpu": 8}
    spec["initContainers"] = [asks("1", restartPolicy="Always")]
    assert PodSet("a", 1, "", {"spec": spec}).asks() == {"cpu": 4}


@pytest.mark.parametrize(
    ("spec", "flavor", "against"),
    [
        ({}, "second", []),
        ({"nodeSelector": {POOL: "second"}}, "second", []),
        ({"nodeSelector": {"else": "where"}}, "second", []),
        ({"nodeSelector": {POOL: "third"}}, "", ["second doesn't match node affinity"]),
        ({"tolerations": []}, "", ["untolerated taint gpu in flavor second"]),
        ({"tolerations": [{"key": "gpu", "value": "other"}]}, "", ["untolerated taint gpu"]),
        ({"tolerations": [{"operator": "Exists"}]}, "second", []),
        ({"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}, "", ["does not support Topology"]),
        ({"requests": {"nvidia.com/gpu": 9}}, "", ["insufficient quota for nvidia.com/gpu in flavor second"]),
        ({"requests": {"nvidia.com/gpu": 1, "rdma/nic": 1}}, "second", ["rdma/nic unavailable in ClusterQueue"]),
    ],
)
def test_pod_set_gets_first_fitting_flavor(spec: Json, flavor: str, against: list[str]) -> None:
    asked = {"containers": [{"resources": {"limits": spec.pop("requests", {"nvidia.com/gpu": 2})}}]}
    template = {
        "metadata": {"annotations": spec.pop("annotations", {})},
        "spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}], **asked, **spec},
    }
    flavors: dict[str, Json] = {
        "first": {"nodeLabels": {POOL: "first"}},
        "second": {"nodeLabels": {POOL: "second"}, "nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]},
    }
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [quotas("first", gpu=0), quotas("second", gpu=16)]}
    chosen, why = assign([PodSet("a", 2, "", template)], Queue({"resourceGroups": [group]}, flavors, {}))
    assert chosen == [flavor] or (not flavor and chosen in ([], [""]))
    assert len(why) == len(against)
    assert all(words in said for words, said in zip(against, why, strict=True))


def test_topology_request_needs_flavor_with_topology() -> None:
    flavors: dict[str, Json] = {"plain": {}, "racks": {"topologyName": "racks"}}
    group = {"coveredResources": ["cpu"], "flavors": [quotas("racks", cpu=9), quotas("plain", cpu=9)]}
    queue = Queue({"resourceGroups": [group]}, flavors, {"racks": ["rack"]})
    container: Json = {"spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}]}}
    wishes: Json = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "rack"}}, **container}
    assert assign([PodSet("a", 1, "", container), PodSet("b", 1, "", wishes)], queue) == (["plain", "racks"], [])
    wishes["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "row"}
    assert "does not contain the requested level" in assign([PodSet("b", 1, "", wishes)], queue)[1][0]


def test_pod_sets_share_a_quota() -> None:
    group = {"coveredResources": ["cpu"], "flavors": [quotas("one", cpu=3)]}
    two = [PodSet(name, 1, "", {"spec": {"containers": [{"resources": {"limits": {"cpu": 2}}}]}}) for name in "ab"]
    (why,) = assign(two, Queue({"resourceGroups": [group]}, {"one": {}}, {}))[1]
    assert "b: insufficient quota for cpu in flavor one, previously considered podsets requests (2)" in why


@pytest.mark.parametrize("type_", [JOB, RAY_CLUSTER, RAY_JOB])
def test_new_queued_job_is_suspended(state: View, type_: str) -> None:
    kind = CLOUD.kind(type_)
    assert kind is not None
    labelled = with_(RIGHT[type_], "metadata/labels", {QUEUE: "lq"})
    assert kind.compute(call(state, type_, labelled))["spec"]["suspend"] is True
    # Kueue suspends new jobs with its label.
    assert not kind.compute(call(state, type_, labelled, "update", labelled))["spec"].get("suspend")
    assert not kind.compute(call(state, type_, RIGHT[type_]))["spec"].get("suspend")
    state.remove(RELEASE, "kueue-system/kueue")
    assert not kind.compute(call(state, type_, labelled))["spec"].get("suspend")


def test_admitted_job_gets_flavor_node_selector(state: View) -> None:
    changes = admitted("RayCluster", queued_cluster(), state)
    assert changes["spec"]["suspend"] is False
    workers = value_at(changes, "spec.workerGroupSpecs.0.template")
    assert workers["spec"]["nodeSelector"] == {"a": "b", POOL: "queued"}
    assert workers["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "gpu"
    assert "autoscaling.x-k8s.io/consume-provisioning-request" in workers["metadata"]["annotations"]
    head = value_at(changes, "spec.headGroupSpec.template")
    assert "autoscaling.x-k8s.io/consume-provisioning-request" not in head["metadata"]["annotations"]


@pytest.mark.parametrize("wrong", ["too many", "no queue", "no cluster queue"])
def test_inadmissible_job_waits(state: View, wrong: str) -> None:
    cluster = queued_cluster(workers=3 if wrong == "too many" else 2)
    if wrong == "no queue":
        cluster = with_(cluster, "metadata/labels", {QUEUE: "other"})
    if wrong == "no cluster queue":
        state.remove(CLUSTER_QUEUE, "queue")
    assert admitted("RayCluster", cluster, state)["spec"]["suspend"] is True
    kind = CLOUD.kind(RAY_CLUSTER)
    assert kind is not None
    assert kind.drift(cluster, state)["status"]["state"] == "suspended"


def test_kueue_changes_show_in_set_fields(state: View) -> None:
    def seen(asked: Json) -> Json:
        kind = CLOUD.kind(RAY_CLUSTER)
        assert kind is not None
        found: Json = as_asked(asked, merged(asked, kind.drift(asked, state)), kind.maps)
        return found

    asked = rewritten(queued_cluster())
    assert seen(asked) == asked
    assert seen(with_(asked, "spec/suspend", True))["spec"]["suspend"] is False
    memory = f"{WORKERS}/template/spec/containers/0/resources/limits/memory"
    assert seen(with_(asked, memory, "16384Mi")) == with_(asked, memory, "16Gi")
    # Tolerations of the flavor are added to a list that the program owns.
    flavor = state.get(RESOURCE_FLAVOR, "queued") or {}
    tolerations = [{"key": "queued", "operator": "Exists"}]
    state.put(
        "kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor", "queued", with_(flavor, "spec/tolerations", tolerations)
    )
    assert seen(asked) != asked
