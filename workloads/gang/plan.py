"""Processes on each node of a gang: commands and variables, as the plan of the node's guard. Imports no Ray."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Agents start without Pydantic and Cyclopts.
    from workloads.gang.options import Mode

TORCHRUN = "torch.distributed.run"


@dataclass(frozen=True)
class NodeShare:
    """Part of a run on one node: `node` of `nodes`, with `per_node` ranks. The ranks meet at `master`:`port`.

    `environment` has the user's variables, including secrets.
    """

    mode: Mode
    command: tuple[str, ...]
    environment: dict[str, str]
    node: int
    nodes: int
    per_node: int
    address: str
    master: str
    port: int
    use_gpu: bool
    grace_s: float
    restart: int

    @property
    def ranks(self) -> range:
        return range(self.node * self.per_node, (self.node + 1) * self.per_node)


def guard_plan(share: NodeShare, base: Mapping[str, str], extra: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the plan of a node's guard (`guard.Guard`).

    Args:
        base: Variables of the agent, which are those of the pod and of the job.
        extra: Additional variables of each rank on this node.
    """
    environment = {name: value for name, value in base.items() if name != "OMP_NUM_THREADS"}  # Ray's, not the user's
    # The interpreter of the image, and its torchrun, which need not be on PATH.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), base.get("PATH", os.defpath)])
    environment |= {"RDMA_RAY_RESTART": str(share.restart)} | share.environment
    if share.per_node > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does (torch/distributed/run.py, 2.15)
    plan: dict[str, Any] = {"folder": str(Path.cwd()), "grace_s": share.grace_s}
    if share.mode == "torchrun":
        arguments = [sys.executable, "-m", TORCHRUN, *torchrun_options(share), *_own(share.command)]
        plan["processes"] = [{"rank": None, "arguments": arguments, "environment": environment}]
        plan["ranks"] = dict(zip(share.ranks, extra, strict=True))
        return plan
    plan["processes"] = [
        {
            "rank": rank,
            "arguments": share.command,
            "environment": {**environment, **rank_variables(share, local), **extra[local]},
        }
        for local, rank in enumerate(share.ranks)
    ]
    return plan


def rank_variables(share: NodeShare, local: int) -> dict[str, str]:
    """Return the variables that tell a rank its place, as torchrun sets them (torch/distributed/run.py, 2.15)."""
    found = {
        "RANK": share.ranks[local],
        "WORLD_SIZE": share.nodes * share.per_node,
        "LOCAL_RANK": local,  # also the index of its GPU among the visible ones
        "LOCAL_WORLD_SIZE": share.per_node,
        "NODE_RANK": share.node,
        "GROUP_RANK": share.node,
        "MASTER_ADDR": share.master,
        "MASTER_PORT": share.port,
        "TORCHELASTIC_RESTART_COUNT": share.restart,
    }
    return {name: str(value) for name, value in found.items()}


def torchrun_options(share: NodeShare) -> list[str]:
    """Return the options of torchrun on this node, with those of them that this version has."""
    options = [
        f"--nnodes={share.nodes}",
        f"--node-rank={share.node}",
        f"--nproc-per-node={share.per_node}",
        f"--master-addr={share.master}",
        f"--master-port={share.port}",
    ]
    source = torchrun_source()
    if "--shutdown-timeout" in source:
        options.append(f"--shutdown-timeout={share.grace_s:.0f}")
    # It binds a script by numactl, and fails without it (torch/numa/binding.py, 2.15).
    if share.use_gpu and "--numa-binding" in source and shutil.which("numactl"):
        options.append("--numa-binding=node")
    return options


def torchrun_source() -> str:
    """Return the source of torchrun, to find its options: an import of torch takes seconds."""
    found = find_spec("torch")
    file = Path(found.origin).parent / "distributed" / "run.py" if found and found.origin else None
    return file.read_text(encoding="utf-8") if file and file.is_file() else ""


def _own(command: Sequence[str]) -> Sequence[str]:
    """Return what follows `torchrun` or `python -m torch.distributed.run` in the user's command."""
    return command[command.index(TORCHRUN) + 1 if TORCHRUN in command[:4] else 1 :]
