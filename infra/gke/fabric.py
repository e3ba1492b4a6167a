"""How a pod on GKE reaches its GPUs and RDMA NICs: multi-networking, DRANET, managed DRANET.

Pure: no SDK, no resource. No pod is privileged, shares the host's network or mounts device files from the host.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

from infra.catalog.machines import GkeMachine
from infra.catalog.pins import DEVICE_API
from infra.fabric import BOOTSTRAP, GPU_TOLERATION, Fabric, GpuPod, Variable, all_of_the_node, claim_template, claiming
from infra.gke.facts import GPU_POOL, POOL_LABEL, TOPOLOGY
from infra.kubernetes.queue_facts import TOPOLOGY_ANNOTATION
from infra.settings import GkeSettings as Settings

COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
COMPUTE_CLASS = "rdma"
"""The name of the stack's ComputeClass: may begin neither with gke nor with autopilot (GKE docs, 2026-04-13)."""

GVNIC_NETWORK = "gvnic-1"
"""The Network object of the second host NIC; `rdma_network` names the others."""

SCRIPT = "/usr/local/gib/scripts/set_nccl_env.sh"
HOST_NVIDIA = "/home/kubernetes/bin/nvidia"
HOST_GIB = "/home/kubernetes/bin/gib"
SHM_GIB = 250
SCRATCH_GIB = 1000
CLAIM = "rdma"
DRANET_CLASS = "dranet"
MANAGED_CLASS = "mrdma.google.com"
DEVICE_CLASSES = {"dranet": DRANET_CLASS, "managed-dranet": MANAGED_CLASS}
"""The class of the devices that pods claim, by fabric."""

GIB = "GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma, 992db812, 2026-06-11"
GKE_NCCL = "GKE docs gke-ai-hypercompute-custom, 2026-04-06; values of gIB v1.1"

LIBRARIES = Variable(
    "LD_LIBRARY_PATH",
    "/usr/local/gib/lib64:/usr/local/nvidia/lib64",
    "NCCL finds the gIB plugin and the driver's libraries, which the node provides",
    GIB,
)


def rdma_network(nic: int) -> str:
    """The Network object of an RDMA NIC, counted from 0."""
    return f"rdma-{nic}"


def device_mode(nic: str) -> Literal["NetDevice", "RDMA"]:
    """How a pod gets the NIC: as a network interface, or with its RDMA device (GKE multi-network docs, 2026-04-06)."""
    return "RDMA" if nic.startswith("rdma-") else "NetDevice"


def fabric(machine: GkeMachine) -> Fabric:
    """RoCE by gIB on this machine type."""
    return Fabric(
        transport="gib",
        nics=machine.nics,
        gbps_per_nic=machine.gbps_per_nic,
        aligned=True,
        environment=(LIBRARIES, *BOOTSTRAP),
        script=SCRIPT,
        scripted=_scripted(machine),
    )


def chosen_by_place(settings: Settings) -> bool:
    """Whether Kueue chooses nodes by where they stand: for a reservation whose nodes all stay up.

    It looks at nodes that are there (kueue: pkg/cache/scheduler, TAS flavors, 0.19.2), so a flavor with places admits
    nothing while its pool is empty; and nodes of flex-start and spot may lack the labels (GKE docs, topology-aware
    scheduling, read 2026-08). Machines of one queued request come together anyway, and a worker takes its node whole.
    """
    nodes = settings.nodes
    alone = nodes.fallback is None and not settings.compute_class
    return settings.queue == "kueue" and alone and nodes.capacity == "reservation" and nodes.min == nodes.max


def gpu_pod(settings: Settings, machine: GkeMachine) -> GpuPod:
    """What a worker pod needs under the fabric that the settings choose. Raises `ValueError` for another cloud's."""
    makers = {"multi-network": multi_network, "dranet": dranet, "managed-dranet": managed_dranet}
    if settings.fabric not in makers:
        raise ValueError(f"fabric: {settings.fabric} is not a fabric of gke; choose one of {', '.join(makers)}")
    return makers[settings.fabric](settings, machine)


def multi_network(settings: Settings, machine: GkeMachine) -> GpuPod:
    """Network objects: the pod lists its interfaces, GKE's webhook adds the matching resources.

    eth0 is the pod network, eth1 the second host NIC, then one interface per RDMA NIC in the order of the NICs.
    """
    networks = ["default", GVNIC_NETWORK, *(rdma_network(nic) for nic in range(machine.nics))]
    interfaces = [{"interfaceName": f"eth{index}", "network": network} for index, network in enumerate(networks)]
    annotations = {
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": json.dumps(interfaces),
    }
    pod = _pod(settings, machine)
    return replace(pod, annotations={**pod.annotations, **annotations})


def dranet(settings: Settings, machine: GkeMachine) -> GpuPod:
    """Open-source DRANET: a claim on every RDMA device of the node, whose networks are the stack's own.

    Which devices those are is said by the class, not by the claim: Kueue admits a claim with a selector only when as
    many devices are there already (pkg/dra/claims.go, 0.19.2), and before the first node there is none.
    """
    device_class = {
        "apiVersion": DEVICE_API,
        "kind": "DeviceClass",
        "metadata": {"name": DRANET_CLASS},
        "spec": {
            "selectors": [
                {"cel": {"expression": 'device.driver == "dra.net"'}},
                {"cel": {"expression": 'device.attributes["dra.net"].rdma == true'}},
            ]
        },
    }
    template = claim_template("all-rdma", DRANET_CLASS, machine.nics)
    return claiming(_pod(settings, machine), CLAIM, template, device_class)


def managed_dranet(settings: Settings, machine: GkeMachine) -> GpuPod:
    """DRANET as GKE runs it: the device class is installed, and GKE makes the networks."""
    return claiming(_pod(settings, machine), CLAIM, claim_template("all-mrdma", MANAGED_CLASS, machine.nics))


def _pod(settings: Settings, machine: GkeMachine) -> GpuPod:
    if machine.pod_cpus is None or machine.pod_memory_gib is None:
        raise ValueError(f"nodes.machine: {machine.name} is not supported: {machine.unsupported}")
    own = fabric(machine)
    selector = {"cloud.google.com/gke-accelerator": machine.accelerator}
    tolerations: list[dict[str, str]] = [
        dict(GPU_TOLERATION),
        # A worker that is told to leave keeps running until the node goes, and uses the time for a checkpoint.
        {"key": "cloud.google.com/impending-node-termination", "operator": "Exists"},
    ]
    if settings.compute_class:
        # GKE rejects pods that select a ComputeClass and an accelerator.
        selector = {COMPUTE_CLASS_LABEL: COMPUTE_CLASS}
        tolerations.append(_exactly(COMPUTE_CLASS_LABEL, COMPUTE_CLASS))
    elif settings.queue == "kueue":
        # What Kueue would write into the template (`infra.gke.queue`), so that it changes nothing. Of two pools it
        # chooses one; a selector of ours would then be in its way.
        selector = {**selector, POOL_LABEL: GPU_POOL} if settings.nodes.fallback is None else {}
    if "flex-start-queued" in (settings.nodes.capacity, settings.nodes.fallback):
        tolerations.append(_exactly("cloud.google.com/gke-queued", "true"))
    resources = all_of_the_node(
        machine.pod_cpus, machine.pod_memory_gib, machine.gpus, **{"ephemeral-storage": f"{SCRATCH_GIB}Gi"}
    )
    return GpuPod(
        # Preferred, not required: as near as it goes. A flavor with places admits no pod that asks for none.
        annotations={TOPOLOGY_ANNOTATION: TOPOLOGY[0]} if chosen_by_place(settings) else {},
        node_selector=selector,
        tolerations=tuple(tolerations),
        resources=resources,
        resource_claims=(),
        volumes=(
            {"name": "nvidia", "hostPath": {"path": HOST_NVIDIA}},
            {"name": "gib", "hostPath": {"path": HOST_GIB}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHM_GIB}Gi"}},
        ),
        volume_mounts=(
            {"name": "nvidia", "mountPath": "/usr/local/nvidia"},
            {"name": "gib", "mountPath": "/usr/local/gib"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ),
        environment=own.environment,
        # Registering memory fails without it in some images (NVIDIA/nccl #1925); it matters to root only.
        security_context={"capabilities": {"add": ["IPC_LOCK"]}},
        setup=f"source {SCRIPT}",
    )


def _exactly(key: str, value: str) -> dict[str, str]:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def _scripted(machine: GkeMachine) -> tuple[Variable, ...]:
    lines = [
        ("NCCL_NET", "gIB", "use the plugin or fail, instead of falling back to sockets in silence"),
        ("NCCL_CROSS_NIC", "0", "keep traffic on its rail: NIC n talks to NIC n"),
        ("NCCL_NET_GDR_LEVEL", "PIX", "GPUDirect RDMA between a GPU and a NIC on the same PCIe switch"),
        ("NCCL_P2P_NET_CHUNKSIZE", "131072", "chunk of sends between nodes, bytes"),
        ("NCCL_NVLS_CHUNKSIZE", "524288", "chunk of NVLink SHARP, bytes"),
        ("NCCL_IB_ADAPTIVE_ROUTING", "1", "spread packets over the paths of the fabric"),
        ("NCCL_IB_QPS_PER_CONNECTION", "4", "several queue pairs per connection, to use several paths"),
        ("NCCL_IB_TC", "52", "traffic class that the fabric treats as lossless data"),
        ("NCCL_IB_FIFO_TC", "84", "traffic class of the control messages"),
    ]
    if machine.nccl_tuner is not None:
        path = f"/usr/local/gib/configs/{machine.nccl_tuner}"
        lines.append(("NCCL_TUNER_CONFIG_PATH", path, "algorithms measured for this machine type"))
    return tuple(Variable(name, value, why, GKE_NCCL) for name, value, why in lines)
