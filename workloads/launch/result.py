"""Result of `rdma-ray run`, which its driver on the cluster emits, as JSON."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from workloads.launch.options import Mode
from workloads.nccl.evidence.facts import Evidence
from workloads.results import JobResult, Part


class RunNode(Part):
    """Node of a run, with its ranks in order."""

    host: str
    ip: str
    node_id: str
    ranks: list[int]


class RunFailure(Part):
    """First failure: its rank (None for torchrun itself), node and exit code, and the end of its output."""

    rank: int | None
    host: str
    code: int
    text: str


class RunResult(JobResult):
    """Result of a gang: where its ranks ran, how they ended, and how their data traveled."""

    writer: ClassVar[str] = "rdma-ray run"

    schema_: Literal["rdma-ray/run/1"] = "rdma-ray/run/1"
    mode: Mode
    nodes: list[RunNode]
    exit_codes: list[int | None]
    """By rank; None for one that was lost with its node."""
    restarts: int = Field(ge=0)
    seconds: dict[str, float]
    """By phase, of all attempts."""
    failure: RunFailure | None = None
    evidence: Evidence | None = None
