"""Published bus bandwidth (busbw) of collectives over a healthy fabric: what others measured, where, and how sure.

Nothing here was measured by this project. A figure of low confidence is kept, for whoever compares, but judges nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.outputs import Floor

GIB = 2**30
MARGIN = 0.9
"""A fabric is called slow below this share of the published figure: the room for another image, NCCL and day."""

TOOLKIT = "GoogleCloudPlatform/cluster-toolkit: dws-flex-start README, 10470803, 2026-06-25"
SKYPILOT = "skypilot-org/skypilot: examples, GCP and EFA pages, read 2026-08"
DRANET = "kubernetes-sigs/dranet: user docs gke-rdma, f258477, 2026-08-21"
DSTACK = "dstack docs, NCCL test of A4, read 2026-08"
ADT = "awslabs/awsome-distributed-ai: nccl-tests, 95b939cd, 2026-07-23"
ADT_TOPOLOGY = "awslabs/awsome-distributed-ai: topology-aware-nccl-tests, 95b939cd, 2026-07-23"
CRE = "NVIDIA Cluster Readiness Engine docs, read 2026-08"
STAS = "stas00/ml-engineering: network/README.md, 744d01e, 2026-08-22"


@dataclass(frozen=True)
class Baseline:
    """One published figure: `busbw` (GB/s, decimal) of `op` over `nodes` whole machines at `size` bytes.

    `gates` is false where sources contradict each other or nobody confirmed the figure; `note` then says why.
    """

    op: str
    nodes: int
    size: int
    busbw: float
    source: str
    gates: bool = True
    note: str = ""

    @property
    def floor(self) -> float:
        """The least busbw (GB/s, decimal) that still counts as healthy."""
        return round(self.busbw * MARGIN, 1)


BASELINES: dict[str, tuple[Baseline, ...]] = {
    "a3-ultragpu-8g": (
        # Two publications agree within 1 %; the lower one of each pair is expected.
        Baseline("all_gather", 2, 4 * GIB, 324.3, SKYPILOT),
        Baseline("all_gather", 2, 8 * GIB, 325.7, SKYPILOT),
        Baseline("all_gather", 2, 8 * GIB, 328.9, TOOLKIT),
    ),
    "a4-highgpu-8g": (
        Baseline("all_reduce", 2, 4 * GIB, 673.8, DSTACK),
        Baseline("all_reduce", 2, 8 * GIB, 683.5, DSTACK),
        Baseline(
            "all_gather",
            2,
            8 * GIB,
            260.0,
            DRANET,
            gates=False,
            note="Google's own test of virtual machines shows about 375 at the same size; the gap is unexplained.",
        ),
    ),
    "p4d.24xlarge": (Baseline("all_reduce", 2, 2 * GIB, 77.4, SKYPILOT),),
    "p4de.24xlarge": (Baseline("all_reduce", 2, 2 * GIB, 78.3, ADT),),
    "p5.48xlarge": (
        Baseline("all_reduce", 2, 2 * GIB, 437.9, ADT),
        Baseline("all_reduce", 2, 4 * GIB, 465.9, ADT),
        Baseline("all_reduce", 2, 8 * GIB, 479.3, ADT),
        Baseline("all_reduce", 2, 16 * GIB, 487.1, ADT),
        Baseline("all_gather", 2, 16 * GIB, 338.6, CRE),
    ),
    "p5en.48xlarge": (
        Baseline("all_reduce", 4, 4 * GIB, 364.9, STAS),
        Baseline("all_reduce", 16, 16 * GIB, 369.9, ADT_TOPOLOGY),
    ),
    "p6-b200.48xlarge": (
        Baseline("all_reduce", 4, 4 * GIB, 377.3, STAS),
        Baseline("all_reduce", 4, 8 * GIB, 380.4, STAS),
        Baseline("all_reduce", 4, 16 * GIB, 381.8, STAS),
    ),
    "p6-b300.48xlarge": (
        Baseline("all_reduce", 2, 16 * GIB, 654.0, ADT, gates=False, note="Seen once, confirmed by nobody."),
        Baseline("all_reduce", 2, 64 * GIB, 751.0, ADT, gates=False, note="Seen once, confirmed by nobody."),
    ),
}


def floors(machine: str) -> list[Floor]:
    """The floors that a run on this machine is judged by; empty where no published figure may judge."""
    best: dict[tuple[str, int, int], Baseline] = {}
    for line in BASELINES.get(machine, ()):
        key = (line.op, line.nodes, line.size)
        if line.gates and (key not in best or line.busbw < best[key].busbw):
            best[key] = line
    return [
        Floor(
            op=line.op,
            nodes=line.nodes,
            bytes=line.size,
            busbw=line.floor,
            source=f"{MARGIN:.0%} of {line.busbw} GB/s: {line.source}",
        )
        for line in best.values()
    ]
