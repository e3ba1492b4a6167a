"""Catalog of machine types: one row per type, each fact with its source.

A fact that no source gives is None, and `unknown` has the reason. The catalog also has types that are not supported
yet, so that a stack file that names one gets a reason instead of "no such machine".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from infra.catalog.baselines import BASELINES, Baseline

GKE_MACHINES = "GKE docs gke-ai-hypercompute-custom, 2026-04-06"
GKE_A4X = "GKE docs gke-ai-hypercompute-custom-a4x, read 2026-08"
GKE_GPUS = (
    "GKE docs how-to/gpus; nvidia-l4 with pd-balanced on 1.27: gist gbrayut/71ef2d57, 2024-04-30; read 2026-11-28"
)
GCE_G2 = (
    "AI Hypercomputer docs, evaluate-general-gpus, G2 series; create-vms-in-bulk-g2 (no pd-standard); read 2026-11-28"
)
GCE_N2D = (
    "GoogleCloudPlatform/cluster-autoscaler: pkg/cloudprovider/gke/machinetypes, 7d250507, 2026-08-21; pd-balanced and "
    "spot: kubernetes/autoscaler: gce_price_info.go, 0411d1c8, read 2026-11-28; reservation, 1.27: unverified"
)
GKE_FLEX = "GKE docs concepts/dws, read 2026-08"
TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: examples, 10470803, 2026-06-25"
GCE_MACHINES = "Compute Engine docs accelerator-optimized-machines (GB there are GiB), read 2026-11"
VERL = "GoogleCloudPlatform/kubernetes-engine-samples: ai-ml/verl-on-gke, read 2026-08"
GIB_INSTALLER = "GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma, 992db812, 2026-06-11"
EC2_TYPES = "EC2 DescribeInstanceTypes, read 2026-08"
EC2_LAYERS = "EC2 docs, ec2-instance-topology-prerequisites, read 2026-11-26"
EC2_EFA = "EC2 docs, Elastic Fabric Adapter: supported instance types, read 2026-08"
EC2_LAYOUT = "EC2 docs efa-acc-inst-types and aws/aws-parallelcluster #7143, read 2026-08"
EC2_GPU_DIRECT = "aws/aws-ofi-nccl #547, 2025-08-12: the P series only; #1057, 2025-11-22: not g7e.8xlarge"
KARPENTER = "aws/karpenter-provider-aws 1.15.1: zz_generated bandwidth and efa_metadata, 2026-07"
EKSCTL_BLOCKS = "eksctl-io/eksctl: CBRSupported, 99984adb6, 2026-08; EC2 docs, Capacity Blocks"
OUR_CHOICE = "this project's choice, 2026-11: the rest is ample for the kubelet, system pods and daemon sets"
OUR_SUPPORT = "this project, 2026-11"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine type of Ray workers. Its `transport` is `socket` if it has no RDMA NIC; `gpu` is empty without GPUs.

    Units: `vcpus` are logical CPUs; `memory_mib` MiB of the machine; `pod_cpus` logical CPUs and `pod_memory_gib` GiB
    that a node's single worker pod requests; `nics` RDMA NICs of the machine; `gbps_per_nic` Gbit/s of one of them in
    each direction. `transport` is the usual one (`infra.catalog.fabrics`); `capacities` are `infra.catalog.capacity`'s.
    `unsupported` is the reason why this program does not create such machines, None for supported types.
    """

    name: str
    cloud: Literal["gke", "eks"]
    gpu: str
    gpus: int
    vcpus: int | None
    memory_mib: int | None
    pod_cpus: int | None
    pod_memory_gib: int | None
    arch: Literal["amd64", "arm64"]
    transport: str
    nics: int
    gbps_per_nic: int
    capacities: tuple[str, ...]
    unsupported: str | None = None
    sources: Mapping[str, str]
    unknown: Mapping[str, str] = field(default_factory=dict)

    gpu_direct: bool = True
    """Whether its NICs read and write the memory of GPUs (GPUDirect RDMA)."""

    @property
    def rdma(self) -> bool:
        """Whether it has RDMA NICs."""
        return self.nics > 0

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """Published bus bandwidths of the machine, with their sources; empty if none is published."""
        return BASELINES.get(self.name, ())


@dataclass(frozen=True, kw_only=True)
class GkeMachine(Machine):
    """A Google Cloud machine type.

    `accelerator` is the value of cloud.google.com/gke-accelerator, empty without GPUs. `min_versions` are the lowest
    GKE versions: "nodes" for the machine itself, the others for a feature on it. `local_ssds` counts disks.
    `network_profile` is the part after ZONE-. `nccl_tuner` is a file in /usr/local/gib/configs, None if
    set_nccl_env.sh chooses the settings.
    Without RDMA there are none, and `nccl_installer` is empty.
    """

    accelerator: str
    min_versions: Mapping[str, str]
    local_ssds: int | None
    boot_disk: str
    network_profile: str | None
    nccl_tuner: str | None
    nccl_installer: str


@dataclass(frozen=True, kw_only=True)
class EksMachine(Machine):
    """An EC2 instance type.

    `nics` are EFA devices, one on each network card. `card_zero_efa` is whether card 0 supports EFA. `efa_on_primary`
    is whether the published launch templates make the primary interface an EFA. `nvme_gb` is GB (decimal) of instance
    store. `network_layers` are those of EC2's network above it.
    """

    card_zero_efa: bool
    efa_on_primary: bool
    nvme_gb: int
    network_layers: int = 3

    @property
    def network_cards(self) -> int:
        """Number of network cards: one per EFA device, and card 0 where that has an ENA only."""
        return self.nics if self.card_zero_efa else self.nics + 1


def _cite(*pairs: tuple[str, str]) -> dict[str, str]:
    """Return field → source, from pairs of a source and the names of the fields that it documents."""
    return {name: source for source, names in pairs for name in names.split()}


_A3_ULTRA = GkeMachine(
    name="a3-ultragpu-8g",
    cloud="gke",
    gpu="H200",
    gpus=8,
    vcpus=224,
    memory_mib=2952 * 1024,
    pod_cpus=220,
    pod_memory_gib=2800,
    arch="amd64",
    transport="gib",
    nics=8,
    gbps_per_nic=400,
    capacities=("flex-start", "flex-start-queued", "spot", "reservation"),
    accelerator="nvidia-h200-141gb",
    min_versions={
        "nodes": "1.31.4-gke.1183000",
        "flex-start": "1.32.2-gke.1652000",
    },
    local_ssds=32,
    boot_disk="hyperdisk-balanced",
    network_profile="vpc-roce",
    nccl_tuner="tuner_config_a3u.txtpb",
    nccl_installer="nccl-rdma-installer",
    sources=_cite(
        (GKE_MACHINES, "name cloud gpu gpus vcpus arch transport nics gbps_per_nic accelerator local_ssds"),
        (GKE_MACHINES, "boot_disk network_profile capacities"),
        (GCE_MACHINES, "memory_mib"),
        (VERL, "pod_cpus pod_memory_gib"),
        (f"{GKE_MACHINES}; flex-start {GKE_FLEX}", "min_versions"),
        (GIB_INSTALLER, "nccl_tuner nccl_installer gpu_direct"),
        (OUR_SUPPORT, "unsupported"),
    ),
)

_A4 = replace(
    _A3_ULTRA,
    name="a4-highgpu-8g",
    gpu="B200",
    memory_mib=3968 * 1024,
    pod_memory_gib=3700,
    accelerator="nvidia-b200",
    # The machine itself requires 1.32.1-gke.1729000, its RDMA NICs this later version.
    min_versions={**_A3_ULTRA.min_versions, "nodes": "1.32.2-gke.1475000"},
    nccl_tuner="tuner_config_a4.txtpb",
    sources={
        **_A3_ULTRA.sources,
        # Left of it for pods: about 3,816 GiB (GoogleCloudPlatform/cluster-autoscaler, 7d25050, 2026-08).
        "pod_memory_gib": OUR_CHOICE,
    },
)

_A4X = replace(
    _A3_ULTRA,
    name="a4x-highgpu-4g",
    gpu="GB200",
    gpus=4,
    vcpus=None,
    memory_mib=None,
    pod_cpus=None,
    pod_memory_gib=None,
    arch="arm64",
    nics=4,
    capacities=("reservation",),
    unsupported="its nodes are arm64 and form one NVLink domain of 72 GPUs: it needs a workload policy 1x72, the "
    "NVIDIA DRA driver with ComputeDomains, and an arm64 image, none of which this program supports yet",
    accelerator="nvidia-gb200",
    min_versions={"nodes": "1.33.4-gke.1036000"},
    local_ssds=None,
    nccl_tuner=None,
    nccl_installer="nccl-rdma-installer-a4x",
    sources={**dict.fromkeys(_A3_ULTRA.sources, GKE_A4X), "unsupported": OUR_SUPPORT},
    unknown={
        "vcpus": "not in any source that was read",
        "memory_mib": "not in any source that was read",
        "pod_cpus": "no published pod request was found",
        "pod_memory_gib": "no published pod request was found",
        "local_ssds": "the type has local disks (only -nolssd has none), but no source gives their number",
        "nccl_tuner": "set_nccl_env.sh chooses the settings; there is no tuner file",
    },
)

# For a first `up` that costs little: all but the RDMA of a stack, on machines of under a dollar an hour.
_G2_8 = GkeMachine(
    name="g2-standard-8",
    cloud="gke",
    gpu="L4",
    gpus=1,
    vcpus=8,
    memory_mib=32 * 1024,
    pod_cpus=6,
    pod_memory_gib=22,
    arch="amd64",
    transport="socket",
    nics=0,
    gbps_per_nic=0,
    capacities=("on-demand", "spot", "reservation"),
    accelerator="nvidia-l4",
    min_versions={"nodes": "1.27.0"},
    local_ssds=0,
    boot_disk="pd-balanced",
    network_profile=None,
    nccl_tuner=None,
    nccl_installer="",
    gpu_direct=False,
    sources=_cite(
        (GCE_G2, "name cloud gpu gpus vcpus memory_mib arch transport nics gbps_per_nic local_ssds boot_disk"),
        (GKE_GPUS, "accelerator capacities min_versions nccl_installer gpu_direct"),
        (OUR_CHOICE, "pod_cpus pod_memory_gib"),
        (OUR_SUPPORT, "unsupported"),
    ),
    unknown={"network_profile": "it has no RDMA NIC", "nccl_tuner": "gIB is for RDMA"},
)

_G2_4 = replace(_G2_8, name="g2-standard-4", vcpus=4, memory_mib=16 * 1024, pod_cpus=3, pod_memory_gib=9)

# Without GPUs: data processing, or processes that communicate over sockets.
_N2D_8 = replace(
    _G2_8,
    name="n2d-standard-8",
    gpu="",
    gpus=0,
    accelerator="",
    sources={**dict.fromkeys(_G2_8.sources, GCE_N2D), "pod_cpus": OUR_CHOICE, "pod_memory_gib": OUR_CHOICE},
)

_N2D_16 = replace(_N2D_8, name="n2d-standard-16", vcpus=16, memory_mib=64 * 1024, pod_cpus=14, pod_memory_gib=52)

_P4D = EksMachine(
    name="p4d.24xlarge",
    cloud="eks",
    gpu="A100",
    gpus=8,
    vcpus=96,
    memory_mib=1179648,
    pod_cpus=88,
    pod_memory_gib=1000,
    arch="amd64",
    transport="efa",
    nics=4,
    gbps_per_nic=100,
    capacities=("on-demand", "spot", "reservation", "capacity-block"),
    card_zero_efa=True,
    efa_on_primary=True,
    nvme_gb=8000,
    sources=_cite(
        (EC2_TYPES, "name cloud gpu gpus vcpus memory_mib arch nvme_gb nics"),
        (EC2_EFA, "transport gbps_per_nic"),
        (EC2_LAYOUT, "card_zero_efa efa_on_primary"),
        (EKSCTL_BLOCKS, "capacities"),
        (OUR_CHOICE, "pod_cpus pod_memory_gib"),
        (EC2_LAYERS, "network_layers"),
        (EC2_GPU_DIRECT, "gpu_direct"),
        (OUR_SUPPORT, "unsupported"),
    ),
)

_P4DE = replace(_P4D, name="p4de.24xlarge")

_P5 = replace(
    _P4D,
    name="p5.48xlarge",
    gpu="H100",
    vcpus=192,
    memory_mib=2097152,
    pod_cpus=184,
    pod_memory_gib=1800,
    nics=32,
    efa_on_primary=False,
    nvme_gb=30400,
)

_P5E = replace(_P5, name="p5e.48xlarge", gpu="H200")

_P5EN = replace(_P5E, name="p5en.48xlarge", nics=16, gbps_per_nic=200)

_P6_B200 = replace(_P5, name="p6-b200.48xlarge", gpu="B200", nics=8, gbps_per_nic=400, network_layers=4)

_P6_B300 = replace(
    _P6_B200,
    name="p6-b300.48xlarge",
    gpu="B300",
    memory_mib=4194304,
    pod_memory_gib=3600,
    nics=16,
    card_zero_efa=False,
    capacities=("on-demand", "reservation", "capacity-block"),
    sources={
        **_P6_B200.sources,
        "capacities": f"{EKSCTL_BLOCKS}; no spot: inferred from the scarcity of the type, 2026-08",
    },
)

# EFA for a few dollars an hour: one device on the card of the primary interface, one GPU, no GPUDirect RDMA.
_G6 = replace(
    _P4D,
    name="g6.8xlarge",
    gpu="L4",
    gpus=1,
    vcpus=32,
    memory_mib=128 * 1024,
    pod_cpus=28,
    pod_memory_gib=100,
    nics=1,
    gbps_per_nic=25,
    capacities=("on-demand", "spot", "reservation"),
    efa_on_primary=False,
    nvme_gb=900,
    network_layers=0,
    gpu_direct=False,
    sources={
        **_P4D.sources,
        "gbps_per_nic": KARPENTER,
        "capacities": f"{EC2_TYPES}: no Capacity Block",
    },
)

_G6E = replace(_G6, name="g6e.8xlarge", gpu="L40S", memory_mib=256 * 1024, pod_memory_gib=220, network_layers=3)

_G7E = replace(_G6E, name="g7e.8xlarge", gpu="RTX PRO 6000", gbps_per_nic=100, nvme_gb=1900)

_P5_4 = replace(
    _G7E,
    name="p5.4xlarge",
    gpu="H100",
    vcpus=16,
    pod_cpus=13,
    capacities=_P5.capacities,
    nvme_gb=3800,
    sources={
        **_G6.sources,
        "capacities": EKSCTL_BLOCKS,
        "gpu_direct": "aws/aws-ofi-nccl 1.21.1: the plugin does not require it there, 2026-08-19",
    },
)

GKE_CATALOG: dict[str, GkeMachine] = {row.name: row for row in (_A3_ULTRA, _A4, _A4X, _G2_4, _G2_8, _N2D_8, _N2D_16)}
EKS_CATALOG: dict[str, EksMachine] = {
    row.name: row for row in (_P4D, _P4DE, _P5, _P5E, _P5EN, _P6_B200, _P6_B300, _G6, _G6E, _G7E, _P5_4)
}
CATALOG: dict[str, Machine] = {**GKE_CATALOG, **EKS_CATALOG}

_CPU_MACHINES = {
    # The number is that of vCPUs. C4A, N4A and T2A are Arm (Compute Engine docs, general-purpose machines; unverified).
    "gke": (r"(?!c4a|n4a|t2a)[cent]\d+[a-z]?-(?:standard|highmem)-(\d+)", 1),
    # An xlarge has 4 vCPUs; a g after the generation is Graviton, and older types are on Xen (EC2 docs, instance types;
    # unverified; a test compares with the types in moto).
    "eks": (r"(?:[mr](?:[5-9]|\d\d)|t3)(?!g)[a-z-]*\.(\d+)xlarge", 4),
}


def cpu_machine_vcpus(cloud: str, machine: str) -> int:
    """Return the vCPUs of an x86 machine type without GPUs and with about 4 GiB or more for each; 0 of another name."""
    form, each = _CPU_MACHINES[cloud]
    found = re.fullmatch(form, machine)
    return each * int(found[1]) if found else 0


def supported(cloud: str) -> list[str]:
    """Return the machine types that a cloud has and this program builds."""
    return [row.name for row in CATALOG.values() if row.cloud == cloud and row.unsupported is None]
