"""What a run measures unless its options say otherwise. Data; explicit options win.

Without GPUs the same presets shrink by one rule, `on_cpus`: a CPU rank moves about a thousandth of what a GPU does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workloads.nccl.result import Mode

SHRINK = 2048  # 8 GiB become 4 MiB
SMALLEST = 2**10
WIDEST_STEP = 8


@dataclass(frozen=True)
class Preset:
    """Sizes in bytes from `begin` to `end`, each `factor` times the one before; `patterns` are those of p2p."""

    text: str
    ops: tuple[str, ...]
    patterns: tuple[str, ...]
    begin: int
    end: int
    factor: int
    iterations: int = 20
    warmup: int = 5
    check: int = 1
    dtypes: tuple[str, ...] = ("fp32",)
    modes: tuple[Mode, ...] = ("throughput",)

    def on_cpus(self) -> Preset:
        """The same on CPU ranks: sizes over 2048 but at least 1 KiB, each 8 times the one before, no CUDA graphs."""
        return replace(
            self,
            begin=max(SMALLEST, self.begin // SHRINK),
            end=max(SMALLEST, self.end // SHRINK),
            factor=max(WIDEST_STEP, self.factor),
            modes=tuple(mode for mode in self.modes if mode != "graph"),
        )


KIB, MIB, GIB = 2**10, 2**20, 2**30

DEFAULT = Preset(
    text="every operation once, small to large",
    ops=("all",),
    patterns=(),
    begin=KIB,
    end=8 * GIB,
    factor=2,
)

PRESETS = {
    "quick": Preset(
        text="all_gather, all_reduce and pairs of ranks at three sizes to 4 GiB: is the fabric there?",
        ops=("all_gather", "all_reduce", "p2p"),
        patterns=("pairs",),
        begin=64 * MIB,
        end=4 * GIB,
        factor=8,
    ),
    # all_gather and reduce_scatter are the honest fabric figures of two nodes (rings), all_reduce may be a tree.
    "acceptance": Preset(
        text="the collectives that training needs and pairs of ranks, 1 MiB to 8 GiB: does it deliver?",
        ops=("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"),
        patterns=("pairs", "single"),
        begin=MIB,
        end=8 * GIB,
        factor=2,
    ),
    "full": Preset(
        text="every operation, pattern, type and mode, 4 KiB to 8 GiB: everything there is to know",
        ops=("all",),
        patterns=("all",),
        begin=4 * KIB,
        end=8 * GIB,
        factor=8,
        dtypes=("fp32", "fp16", "bf16", "uint8"),
        modes=("throughput", "latency", "graph"),
    ),
}
"""The largest rows are at least 1 GiB, where health is judged (workloads.md §1.3, 21 Nov 2026: smaller sizes measure
latency)."""


def preset(name: str | None, use_gpu: bool) -> Preset:
    """The preset of that name for GPU or CPU ranks; KeyError where there is none."""
    found = DEFAULT if name is None else PRESETS[name]
    return found if use_gpu else found.on_cpus()
