"""Stack file of a Ray cluster on this machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from infra.catalog.names import HISTORY_DAYS, LONGEST_HISTORY
from infra.catalog.pins import RAY
from infra.settings.fields import Flag, Number, RayRelease, Section, Token
from infra.settings.problems import Finding, Findings, rule

LOCAL_CPUS = 1024
INSTEAD = dict.fromkeys(("nodes.min", "nodes.max", "ray.minWorkers", "ray.maxWorkers"), "nodes.count")
"""Settings of the clouds that have another name here."""


class LocalNodes(Section):
    """Ray worker nodes, which are processes of this machine. The head is not counted."""

    count: Number = Field(
        2, ge=1, le=64, title="Ray worker nodes", description="local: Ray worker nodes to start on this machine."
    )
    cpus: Number = Field(
        2,
        ge=1,
        le=LOCAL_CPUS,
        title="CPUs",
        description="local: logical CPUs that each Ray worker node offers to tasks and actors. They may be more than "
        "the machine has; the nodes then share. kubernetes: CPUs that a worker's pod requests, nearly all of its node.",
    )


class LocalRay(Section):
    """The Ray cluster."""

    mode: Literal["cluster"] = Field("cluster", title="Ray mode")
    version: RayRelease = Field(RAY, title="a Ray release")
    history_days: Number = Field(HISTORY_DAYS, ge=0, le=LONGEST_HISTORY, title="days")
    token: Token | None = Field(
        None,
        description="local: the secret that clients of Ray present. Without it the stack creates a random one. "
        "Set it with: pulumi config set --secret --path 'rdma-ray:ray.token' VALUE",
    )


class LocalSettings(Section):
    """Stack file of a Ray cluster on this machine."""

    target: Literal["local"] = Field(examples=["local", "gke", "eks", "kubernetes"])
    nodes: LocalNodes
    ray: LocalRay
    protect: Flag = False

    @rule("nodes.count", "nodes.cpus", source="rdma-ray, this project's choice, 2026-11")
    def too_many_cpus(self) -> Findings:
        count, cpus = self.nodes.count, self.nodes.cpus
        if count * cpus > LOCAL_CPUS:
            fix = f"keep the product at {LOCAL_CPUS} or less; local clusters are for trials"
            yield Finding(
                f"{count} nodes with {cpus} CPUs each start {count * cpus} worker processes on this machine.", fix
            )
