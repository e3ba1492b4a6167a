"""The outputs contract: the same keys on every target; what does not apply is null.

The engine leaves a null out at the top level of a stack's outputs, so a missing key is read as null here;
`rdma-ray outputs` prints the contract whole.

This module imports neither Pulumi nor a cloud SDK, so that `workloads` can read a stack through the same types.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.alias_generators import to_camel


class Contract(BaseModel):
    """A part of the contract: frozen, and strict about names, so that a renamed key cannot pass unnoticed.

    Attributes are snake_case here and camelCase in the outputs (`gpus_per_node` is `gpusPerNode`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Nodes(Contract):
    """The machines that carry Ray workers (the head is not counted)."""

    min: int
    max: int
    gpus_per_node: int
    cpus_per_node: int

    @property
    def slots_per_node(self) -> int:
        """Processes of a gang that a node takes: one per GPU, one per CPU where there are none."""
        return self.gpus_per_node or self.cpus_per_node

    @property
    def default_gang(self) -> int:
        """Nodes that a run takes unless told otherwise: those that stay up, and at least two for a network between."""
        return max(self.min, min(2, self.max))

    @property
    def elastic(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return self.max > self.min


class Floor(Contract):
    """The least bus bandwidth (busbw, GB/s, decimal) that a healthy fabric shows, and who published it."""

    op: str
    nodes: int
    bytes: int
    busbw: float
    source: str


class Fabric(Contract):
    """The network between the nodes. `nics` and `gbpsPerNic` (Gbit/s) are null where there is no RDMA NIC."""

    transport: Literal["gib", "efa", "socket"]
    nics: int | None
    gbps_per_nic: int | None
    floors: list[Floor]


class Ray(Contract):
    """Where Ray answers. Every address is what a client on the user's machine dials.

    `cluster` is its name: that of the stack on `local`; on Kubernetes that of the RayCluster, or of the RayJob or
    Indexed Job in its place, as `mode` (the setting ray.mode) says. A stack brought up before there was a mode in the
    outputs has none, and is read as one that takes jobs.
    """

    cluster: str
    mode: Literal["cluster", "job", "indexed-job"] = "cluster"
    version: str
    dashboard: str
    jobs: str
    client: str
    token: SecretStr


class Storage(Contract):
    """A folder that every Ray node sees under the same path."""

    path: str


class Outputs(Contract):
    """A stack's outputs, whole."""

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
