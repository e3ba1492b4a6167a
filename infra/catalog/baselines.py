"""Published bus bandwidth (busbw) of collectives over a healthy fabric: the figure, its source, and its confidence.

This project measured none of these. A figure of low confidence is shown for comparison but never decides a verdict.
All figures are out of place, in GB/s (decimal), of whole machines with one rank per GPU, float and sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 2**30
MARGIN = 0.9
"""Share of the published figure below which a fabric is slow: the margin for another image, NCCL and time."""

Algorithm = Literal["ring", "tree", "nvls", "nvlstree"]
Confidence = Literal["high", "medium", "low"]

TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: dws-flex-start README, 10470803, 2026-06-25"
SKYPILOT = "skypilot-org/skypilot: examples, GCP and EFA pages, read 2026-08"
DRANET = "kubernetes-sigs/dranet: user docs gke-rdma, f258477, 2026-08-21"
HYPERCOMPUTER = "Google AI Hypercomputer docs, NCCL test on virtual machines, read 2026-08"
DSTACK = "dstack docs, NCCL test of A4, read 2026-08"
ADT = "awslabs/awsome-distributed-ai: nccl-tests, 95b939cd, 2026-07-23"
ADT_TOPOLOGY = "awslabs/awsome-distributed-ai: topology-aware-nccl-tests, 95b939cd, 2026-07-23"
CRE = "NVIDIA Cluster Readiness Engine docs, read 2026-08"
NCCL_1264 = "NVIDIA/nccl issue 1264: 450 of 900 GB/s, p2pBandwidthLatencyTest on H100 SXM"
GENERATIONS = "alpha-one-index/ai-infra-index: NVLink generations, total of both directions, read 2026-11"
STAS = "stas00/ml-engineering: network/README.md, 744d01e, 2026-08-22"


@dataclass(frozen=True)
class Baseline:
    """One published figure: `busbw` (GB/s, decimal) of `op` over `nodes` whole machines at `size` bytes.

    `algorithm` is the NCCL algorithm that the source names, None if NCCL chose it. `confidence` is high if two
    publications agree and medium for a single one. It is low if sources contradict each other or a figure was seen once
    and never confirmed; such a figure decides no verdict, and `note` has the reason.
    """

    op: str
    nodes: int
    size: int
    busbw: float
    source: str
    confidence: Confidence = "medium"
    algorithm: Algorithm | None = None
    note: str = ""

    @property
    def gates(self) -> bool:
        """Whether the figure decides a verdict."""
        return self.confidence != "low"

    @property
    def floor(self) -> float:
        """The lowest busbw (GB/s, decimal) of a healthy fabric."""
        return round(self.busbw * MARGIN, 1)


_H200_NODE = (
    # Measured on one node of 8 H200. Every machine that lists these figures has the same board, GPUs and NVSwitch.
    Baseline("all_reduce", 1, 4 * GIB, 473.1, STAS, algorithm="nvls"),
    Baseline("all_reduce", 1, 16 * GIB, 480.7, STAS, algorithm="nvls"),
    Baseline("all_reduce", 1, 16 * GIB, 367.2, STAS, algorithm="ring"),
    Baseline("all_gather", 1, 16 * GIB, 361.4, STAS, algorithm="ring"),
    Baseline("reduce_scatter", 1, 16 * GIB, 362.9, STAS, algorithm="ring"),
)

BASELINES: dict[str, tuple[Baseline, ...]] = {
    "a3-ultragpu-8g": (
        # Two publications agree within 1 %; the lower figure of each pair is the expectation.
        Baseline("all_gather", 2, 4 * GIB, 324.3, SKYPILOT, "high"),
        Baseline("all_gather", 2, 4 * GIB, 327.2, TOOLKIT, "high"),
        Baseline("all_gather", 2, 8 * GIB, 325.7, SKYPILOT, "high"),
        Baseline("all_gather", 2, 8 * GIB, 328.9, TOOLKIT, "high"),
        *_H200_NODE,
    ),
    "a4-highgpu-8g": (
        Baseline("all_reduce", 2, 4 * GIB, 673.8, DSTACK, algorithm="nvlstree"),
        Baseline("all_reduce", 2, 8 * GIB, 683.5, DSTACK, algorithm="nvlstree"),
        Baseline(
            "all_gather",
            2,
            8 * GIB,
            260.0,
            DRANET,
            "low",
            note="Google's own test on virtual machines shows about 375 at the same size; the gap is unexplained.",
        ),
        Baseline(
            "all_gather",
            2,
            8 * GIB,
            375.0,
            HYPERCOMPUTER,
            "low",
            note="Published as about 375; Kubernetes with DRANET shows 260 at the same size; the gap is unexplained.",
        ),
    ),
    "p4d.24xlarge": (Baseline("all_reduce", 2, 2 * GIB, 77.4, SKYPILOT),),
    "p4de.24xlarge": (Baseline("all_reduce", 2, 2 * GIB, 78.3, ADT),),
    "p5.48xlarge": (
        Baseline("all_reduce", 2, 2 * GIB, 437.9, ADT),
        Baseline("all_reduce", 2, 4 * GIB, 465.9, ADT),
        Baseline("all_reduce", 2, 8 * GIB, 479.3, ADT),
        Baseline("all_reduce", 2, 16 * GIB, 487.1, ADT, "high"),
        Baseline("all_reduce", 2, 16 * GIB, 487.9, CRE, "high"),
        Baseline("all_gather", 2, 16 * GIB, 338.6, CRE),
        Baseline("all_to_all", 2, 16 * GIB, 79.1, CRE),
    ),
    "p5e.48xlarge": _H200_NODE,
    "p5en.48xlarge": (
        Baseline("all_reduce", 4, 4 * GIB, 364.9, STAS, algorithm="ring"),
        Baseline("all_reduce", 4, 4 * GIB, 310.1, STAS, algorithm="nvlstree"),
        Baseline("all_reduce", 16, 16 * GIB, 369.9, ADT_TOPOLOGY),
        *_H200_NODE,
    ),
    "p6-b200.48xlarge": (
        Baseline("all_reduce", 4, 4 * GIB, 377.3, STAS),
        Baseline("all_reduce", 4, 8 * GIB, 380.4, STAS),
        Baseline("all_reduce", 4, 16 * GIB, 381.8, STAS),
        Baseline("all_reduce", 1, 4 * GIB, 740.6, STAS),
        Baseline("all_reduce", 1, 16 * GIB, 845.7, STAS),
    ),
    "p6-b300.48xlarge": (
        Baseline("all_reduce", 2, 16 * GIB, 654.0, ADT, "low", note="Published once, not confirmed."),
        Baseline("all_reduce", 2, 64 * GIB, 751.0, ADT, "low", note="Published once, not confirmed."),
    ),
}


@dataclass(frozen=True)
class NvLink:
    """NVLink bandwidth of one GPU: GB/s (decimal) in each direction."""

    bandwidth: float
    source: str


NVLINK: dict[str, NvLink] = {
    "A100": NvLink(300.0, GENERATIONS),
    "H100": NvLink(450.0, NCCL_1264),
    "H200": NvLink(450.0, GENERATIONS),
    "B200": NvLink(900.0, GENERATIONS),
    "GB200": NvLink(900.0, GENERATIONS),
}
"""By `Machine.gpu`. B300 is missing: no published figure was found."""
