"""What NCCL and gloo are told from outside: the algorithm, and any variable of theirs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.exits import WorkloadError

# NCCL's documentation, user-guide/docs/env.html, read 2026-11: NCCL_ALGO. Which function has which algorithm is in
# NCCL's src/graph/tuning.cc; NCCL fails where it is asked for one that the function lacks.
ALGORITHMS = {
    "ring": ("Ring", ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")),
    "tree": ("Tree", ("all_reduce",)),
    "nvls": ("NVLS", ("all_reduce", "all_gather", "reduce_scatter")),
    "nvlstree": ("NVLSTree", ("all_reduce",)),
}
"""By name: NCCL's own word, and the operations that have it. Ring is the fabric mode: its busbw compares with the NICs'
line rate, that of a tree does not."""
SENDS = ("all_to_all", "gather", "scatter", "sendrecv", "p2p")  # plain sends and receives, which have no algorithm

PREFIXES = ("NCCL_", "TORCH_NCCL_", "GLOO_", "FI_", "OFI_NCCL_", "UCX_")
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL")


def environment(algo: str | None, assignments: Sequence[str], ops: Sequence[str], use_gpu: bool) -> dict[str, str]:
    """The ranks' variables from `--algo` and from `--env NAME=VALUE`; WorkloadError names what does not fit."""
    found = dict(_assignment(text) for text in assignments)
    if algo is None:
        return found
    if algo not in ALGORITHMS:
        raise WorkloadError(f"--algo {algo}: choose one of {', '.join(ALGORITHMS)}")
    if not use_gpu:
        raise WorkloadError(f"--algo {algo} is NCCL's choice of algorithm, and without GPUs there is only gloo")
    if "NCCL_ALGO" in found:
        raise WorkloadError(f"--algo {algo} and --env NCCL_ALGO={found['NCCL_ALGO']}: give one of the two")
    word, having = ALGORITHMS[algo]
    lacking = [op for op in ops if op not in (*having, *SENDS)]
    if lacking:
        raise WorkloadError(
            f"--algo {algo}: NCCL has it for {', '.join(having)}, not for {', '.join(lacking)}:"
            f" choose {' '.join(f'--op {op}' for op in having)}"
        )
    return found | {"NCCL_ALGO": word}


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith(PREFIXES):
        raise WorkloadError(f"--env {name}: write NAME=VALUE with a name that begins with {', '.join(PREFIXES)}")
    if any(word in name for word in SECRET_WORDS):
        raise WorkloadError(f"--env {name}: the result records these variables, and this one sounds like a secret")
    return name, value
