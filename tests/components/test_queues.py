"""Workloads and their queue under Pulumi's mocks: resources, labels and order in each mode."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml

from infra.catalog.pins import KUEUE_TAG
from infra.kubernetes import queue_objects as objects
from infra.outputs import Outputs
from tests.components.cloud_mocks import Deployed, Made, deployed
from tests.unit.stacks import EKS, GKE, changed

ENTRYPOINT = {"ray.entrypoint": "python /app/train.py"}
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "cluster": ("kubernetes:ray.io/v1:RayCluster", {}),
    "job": ("kubernetes:ray.io/v1:RayJob", {"ray.mode": "job", **ENTRYPOINT}),
    "indexed-job": ("kubernetes:batch/v1:Job", {"ray.mode": "indexed-job", **ENTRYPOINT}),
}
STACKS: dict[str, dict[str, Any]] = {"gke": GKE, "eks": EKS}
QUEUED = {"nodes.capacity": "flex-start-queued", "nodes.max": 4, "nodes.maxRunHours": 24}
KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:"
RELEASE = "kubernetes:helm.sh/v3:Release"


@cache
def up(cloud: str, mode: str, queue: str = "kueue", more: tuple[tuple[str, Any], ...] = ()) -> Deployed:
    return deployed(changed(STACKS[cloud], {**MODES[mode][1], "queue": queue, **dict(more)}))


def all_of(stack: Deployed, type_: str) -> dict[str, Made]:
    return {made.inputs["metadata"]["name"]: made for (kind, _), made in stack.made.items() if kind == type_}


def the(stack: Deployed, type_: str) -> Made:
    (made,) = all_of(stack, type_).values()
    return made


def release(stack: Deployed, name: str) -> Made:
    return stack.made[RELEASE, name]


def waits(made: Made) -> set[str]:
    """Return the types and names of what a resource depends on."""
    return {urn.rpartition("$")[2] if "$" in urn else "::".join(urn.split("::")[2:]) for urn in made.waits}


@pytest.mark.parametrize("cloud", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_workload_starts_suspended_in_its_queue(cloud: str, mode: str) -> None:
    stack = up(cloud, mode)
    workload = the(stack, MODES[mode][0])
    assert workload.inputs["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpu"}
    assert workload.inputs["spec"]["suspend"] is True
    assert not any(key.startswith("provreq") for key in workload.inputs["metadata"]["annotations"])
    assert f"{KUEUE}LocalQueue::ray-queue" in waits(workload)
    assert Outputs.model_validate(stack.outputs).queue == objects.LOCAL_QUEUE


@pytest.mark.parametrize("cloud", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_no_queue_resources_without_a_queue(cloud: str, mode: str) -> None:
    stack = up(cloud, mode, "none")
    workload = the(stack, MODES[mode][0])
    assert "labels" not in workload.inputs["metadata"]
    assert "suspend" not in workload.inputs["spec"]
    assert not [kind for kind, _ in stack.made if kind.startswith(KUEUE)]
    assert (RELEASE, "kueue") not in stack.made
    assert Outputs.model_validate(stack.outputs).queue is None


@pytest.mark.parametrize("cloud", STACKS)
@pytest.mark.parametrize("mode", MODES)
def test_workload_depends_on_queues_and_queues_on_controllers(cloud: str, mode: str) -> None:
    """Deletion runs in reverse order: Kueue removes its finalizers while it still runs."""
    stack = up(cloud, mode)
    for flavor in all_of(stack, f"{KUEUE}ResourceFlavor").values():
        assert f"{RELEASE}::kueue" in waits(flavor)
    flavors = {f"{KUEUE}ResourceFlavor::queue-flavor-{name}" for name in ("system", "gpu")}
    assert waits(the(stack, f"{KUEUE}ClusterQueue")) >= flavors
    local = the(stack, f"{KUEUE}LocalQueue")
    assert f"{KUEUE}ClusterQueue::queue-cluster-queue" in waits(local)
    assert local.inputs["metadata"]["namespace"] == "ray"
    operator = (RELEASE, "kuberay") in stack.made
    assert operator == (mode != "indexed-job")
    # Kueue's webhook answers for Ray's kinds only once their CRDs exist.
    assert (f"{RELEASE}::kuberay" in waits(release(stack, "kueue"))) == operator


@pytest.mark.parametrize(
    ("mode", "queue", "replacing"),
    [
        ("cluster", "none", {"metadata.labels"}),
        ("cluster", "kueue", {"metadata.labels", "spec"}),
        ("job", "none", {"metadata.labels", "spec"}),
        ("job", "kueue", {"metadata.labels", "spec"}),
        # The provider knows the immutable fields of a Job's spec.
        ("indexed-job", "kueue", {"metadata.labels"}),
    ],
)
def test_immutable_fields_replace_the_workload_and_suspend_is_ignored(
    mode: str, queue: str, replacing: set[str]
) -> None:
    workload = the(up("gke", mode, queue), MODES[mode][0])
    assert workload.replacing == replacing
    assert ("spec.suspend" in workload.ignored) == (queue == "kueue")
    autoscaled = any(path.endswith(".replicas") for path in workload.ignored)
    assert autoscaled == (mode == "cluster" and queue == "none")


def test_quota_is_the_capacity_of_the_pool() -> None:
    queue = the(up("gke", "cluster", "kueue", (("nodes.max", 4),)), f"{KUEUE}ClusterQueue").inputs["spec"]
    (group,) = queue["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"]
    quotas = {
        flavor["name"]: {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
        for flavor in group["flavors"]
    }
    assert quotas == {
        "system": {"cpu": "12", "memory": "48Gi", "nvidia.com/gpu": "0", "ephemeral-storage": "0"},
        "gpu": {"cpu": "880", "memory": "11200Gi", "nvidia.com/gpu": "32", "ephemeral-storage": "4000Gi"},
    }
    assert "admissionChecksStrategy" not in queue


@pytest.mark.parametrize(
    ("cloud", "changes", "resource", "amount", "classes"),
    [
        ("eks", {}, "vpc.amazonaws.com/efa", "32", None),
        ("eks", {"fabric": "efa-dranet", "nodes.min": 1}, "rdma-nics", "32", ["efa.networking.k8s.aws"]),
        ("gke", {"fabric": "dranet"}, "rdma-nics", "16", ["dranet"]),
        ("gke", {"fabric": "managed-dranet"}, "rdma-nics", "16", ["mrdma.google.com"]),
    ],
)
def test_quota_includes_nics_of_every_fabric(
    cloud: str, changes: dict[str, Any], resource: str, amount: str, classes: list[str] | None
) -> None:
    """Kueue admits no request without a quota, and no claim of an unknown class."""
    stack = up(cloud, "cluster", "kueue", tuple(changes.items()))
    (group,) = the(stack, f"{KUEUE}ClusterQueue").inputs["spec"]["resourceGroups"]
    gpu = next(flavor for flavor in group["flavors"] if flavor["name"] == "gpu")
    assert {"name": resource, "nominalQuota": amount} in gpu["resources"]
    config = yaml.safe_load(release(stack, "kueue").inputs["values"]["managerConfig"]["controllerManagerConfigYaml"])
    mapped = config.get("resources", {}).get("deviceClassMappings")
    assert mapped == ([{"name": resource, "deviceClassNames": classes}] if classes else None)


@pytest.mark.parametrize("mode", MODES)
def test_queued_capacity_has_an_admission_check(mode: str) -> None:
    stack = up("gke", mode, "kueue", tuple(QUEUED.items()))
    workload = the(stack, MODES[mode][0]).inputs
    max_run = workload["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
    assert max_run == str(24 * 3600)
    pool = stack.made["gcp:container/nodePool:NodePool", "pool-gpu"].inputs
    assert pool["queuedProvisioning"] == {"enabled": True}
    assert pool["autoscaling"] == {"locationPolicy": "ANY", "totalMaxNodeCount": 4, "totalMinNodeCount": 0}
    assert pool["management"]["autoRepair"] is False
    assert pool["nodeConfig"]["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert pool["nodeConfig"]["maxRunDuration"] == "86400s"
    assert "placementPolicy" not in pool
    check, config = the(stack, f"{KUEUE}AdmissionCheck"), the(stack, f"{KUEUE}ProvisioningRequestConfig")
    assert check.inputs["spec"]["parameters"]["name"] == config.inputs["metadata"]["name"]
    assert f"{KUEUE}ProvisioningRequestConfig::queue-provisioning" in waits(check)
    queue = the(stack, f"{KUEUE}ClusterQueue")
    assert f"{KUEUE}AdmissionCheck::queue-check" in waits(queue)
    assert queue.inputs["spec"]["admissionChecksStrategy"] == {
        "admissionChecks": [{"name": "dws", "onFlavors": ["gpu"]}]
    }


def test_reservation_is_tried_before_queued_capacity() -> None:
    more = {"nodes.capacity": "reservation", "nodes.reservation": "ours", "nodes.fallback": "flex-start-queued"}
    stack = up("gke", "job", "kueue", tuple(more.items()))
    spec = the(stack, f"{KUEUE}ClusterQueue").inputs["spec"]
    assert [flavor["name"] for flavor in spec["resourceGroups"][0]["flavors"]] == ["system", "reserved", "queued"]
    assert spec["admissionChecksStrategy"]["admissionChecks"] == [{"name": "dws", "onFlavors": ["queued"]}]
    flavors = all_of(stack, f"{KUEUE}ResourceFlavor")
    labels = {
        name: made.inputs["spec"]["nodeLabels"]["cloud.google.com/gke-nodepool"] for name, made in flavors.items()
    }
    assert labels == {"system": "system", "reserved": "gpu", "queued": "fallback"}
    pools = {
        name: made.inputs["nodeConfig"].get("flexStart")
        for (kind, name), made in stack.made.items()
        if kind == "gcp:container/nodePool:NodePool" and name.startswith("pool-")
    }
    assert pools == {"pool-gpu": None, "pool-fallback": True}
    group = the(stack, "kubernetes:ray.io/v1:RayJob").inputs["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    assert "nodeSelector" not in group["template"]["spec"]


def test_control_plane_may_call_only_kueue() -> None:
    """GKE allows ports 443 and 10250, and Kueue listens on neither."""
    stack = up("gke", "cluster")
    rule = stack.made["gcp:compute/firewall:Firewall", "webhooks"].inputs
    assert rule["allows"] == [{"protocol": "tcp", "ports": ["9443", "8082"]}]
    assert rule["targetServiceAccounts"] == ["nodes@mine.iam"]
    config = stack.made["gcp:container/cluster:Cluster", "cluster"].inputs["privateClusterConfig"]
    assert rule["sourceRanges"] == [config["masterIpv4CidrBlock"]]
    assert "gcp:compute/firewall:Firewall::webhooks" in waits(release(stack, "kueue"))
    assert ("gcp:compute/firewall:Firewall", "webhooks") not in up("gke", "cluster", "none").made


def test_image_of_kueue_comes_from_the_mirror() -> None:
    mirror = "111122223333.dkr.ecr.us-east-1.amazonaws.com/mirror"
    values = release(up("eks", "cluster", "kueue", (("access.imageMirror", mirror),)), "kueue").inputs["values"]
    image = values["controllerManager"]["manager"]["image"]
    assert (image["repository"], image["tag"]) == (f"{mirror}/kueue/kueue", KUEUE_TAG)
    assert values["controllerManager"]["nodeSelector"] == {"eks.amazonaws.com/nodegroup": "system"}


@pytest.mark.parametrize("queue", ["none", "kueue"])
def test_rayjob_has_the_supporting_resources_of_a_raycluster(queue: str) -> None:
    cluster, job = up("gke", "cluster", queue), up("gke", "job", queue)
    ours = {key for key in cluster.made if key[0].startswith(("kubernetes:", "random:"))}
    theirs = {key for key in job.made if key[0].startswith(("kubernetes:", "random:"))}
    assert ours - theirs == {("kubernetes:ray.io/v1:RayCluster", "ray")}
    assert theirs - ours == {("kubernetes:ray.io/v1:RayJob", "ray")}
    # The operator's label names the cluster, and a RayJob's has a new name each time.
    policy = the(job, "kubernetes:networking.k8s.io/v1:NetworkPolicy").inputs["spec"]
    own = policy["podSelector"]["matchLabels"]
    spec = the(job, "kubernetes:ray.io/v1:RayJob").inputs["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert own.items() <= group["template"]["metadata"]["labels"].items()
    budget = the(job, "kubernetes:policy/v1:PodDisruptionBudget").inputs["spec"]["selector"]["matchLabels"]
    assert budget == {**own, "ray.io/node-type": "head"}
