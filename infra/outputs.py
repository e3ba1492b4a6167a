"""The outputs contract: the same keys on every target; a key that does not apply is null.

The engine omits a null at the top level of a stack's outputs, so a missing key means null here; `rdma-ray outputs`
prints all keys. This module imports neither Pulumi nor a cloud SDK: `workloads` reads stacks through these types.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.alias_generators import to_camel


class Contract(BaseModel):
    """Base of the contract's parts: frozen, and without unknown keys, so that a renamed key is an error.

    Attributes are snake_case here and camelCase in the outputs (`gpus_per_node` is `gpusPerNode`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Nodes(Contract):
    """Machines that carry Ray workers, without the head."""

    min: int
    max: int
    gpus_per_node: int
    cpus_per_node: int

    @property
    def slots_per_node(self) -> int:
        """Processes of a gang per node: one per GPU, or one per CPU without GPUs."""
        return self.gpus_per_node or self.cpus_per_node

    @property
    def default_gang(self) -> int:
        """Default number of nodes of a run: those that stay up, and at least two, so that a network is involved."""
        return max(self.min, min(2, self.max))

    @property
    def elastic(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return self.max > self.min


class Floor(Contract):
    """Minimum bus bandwidth (busbw, GB/s, decimal) of a healthy fabric, with its publication."""

    op: str
    nodes: int
    bytes: int
    busbw: float
    source: str


class Fabric(Contract):
    """Network between nodes. `nics` and `gbpsPerNic` (Gbit/s) are null without RDMA NICs."""

    transport: Literal["gib", "efa", "socket"]
    nics: int | None
    gbps_per_nic: int | None
    floors: list[Floor]


class Ray(Contract):
    """Addresses of Ray for clients on the user's machine.

    `cluster` is the name of the stack on `local`, and on Kubernetes that of the RayCluster, RayJob or Indexed Job,
    depending on `mode` (the setting ray.mode). Outputs of an older stack without a mode are those of a RayCluster.
    """

    cluster: str
    mode: Literal["cluster", "job", "indexed-job"] = "cluster"
    version: str
    dashboard: str
    jobs: str
    client: str
    token: SecretStr


class Storage(Contract):
    """Folder that every Ray node sees under the same path."""

    path: str


class Outputs(Contract):
    """All outputs of a stack."""

    target: Literal["local", "gke", "eks"]
    location: str | None = None
    machine: str | None = None
    nodes: Nodes
    fabric: Fabric
    kubeconfig: SecretStr | None = None
    namespace: str | None = None
    ray: Ray
    storage: Storage | None = None
    queue: str | None = None
