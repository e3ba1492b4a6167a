"""Options of `rdma-ray run`, which its driver on the cluster reads as JSON. Imports neither torch nor infra."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from workloads.options import Hidden, option

Mode = Literal["driver", "torchrun", "ranks"]
"""How the command runs: once on the head, as Ray drivers do; by torchrun on every node; or once per rank."""


class RunOptions(BaseModel, frozen=True, extra="forbid"):
    """One run of the user's command."""

    nodes: int | None = Field(None, ge=1, description="Nodes of a gang. Without it, the command runs once on the head.")
    per_node: int | None = Field(None, ge=1, description="Ranks per node. [default: one per GPU, or one without GPUs]")
    wait_s: Annotated[float, option(name="--wait")] = Field(1800, ge=1, description="Seconds to wait for the nodes.")
    grace_s: Annotated[float, option(name="--grace")] = Field(
        30, ge=0, description="Seconds between SIGTERM and SIGKILL, for a checkpoint."
    )
    max_restarts: int = Field(0, ge=0, description="Times that a failed gang starts again.")
    command: Hidden[tuple[str, ...]] = ()
    """Program and arguments. In mode torchrun: `torchrun OPTIONS SCRIPT …`, without --nnodes and --nproc-per-node."""
    mode: Hidden[Mode] = "driver"
    environment: Hidden[dict[str, str]] = {}
    """Variables of the command, without secrets."""
    secrets: Hidden[tuple[str, ...]] = ()
    """Names of variables whose values the client has put into the cluster's key-value store (`launch.secrets`)."""
    use_gpu: Hidden[bool] = False
    elastic: Hidden[bool] = False
    """Whether an autoscaler may add nodes."""
