"""Checks of Kubernetes nodes and of the parts that offer their GPUs and NICs: device plugins, installer, networks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from infra.catalog.fabrics import FABRICS, fabrics_of
from infra.catalog.gcp import ACCELERATOR_LABEL
from infra.catalog.machines import CATALOG, GkeMachine, Machine
from infra.catalog.names import GPU, GROUP_LABEL, OTHER_GROUP, rdma_network
from infra.catalog.pins import GKE_NETWORK_API
from workloads.doctor.check import Problem, check
from workloads.doctor.node_facts import NodeFacts
from workloads.doctor.objects import DAEMONS, condition, containers, is_true, labels, name_of, owner_of
from workloads.doctor.state import SYSTEM, State

Json = dict[str, Any]
NETWORKS = "networking.gke.io.networks/"
GPU_LABELS = (ACCELERATOR_LABEL, f"{GPU}.present")
"""Labels of the GPU nodes of both clouds (`infra.gke.pod`, `infra.eks.node_groups`)."""
YOUNG_S = 600
"""Seconds for a new node to start its driver, plugins and installer."""
YOUNG_POD_S = 120
"""Seconds for a pod that replaces another one on a node, as in an update of its DaemonSet."""
STUCK = ("BackOff", "ErrImage", "Error", "OOMKilled")
"""Parts of the kubelet's reasons that are reported at once: each of them follows a failure."""
BEFORE = ("PodInitializing", "ContainerCreating")
"""Kubelet reasons for a container that waits for others, whose reasons are more specific."""
OFTEN, LATELY_S, KILLED_S = 3, 1800, 86400
"""Restarts, and seconds since the last one, from which a ready pod is reported; seconds since one for memory."""


def gpu_nodes(state: State) -> list[Json]:
    """Return the GPU nodes of the stack's machine type: without those with other GPUs."""
    others = {
        pod["spec"].get("nodeName") for pod in state.objects("pods") if labels(pod).get(GROUP_LABEL) == OTHER_GROUP
    }
    gpus = [node for node in state.objects("nodes") if any(label in labels(node) for label in GPU_LABELS)]
    return [node for node in gpus if name_of(node) not in others]


def machine_of(state: State) -> Machine | None:
    """Return the catalog's row of the stack's machine type."""
    return CATALOG.get(state.outputs.machine or "")


def settled(state: State) -> list[Json]:
    """Return the GPU nodes that had time for their driver and plugins, and are ready."""
    return [
        node
        for node in gpu_nodes(state)
        if is_true(node, "Ready") and state.age(node["metadata"].get("creationTimestamp")) > YOUNG_S
    ]


def waiting_reason(pod: Json) -> str:
    """Return why a container of a pod does not run, and how it ended before; empty if all run."""
    reasons = []
    for each in containers(pod):
        now, last = each.get("state") or {}, (each.get("lastState") or {}).get("terminated") or {}
        waiting, ended = now.get("waiting"), now.get("terminated") or {}
        if waiting:
            text = f"{each['name']}: {waiting.get('reason', '')}: {waiting.get('message', '')}".rstrip(": ")
            reasons.append((waiting.get("reason") in BEFORE, f"{text}; before: {_end(last)}" if last else text))
        elif ended.get("exitCode"):
            reasons.append((False, f"{each['name']}: ended: {_end(ended)}"))
    return min(reasons, key=lambda each: each[0], default=(False, ""))[1]


def _end(terminated: Json) -> str:
    text = f"{terminated.get('reason')}, exit code {terminated.get('exitCode')}, {terminated.get('message') or ''}"
    return " ".join(text.split()).rstrip(", ")


def daemons_on(state: State) -> Iterator[tuple[Json, str, str]]:
    """Yield each pod that belongs to a GPU node which had time for it, with its owner and the node.

    A pod that waits for its node names it in its affinity (kubernetes: pkg/controller/daemon/util).
    """
    nodes = {name_of(node) for node in settled(state)}
    seen = set()
    for pod in (*state.objects("system pods"), *state.objects("pods")):
        key = _spaced(pod)
        if key in seen:
            continue
        seen.add(key)
        owner, node = owner_of(pod, *DAEMONS), pod["spec"].get("nodeName") or _target(pod)
        if owner and node in nodes:
            yield pod, owner, node


def _target(pod: Json) -> str:
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    fields = [field for term in affinity.get("nodeSelectorTerms") or [] for field in term.get("matchFields") or []]
    return next((str(field["values"][0]) for field in fields if field.get("key") == "metadata.name"), "")


def broken_daemons(state: State) -> Iterator[tuple[Json, str, str, str]]:
    """Yield the pods of `daemons_on` that are not ready, with owner, node and why."""
    runs = {(owner, node) for pod, owner, node in daemons_on(state) if is_true(pod, "Ready")}
    for pod, owner, node in daemons_on(state):
        phase, deleted = (pod.get("status") or {}).get("phase"), pod["metadata"].get("deletionTimestamp")
        replaced = (owner, node) in runs and (deleted or phase in ("Failed", "Succeeded"))
        ready, reason = condition(pod, "Ready"), waiting_reason(pod)
        since = deleted or ready.get("lastTransitionTime") or pod["metadata"].get("creationTimestamp")
        young = since is not None and state.age(since) <= YOUNG_POD_S and not any(each in reason for each in STUCK)
        if ready.get("status") == "True" or replaced or young:
            continue
        status = pod.get("status") or {}
        texts = [status.get("reason"), status.get("message"), condition(pod, "PodScheduled").get("message")]
        text = reason or ": ".join(str(each) for each in texts if each) or ready.get("message") or "not ready"
        yield pod, owner, node, f"phase {phase}: {text}"


def probe_on(state: State, node: str) -> NodeFacts | None:
    """Return the probe of the Ray node whose pod runs on a node of Kubernetes."""
    ips = {
        (pod.get("status") or {}).get("podIP") for pod in state.objects("pods") if pod["spec"].get("nodeName") == node
    }
    return next((probe for probe in state.probes if probe.ip in ips), None)


@check(
    "daemons",
    "nodes",
    "system pods",
    "daemon sets",
    cure="kubectl -n NAMESPACE logs POD --all-containers shows why; delete the pod to start it again",
)
def daemons(state: State) -> Iterator[Problem]:
    """A DaemonSet's pod does not run on a GPU node, which lacks its driver, device plugin, CSI driver, CNI or agent."""
    machine = machine_of(state)
    reported = machine.nccl_installer if isinstance(machine, GkeMachine) else None
    for pod, owner, node, why in broken_daemons(state):
        if owner != reported:
            cause = f"the pod of DaemonSet {owner} is not ready there"
            yield Problem(f"pod {name_of(pod)} on node {node}", cause, why, _log_cure(pod))
    for pod, owner, node in daemons_on(state):
        again = [each for each in containers(pod) if _restarts(state, each, node)]
        if again and is_true(pod, "Ready"):
            ends = [(each, _end(each["lastState"]["terminated"])) for each in again]
            text = "; ".join(f"{each['name']}: {each.get('restartCount')} restarts, {end}" for each, end in ends)
            killed = any("OOMKilled" in end for _, end in ends)
            what = "was killed for memory" if killed else "restarts repeatedly"
            cause = f"the pod of DaemonSet {owner} {what} there"
            yield Problem(f"pod {name_of(pod)} on node {node}", cause, text, _log_cure(pod), "warning")
    yield from _without_pods(state)


def _log_cure(pod: Json) -> str:
    namespace = pod["metadata"].get("namespace") or SYSTEM
    return f"kubectl -n {namespace} logs POD --all-containers shows why; delete the pod to start it again"


def _spaced(body: Json) -> str:
    return f"{body['metadata'].get('namespace') or SYSTEM}/{name_of(body)}"


def _restarts(state: State, container: Json, node: str) -> bool:
    """Return whether a container was killed for memory, or restarted often and lately: not as its node started."""
    last = (container.get("lastState") or {}).get("terminated") or {}
    ended = last.get("finishedAt")
    if ended and last.get("reason") == "OOMKilled" and state.age(ended) < KILLED_S:
        return True
    if not ended or int(container.get("restartCount") or 0) < OFTEN or state.age(ended) > LATELY_S:
        return False
    born = next((each["metadata"].get("creationTimestamp") for each in gpu_nodes(state) if name_of(each) == node), None)
    return born is None or state.age(born) - state.age(ended) > YOUNG_S


def _without_pods(state: State) -> Iterator[Problem]:
    """Yield the DaemonSets whose pods cannot be created, such as by a quota: there is no pod that would say so."""
    if any(state.age(node["metadata"].get("creationTimestamp")) <= YOUNG_S for node in state.objects("nodes")):
        return
    for body in state.objects("daemon sets"):
        status = body.get("status") or {}
        wanted, there = int(status.get("desiredNumberScheduled") or 0), int(status.get("currentNumberScheduled") or 0)
        # While an update replaces pods, one may be missing for a moment.
        if there < wanted and int(status.get("updatedNumberScheduled") or 0) >= there:
            where = f"DaemonSet {_spaced(body)}"
            cure = f"kubectl -n {body['metadata'].get('namespace') or SYSTEM} describe daemonset {name_of(body)}"
            cure += ": its events name the quota or policy that refuses them"
            cause = "its pods are not created on all its nodes"
            yield Problem(where, cause, f"{there} of {wanted} pods", cure)


@check(
    "gpus", "nodes", cure="nvidia-smi -L on the node, then its kernel log; delete the node, and the pool replaces it"
)
def gpus(state: State) -> Iterator[Problem]:
    """A node offers fewer GPUs than its machine type has, or Ray's pod sees fewer."""
    if (machine := machine_of(state)) is None:
        return
    broken = _broken(state)
    for node in settled(state):
        name, offered = name_of(node), int(node["status"]["allocatable"].get(GPU, 0))
        probe = probe_on(state, name)
        if offered < machine.gpus:
            capacity = (node["status"].get("capacity") or {}).get(GPU, "unknown")
            text = f"allocatable {GPU}: {offered}; capacity: {capacity}"
            others = [
                f"{key}: {amount}" for key, amount in node["status"]["allocatable"].items() if _is_gpu(key, amount)
            ]
            cause, cure = f"{offered} of the {machine.gpus} GPUs of a {machine.name}", broken.get(name)
            if others and not offered:
                cause, cure = f"{cause}: it offers them by other names", f"{OTHER_NAMES}: {', '.join(others)}"
            yield Problem(f"node {name}", cause, "; ".join([text, *others]), cure)
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
    broken, resource = _broken(state), _nic_resource(state, machine)
    by_claim: dict[str, int] = {}
    for each in state.objects("device slices"):
        node = each["spec"].get("nodeName")
        by_claim[node] = by_claim.get(node, 0) + sum(_is_rdma(device) for device in each["spec"].get("devices") or [])
    if broken_networks(state):
        return
    missing = {}
    for node in settled(state):
        name, offered = name_of(node), node["status"]["allocatable"]
        if claims_nics(state):
            found, text = by_claim.get(name, 0), f"ResourceSlices of the node: {by_claim.get(name, 0)} RDMA devices"
        elif resource:
            found, text = int(offered.get(resource, 0)), f"allocatable {resource}: {offered.get(resource, 0)}"
        else:
            names = [NETWORKS + rdma_network(nic) for nic in range(machine.nics)]
            absent = [each for each in names if int(offered.get(each, 0)) < 1]
            found, text = machine.nics - len(absent), f"no allocatable {', '.join(absent)}"
        if found < machine.nics:
            missing[name] = found, text, sorted(each for each in offered if "/" in each and each != GPU)
    # Only a fault of one node goes away with it.
    alike = len(missing) == len(settled(state)) > 1 and len({found for found, _, _ in missing.values()}) == 1
    for name, (found, text, there) in missing.items():
        networks = [each for each in there if each.startswith(NETWORKS)]
        cause, cure = f"{found} of the {machine.nics} RDMA NICs of a {machine.name}", broken.get(name)
        if networks and not found:  # a node that lacks some devices has lost them
            only = all(each.endswith(".IP") for each in networks)
            cause += ": it offers their addresses (.IP), but not the devices" if only else ": it offers other names"
            cure = NAMES if only else f"{OTHER_NAMES}: {', '.join(networks)}"
        elif alike and cure is None:
            cure = SAME
        offers = f"; there are: {', '.join(there) or 'no extended resources'}"
        yield Problem(f"node {name}", cause, f"{text}{offers}", cure)


def _is_gpu(name: str, amount: object) -> bool:
    """Return whether a resource is GPUs by another name, as MIG and time slicing have (NVIDIA/k8s-device-plugin)."""
    return name.startswith(("nvidia.com/mig-", f"{GPU}.")) and str(amount) != "0"


OTHER_NAMES = "a new node would be the same: make the driver's settings and the pods' requests agree; the node offers"
NAMES = (
    "a new node would be the same: GKE asks for the device and its address for each network of a pod, and these nodes"
    " offer the address only. Compare the GKE version and the deviceMode (kubectl get gkenetworkparamset -o yaml) with"
    " a pool that works (llm-d/llm-d#1730)"
)
SAME = (
    "all GPU nodes are alike, so a new one would be too: compare the names that are there with those that the pods"
    " request, then the DaemonSet of the NICs' driver, and the networks of the node pool"
)


def _broken(state: State) -> dict[str, str]:
    """Return the cure for missing devices of each node with a DaemonSet's pod that is not ready."""
    names: dict[str, list[str]] = {}
    for _, owner, node, _ in broken_daemons(state):
        names.setdefault(node, []).append(owner)
    text = "first fix the pods of DaemonSets that are not ready there: one of them may offer the devices"
    return {node: f"{text}: {', '.join(sorted({*owners}))}" for node, owners in names.items()}


def _nic_resource(state: State, machine: Machine) -> str | None:
    """Return the resource that stands for a NIC: that which pods request, or that of the cloud's default."""
    names = [row.resource.name for row in FABRICS.values() if row.resource and row.resource.per == "nic"]
    default = FABRICS[fabrics_of(machine.cloud)[0]].resource
    containers = [each for pod in templates(state) for each in pod["spec"].get("containers") or []]
    requested = {name for each in containers for name in (each.get("resources") or {}).get("limits") or {}}
    return next((name for name in names if name in requested), default.name if default else None)


def _is_rdma(device: Json) -> bool:
    """Return whether a device is an RDMA NIC (kubernetes-sigs/dranet v1.4.0: pkg/apis/attributes.go)."""
    return bool((device.get("attributes") or {}).get("dra.net/rdma", {}).get("bool"))


def claims_nics(state: State) -> bool:
    """Return whether the stack's pods claim their NICs as devices."""
    return any(pod["spec"].get("resourceClaims") for pod in templates(state))


def templates(state: State) -> Iterator[Json]:
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
    if not isinstance(machine, GkeMachine) or state.outputs.fabric.row.installer is None:
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
    findings = []
    for section in ("network parameters", "networks"):
        for body in state.objects(section):
            ready = condition(body, "Ready")
            if ready and ready["status"] != "True":
                findings.append((f"{body['kind']} {name_of(body)}", f"{ready.get('reason')}: {ready.get('message')}"))
    known = {name_of(body) for body in state.objects("networks")}
    named = set()
    for pod in templates(state):
        interfaces = (pod["metadata"].get("annotations") or {}).get("networking.gke.io/interfaces")
        named |= {each["network"] for each in json.loads(interfaces)} if interfaces else set()
    findings += [
        (f"Network {name}", f"pods name it, but {GKE_NETWORK_API} has no such Network")
        for name in sorted(named - known)
    ]
    return findings


@check(
    "networks",
    "pods",
    cure="make up: it creates the networks again; kubectl describe network,gkenetworkparamset shows the reason",
)
def networks(state: State) -> Iterator[Problem]:
    """A Network or GKENetworkParamSet of an RDMA NIC is missing or not ready."""
    for where, why in broken_networks(state):
        yield Problem(where, "the network of an RDMA NIC is not ready", why)
