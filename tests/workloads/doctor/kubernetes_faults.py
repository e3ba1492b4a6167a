"""Faults of nodes, pods, volumes and claims, as Kubernetes' controllers and the kubelet show them."""

from __future__ import annotations

from functools import partial
from typing import Any

from infra.catalog.names import CHECK_FAILED, EFA, GPU, NODE_CHECK
from tests.workloads.doctor import states
from tests.workloads.doctor.fault import Fault, named, planting, remove, set_condition
from tests.workloads.doctor.states import HOUR, NOW, at, body
from workloads.doctor.machines import NETWORKS
from workloads.doctor.state import State

LONG_AGO = at(NOW - HOUR)
GKE, EKS, DRANET = (partial(states.cloud, name) for name in ("gke", "eks", "gke-dranet"))
WORKER = "gke-ray-worker-2"
ON_WORKER = f"pod {WORKER}"


def not_ready(state: State, section: str, name: str, **status: Any) -> None:
    found = named(state, section, name)
    set_condition(found, "Ready", "False", LONG_AGO, reason="ContainersNotReady")
    found["status"] |= status


def waiting(reason: str, message: str = "") -> list[dict[str, Any]]:
    return [{"name": "ray-worker", "image": "i", "state": {"waiting": {"reason": reason, "message": message}}}]


def event(state: State, reason: str, message: str, about: str = WORKER) -> None:
    state.kubernetes.setdefault("events", []).append(
        {"reason": reason, "message": message, "involvedObject": {"name": about}, "lastTimestamp": at(NOW - 60)}
    )


def off_its_node(state: State) -> None:
    """Take the second worker's node away, and with it what ran there."""
    remove(state, "nodes", "gpu-2")
    state.kubernetes["system pods"] = [
        pod for pod in state.kubernetes["system pods"] if pod["spec"]["nodeName"] != "gpu-2"
    ]
    state.ray["nodes"].pop()
    state.probes.pop()


def pending(
    state: State, message: str = "0/3 nodes are available: 3 node(s) didn't match.", *events: tuple[str, str]
) -> None:
    """Make the second worker unschedulable."""
    off_its_node(state)
    pod = named(state, "pods", WORKER)
    pod["spec"].pop("nodeName")
    pod["status"] = {"phase": "Pending"}
    set_condition(pod, "PodScheduled", "False", LONG_AGO, reason="Unschedulable", message=message)
    for reason, text in events:
        event(state, reason, text)


def unable(message: str) -> Any:
    return lambda state: pending(state, message)


def scale_up_failed(message: str) -> Any:
    return lambda state: pending(
        state, "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", ("FailedScaleUp", message)
    )


def autoscaler_backs_off(state: State) -> None:
    text = (
        "nodeGroups:\n- name: gpu\n  scaleUp:\n    status: Backoff\n    backoffInfo:\n"
        "      errorCode: RESOURCE_POOL_EXHAUSTED\n      errorMessage: ZONE_RESOURCE_POOL_EXHAUSTED\n"
    )
    pending(state)
    state.kubernetes["autoscaler"] = [body("ConfigMap", "cluster-autoscaler-status") | {"data": {"status": text}}]


def autoscaler_warns(state: State) -> None:
    pending(state)
    message = "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity"
    warning = {"type": "Warning", "reason": "FailedToScaleUpGroup", "source": {"component": "cluster-autoscaler"}}
    state.kubernetes["system events"] = [warning | {"message": message}]


@planting
def not_started(state: State, /, reason: str) -> None:
    not_ready(state, "pods", WORKER, phase="Pending", containerStatuses=waiting(reason))
    without_ray_node(state)


def without_ray_node(state: State) -> None:
    state.ray["nodes"].pop()
    state.probes.pop()


def kept_out(state: State) -> None:
    not_started("PodInitializing")(state)
    pod = named(state, "pods", WORKER)
    pod["status"]["initContainerStatuses"] = [{"name": NODE_CHECK, "state": {"running": {}}}]
    event(state, CHECK_FAILED, "7 of 8 GPUs")
    state.kubernetes["events"][-1]["involvedObject"]["uid"] = pod["metadata"]["uid"]


def not_set_up(state: State) -> None:
    not_started("ContainerCreating")(state)
    event(state, "FailedMount", 'MountVolume.SetUp failed for volume "gib"')


@planting
def killed(state: State, /, name: str, container: str, reason: str) -> None:
    ended = {"reason": reason, "exitCode": 137, "finishedAt": at(NOW - 600)}
    (status,) = [
        each for each in named(state, "pods", name)["status"]["containerStatuses"] if each["name"] == container
    ]
    status |= {"restartCount": 1, "lastState": {"terminated": ended}}


def unbound(state: State) -> None:
    pending(state, "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    named(state, "pods", WORKER)["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    state.kubernetes["volume claims"] = [body("PersistentVolumeClaim", "data", status={"phase": "Pending"})]


def claim(**metadata: Any) -> Any:
    users = [] if metadata else [{"resource": "pods", "name": "gone", "uid": "uid-gone"}]
    return lambda state: state.kubernetes.update(
        claims=[body("ResourceClaim", "nics", status={"reservedFor": users}, **metadata)]
    )


def installing(state: State) -> None:
    containers = [{"name": "nccl-rdma-installer", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    not_ready(state, "system pods", "nccl-rdma-installer-gpu-2", initContainerStatuses=containers)
    not_started("PodInitializing")(state)


def seven_devices(state: State) -> None:
    state.kubernetes["device slices"][0]["spec"]["devices"].pop()


@planting
def allocatable(state: State, /, name: str, amount: str | None) -> None:
    found = named(state, "nodes", "gpu-1")["status"]["allocatable"]
    found.pop(name) if amount is None else found.update({name: amount})


def unused(state: State) -> None:
    """Add a node with all that runs on one, and without a pod of Ray."""
    for section, old in (("nodes", "gpu-2"), ("system pods", "nccl-rdma-installer-gpu-2")):
        like = named(state, section, old)
        name = old.replace("gpu-2", "gpu-9")
        spec = like["spec"] | ({"nodeName": "gpu-9"} if section == "system pods" else {})
        state.kubernetes[section].append(like | {"metadata": like["metadata"] | {"name": name}, "spec": spec})


FAULTS = [
    Fault("nodes", "node gpu-1", "the node is not ready", "delete", GKE, lambda s: not_ready(s, "nodes", "gpu-1")),
    Fault(
        "nodes",
        "node gpu-1",
        "cordoned",
        "uncordon gpu-1",
        GKE,
        lambda s: named(s, "nodes", "gpu-1")["spec"].update(unschedulable=True),
    ),
    Fault(
        "daemons",
        "pod nvidia-device-plugin-gpu-1 on node gpu-1",
        "DaemonSet nvidia-device-plugin is not ready",
        "kube-system logs POD",
        EKS,
        lambda s: not_ready(s, "system pods", "nvidia-device-plugin-gpu-1"),
    ),
    Fault("gpus", "node gpu-1", "7 of the 8 GPUs", "nvidia-smi -L", GKE, allocatable(GPU, "7")),
    Fault("nics", "node gpu-1", "7 of the 8 RDMA NICs", "delete it", GKE, allocatable(f"{NETWORKS}rdma-3", None)),
    Fault("nics", "node gpu-1", "15 of the 16 RDMA NICs", "delete it", EKS, allocatable(EFA, "15")),
    Fault("nics", "node gpu-1", "7 of the 8 RDMA NICs", "delete it", DRANET, seven_devices),
    Fault(
        "installer", "pod nccl-rdma-installer-gpu-2 on node gpu-2", "not installed", "delete the pod", GKE, installing
    ),
    Fault(
        "installer",
        "node gpu-1",
        "no installer of the NCCL plugin",
        "make up",
        GKE,
        lambda s: remove(s, "system pods", "nccl-rdma-installer-gpu-1"),
    ),
    Fault("networks", "Network rdma-2", "not ready", "make up", GKE, lambda s: not_ready(s, "networks", "rdma-2")),
    Fault("networks", "Network rdma-2", "not ready", "make up", GKE, lambda s: remove(s, "networks", "rdma-2")),
    Fault("pods", ON_WORKER, "quota of the project", "nodes.max", GKE, scale_up_failed("GCE quota exceeded: GPUS")),
    Fault("pods", ON_WORKER, "quota of the project", "nodes.max", GKE, autoscaler_warns),
    Fault("pods", ON_WORKER, "no such machines now", "another zone", GKE, scale_up_failed("GCE out of resources")),
    Fault("pods", ON_WORKER, "no such machines now", "another zone", GKE, autoscaler_backs_off),
    Fault(
        "pods",
        ON_WORKER,
        "reservation does not serve",
        "nodes.reservation",
        GKE,
        scale_up_failed("Reservation capacity exceeded"),
    ),
    Fault("pods", ON_WORKER, "no addresses left", "larger range", GKE, scale_up_failed("IP space exhausted")),
    Fault(
        "pods",
        ON_WORKER,
        "did not become nodes",
        "serial console",
        GKE,
        scale_up_failed("nodes failed to register within 15m"),
    ),
    Fault(
        "pods", ON_WORKER, "devices that the pod claims", "resourceslices", GKE, unable("3 cannot allocate all claims")
    ),
    Fault(
        "pods",
        ON_WORKER,
        "its volume is not available",
        "describe pvc",
        GKE,
        unable('persistentvolumeclaim "data" not found'.replace('"', "")),
    ),
    Fault(
        "pods",
        ON_WORKER,
        "node pool is at its maximum",
        "raise nodes.max",
        GKE,
        lambda s: pending(
            s, "3 Insufficient cpu", ("NotTriggerScaleUp", "pod didn't trigger: 1 max node group size reached")
        ),
    ),
    Fault(
        "pods", ON_WORKER, "all its RDMA NICs free", "allocatable NICs", GKE, unable(f"3 Insufficient {NETWORKS}rdma-0")
    ),
    Fault(
        "pods",
        ON_WORKER,
        "a taint that the pod does not",
        "remove the taint",
        GKE,
        unable("3 node(s) had untolerated taint {a: b}"),
    ),
    Fault("pods", ON_WORKER, "every GPU node is taken", "rdma-ray list", GKE, unable(f"0/3: 2 Insufficient {GPU}.")),
    Fault("pods", ON_WORKER, "enough CPUs, memory or disk", "requests", GKE, unable("3 Insufficient memory.")),
    Fault(
        "pods",
        ON_WORKER,
        "labels that the pod selects",
        "nodeSelector",
        GKE,
        unable("3 node(s) didn't match Pod's node affinity/selector."),
    ),
    Fault("pods", ON_WORKER, "no node fits", "describe pod", GKE, unable("3 node(s) are possessed")),
    Fault(
        "pods",
        ON_WORKER,
        "has waited 60 min for its node",
        "the cloud reports no failure",
        GKE,
        lambda s: pending(s, "3 Insufficient cpu", ("TriggeredScaleUp", "pod triggered scale-up: [{gpu 1->2}]")),
    ),
    Fault("pods", ON_WORKER, "its image cannot be pulled", "ray.image", GKE, not_started("ImagePullBackOff")),
    Fault("pods", ON_WORKER, "Secret or ConfigMap", "make up", GKE, not_started("CreateContainerConfigError")),
    Fault(
        "pods", ON_WORKER, "runtime cannot start it", "device, path or command", GKE, not_started("RunContainerError")
    ),
    Fault("pods", ON_WORKER, "ends again and again", "--previous", GKE, not_started("CrashLoopBackOff")),
    Fault("pods", ON_WORKER, "the node cannot set it up", "volume, network or device", GKE, not_set_up),
    Fault("pods", ON_WORKER, "not ready for 60 min", "logs gke-ray-worker-2", GKE, not_started("Unknown")),
    Fault("node-check", "node gpu-2", "keeps it out", "cordon", GKE, kept_out),
    Fault(
        "refused-pods",
        "RayCluster gke-ray",
        "its pods are refused",
        "webhook",
        GKE,
        lambda s: event(s, "FailedToCreateWorkerPod", "admission webhook denied the request", "gke-ray"),
    ),
    Fault(
        "memory",
        f"{ON_WORKER}, container ray-worker",
        "killed for its memory",
        "raise the pod's memory",
        GKE,
        killed(WORKER, "ray-worker", "OOMKilled"),
    ),
    Fault(
        "memory",
        "pod gke-ray-head-0, container ray-head",
        "every job with it",
        "raise",
        GKE,
        killed("gke-ray-head-0", "ray-head", "OOMKilled"),
    ),
    Fault(
        "restarts",
        "pod gke-ray-head-0",
        "the head restarted",
        "--previous",
        GKE,
        killed("gke-ray-head-0", "ray-head", "Error"),
    ),
    Fault("volumes", "PersistentVolumeClaim data", "not bound", "describe pvc", GKE, unbound),
    Fault("claims", "ResourceClaim nics", "pods that no longer exist", "delete resourceclaim", DRANET, claim()),
    Fault(
        "claims",
        "ResourceClaim nics",
        "deletion does not finish",
        "delete resourceclaim",
        DRANET,
        claim(deletionTimestamp=LONG_AGO),
    ),
    Fault("unused-nodes", "node gpu-9", "without a pod of Ray", "autoscaler", GKE, unused),
]
