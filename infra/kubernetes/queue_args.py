"""Arguments of the queue of a stack's GPU nodes. Imports no Pulumi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.fabric import GpuPod
from infra.settings.teams import Team

if TYPE_CHECKING:
    from infra.settings.common import CloudRay

AUTOSCALER = 1, 1
"""CPUs and GiB of Ray's autoscaler, twice the operator's default, which is small for real clusters (KubeRay 1.6: 500m,
512Mi; read 2026-08)."""


@dataclass(frozen=True, kw_only=True)
class Flavor:
    """A kind of GPU nodes.

    Args:
        name: Name of the ResourceFlavor.
        labels: Labels that identify these nodes.
        queued: Whether a ProvisioningRequest creates the nodes.
        topology: Whether Kueue chooses among the nodes by their topology labels.
    """

    name: str
    labels: Mapping[str, str]
    queued: bool = False
    topology: bool = False


@dataclass(frozen=True, kw_only=True)
class QueueArgs:
    """Arguments of the queue and of Kueue's configuration.

    Args:
        system_labels: Labels of the CPU nodes.
        heads: Number of Ray heads that the CPU nodes have room for.
        head: What one head requests.
        cpu_workers: Number of Ray workers without GPUs, on the CPU nodes.
        cpu_worker: What one of them requests.
        flavors: Flavors of the GPU nodes in the order in which Kueue tries them.
        nodes: Maximum number of nodes of each flavor.
        pod: Pod that takes a GPU node whole.
        nics: Devices that the pod claims; 0 without claims.
        device_class: Their device class; None without claims.
        topology: Topology labels, highest level first; empty if Kueue does not choose by topology.
        wait_s: Maximum wait of an admitted pod for its node, in seconds.
        max_run_s: Maximum run time of queued nodes, in seconds; None without queued provisioning.
        teams: Teams, each of which has a ClusterQueue.
    """

    system_labels: Mapping[str, str]
    heads: int
    head: Mapping[str, str]
    cpu_workers: int = 0
    cpu_worker: Mapping[str, str] = field(default_factory=dict)
    flavors: Sequence[Flavor]
    nodes: int
    pod: GpuPod
    nics: int = 0
    device_class: str | None = None
    topology: Sequence[str] = ()
    wait_s: int
    max_run_s: int | None = None
    teams: Sequence[Team] = ()

    @property
    def provisioned(self) -> list[str]:
        """Names of the flavors whose nodes a ProvisioningRequest creates."""
        return [flavor.name for flavor in self.flavors if flavor.queued]


def queued_head(ray: CloudRay, *, elastic: bool) -> dict[str, str]:
    """Return the quota that a head needs: in an elastic cluster its pod has the autoscaler, too."""
    cpus, gib = AUTOSCALER if elastic else (0, 0)
    return {"cpu": str(ray.head_cpus + cpus), "memory": f"{ray.head_memory_gib + gib}Gi"}
