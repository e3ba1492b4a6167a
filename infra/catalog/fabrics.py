"""Catalog of fabrics: how data travels between nodes, and how pods get the NICs, one row each.

A `Transport` is what NCCL uses: what its log shows, and what the image and the nodes need for it. A `Fabric` is a value
of the setting `fabric`: what offers the NICs of a transport to pods, and how pods ask for them. `infra.fabric` makes a
pod of a row; the judge and `doctor` compare with it. A program on the cluster gets what it needs of a row as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from infra.catalog.names import EFA
from infra.catalog.pins import AWS_DRANET, DRANET, EFA_PLUGIN, GIB, Chart

GIB_MANIFESTS = "GoogleCloudPlatform/container-engine-accelerators: gpudirect-rdma, 992db812, 2026-06-11"
GKE_NCCL = "GKE docs gke-ai-hypercompute-custom, 2026-04-06; values of gIB v1.1"
ETH0 = "NCCL docs, environment variables, 2026-11; containerd: internal/cri/server/helpers.go, defaultIfName"
VERL = "GoogleCloudPlatform/kubernetes-engine-samples: ai-ml/verl-on-gke, read 2026-08"
CHEATSHEET = "awslabs/awsome-distributed-ai: 1.architectures/efa-cheatsheet.md, 95b939cd, 2026-07-23"


@dataclass(frozen=True)
class Variable:
    """An environment variable with its reason and source."""

    name: str
    value: str
    why: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How data travels between nodes; `name` is that of the output `fabric.transport`.

    `networks` are patterns of NCCL's name for it in its log, the usual name first; empty for sockets. `provider` is
    libfabric's. `plugin` is None where NCCL needs none; `libraries` are those of pods' image that it loads, `needs` the
    same in words. `min_nccl` is the oldest NCCL that it supports; versions of the plugin from `any_nccl` on support
    older ones too. `installer` is a part of the name of the image that installs the pinned `version` on nodes; both are
    None where pods' image brings the plugin. `port_rate` is whether the kernel's rate of a port is its line rate,
    `spare_ports` whether ports of a healthy node may be unused.
    """

    name: str
    networks: tuple[str, ...]
    provider: str | None = None
    plugin: str | None = None
    libraries: tuple[str, ...] = ()
    needs: str | None = None
    min_nccl: tuple[int, ...] = ()
    any_nccl: tuple[int, ...] | None = None
    installer: str | None = None
    version: str | None = None
    port_rate: bool = False
    spare_ports: bool = False
    source: str

    @property
    def rdma(self) -> bool:
        """Whether it uses RDMA NICs."""
        return bool(self.networks)


@dataclass(frozen=True)
class Resource:
    """Extended resource of a device plugin: `count` of it for each NIC or GPU of a pod, or for the pod."""

    name: str
    per: Literal["nic", "gpu", "pod"] = "nic"
    count: int = 1

    def amount(self, *, nics: int | None, gpus: int) -> int:
        """Return how many a pod with all `nics` and `gpus` of its node requests."""
        if self.per == "nic" and nics is None:
            raise ValueError(f"{self.name}: the number of NICs of a node is not known; count it per gpu or per pod")
        return self.count * {"nic": nics or 0, "gpu": gpus, "pod": 1}[self.per]


@dataclass(frozen=True)
class Claim:
    """Claim `name` of a pod, by `template`, on every NIC of its node, of `device_class`.

    `selectors` (CEL) are those of the class if the stack makes it; empty where the driver or the cloud installs it.
    """

    name: str
    template: str
    device_class: str
    selectors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A value of the setting `fabric` on `targets`, in a few `words`.

    Pods get the NICs by `resource`, by `claim`, or by `interfaces`: an annotation that lists the Network object of each
    NIC. `chart` is the driver that offers them, which the stack installs. `managed` is whether the cloud makes the
    networks of the NICs and offers the devices itself, on nodes with `node_labels`. `from_zero` is whether an
    autoscaler knows the devices of a pool without nodes. `min_version` is the lowest version of the cluster.

    Every process has the variables of `environment` and `BOOTSTRAP`. `setup` is a shell command to run before it, and
    `scripted` the variables that this set when last read, for comparison and for images that cannot run it. `folders`
    of the node, by name, are mounted read-only: (path there, path in the pod).
    """

    name: str
    words: str
    targets: tuple[str, ...]
    transport: Transport
    resource: Resource | None = None
    claim: Claim | None = None
    interfaces: bool = False
    chart: Chart | None = None
    managed: bool = False
    node_labels: Mapping[str, str] = field(default_factory=dict)
    from_zero: bool = True
    min_version: str = "1.0"
    environment: tuple[Variable, ...] = ()
    setup: str | None = None
    scripted: tuple[Variable, ...] = ()
    folders: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    source: str


_GIB = Transport(
    name="gib",
    networks=("gIB",),
    plugin="gIB",
    libraries=("libnl-3.so.200", "libnl-route-3.so.200"),
    needs="libnl, which gIB loads",
    # gIB before 1.1.2 may not be compatible with NCCL 2.27 or older.
    min_nccl=(2, 28),
    any_nccl=(1, 1, 2),
    installer="nccl-plugin-gib",
    version=GIB,
    port_rate=True,
    source=f"{GIB_MANIFESTS}; GoogleCloudPlatform/cluster-toolkit #5674, 2026-05-15",
)
_EFA = Transport(
    name="efa",
    networks=("Libfabric",),
    provider="efa",
    plugin="aws-ofi-nccl",
    libraries=("libfabric.so.1",),
    needs="libfabric and aws-ofi-nccl, without which NCCL uses TCP",
    min_nccl=(2, 17, 1),
    source="aws/aws-ofi-nccl: nccl_ofi_interface_nvidia.cpp, read 2026-11; release notes of v1.21.1, 2026-08-20",
)
# InfiniBand or RoCE without a plugin, or with one of NVIDIA's, or with Google's on machines whose type is not known.
_IB = Transport(
    name="ib",
    networks=("IB", "IBext*", "IB SHARP", "SPCX*", "UCX*", "NCCL RDMA*", "gIB"),
    spare_ports=True,
    source="NVIDIA/nccl: src/transport/net_ib.cc; Mellanox/nccl-rdma-sharp-plugins: src/p2p_plugin.c, 021baa7b; GitHub "
    "code search for IBext_v8, with SPCX (Spectrum-X) in the same lists; read 2026-11",
)
_SOCKET = Transport(name="socket", networks=(), source="NVIDIA/nccl: src/transport/net_socket.cc, read 2026-11")

TRANSPORTS: dict[str, Transport] = {row.name: row for row in (_GIB, _EFA, _IB, _SOCKET)}

BOOTSTRAP = (
    Variable(
        "NCCL_SOCKET_IFNAME", "eth0", "NCCL's bootstrap runs over the pod network, not over an RDMA interface", ETH0
    ),
    Variable(
        "GLOO_SOCKET_IFNAME", "eth0", "Gloo otherwise resolves the host name, which may lead to another interface", VERL
    ),
)
"""Variables of every fabric's processes."""

GIB_FOLDER = "/usr/local/gib"
"""Folder of gIB in a worker."""
HOST_NVIDIA = "/home/kubernetes/bin/nvidia"
HOST_GIB = "/home/kubernetes/bin/gib"
GIB_SCRIPT = "scripts/set_nccl_env.sh"
INSTALLED = "rdma-ray-installed"
"""File in the folder of gIB that the installer writes last."""


def gib_setup(last: str) -> str:
    """Return the command that waits for a gIB installer, which may still run on a new node, and sets NCCL up.

    `last` is the file in gIB's folder that the installer writes last.
    """
    wait = f"until [ -e {GIB_FOLDER}/{last} ]; do echo 'waiting for the gIB installer'; sleep 5; done"
    return f"{wait}; source {GIB_FOLDER}/{GIB_SCRIPT}"


_MULTI_NETWORK = Fabric(
    name="multi-network",
    words="Network objects and annotations",
    targets=("gke",),
    transport=_GIB,
    interfaces=True,
    environment=(
        Variable(
            "LD_LIBRARY_PATH",
            f"{GIB_FOLDER}/lib64:/usr/local/nvidia/lib64",
            "NCCL finds the gIB plugin and the driver's libraries, which the node provides",
            GIB_MANIFESTS,
        ),
        Variable(
            "NCCL_NET",
            "gIB",
            "use the plugin or fail, even where the script was not sourced, instead of falling back to sockets "
            "silently",
            GIB_MANIFESTS,
        ),
    ),
    setup=gib_setup(INSTALLED),
    scripted=tuple(
        Variable(name, value, why, GKE_NCCL)
        for name, value, why in (
            ("NCCL_CROSS_NIC", "0", "keep traffic on its rail: NIC n talks to NIC n"),
            ("NCCL_NET_GDR_LEVEL", "PIX", "GPUDirect RDMA between a GPU and a NIC on the same PCIe switch"),
            ("NCCL_P2P_NET_CHUNKSIZE", "131072", "chunk of sends between nodes, bytes"),
            ("NCCL_NVLS_CHUNKSIZE", "524288", "chunk of NVLink SHARP, bytes"),
            ("NCCL_IB_ADAPTIVE_ROUTING", "1", "spread packets over the paths of the fabric"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4", "several queue pairs per connection, to use several paths"),
            ("NCCL_IB_TC", "52", "traffic class that the fabric treats as lossless data"),
            ("NCCL_IB_FIFO_TC", "84", "traffic class of the control messages"),
        )
    ),
    # GKE's privileged device plugin loads the files of the first one, so a pod must not replace them.
    folders={"nvidia": (HOST_NVIDIA, "/usr/local/nvidia"), "gib": (HOST_GIB, GIB_FOLDER)},
    # Memory registration fails without it in some images (NVIDIA/nccl #1925); it affects root only.
    capabilities=("IPC_LOCK",),
    source=f"{GIB_MANIFESTS}; GKE docs, multi-network support for Pods, 2026-08",
)

_DRANET = replace(
    _MULTI_NETWORK,
    name="dranet",
    words="claims, networks of the stack",
    interfaces=False,
    # The class selects the devices, not the claim: Kueue admits a claim with a selector only when as many devices exist
    # already (pkg/dra/claims.go, 0.19.2), and before the first node there is none.
    claim=Claim(
        "rdma", "all-rdma", "dranet", ('device.driver == "dra.net"', 'device.attributes["dra.net"].rdma == true')
    ),
    chart=DRANET,
    from_zero=False,
    min_version="1.34",
    source=f"{GIB_MANIFESTS}; kubernetes-sigs/dranet v1.4.0: pkg/apis/attributes.go, 2026-07-17; GoogleCloudPlatform/"
    "cluster-autoscaler: gke/dynamicresources/network.go, 7d25050, 2026-08-21",
)

_MANAGED_DRANET = replace(
    _DRANET,
    name="managed-dranet",
    words="claims, networks of GKE",
    targets=("gke", "kubernetes"),
    # GKE installs the device class.
    claim=Claim("rdma", "all-mrdma", "mrdma.google.com"),
    chart=None,
    managed=True,
    node_labels={"cloud.google.com/gke-networking-dra-driver": "true"},
    from_zero=True,
    min_version="1.34.1-gke.1829001",
    source="GKE docs allocate-network-resources-dra, 2026-04-10",
)

LIBRARIES = (
    *("/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib"),
    *("/opt/amazon/efa/lib64", "/opt/amazon/efa/lib"),
)
"""Folders of aws-ofi-nccl and libfabric. The EFA installer writes to lib64 on Amazon Linux, the default image's system,
and to lib on Ubuntu."""

_OBSOLETE = """
FI_PROVIDER FI_EFA_USE_DEVICE_RDMA FI_EFA_FORK_SAFE RDMAV_FORK_SAFE NCCL_PROTO NCCL_ALGO NCCL_TUNER_PLUGIN
NCCL_BUFFSIZE NCCL_P2P_NET_CHUNKSIZE NCCL_NVLS_CHUNKSIZE NCCL_NVLSTREE_MAX_CHUNKSIZE NCCL_NET_FORCE_FLUSH
NCCL_NETDEVS_POLICY NCCL_TIMEOUT OFI_NCCL_PROTOCOL
"""
OBSOLETE = tuple(_OBSOLETE.split())
"""Variables of EFA that older guides set and that must stay unset: the plugin sets or chooses them by platform, some
turn off its tuner, and NCCL never had an NCCL_TIMEOUT (awslabs/awsome-distributed-ai: 1.architectures/
efa-cheatsheet.md, 95b939cd, 2026-07-23; aws/aws-ofi-nccl: src/platform-aws.cpp, 2daf7d3)."""

_EFA_PLUGIN = Fabric(
    name="efa",
    words="device plugin",
    targets=("eks", "kubernetes"),
    transport=_EFA,
    resource=Resource(EFA),
    chart=EFA_PLUGIN,
    # aws-ofi-nccl 1.7 and libfabric 1.18 or later choose provider, protocol and tuner themselves.
    environment=(
        Variable(
            "FI_EFA_USE_HUGE_PAGE",
            "0",
            "a data loader's fork copies the huge pages of libfabric and runs out of memory",
            CHEATSHEET,
        ),
    ),
    # Puts the image's plugin and libfabric first in the library path.
    setup=f'export LD_LIBRARY_PATH="{":".join(LIBRARIES)}:${{LD_LIBRARY_PATH:-}}"',
    # No capability, because the nodes raise the limit of locked memory for every container
    # (`launch_template.node_config`). The alternative, IPC_LOCK, works for root only (NVIDIA/nvidia-container-toolkit
    # #2037), so every worker would run as root. EFA devices are open to every user of a pod that has them.
    source=f"{CHEATSHEET}; aws/eks-charts, 5239609, 2026-08-03",
)

_EFA_DRANET = replace(
    _EFA_PLUGIN,
    name="efa-dranet",
    words="claims",
    resource=None,
    claim=Claim("efa", "all-efa", "efa.networking.k8s.aws"),
    chart=AWS_DRANET,
    from_zero=False,
    source=f"{CHEATSHEET}; aws/eks-charts: aws-dranet 1.0.0, 5239609, 2026-08-03; EKS docs node-efa, read 2026-11",
)

# Clusters name the resource differently: shared `rdma/NAME`, of which one stands for all NICs of a node, or by SR-IOV
# `nvidia.com/NAME`, one per NIC.
_RDMA = Fabric(
    name="rdma",
    words="InfiniBand or RoCE by a device plugin",
    targets=("kubernetes",),
    transport=_IB,
    resource=Resource("rdma/ib", per="pod"),
    capabilities=("IPC_LOCK",),
    source="CoreWeave docs, use-gpudirect-rdma; NVIDIA Network Operator 26.4.0 docs, quick start; NVIDIA/nccl #1925; "
    "read 2026-11",
)

_SOCKETS = Fabric(
    name="socket", words="no RDMA", targets=("gke", "kubernetes"), transport=_SOCKET, source=_SOCKET.source
)

FABRICS: dict[str, Fabric] = {
    row.name: row for row in (_MULTI_NETWORK, _DRANET, _MANAGED_DRANET, _EFA_PLUGIN, _EFA_DRANET, _RDMA, _SOCKETS)
}


def fabrics_of(target: str) -> tuple[str, ...]:
    """Return the names of a target's fabrics, its default first."""
    return tuple(name for name, row in FABRICS.items() if target in row.targets)


def from_zero(target: str, *, queued: bool = False) -> str:
    """Return the fabrics whose nodes an autoscaler starts from zero, or a ProvisioningRequest if `queued`, in words."""
    rows = (FABRICS[name] for name in fabrics_of(target))
    return " or ".join(row.name for row in rows if row.from_zero and not (queued and row.claim))
