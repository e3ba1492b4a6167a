"""What NVLink carries between two GPUs of one machine, by GPU: data, for contrast with what goes through the NICs."""

from __future__ import annotations

from dataclasses import dataclass

NCCL_1264 = "NVIDIA/nccl issue 1264: 450 of 900 GB/s, p2pBandwidthLatencyTest on H100 SXM"
GENERATIONS = "alpha-one-index/ai-infra-index: NVLink generations, total of both directions, read 2026-11"


@dataclass(frozen=True)
class NvLink:
    """`bandwidth` in GB/s (decimal), of one GPU, each way."""

    bandwidth: float
    source: str


NVLINK: dict[str, NvLink] = {
    "A100": NvLink(300.0, GENERATIONS),
    "H100": NvLink(450.0, NCCL_1264),
    "H200": NvLink(450.0, GENERATIONS),
    "B200": NvLink(900.0, GENERATIONS),
    "GB200": NvLink(900.0, GENERATIONS),
}
"""By the name that machines.py gives a GPU. B300 is missing: no figure was read."""
