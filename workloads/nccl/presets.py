"""Presets of `bench nccl`, and the variables that select NCCL's algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from workloads.exits import WorkloadError
from workloads.secrecy import sounds_secret

Mode = Literal["throughput", "latency", "graph"]
"""Runs back to back; a barrier before each run, not timed; replays of a CUDA graph."""
DataType = Literal["fp32", "fp16", "bf16", "uint8"]
PresetName = Literal["quick", "acceptance", "full"]
Algorithm = Literal["ring", "tree", "nvls", "nvlstree"]
KIB, MIB, GIB = 2**10, 2**20, 2**30
CPU_SHRINK = 2048
"""Ratio of GPU to CPU message sizes: a CPU rank moves about a thousandth of what a GPU does. 8 GiB become 4 MiB."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Default measurements of a run: sizes in bytes from `begin` to `end`, multiplied by `factor` in each step."""

    ops: tuple[str, ...] = ("all",)
    patterns: tuple[str, ...] = ()
    begin: int
    end: int = 8 * GIB
    factor: int
    iterations: int = 20
    warmup: int = 5
    check: int = 1
    dtypes: tuple[DataType, ...] = ("fp32",)
    modes: tuple[Mode, ...] = ("throughput",)

    def on_cpus(self) -> Preset:
        """Return the preset for CPU ranks: smaller sizes of at least 1 KiB, a factor of at least 8, no CUDA graphs."""
        return replace(
            self,
            begin=max(KIB, self.begin // CPU_SHRINK),
            end=max(KIB, self.end // CPU_SHRINK),
            factor=max(8, self.factor),
            modes=tuple(mode for mode in self.modes if mode != "graph"),
        )


DEFAULT = Preset(begin=KIB, factor=2)
PRESETS: dict[PresetName, Preset] = {
    "quick": Preset(
        ops=("all_gather", "all_reduce", "p2p"), patterns=("pairs",), begin=64 * MIB, end=4 * GIB, factor=8
    ),
    # On two nodes all_gather and reduce_scatter use rings and measure the fabric; all_reduce may use a tree.
    "acceptance": Preset(
        ops=("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "p2p"),
        patterns=("pairs", "single"),
        begin=MIB,
        factor=2,
    ),
    "full": Preset(patterns=("all",), begin=4 * KIB, factor=8, dtypes=get_args(DataType), modes=get_args(Mode)),
}
"""`quick` shows whether the fabric works, `acceptance` whether it suits training; `full` measures everything. The
largest sizes are at least 1 GiB: smaller ones measure latency (our choice)."""

ALGORITHMS: dict[Algorithm, tuple[str, tuple[str, ...]]] = {
    "ring": ("Ring", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    "tree": ("Tree", ("all_reduce",)),
    "nvls": ("NVLS", ("all_reduce", "all_gather", "reduce_scatter")),
    "nvlstree": ("NVLSTree", ("all_reduce",)),
}
"""By name: the value of NCCL_ALGO, and the operations that implement it; NCCL fails for others. Ring is the fabric
mode: its busbw compares with the NICs' line rate, a tree's does not. Sources: NCCL user guide, env.html, read 2026-11;
NCCL's src/graph/tuning.cc."""
WITHOUT_ALGORITHM = ("all_to_all", "gather", "scatter", "sendrecv", "p2p")  # plain sends and receives
PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "FI_", "OFI_NCCL_", "UCX_")


def environment(
    algo: Algorithm | None, assignments: Sequence[str], ops: Sequence[str], use_gpu: bool
) -> dict[str, str]:
    """Return the ranks' variables from `--algo` and `--env NAME=VALUE`. WorkloadError names an unavailable choice."""
    variables = dict(_assignment(text) for text in assignments)
    if algo is None:
        return variables
    if not use_gpu:
        raise WorkloadError(f"--algo {algo} selects an NCCL algorithm, but without GPUs there is only gloo")
    if "NCCL_ALGO" in variables:
        raise WorkloadError(f"--algo {algo} and --env NCCL_ALGO={variables['NCCL_ALGO']}: use only one of them")
    value, available = ALGORITHMS[algo]
    missing = [op for op in ops if op not in (*available, *WITHOUT_ALGORITHM)]
    if missing:
        raise WorkloadError(
            f"--algo {algo}: NCCL implements it for {', '.join(available)}, not for {', '.join(missing)}:"
            f" choose {' '.join(f'--op {op}' for op in available)}"
        )
    return variables | {"NCCL_ALGO": value}


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith(PREFIXES):
        raise WorkloadError(f"--env {name}: write NAME=VALUE with a name that begins with {', '.join(PREFIXES)}")
    if sounds_secret(name):
        raise WorkloadError(f"--env {name}: the result records these variables, and this name suggests a secret")
    return name, value
