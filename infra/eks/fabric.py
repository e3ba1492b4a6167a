"""How a pod on EKS reaches its GPUs and EFA devices: the EFA device plugin, or DRANET claims.

Pure: no SDK, no resource. No pod is privileged, shares the host's network or mounts /dev/infiniband from the host,
which breaks EFA on B200 (aws-do-eks PR #63).
"""

from __future__ import annotations

from infra.catalog.machines import EksMachine
from infra.fabric import BOOTSTRAP, GPU_TOLERATION, Fabric, GpuPod, Variable, claim_template, whole_node, with_claim
from infra.settings import EksSettings as Settings

EFA_RESOURCE = "vpc.amazonaws.com/efa"
EFA_DEVICE_CLASS = "efa.networking.k8s.aws"
SHM_GIB = 128
CLAIM = "efa"

CHEATSHEET = "awslabs/awsome-distributed-ai: 1.architectures/efa-cheatsheet.md, 95b939cd, 2026-07-23"

ENVIRONMENT = (
    Variable(
        "FI_EFA_USE_HUGE_PAGE",
        "0",
        "data loaders fork; a fork copies the huge pages of libfabric and runs out of memory",
        CHEATSHEET,
    ),
    *BOOTSTRAP,
)
"""All that is needed: aws-ofi-nccl 1.7 and libfabric 1.18 or later choose provider, protocol and tuner themselves."""

HEAD_ENVIRONMENT = (
    Variable(
        "NVIDIA_VISIBLE_DEVICES",
        "void",
        "the head asks for no GPU; images with CUDA say `all`, and on a node with GPUs the runtime would hand them out",
        "awslabs/awsome-distributed-ai: slime raycluster, 95b939cd, 2026-07-23",
    ),
)

OBSOLETE = (
    "FI_PROVIDER",
    "FI_EFA_USE_DEVICE_RDMA",
    "FI_EFA_FORK_SAFE",
    "RDMAV_FORK_SAFE",
    "NCCL_PROTO",
    "NCCL_ALGO",
    "NCCL_TUNER_PLUGIN",
    "NCCL_BUFFSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE",
    "NCCL_NET_FORCE_FLUSH",
    "NCCL_NETDEVS_POLICY",
    "NCCL_TIMEOUT",
    "OFI_NCCL_PROTOCOL",
)
"""Variables that guides set and that must not be set any more: the plugin sets or chooses them by platform, some turn
its tuner off, and NCCL never had an NCCL_TIMEOUT (CHEATSHEET; aws/aws-ofi-nccl: src/platform-aws.cpp, 2daf7d3)."""

SETUP = 'export LD_LIBRARY_PATH="/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:${LD_LIBRARY_PATH:-}"'
"""The plugin and libfabric of the image come first, whatever the image's own path says (EFA installer layout)."""


def fabric(machine: EksMachine) -> Fabric:
    """EFA on this instance type."""
    return Fabric(
        transport="efa", nics=machine.nics, gbps_per_nic=machine.gbps_per_nic, aligned=True, environment=ENVIRONMENT
    )


def gpu_pod(settings: Settings, machine: EksMachine) -> GpuPod:
    """What a worker pod needs under the fabric that the settings choose. Raises `ValueError` for another cloud's."""
    makers = {"efa": efa, "efa-dranet": efa_dranet}
    if settings.fabric not in makers:
        raise ValueError(f"fabric: {settings.fabric} is not a fabric of eks; choose one of {', '.join(makers)}")
    return makers[settings.fabric](settings, machine)


def efa(_: Settings, machine: EksMachine) -> GpuPod:
    """The EFA device plugin: the pod asks for every EFA device of the node by count."""
    return _pod(machine, **{EFA_RESOURCE: str(machine.efa_max)})


def efa_dranet(_: Settings, machine: EksMachine) -> GpuPod:
    """DRANET: a claim on every EFA device of the node. Must not share a node with the device plugin."""
    return with_claim(_pod(machine), CLAIM, claim_template("all-efa", EFA_DEVICE_CLASS, machine.efa_max))


def _pod(machine: EksMachine, **extended: str) -> GpuPod:
    if machine.pod_cpus is None or machine.pod_memory_gib is None:
        raise ValueError(f"nodes.machine: {machine.name} is not supported: {machine.unsupported}")
    return GpuPod(
        annotations={},
        node_selector={"node.kubernetes.io/instance-type": machine.name},
        tolerations=(dict(GPU_TOLERATION),),
        resources=whole_node(machine.pod_cpus, machine.pod_memory_gib, machine.gpus, **extended),
        resource_claims=(),
        volumes=({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{SHM_GIB}Gi"}},),
        volume_mounts=({"name": "shm", "mountPath": "/dev/shm"},),
        environment=ENVIRONMENT,
        # Nothing: the nodes lift the limit of locked memory for every container (infra/eks/user_data.py). The other way
        # is the capability IPC_LOCK, which works for root only (NVIDIA/nvidia-container-toolkit #2037), so that every
        # worker would run as root. EFA devices are open to every user of a pod that was given them.
        security_context={},
        setup=SETUP,
    )
