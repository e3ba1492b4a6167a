"""Faults of the workload, its queue, operators, policies and images."""

from __future__ import annotations

from functools import partial
from typing import Any

from infra.catalog.pins import RAY_IMAGE
from infra.kubernetes.time_limit_pod import ENDED
from tests.workloads.doctor import states
from tests.workloads.doctor.fault import Fault, named, planting, set_condition
from tests.workloads.doctor.states import HOUR, NOW, at, body
from workloads.doctor.state import State

LONG_AGO = at(NOW - HOUR)
GKE, RAY_JOB, JOB = (partial(states.cloud, name) for name in ("gke", "gke, RayJob", "gke, Indexed Job"))
SERVICE = partial(states.cloud, "gke-service")
ALONE, QUEUED = (partial(states.cloud, name, 0) for name in ("gke", "eks, queued"))
WORKER = "gke-ray-worker-2"


def without_pods(state: State) -> None:
    state.kubernetes["pods"] = []
    state.absent.update(ray="no head pod of Ray is ready", probes="no head pod of Ray is ready")
    state.ray.clear()


@planting
def queue_says(state: State, /, reason: str, message: str, age: float = HOUR, **spec: Any) -> None:
    without_pods(state)
    (workload,) = state.kubernetes["workloads"]
    workload["metadata"]["creationTimestamp"] = at(NOW - age)
    workload["spec"] = spec
    workload["status"] = {}
    set_condition(workload, "QuotaReserved", "False", LONG_AGO, reason=reason, message=message)
    state.kubernetes["rayclusters"][0]["spec"]["suspend"] = True


def ended_by_the_limit(state: State) -> None:
    queue_says("Deactivated", "The workload is deactivated", active=False)(state)
    annotations = {ENDED: "2026-11-23T11:00:00Z: workers held nodes longer than nodes.maxHours=8"}
    state.kubernetes["rayclusters"][0]["metadata"]["annotations"] = annotations


def queue_waits_for_nodes(state: State) -> None:
    queue_says("Pending", "")(state)
    (workload,) = state.kubernetes["workloads"]
    set_condition(workload, "QuotaReserved", "True", LONG_AGO)


def provisioning_failed(state: State) -> None:
    queue_waits_for_nodes(state)
    request = body("ProvisioningRequest", "request-1")
    set_condition(request, "Failed", "True", LONG_AGO, reason="Failed", message="Quota 'GPUS_ALL_REGIONS' exceeded")
    state.kubernetes["provisioning requests"] = [request]


def suspended(state: State) -> None:
    without_pods(state)
    state.kubernetes["rayclusters"][0]["spec"]["suspend"] = True


def ray_job_failed(state: State) -> None:
    status = {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit code 1"}
    state.kubernetes["rayjobs"][0]["status"] = status


def other_image(state: State) -> None:
    (status,) = named(state, "pods", WORKER)["status"]["containerStatuses"]
    status["image"] = "registry.example/ray:new"


def application_failed(state: State) -> None:
    """In the cluster of an upgrade, while the one before still serves."""
    failed = {"default": {"status": "DEPLOY_FAILED", "message": "no checkpoint in /bucket/digits"}}
    state.kubernetes["rayservices"][0]["status"]["pendingServiceStatus"] = {"applicationStatuses": failed}


def moved_tag(state: State) -> None:
    (status,) = named(state, "pods", WORKER)["status"]["containerStatuses"]
    status["imageID"] = f"rayproject/ray@sha256:{'b' * 64}"


@planting
def workload(state: State, /, *conditions: tuple[str, str, str], active: bool | None = None, checks: Any = ()) -> None:
    """What Kueue says of the stack's workload, which is suspended."""
    queue_says("Pending", "", **({} if active is None else {"active": active}))(state)
    (found,) = state.kubernetes["workloads"]
    found["status"]["conditions"][0] |= {"reason": "Deactivated", "message": "The workload is deactivated"}
    for type_, reason, message in conditions:
        set_condition(found, type_, "True", LONG_AGO, reason=reason, message=message)
    found["status"]["admissionChecks"] = [{"name": "dws", "state": state_, "message": text} for state_, text in checks]


def revoked(state: State) -> None:
    """The end of maxRunHours (kubernetes-sigs/kueue#2196)."""
    message = "Capacity was revoked: maximum run duration reached"
    request = body("ProvisioningRequest", "request-1")
    set_condition(request, "Provisioned", "True", LONG_AGO, reason="Provisioned")
    set_condition(request, "CapacityRevoked", "True", LONG_AGO, reason="CapacityRevoked", message=message)
    state.kubernetes["provisioning requests"] = [request]


ON_QUEUE = "Workload wl-eks-ray of eks-ray"
REQUEUED = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
FAULTS = [
    Fault(
        "operators",
        "Deployment kuberay-system/kuberay-operator",
        "is not running",
        "describe deployment",
        GKE,
        lambda s: s.kubernetes["operators"][0].update(status={}),
    ),
    Fault(
        "workload", "cluster gke-ray", "does not exist", "make up", GKE, lambda s: s.kubernetes["rayclusters"].clear()
    ),
    Fault("workload", "RayCluster gke-ray", "suspended", "make up starts it", ALONE, suspended),
    Fault(
        "workload",
        "RayCluster gke-ray",
        "no operator acts on it",
        "kuberay-system",
        GKE,
        lambda s: s.kubernetes["rayclusters"][0].update(status={}),
    ),
    Fault(
        "workload",
        "RayCluster gke-ray",
        "reports it as failed",
        "describe RayCluster/gke-ray",
        GKE,
        lambda s: s.kubernetes["rayclusters"][0]["status"].update(state="failed"),
    ),
    Fault("workload", "RayJob gke-ray", "the job failed", "delete rayjob gke-ray", RAY_JOB, ray_job_failed),
    Fault(
        "workload",
        "RayService gke-service-ray",
        "its application does not run",
        "describe rayservice gke-service-ray",
        SERVICE,
        application_failed,
    ),
    Fault(
        "workload",
        "Job gke-ray",
        "the job failed",
        "logs job/gke-ray",
        JOB,
        lambda s: set_condition(s.kubernetes["jobs"][0], "Failed", "True", LONG_AGO),
    ),
    Fault(
        "queue",
        "ClusterQueue gpu",
        "inactive",
        "clusterqueue",
        QUEUED,
        lambda s: set_condition(s.kubernetes["cluster queues"][0], "Active", "False", LONG_AGO),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "can never admit it",
        "nodes.max",
        QUEUED,
        queue_says("Pending", "request > maximum capacity (40 > 32)"),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "has waited 60 min in the queue",
        "ahead of it",
        QUEUED,
        queue_says("Pending", "insufficient unused quota"),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "missing or stopped",
        "make up",
        QUEUED,
        queue_says("Inadmissible", "LocalQueue gpu doesn't exist"),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "no domain of its topology",
        "one domain",
        QUEUED,
        queue_says("TopologyPlacementFailed", "topology allows to fit only 1 out of 4 pods"),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "longer than nodes.maxHours=8",
        "raise nodes.maxHours",
        QUEUED,
        ended_by_the_limit,
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "deactivated",
        "patch workload",
        QUEUED,
        queue_says("Inactive", "The workload is deactivated", active=False),
    ),
    Fault(
        "queue",
        "Workload wl-eks-ray of eks-ray",
        "has waited 60 min for its nodes",
        "all of them",
        QUEUED,
        queue_waits_for_nodes,
    ),
    Fault(
        "queue",
        "ProvisioningRequest request-1",
        "the quota of the project",
        "quota",
        QUEUED,
        provisioning_failed,
    ),
    Fault(
        "isolation",
        "pod gke-ray-head-0, pod gke-ray-worker-1, pod gke-ray-worker-2",
        "no NetworkPolicy",
        "make up",
        GKE,
        lambda s: s.kubernetes["network policies"].clear(),
    ),
    Fault("images", "pods of Ray", "they run different images", "digest", GKE, other_image),
    Fault("images", f"image {RAY_IMAGE}", "the tag moved", "digest", GKE, moved_tag),
    *(
        Fault("queue", ON_QUEUE, cause, cure, QUEUED, plant)
        for cause, cure, plant in (
            (
                f"deactivated: {REQUEUED}",
                "findings about pods",
                workload(("Evicted", "DeactivatedDueToRequeuingLimitExceeded", REQUEUED), active=False),
            ),
            (
                "deactivated: quota of the zone",
                "check the last checkpoint",
                workload(
                    ("Evicted", "DeactivatedDueToAdmissionCheck", "The workload is deactivated"),
                    active=False,
                    checks=[("Rejected", "quota of the zone")],
                ),
            ),
            (
                "deactivated: exceeding the maximum execution time",
                "its time limit",
                workload(
                    ("DeactivationTarget", "MaximumExecutionTimeExceeded", "exceeding the maximum execution time")
                ),
            ),
            (
                "deactivated: nothing says why",
                "ask who ended it",
                workload(("Evicted", "Deactivated", "The workload is deactivated"), active=False),
            ),
            (
                "evicted: Preempted to accommodate a workload (UID: 1)",
                "higher priority",
                workload(
                    ("Evicted", "Preempted", "Preempted to accommodate a workload"),
                    ("Preempted", "InClusterQueue", "Preempted to accommodate a workload (UID: 1)"),
                ),
            ),
            (
                "evicted: node gpu-1 failed",
                "no replacement",
                workload(("Evicted", "NodeFailures", "node gpu-1 failed")),
            ),
            (
                "check is not met: Retrying after failure",
                "queues it again",
                workload(checks=[("Retry", "Retrying after failure: stock-out")]),
            ),
            ("held back", "messages name", workload(("BlockedOnPreemptionGates", "Gated", "waits for a gate"))),
        )
    ),
]
