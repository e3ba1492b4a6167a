"""Plan of a stack file, computed without an engine: machine, addresses, fabric and pod.

`rdma-ray plan FILE` prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.addresses import Range
from infra.catalog.machines import Machine
from infra.eks import pod as eks
from infra.eks.workload import ray_args as on_eks
from infra.fabric import SOCKET, Fabric, GpuPod
from infra.gke import pod as gke
from infra.gke.workload import ray_args as on_gke
from infra.kubernetes.pods import RayArgs
from infra.settings import CloudSettings, EksSettings, GkeSettings, LocalSettings, Settings


def ray_args(settings: CloudSettings, name: str) -> RayArgs:
    """Return the arguments of a RayCluster, RayJob or Indexed Job in a stack with these settings."""
    if isinstance(settings, GkeSettings):
        return on_gke(settings, name)
    assert isinstance(settings, EksSettings)
    return on_eks(settings, name)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack's plan. A local stack has no machine, ranges or pod: its nodes are processes."""

    settings: Settings
    fabric: Fabric
    machine: Machine | None = None
    ranges: Sequence[Range] = ()
    pod: GpuPod | None = None


def plan(settings: Settings) -> Plan:
    """Return the plan of valid settings."""
    match settings:
        case LocalSettings():
            return Plan(settings=settings, fabric=SOCKET)
        case GkeSettings():
            google, ranges = settings.machine, tuple(settings.addresses.ranges())
            pod = gke.gpu_pod(settings, google)
            return Plan(settings=settings, fabric=gke.fabric(google), machine=google, ranges=ranges, pod=pod)
        case EksSettings():
            amazon, ranges = settings.machine, tuple(settings.addresses.ranges())
            pod = eks.gpu_pod(settings, amazon)
            return Plan(settings=settings, fabric=eks.fabric(amazon), machine=amazon, ranges=ranges, pod=pod)
