"""Healthy states of a local stack and of the cloud stacks.

The answers of Ray have the fields that the checks read, as a local cluster of Ray 2.60 gave them (2026-11). The objects
of a cloud stack are those that the program registers; their status, nodes and pods are what the controllers make.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import cache
from typing import Any

from infra.catalog.fabrics import TRANSPORTS
from infra.catalog.machines import CATALOG, GkeMachine, Machine
from infra.catalog.names import EFA, GPU, rdma_network
from infra.catalog.pins import RAY
from infra.outputs import Outputs, cluster_outputs
from infra.settings import parse
from infra.settings.cloud import CloudSettings
from tests.kubernetes.stack_objects import registered, stacks
from tests.workloads.doctor import recorded_nodes
from tests.workloads.stack_outputs import LOCAL
from workloads.doctor.machines import NETWORKS
from workloads.doctor.node_facts import NodeFacts, ProbedGpu
from workloads.doctor.state import EVERYWHERE, OWN, SYSTEM, State
from workloads.hardware.nic import Nic

Json = dict[str, Any]
NOW = 1_795_433_712.0
HOUR = 3600.0
SECTIONS = {
    "RayCluster": "rayclusters",
    "RayJob": "rayjobs",
    "RayService": "rayservices",
    "Job": "jobs",
    "Network": "networks",
    "GKENetworkParamSet": "network parameters",
    "NetworkPolicy": "network policies",
    "ClusterQueue": "cluster queues",
    "LocalQueue": "local queues",
}
MANAGED_DRANET = "gke-managed-networking-dra-driver"
SIDECAR = "gke-gcsfuse-sidecar"
PREVIOUSLY = {
    "type": "Evicted",
    "status": "False",
    "reason": "QuotaReserved",
    "message": "Previously: Exceeded the PodsReady timeout ray/wl",
    "lastTransitionTime": "2026-11-23T10:00:00Z",
}
"""What an eviction leaves on a workload that is admitted again (kubernetes-sigs/kueue#2362)."""
FABRIC_PLUGINS = {"gib": "libnccl-net.so 3f9a1c0b22d4", "efa": "libnccl-net-ofi.so 77c0de11aa52"}


def at(seconds: float) -> str:
    """Return a time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def true(*types: str) -> list[Json]:
    """Return conditions that have been true for an hour."""
    return [{"type": each, "status": "True", "lastTransitionTime": at(NOW - HOUR)} for each in types]


def body(kind: str, name: str, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    """Return an object that is an hour old."""
    its = {"name": name, "uid": f"uid-{name}", "creationTimestamp": at(NOW - HOUR), **metadata}
    return {"kind": kind, "metadata": its, "spec": spec or {}, "status": status or {}}


def local() -> State:
    """Return the state of a local stack with two workers, which has just run a job."""
    ips = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    return State(
        time=NOW,
        client=RAY,
        outputs=Outputs.model_validate(LOCAL),
        ray=ray(ips, {"CPU": 2.0}, "worker-1", "worker-2"),
        probes=[probe(number, ip) for number, ip in enumerate(ips)],
        absent=dict.fromkeys(
            (*OWN, *EVERYWHERE, "system pods", "operators"), "a stack of target local has no Kubernetes"
        ),
    )


def ray(ips: tuple[str, ...], worker: Json, *names: str, version: str = RAY) -> Json:
    """Return Ray's answers. The first address is the head's."""
    nodes = [
        {
            "node_id": f"{number:056x}",
            "node_ip": ip,
            "is_head_node": number == 0,
            "state": "ALIVE",
            "state_message": None,
            "node_name": ("head", *names)[number] if names else ip,
            "resources_total": {"memory": 2.4e10} | (worker if number else {}),
            "start_time_ms": int((NOW - HOUR) * 1000),
        }
        for number, ip in enumerate(ips)
    ]
    ended = int((NOW - 300) * 1000)
    job = {"type": "SUBMISSION", "job_id": "02000000", "submission_id": "nccl-1", "status": "SUCCEEDED"}
    return {
        "version": {"ray_version": version},
        "nodes": nodes,
        "jobs": [
            job | {"message": "", "start_time": ended - 60_000, "end_time": ended, "metadata": {"workload": "nccl"}}
        ],
        "placement groups": [],
        "actors": [],
        "summary": [
            {
                "ip": ip,
                "mem": [2**34, 2**33, 50.0],
                "disk": {"/": {"percent": 40.0}},
                "raylet": {"isHeadNode": not number},
            }
            for number, ip in enumerate(ips)
        ],
        "status": "",
        "any token": False,
        "demands": [],
    }


def probe(number: int, ip: str, machine: Machine | None = None) -> NodeFacts:
    """Return the probe of a node; number 0 is the head."""
    on_fabric = machine is not None and number > 0
    shown = machine if on_fabric else None
    return NodeFacts(
        node_id=f"{number:056x}",
        ip=ip,
        host=f"host-{number}",
        sent=NOW - 3,
        started=NOW - 2,
        ended=NOW - 1.9,
        answered=NOW - 1.8,
        versions={"ray": RAY, "python": "3.11.7", "torch": "2.15.0", "nccl": "2.30.7"},
        libraries={name: True for row in TRANSPORTS.values() for name in row.libraries},
        plugin=FABRIC_PLUGINS.get(shown.transport) if shown else None,
        shm=250 * 2**30 if shown else 64 * 2**20,
        memlock=8 * 2**20 if not shown or shown.cloud == "gke" else -1,
        ipc_lock=shown is not None and shown.cloud == "gke",
        head=None if machine is None else "head-svc.ray.svc.cluster.local",
        driver="580.95.05" if shown else None,
        nics=[nic(index, shown) for index in range(shown.nics)] if shown else [],
        gpus=[gpu(number, index) for index in range(shown.gpus)] if shown else [],
        missing=[],
    )


def nic(index: int, machine: Machine) -> Nic:
    """Return an RDMA NIC of a machine, as the node probe reads it."""
    rate = f"{machine.gbps_per_nic} Gb/sec (4X NDR)"
    shown = {"state": "ACTIVE", "rate": rate, "firmware": "28.45.1200", "link_layer": "Ethernet"}
    return Nic.model_validate({"name": f"mlx5_{index}", "pci": None, "numa_node": 0, **shown})


def gpu(number: int, index: int) -> ProbedGpu:
    """Return an idle GPU."""
    limits = {"sm_mhz": 345, "sm_max_mhz": 1980, "power_limit_w": 700.0, "reasons": ["GpuIdle"]}
    return ProbedGpu.model_validate(
        {"uuid": f"GPU-{number}-{index}", "ecc_uncorrected": 0, "remapped": [0, 0, 0, 0], **limits}
    )


def cloud(name: str, workers: int = 2) -> State:
    """Return the state of one of `tests.kubernetes.stack_objects.stacks()` with this many workers."""
    settings, objects = _program(name)
    machine = CATALOG[settings.nodes.machine]
    found: dict[str, list[Json]] = {section: [] for section in (*OWN, *EVERYWHERE, "system pods", "daemon sets")}
    for each in deepcopy(objects):
        if section := SECTIONS.get(each["kind"]):
            its = {"uid": f"uid-{each['metadata']['name']}", "creationTimestamp": at(NOW - HOUR)}
            found[section].append(each | {"metadata": its | each["metadata"], "status": {"conditions": true("Ready")}})
    if found["networks"]:
        found["networks"].append(body("Network", "default", status={"conditions": true("Ready")}))
    found["operators"] = [
        body("Deployment", "kuberay-operator", {"replicas": 1}, {"availableReplicas": 1}, namespace="kuberay-system")
    ]
    (workload,) = (*found["rayclusters"], *found["rayjobs"], *found["rayservices"], *found["jobs"])
    cluster = workload["metadata"]["name"]
    workload["status"] = {"state": "ready", "jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    workload["spec"]["suspend"] = False
    daemons = _daemons(settings, machine, any("gke-gcsfuse" in str(each) for each in objects))
    if settings.queue == "kueue":
        owner = [{"kind": workload["kind"], "name": cluster}]
        conditions = [*true("QuotaReserved", "Admitted", "PodsReady", "Requeued"), PREVIOUSLY]
        found["workloads"].append(
            body("Workload", f"wl-{cluster}", status={"conditions": conditions}, ownerReferences=owner)
        )
    ips = [f"10.0.0.{number + 2}" for number in range(workers + 1)]
    for number, (group, template) in enumerate(_templates(workload, workers)):
        node = f"gpu-{number}" if group == "worker" else "system-0"
        found["pods"].append(
            _pod(f"{cluster}-{group}-{number}", template, group, node, ips[number % len(ips)], cluster)
        )
    uses_claims = any(pod["spec"].get("resourceClaims") for pod in found["pods"])
    usual = recorded_nodes.GKE if machine.cloud == "gke" else recorded_nodes.EKS
    found["nodes"].append(_node("system-0", {}, {"cpu": "8"}, usual))
    for pod in found["pods"]:
        if (node := pod["spec"]["nodeName"]) != "system-0":
            found["nodes"].append(_node(node, _labels(machine), _devices(machine, bool(found["networks"])), usual))
            found["system pods"] += [_system_pod(owner, node, namespace) for namespace, owner in daemons]
            if uses_claims:
                devices = [
                    {"name": f"nic{at}", "attributes": {"dra.net/rdma": {"bool": True}}} for at in range(machine.nics)
                ]
                found["device slices"].append(body("ResourceSlice", node, {"nodeName": node, "devices": devices}))
    outputs = cluster_outputs(settings, cluster, "kubeconfig", "the-token")
    resources = {"GPU": float(machine.gpus), "CPU": float(machine.pod_cpus or 0)}
    no_head = settings.ray.mode == "indexed-job"
    accepts = settings.ray.mode == "cluster"
    return State(
        time=NOW,
        client=settings.ray.version,
        outputs=Outputs.model_validate(outputs),
        kubernetes=found,
        ray={} if no_head else ray(tuple(ips), resources, version=settings.ray.version),
        probes=[probe(number, ip, machine) for number, ip in enumerate(ips)] if accepts else [],
        absent=({"ray": "no head"} if no_head else {}) | ({} if accepts else {"probes": "no jobs"}),
    )


@cache
def _program(name: str) -> tuple[CloudSettings, list[Json]]:
    """Return the settings of a stack, and the objects that the program registers for it."""
    ours, theirs = next((ours, theirs) for each, ours, theirs in stacks() if each == name)
    settings = parse(ours)
    assert isinstance(settings, CloudSettings)
    return settings, registered(ours, theirs, name.split(",")[0])


def _templates(workload: Json, workers: int) -> Iterator[tuple[str, Json]]:
    if workload["kind"] == "Job":
        yield from (("worker", workload["spec"]["template"]) for _ in range(workers))
        return
    own = workload["spec"]
    spec = own.get("rayClusterSpec") or own.get("rayClusterConfig") or own
    yield "head", spec["headGroupSpec"]["template"]
    yield from (("worker", spec["workerGroupSpecs"][0]["template"]) for _ in range(workers))


def _pod(name: str, template: Json, group: str, node: str, ip: str, cluster: str) -> Json:
    labels = {"ray.io/cluster": cluster, "ray.io/node-type": group} | template["metadata"].get("labels", {})
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": f"{each['image'].partition(':')[0]}@sha256:{'a' * 64}",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": at(NOW - HOUR)}},
        }
        for each in template["spec"]["containers"]
    ]
    status = {
        "phase": "Running",
        "podIP": ip,
        "conditions": true("PodScheduled", "Ready"),
        "containerStatuses": containers,
    }
    annotations = template["metadata"].get("annotations") or {}
    if annotations.get("gke-gcsfuse/volumes") == "true":
        # A native sidecar is an init container (GoogleCloudPlatform/gcs-fuse-csi-driver#351).
        running = {"state": {"running": {"startedAt": at(NOW - HOUR)}}, "lastState": {}}
        status["initContainerStatuses"] = [
            {"name": SIDECAR, "image": "sidecar:v1", "ready": True, "restartCount": 0, **running}
        ]
    return body("Pod", name, template["spec"] | {"nodeName": node}, status, labels=labels, annotations=annotations)


def _node(name: str, labels: Json, allocatable: Json, recorded: str) -> Json:
    conditions = recorded_nodes.conditions(recorded, at(NOW - HOUR))
    return body("Node", name, {"taints": []}, {"conditions": conditions, "allocatable": allocatable}, labels=labels)


def _labels(machine: Machine) -> dict[str, str]:
    if isinstance(machine, GkeMachine):
        return {"cloud.google.com/gke-accelerator": machine.accelerator}
    return {"nvidia.com/gpu.present": "true"}


def _devices(machine: Machine, networks: bool) -> dict[str, str]:
    devices = {GPU: str(machine.gpus)}
    if machine.cloud == "eks":
        return devices | {EFA: str(machine.nics)}
    names = [rdma_network(index) for index in range(machine.nics)] if networks else []
    return devices | {f"{NETWORKS}{each}{suffix}": "1" for each in names for suffix in ("", ".IP")}


def _daemons(settings: CloudSettings, machine: Machine, bucket: bool) -> list[tuple[str, str]]:
    """Return namespace and name of the DaemonSets that a GPU node has.

    GKE's managed DRANET has a namespace of its own (public listings of namespaces, and of DaemonSets with
    networking-dra-driver, read 2026-11-26). The open-source one is in kube-system, by its manifest.
    """
    if not isinstance(machine, GkeMachine):
        names = ["nvidia-device-plugin", "aws-efa-k8s-device-plugin", "aws-node", "kube-proxy"]
        return [(SYSTEM, name) for name in [*names, "eks-node-monitoring-agent"]]
    names = ["nvidia-gpu-device-plugin", machine.nccl_installer, "anetd", "gke-metadata-server"]
    names += ["gcsfusecsi-node"] if bucket else []
    names += ["dranet"] if settings.fabric == "dranet" else []
    managed = [(MANAGED_DRANET, "networking-dra-driver")] if settings.fabric == "managed-dranet" else []
    return [*((SYSTEM, name) for name in names), *managed]


def _system_pod(owner: str, node: str, namespace: str) -> Json:
    owners = [{"kind": "DaemonSet", "name": owner}]
    status = {"phase": "Running", "conditions": true("Ready")}
    return body("Pod", f"{owner}-{node}", {"nodeName": node}, status, namespace=namespace, ownerReferences=owners)
