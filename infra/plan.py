"""Plan of a stack file, computed without an engine: machine, addresses, fabric and pod.

`rdma-ray plan FILE` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.addresses import Range
from infra.catalog.fabrics import Variable
from infra.catalog.machines import Machine
from infra.eks.workload import ray_args as on_eks
from infra.existing.workload import ray_args as on_existing
from infra.fabric import GpuPod
from infra.gke.pod import scripted
from infra.gke.workload import ray_args as on_gke
from infra.kubernetes.pods import RayArgs
from infra.outputs import FabricOutputs, fabric_outputs
from infra.settings import (
    CloudSettings,
    ClusterSettings,
    EksSettings,
    GkeSettings,
    KubernetesSettings,
    LocalSettings,
    Settings,
)


def ray_args(settings: ClusterSettings, name: str) -> RayArgs:
    """Return the arguments of a RayCluster, RayJob or Indexed Job in a stack with these settings."""
    if isinstance(settings, GkeSettings):
        return on_gke(settings, name)
    if isinstance(settings, KubernetesSettings):
        return on_existing(settings, name)
    assert isinstance(settings, EksSettings)
    return on_eks(settings, name)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack's plan. A local stack has no machine, ranges or pod: its nodes are processes.

    `fabric` is the output `fabric`; `scripted` are the variables that the pod's setup sets.
    """

    settings: Settings
    fabric: FabricOutputs
    machine: Machine | None = None
    ranges: Sequence[Range] = ()
    pod: GpuPod | None = None
    scripted: Sequence[Variable] = ()


def plan(settings: Settings) -> Plan:
    """Return the plan of valid settings."""
    if isinstance(settings, LocalSettings):
        return Plan(settings=settings, fabric=fabric_outputs("socket"))
    machine, transport = settings.machine, settings.fabric_row.transport.name
    fabric = fabric_outputs(transport, machine, nics=settings.nics_per_node)
    return Plan(
        settings=settings,
        fabric=fabric,
        machine=machine,
        ranges=tuple(_ranges(settings)) if isinstance(settings, CloudSettings) else (),
        pod=ray_args(settings, "").pod,
        scripted=scripted(settings) if isinstance(settings, GkeSettings) else settings.fabric_row.scripted,
    )


def _ranges(settings: CloudSettings) -> Iterator[Range]:
    for each in settings.addresses.ranges():
        # On Google Cloud the networks of the additional NICs, and the control plane's range, are the stack's anyway.
        of_cluster = ("pods", "nodes", "services", *(() if settings.own_cluster else ("control-plane",)))
        theirs = isinstance(settings, EksSettings) or each.name in of_cluster
        if not (settings.on_users_network and theirs):
            yield each
