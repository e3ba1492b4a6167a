"""Checks of Kubernetes' nodes and of what makes their GPUs and NICs available: device plugins, installer, networks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from infra.catalog.machines import CATALOG, GkeMachine, Machine
from infra.catalog.pins import GKE_NETWORK_API
from infra.gke.pod import rdma_network
from workloads.doctor.check import Problem, check
from workloads.doctor.probe import Probe
from workloads.doctor.state import State, condition, is_true, labels

GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
NETWORKS = "networking.gke.io.networks/"
GPU_LABELS = ("cloud.google.com/gke-accelerator", "nvidia.com/gpu.present")
"""Labels of the GPU nodes of both clouds (`infra.gke.pod`, `infra.eks.node_groups`)."""
PLUGINS = (
    "nvidia-gpu-device-plugin",
    "nvidia-device-plugin",
    "aws-efa-k8s-device-plugin",
    "dranet",
    "nvidia-driver-installer",
)
"""Parts of the names of the DaemonSets that make devices available (charts in `infra.catalog.pins`; GKE's own)."""
YOUNG_S = 600
"""Seconds that a new node has for its driver, plugins and installer."""
NOT_READY_S = 120


def gpu_nodes(state: State) -> list[dict[str, Any]]:
    """Return the GPU nodes."""
    return [node for node in state.objects("nodes") if any(label in labels(node) for label in GPU_LABELS)]


def machine_of(state: State) -> Machine | None:
    """Return the catalog's row of the stack's machine type."""
    return CATALOG.get(state.outputs.machine or "")


def settled(state: State) -> list[dict[str, Any]]:
    """Return the GPU nodes that had time for their driver and plugins, and are ready."""
    return [
        node
        for node in gpu_nodes(state)
        if is_true(node, "Ready") and state.age(node["metadata"].get("creationTimestamp")) > YOUNG_S
    ]


def name_of(body: dict[str, Any]) -> str:
    """Return an object's name."""
    return str(body["metadata"]["name"])


def owner_of(body: dict[str, Any]) -> str:
    """Return the name of an object's first owner; empty without one."""
    owners = body["metadata"].get("ownerReferences") or []
    return str(owners[0]["name"]) if owners else ""


def waiting_reason(pod: dict[str, Any]) -> str:
    """Return why a container of a pod does not run, as the kubelet writes it; empty if all run."""
    status = pod.get("status") or {}
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = (each.get("state") or {}).get("waiting")
        if waiting:
            return f"{each['name']}: {waiting.get('reason', '')}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def broken_plugins(state: State) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the pods of device plugins that are not ready, with why, on nodes that had time for them."""
    nodes = {name_of(node) for node in settled(state)}
    for pod in state.objects("system pods"):
        mine = pod["spec"].get("nodeName") in nodes and any(each in owner_of(pod) for each in PLUGINS)
        if mine and not is_true(pod, "Ready"):
            yield pod, waiting_reason(pod) or f"phase {(pod.get('status') or {}).get('phase')}, not ready"


def probe_on(state: State, node: str) -> Probe | None:
    """Return the probe of the Ray node whose pod runs on a node of Kubernetes."""
    ips = {
        (pod.get("status") or {}).get("podIP") for pod in state.objects("pods") if pod["spec"].get("nodeName") == node
    }
    return next((probe for probe in state.probes if probe.ip in ips), None)


@check(
    "nodes",
    "nodes",
    cure="kubectl describe node NODE shows its conditions; delete a node that stays so, and the pool replaces it",
)
def nodes(state: State) -> Iterator[Problem]:
    """A node is not ready, or no pod may be placed on it."""
    for node in state.objects("nodes"):
        ready = condition(node, "Ready")
        if ready.get("status") != "True" and state.age(ready.get("lastTransitionTime")) > NOT_READY_S:
            text = f"{ready.get('reason', 'no condition')}: {ready.get('message', '')}".rstrip(": ")
            yield Problem(f"node {name_of(node)}", "the node is not ready", text)
        elif node["spec"].get("unschedulable"):
            cure = f"kubectl uncordon {name_of(node)}, unless it is under repair"
            yield Problem(f"node {name_of(node)}", "the node is cordoned", "spec.unschedulable: true", cure, "warning")


@check(
    "device-plugins",
    "nodes",
    "system pods",
    cure="kubectl -n kube-system logs POD shows why; delete the pod to start it again",
)
def device_plugins(state: State) -> Iterator[Problem]:
    """A device plugin, DRA driver or driver installer does not run on a GPU node, which lacks its devices."""
    for pod, why in broken_plugins(state):
        yield Problem(f"pod {name_of(pod)} on node {pod['spec']['nodeName']}", "a device plugin is not ready", why)


@check(
    "gpus", "nodes", cure="nvidia-smi -L on the node, then its kernel log; delete the node, and the pool replaces it"
)
def gpus(state: State) -> Iterator[Problem]:
    """A node offers fewer GPUs than its machine type has, or Ray's pod sees fewer."""
    if (machine := machine_of(state)) is None:
        return
    broken = {pod["spec"]["nodeName"] for pod, _ in broken_plugins(state)}
    for node in settled(state):
        name, offered = name_of(node), int(node["status"]["allocatable"].get(GPU, 0))
        probe = probe_on(state, name)
        if offered < machine.gpus and name not in broken:
            text = f"allocatable {GPU}: {offered}"
            yield Problem(f"node {name}", f"{offered} of the {machine.gpus} GPUs of a {machine.name}", text)
        elif probe is not None and 0 < len(probe.gpus) < machine.gpus:
            text = f"NVML in Ray's pod {probe.ip}: {len(probe.gpus)} GPUs"
            yield Problem(f"node {name}", f"Ray's pod sees {len(probe.gpus)} of {machine.gpus} GPUs", text)


@check(
    "nics",
    "nodes",
    cure="compare the node with another one: kubectl get node NODE -o yaml; delete it, and the pool replaces it",
)
def nics(state: State) -> Iterator[Problem]:
    """A node offers fewer RDMA NICs than its machine type has, by its resources or as devices."""
    if (machine := machine_of(state)) is None:
        return
    broken = {pod["spec"]["nodeName"] for pod, _ in broken_plugins(state)}
    by_claim: dict[str, int] = {}
    for each in state.objects("device slices"):
        node = each["spec"].get("nodeName")
        by_claim[node] = by_claim.get(node, 0) + sum(_is_rdma(device) for device in each["spec"].get("devices") or [])
    for node in settled(state):
        name, offered = name_of(node), node["status"]["allocatable"]
        if claims_nics(state):
            found, missing = by_claim.get(name, 0), f"ResourceSlices of the node: {by_claim.get(name, 0)} RDMA devices"
        elif machine.cloud == "eks":
            found, missing = int(offered.get(EFA, 0)), f"allocatable {EFA}: {offered.get(EFA, 0)}"
        else:
            names = [rdma_network(nic) for nic in range(machine.nics)]
            absent = [each for each in names if int(offered.get(NETWORKS + each, 0)) < 1]
            found, missing = (
                machine.nics - len(absent),
                f"no allocatable {', '.join(NETWORKS + each for each in absent)}",
            )
        if found < machine.nics and name not in broken and not broken_networks(state):
            yield Problem(f"node {name}", f"{found} of the {machine.nics} RDMA NICs of a {machine.name}", missing)


def _is_rdma(device: dict[str, Any]) -> bool:
    """Return whether a device is an RDMA NIC (kubernetes-sigs/dranet v1.4.0: pkg/apis/attributes.go)."""
    return bool((device.get("attributes") or {}).get("dra.net/rdma", {}).get("bool"))


def claims_nics(state: State) -> bool:
    """Return whether the stack's pods claim their NICs as devices."""
    return any(pod["spec"].get("resourceClaims") for pod in templates(state))


def templates(state: State) -> Iterator[dict[str, Any]]:
    """Yield the pod templates of the stack's workload, and its pods."""
    clusters = [each["spec"] for each in state.objects("rayclusters")]
    clusters += [
        each["spec"]["rayClusterSpec"] for each in state.objects("rayjobs") if "rayClusterSpec" in each["spec"]
    ]
    for spec in clusters:
        yield from (group["template"] for group in spec.get("workerGroupSpecs") or [])
    yield from (each["spec"]["template"] for each in state.objects("jobs"))
    yield from state.objects("pods")


@check(
    "installer",
    "nodes",
    "system pods",
    cure="kubectl -n kube-system logs POD -c nccl-rdma-installer; delete the pod to install again",
)
def installer(state: State) -> Iterator[Problem]:
    """The installer of Google's NCCL plugin has not finished on a GPU node, so its workers do not start."""
    machine = machine_of(state)
    if not isinstance(machine, GkeMachine):
        return
    pods = {
        pod["spec"].get("nodeName"): pod
        for pod in state.objects("system pods")
        if owner_of(pod) == machine.nccl_installer
    }
    for node in settled(state):
        name = name_of(node)
        pod = pods.get(name)
        if pod is None:
            cure = f"make up: it creates the DaemonSet {machine.nccl_installer}"
            yield Problem(
                f"node {name}",
                "no installer of the NCCL plugin runs there",
                f"no pod of {machine.nccl_installer}",
                cure,
            )
        elif not is_true(pod, "Ready"):
            why = waiting_reason(pod) or "its init container still runs"
            yield Problem(f"pod {name_of(pod)} on node {name}", "the NCCL plugin is not installed", why)


def broken_networks(state: State) -> list[tuple[str, str]]:
    """Return the network objects that are not ready or missing, with the reason."""
    if "networks" not in state.kubernetes:
        return []
    found = []
    for section in ("network parameters", "networks"):
        for body in state.objects(section):
            ready = condition(body, "Ready")
            if ready and ready["status"] != "True":
                found.append((f"{body['kind']} {name_of(body)}", f"{ready.get('reason')}: {ready.get('message')}"))
    known = {name_of(body) for body in state.objects("networks")}
    named = set()
    for pod in templates(state):
        interfaces = (pod["metadata"].get("annotations") or {}).get("networking.gke.io/interfaces")
        named |= {each["network"] for each in json.loads(interfaces)} if interfaces else set()
    found += [
        (f"Network {name}", f"pods name it, and {GKE_NETWORK_API} has no such Network")
        for name in sorted(named - known)
    ]
    return found


@check(
    "networks",
    "pods",
    cure="make up: it creates the networks again; kubectl describe network,gkenetworkparamset shows the reason",
)
def networks(state: State) -> Iterator[Problem]:
    """A Network or GKENetworkParamSet of an RDMA NIC is missing or not ready."""
    for where, why in broken_networks(state):
        yield Problem(where, "the network of an RDMA NIC is not ready", why)
