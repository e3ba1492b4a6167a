"""What a stack file will become, before any engine runs: the machine, the addresses, the fabric and the pod.

Pure, like everything it puts together. `rdma-ray plan FILE` prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from infra import fabric as fabrics
from infra.addresses import Range, eks_addresses, gke_addresses
from infra.catalog.machines import Machine, eks_machine, gke_machine
from infra.fabric import Fabric, GpuPod
from infra.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A stack's plan. A local stack has neither machine nor ranges nor pod: its nodes are processes."""

    settings: Settings
    machine: Machine | None
    ranges: Sequence[Range]
    fabric: Fabric
    pod: GpuPod | None


def plan(settings: Settings) -> Plan:
    """The plan of legal settings."""
    if settings.target == "local":
        return Plan(settings=settings, machine=None, ranges=(), fabric=fabrics.SOCKET, pod=None)
    base = IPv4Network(str(settings.network.base_range))
    if settings.target == "gke":
        from infra.gke.fabric import fabric, gpu_pod

        machine = gke_machine(settings.nodes.machine)
        ranges = tuple(gke_addresses(base, settings.nodes.max).ranges())
        return Plan(
            settings=settings, machine=machine, ranges=ranges, fabric=fabric(machine), pod=gpu_pod(settings, machine)
        )
    from infra.eks.fabric import fabric as efa_fabric
    from infra.eks.fabric import gpu_pod as efa_pod

    instance = eks_machine(settings.nodes.machine)
    ranges = tuple(eks_addresses(base, settings.nodes.max).ranges())
    return Plan(
        settings=settings,
        machine=instance,
        ranges=ranges,
        fabric=efa_fabric(instance),
        pod=efa_pod(settings, instance),
    )
