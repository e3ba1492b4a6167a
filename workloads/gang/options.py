"""Options of `rdma-ray run`, which its driver on the cluster reads as JSON. Imports neither torch nor infra."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from workloads.gang.layout import KINDS, Layout
from workloads.options import WAIT_S, Hidden, option

Mode = Literal["driver", "torchrun", "ranks"]
"""How the command runs: once on the head, as Ray drivers do; by torchrun on every node; or once per rank."""

COLLECT_S = 45
"""Seconds for the evidence of a driver, after the end of the command (`gang.actor_evidence`)."""


class RunOptions(BaseModel, frozen=True, extra="forbid"):
    """One run of the user's command."""

    nodes: int | None = Field(None, ge=1, description="Nodes of a gang. Without it, the command runs once on the head.")
    per_node: int | None = Field(None, ge=1, description="Ranks per node. [default: one per GPU, or one without GPUs]")
    tp: int | None = Field(None, ge=1, description="Tensor parallel size: ranks of a group within a node.")
    cp: int | None = Field(None, ge=1, description="Context parallel size.")
    ep: int | None = Field(None, ge=1, description="Expert parallel size, within the ranks of --cp and --dp.")
    pp: int | None = Field(None, ge=1, description="Pipeline parallel size: stages.")
    dp: int | None = Field(None, ge=1, description="Data parallel size. [default: the rest after the other sizes]")
    wait_s: Annotated[float, option(name="--wait")] = Field(WAIT_S, ge=1, description="Seconds to wait for the nodes.")
    grace_s: Annotated[float, option(name="--grace")] = Field(
        30, ge=0, description="Seconds between SIGTERM and SIGKILL, for a checkpoint."
    )
    max_restarts: int = Field(0, ge=0, description="Times that a failed gang starts again.")
    check: bool = Field(False, description="Test the nodes in pairs first, and start nothing if one is bad.")
    evidence: bool = Field(
        False, description="Collect NCCL's logs of all actors of a Ray driver, and show how the data traveled."
    )
    hunt: Hidden[str] = ""
    """Request of that test."""
    command: Hidden[tuple[str, ...]] = ()
    """Program and arguments. In mode torchrun: `torchrun OPTIONS SCRIPT …`, without --nnodes and --nproc-per-node."""
    mode: Hidden[Mode] = "driver"
    environment: Hidden[dict[str, str]] = {}
    """Variables of the command, without secrets."""
    secrets: Hidden[tuple[str, ...]] = ()
    """Names of variables whose values the client sends when the driver runs (`launch.sealed`)."""
    client_key: Hidden[str] = ""
    """Public key of the client that sends them."""
    secrets_here: Hidden[bool] = False
    """Whether the driver's environment has them instead: it is the child of an entry point."""
    folder: Hidden[str] = ""
    """Where the command of such a child runs; empty for the current folder."""
    of_ray: Hidden[bool] = True
    """Whether Ray signals every process of the job."""
    transport: Hidden[str | None] = None
    """RDMA transport of the stack's fabric; None for sockets."""
    use_gpu: Hidden[bool] = False
    elastic: Hidden[bool] = False
    """Whether an autoscaler may add nodes."""

    @property
    def end_s(self) -> float:
        """Seconds that the driver may take to end after a signal."""
        return self.grace_s + (COLLECT_S if self.evidence else 0)

    @property
    def sizes(self) -> dict[str, int | None]:
        """Parallel sizes by name."""
        return {kind: getattr(self, kind) for kind in KINDS}

    @property
    def layout(self) -> Layout | None:
        """Layout of resolved options; None if they declare none."""
        if self.tp is None or self.cp is None or self.ep is None or self.dp is None or self.pp is None:
            return None
        assert self.nodes is not None
        return Layout(self.nodes, self.per_node or 1, self.tp, self.cp, self.dp, self.pp, self.ep)
