"""Faults that clouds and operators add: conditions, drivers' pods, sidecars, evictions and mounts.

Messages are those of public reports; each says which.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from infra.catalog.names import GPU
from infra.catalog.pins import GIB_IMAGE
from tests.workloads.doctor import states
from tests.workloads.doctor.fault import Fault, change_probe, named, planting, remove, set_condition
from tests.workloads.doctor.kubernetes_faults import WORKER, event, not_ready, pending
from tests.workloads.doctor.states import HOUR, NOW, SIDECAR, at, body
from workloads.doctor.machines import NETWORKS
from workloads.doctor.state import SYSTEM, State

Json = dict[str, Any]
LONG_AGO = at(NOW - HOUR)
GKE, EKS, BUCKET, DRANET, RAY_JOB = (
    partial(states.cloud, name) for name in ("gke", "eks", "gke-ccc", "gke-dranet", "gke, RayJob")
)
BUCKET_WORKER, HEAD = "gke-ccc-ray-worker-2", "gke-ray-head-0"


def says(type_: str, status: str, reason: str, message: str = "", since: str = LONG_AGO) -> Any:
    """A node's condition."""
    return lambda s: set_condition(named(s, "nodes", "gpu-2"), type_, status, since, reason=reason, message=message)


def crash(reason: str = "CrashLoopBackOff", **more: Any) -> Json:
    state = {"waiting": {"reason": reason, "message": "back-off 5m0s restarting failed container"}}
    last = {"terminated": {"reason": "Error", "exitCode": 1, "finishedAt": at(NOW - 60)}}
    return {"name": "c", "restartCount": 40, "state": state, "lastState": last} | more


@planting
def daemon(state: State, /, owner: str, namespace: str = SYSTEM, kind: str = "DaemonSet", **status: Any) -> None:
    """A pod that belongs to node gpu-2."""
    its = {"phase": "Running", "containerStatuses": [crash()]} | status
    owners = [{"kind": kind, "name": owner}]
    pod = body("Pod", f"{owner}-x", {"nodeName": "gpu-2"}, its, namespace=namespace, ownerReferences=owners)
    pod["status"].setdefault("conditions", [{"type": "Ready", "status": "False", "lastTransitionTime": LONG_AGO}])
    state.kubernetes["system pods"].append(pod)


def waits_for_its_node(state: State) -> None:
    """A DaemonSet's pod that the scheduler cannot place names its node in its affinity."""
    daemon("fsx-csi-node", phase="Pending", containerStatuses=[])(state)
    fields = [{"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    pod = named(state, "system pods", "fsx-csi-node-x")
    pod["spec"] = {"affinity": {"nodeAffinity": required}}
    set_condition(pod, "PodScheduled", "False", LONG_AGO, reason="Unschedulable", message="1 Too many pods")


def flaps(state: State) -> None:
    """Ready in between (GoogleCloudPlatform/gcs-fuse-csi-driver#283)."""
    daemon("netd", containerStatuses=[crash() | {"state": {"running": {}}}], conditions=states.true("Ready"))(state)
    named(state, "nodes", "gpu-2")["metadata"]["creationTimestamp"] = at(NOW - 5 * HOUR)


def killed_once(state: State) -> None:
    running = crash() | {"restartCount": 1, "state": {"running": {}}, "lastState": ended("OOMKilled", 137)}
    daemon("fluentbit", initContainerStatuses=[running], containerStatuses=[], conditions=states.true("Ready"))(state)


def no_pods_created(state: State) -> None:
    """modelplaneai/modelplane#202: GKE's quota for critical pods refuses them."""
    status = {"desiredNumberScheduled": 2, "currentNumberScheduled": 0, "updatedNumberScheduled": 0}
    state.kubernetes["daemon sets"].append(body("DaemonSet", "dra-driver", status=status, namespace="nvidia"))


def sidecar(name: str, **status: Any) -> Any:
    """What GCS FUSE's sidecar, an init container, shows."""
    return lambda s: named(s, "pods", name)["status"]["initContainerStatuses"][0].update(status)


def ended(reason: str, code: int = 1, age: float = 600) -> Json:
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at(NOW - age)}}


@planting
def failed(
    state: State, /, reason: str | None, message: str | None, target: str | None = None, name: str = WORKER
) -> None:
    pod = named(state, "pods", name)
    pod["status"] = {"phase": "Failed", "reason": reason, "message": message, "containerStatuses": []}
    if target is not None:
        set_condition(pod, "DisruptionTarget", "True", at(NOW - 600), reason=target, message="")
    if name == WORKER:
        state.ray["nodes"].pop()
        state.probes.pop()


def exited(state: State) -> None:
    failed(None, None)(state)
    status = {"name": "ray-worker", "image": "i", "restartCount": 0, "state": ended("Error", 139)}
    named(state, "pods", WORKER)["status"]["containerStatuses"] = [status]


@planting
def unmounted(state: State, /, message: str, name: str = BUCKET_WORKER) -> None:
    not_ready(state, "pods", name, phase="Pending", containerStatuses=[crash("ContainerCreating", lastState={})])
    named(state, "pods", name)["status"].pop("initContainerStatuses", None)
    state.ray["nodes"].pop()
    state.probes[-1:] = []
    event(state, "FailedMount", message, name)


def only_addresses(state: State) -> None:
    for node in state.kubernetes["nodes"]:
        offered = node["status"]["allocatable"]
        for name in [name for name in offered if name.startswith(NETWORKS) and not name.endswith(".IP")]:
            del offered[name]


def other_networks(state: State) -> None:
    for node in state.kubernetes["nodes"]:
        offered = node["status"]["allocatable"]
        node["status"]["allocatable"] = {name.replace("/rdma-", "/roce-"): count for name, count in offered.items()}


def sliced(state: State) -> None:
    offered = named(state, "nodes", "gpu-1")["status"]["allocatable"]
    offered |= {GPU: "0", "nvidia.com/mig-1g.18gb": "56"}


def no_driver_on(state: State) -> None:
    """The finding of the driver's pod has the cause; the devices come back with it."""
    remove(state, "device slices", "gpu-2")
    driver = named(state, "system pods", "networking-dra-driver-gpu-2")
    not_ready(state, "system pods", driver["metadata"]["name"], containerStatuses=[crash()])


def seven_gpus_and_no_room(state: State) -> None:
    message = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available"
    pending(state, message, ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached"))
    like = named(state, "nodes", "gpu-1")
    status = like["status"] | {"allocatable": like["status"]["allocatable"] | {GPU: "7"}}
    state.kubernetes["nodes"].append(like | {"metadata": like["metadata"] | {"name": "gpu-3"}, "status": status})
    for pod in [each for each in state.kubernetes["system pods"] if each["spec"]["nodeName"] == "gpu-1"]:
        name = pod["metadata"]["name"].replace("gpu-1", "gpu-3")
        its = {"metadata": pod["metadata"] | {"name": name}, "spec": pod["spec"] | {"nodeName": "gpu-3"}}
        state.kubernetes["system pods"].append(pod | its)


def old_nccl(state: State) -> None:
    versions = state.probes[1].versions | {"nccl": "2.27.5"}
    for number in (0, 1, 2):
        change_probe(state, number, versions=versions)
    image = f"{GIB_IMAGE.partition(':')[0]}:v1.1.0"
    for node in ("gpu-1", "gpu-2"):
        spec = named(state, "system pods", f"nccl-rdma-installer-{node}")["spec"]
        spec["initContainers"] = [{"name": "nccl-rdma-installer", "image": image}]


def folder_over_efa() -> State:
    state = states.cloud("eks-capacity-block")
    assert state.outputs.storage is not None
    storage = state.outputs.storage.model_copy(update={"efa": True})
    return state.model_copy(update={"outputs": state.outputs.model_copy(update={"storage": storage})})


def over_tcp(state: State) -> None:
    change_probe(state, 1, lustre=["ksocklnd", "kefalnd"])
    change_probe(state, 2, lustre=["ksocklnd"])


def second_start(state: State) -> None:
    (job,) = state.kubernetes["rayjobs"]
    job["status"] |= {"startTime": at(NOW - 29 * HOUR), "jobId": "nccl-1"}
    named(state, "pods", HEAD)["metadata"]["creationTimestamp"] = at(NOW - 1200)
    state.ray["jobs"][0] |= {"status": "RUNNING", "start_time": int((NOW - 1100) * 1000), "end_time": None}


ON_WORKER = f"pod {WORKER}"
LOW = "The node was low on resource: {}. Threshold quantity: 24068434671, available: 23201836Ki."
CONDITIONS = (
    (EKS, "AcceleratedHardwareReady", "False", "NvidiaXID74Error", "EKS replaces or reboots"),
    (EKS, "AcceleratedHardwareReady", "False", "DCGMError", "eks-node-monitoring-agent#266"),
    (EKS, "NetworkingReady", "False", "InterfaceNotUp", "write checkpoints"),
    (EKS, "KernelReady", "Unknown", "AgentSilent", "`daemons`"),
    (EKS, "DiskPressure", "True", "KubeletHasDiskPressure", "evicts pods"),
    (GKE, "MemoryPressure", "True", "KubeletHasInsufficientMemory", "evicts pods"),
    (GKE, "PIDPressure", "True", "KubeletHasInsufficientPID", "evicts pods"),
    (GKE, "KernelDeadlock", "True", "AUFSUmountHung", "cordon"),
    (GKE, "ReadonlyFilesystem", "True", "FilesystemIsReadOnly", "cordon"),
    (GKE, "FrequentContainerdRestart", "True", "FrequentContainerdRestart", "cordon"),
    (GKE, "NetworkUnavailable", "True", "NoRouteCreated", "cordon"),
    (GKE, "CperHardwareErrorFatal", "True", "CperHardwareErrorFatal", "cordon"),
    (GKE, "SysctlChanged", "Unknown", "NoHeartbeat", "`daemons`"),
    (GKE, "GpuNvlinkWatch", "True", "GpuNvlinkWatchIsNotHealthy", "cordon"),
    (GKE, "FabricHealthy", "False", "LinkDown", "cordon"),
    (GKE, "StorageNotReady", "True", "MountLost", "cordon"),
    (GKE, "DeprecatedUsingV1Alpha2Cri", "True", "DeprecatedUsingV1Alpha2CriDetected", "before the upgrade"),
)
ENDS = (
    ("no disk space left", "/tmp", failed("Evicted", LOW.format("ephemeral-storage"), "TerminationByKubelet")),
    (
        "no disk space left",
        "/tmp",
        failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit of 1000Gi"),
    ),
    ("no memory left", "ray.put", failed("Evicted", LOW.format("memory"))),
    ("no process ids left", "data loaders", failed("Evicted", LOW.format("pids"))),
    ("preempted", "PriorityClass", failed("Failed", None, "PreemptionByScheduler")),
    ("shut down", "--resume", failed("Terminated", "Pod was terminated in response to imminent node shutdown.")),
    ("node is lost", "the finding about the node", failed(None, None, "DeletionByPodGC")),
    ("drained", "who drains", failed(None, None, "EvictionByEvictionAPI")),
    (
        "refused by its node",
        "allocatable",
        failed("UnexpectedAdmissionError", "Allocate failed due to no healthy devices"),
    ),
    (
        "deadline",
        "raise the deadline",
        failed("DeadlineExceeded", "Pod was active on the node longer than the deadline"),
    ),
    ("it failed", "--previous", exited),
    ("no disk space left", "/tmp", lambda s: event(s, "Evicted", LOW.format("ephemeral-storage"), WORKER)),
)
MOUNTS = (
    (
        "Secret, ConfigMap or claim that it mounts is missing",
        "make up",
        'MountVolume.SetUp failed for volume "token" : references non-existent secret key: token',
    ),
    (
        "sidecar is not in the pod",
        "gke-gcsfuse/volumes",
        "rpc error: code = FailedPrecondition desc = failed to find the sidecar container in Pod spec",
    ),
    (
        "sidecar is not in the pod",
        "webhook",
        "code = Internal desc = the webhook failed to inject the sidecar container into the Pod spec",
    ),
    (
        "bucket does not exist",
        "storage.bucket",
        'rpc error: code = NotFound desc = failed to get GCS bucket "b": storage: bucket doesn\'t exist',
    ),
    (
        "may not use the bucket",
        "Workload Identity",
        "code = PermissionDenied desc = the sidecar container failed with error: compute: Received 403",
    ),
    (
        "metadata server",
        "gke-metadata-server",
        'Failed to set up metadata service: Get "http://169.254.169.254/": dial tcp: i/o timeout',
    ),
    (
        "CSI driver does not run",
        "gcsfusecsi-node",
        "driver name gcsfuse.csi.storage.gke.io not found in the list of registered CSI drivers",
    ),
    (
        "sidecar ended",
        "gke-gcsfuse-sidecar",
        "the sidecar container failed with error: gcsfuse exited with error: signal: killed",
    ),
    ("Secret, ConfigMap or claim", "make up", 'references: configmap "probes" not found'),
    ("DRA driver", "networking-dra-driver", "NodePrepareResources failed for claim nics: timed out"),
    (
        "no address for the pod",
        "larger range",
        "plugin type=aws-cni failed (add): failed to assign an IP address to container",
    ),
)
FAULTS = [
    *(
        Fault("nodes", "node gpu-2", f"condition {type_} is {status}", cure, stack, says(type_, status, reason, "seen"))
        for stack, type_, status, reason, cure in CONDITIONS
    ),
    Fault("nodes", "node gpu-2", "not ready", "EKS replaces", EKS, says("Ready", "Unknown", "NodeStatusUnknown")),
    *(
        Fault("daemons", f"pod {owner}-x on node gpu-2", f"{owner} is not ready", f"-n {space} logs", GKE, plant)
        for owner, space, plant in (
            ("gcsfusecsi-node", SYSTEM, daemon("gcsfusecsi-node")),
            ("gke-metadata-server", SYSTEM, daemon("gke-metadata-server", containerStatuses=[])),
            (
                "exporter",
                "monitoring",
                daemon("exporter", "monitoring", initContainerStatuses=[crash()], containerStatuses=[]),
            ),
            ("kube-proxy", SYSTEM, daemon("kube-proxy", kind="Node")),
            ("fsx-csi-node", SYSTEM, waits_for_its_node),
        )
    ),
    Fault("daemons", "pod netd-x on node gpu-2", "restarts repeatedly", "logs POD", GKE, flaps),
    Fault("daemons", "pod fluentbit-x on node gpu-2", "killed for memory", "logs POD", GKE, killed_once),
    Fault("daemons", "DaemonSet nvidia/dra-driver", "not created", "describe daemonset", GKE, no_pods_created),
    Fault("gpus", "node gpu-1", "by other names", "nvidia.com/mig-1g.18gb: 56", EKS, sliced),
    Fault("nics", "node gpu-1, node gpu-2", "it offers other names", "networks/roce-0", GKE, other_networks),
    Fault("nics", "node gpu-1, node gpu-2", ".IP", "a new node would be the same", GKE, only_addresses),
    *(Fault("ended-pods", ON_WORKER, cause, cure, GKE, plant) for cause, cure, plant in ENDS),
    Fault(
        "ended-pods",
        f"pod {HEAD}",
        "every job with it",
        "/tmp",
        GKE,
        failed("Evicted", LOW.format("ephemeral-storage"), name=HEAD),
    ),
    *(
        Fault("pods", f"pod {BUCKET_WORKER}", cause, cure, BUCKET, unmounted(message))
        for cause, cure, message in MOUNTS
    ),
    Fault(
        "pods",
        "pod eks-ray-worker-2",
        "cannot mount the Lustre",
        "988",
        EKS,
        unmounted('Could not mount "fs-0a.fsx@tcp:/x" at', "eks-ray-worker-2"),
    ),
    Fault(
        "memory",
        f"pod {BUCKET_WORKER}, container {SIDECAR}",
        "killed for its memory",
        "memory-limit",
        BUCKET,
        sidecar(BUCKET_WORKER, restartCount=4, lastState=ended("OOMKilled", 137)),
    ),
    Fault(
        "restarts",
        f"pod {BUCKET_WORKER}, container {SIDECAR}",
        "the container restarted",
        "-c CONTAINER",
        BUCKET,
        sidecar(BUCKET_WORKER, restartCount=1, lastState=ended("Error")),
    ),
    Fault(
        "gib-nccl",
        "Ray node 10.0.0.3 (host-1), Ray node 10.0.0.4 (host-2)",
        "older than gIB 1.1.0 supports",
        "NCCL 2.28",
        GKE,
        old_nccl,
    ),
    Fault("lustre", "Ray node 10.0.0.4 (host-2)", "TCP instead of EFA", "cloud-init-output", folder_over_efa, over_tcp),
    Fault("second-start", "RayJob gke-ray, job nccl-1", "started again", "last checkpoint", RAY_JOB, second_start),
]
