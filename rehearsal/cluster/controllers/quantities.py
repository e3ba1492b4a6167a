"""Resources of pods in Kubernetes notation ("250m", "2800Gi"), and the allocatable resources of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from rehearsal.clouds.kubernetes.quantities import amount

Amounts = dict[str, Decimal]
"""Resource name to amount: CPUs, bytes, or devices."""

GIB = 2**30
MIB = 2**20

_CPU_STEPS = ((1, "0.06"), (1, "0.01"), (2, "0.005"), (None, "0.0025"))
_MEMORY_STEPS = ((4 * GIB, "0.25"), (4 * GIB, "0.20"), (8 * GIB, "0.10"), (112 * GIB, "0.06"), (None, "0.02"))


def amounts(written: Mapping[str, Any] | None) -> Amounts:
    """Parse a map of quantities."""
    return {name: amount(value) for name, value in (written or {}).items()}


def added(*parts: Mapping[str, Decimal]) -> Amounts:
    """Return the sum by resource."""
    return {name: sum((part.get(name, Decimal(0)) for part in parts), Decimal(0)) for part in parts for name in part}


def requests(pod: Mapping[str, Any]) -> Amounts:
    """Return the resource requests of a pod spec; the pod itself counts as one of the resource "pods".

    As the scheduler counts: containers add up, init containers run one at a time before them
    (k8s.io/component-helpers 0.36.1: resource.PodRequests). No pod here has an init container that keeps running.
    """
    running = added(*(_asked(container) for container in pod.get("containers") or ()))
    parts = [running, *(_asked(container) for container in pod.get("initContainers") or ())]
    most = {name: max(part.get(name, Decimal(0)) for part in parts) for each in parts for name in each}
    return {**most, "pods": Decimal(1)}


def left_for_pods(cpus: int, memory: int, storage: int) -> dict[str, str]:
    """Return the allocatable resources of a machine: CPUs, bytes of memory and of ephemeral storage.

    The node reserves a share of CPUs and memory that is smaller for larger machines, 100 MiB of memory for eviction,
    and a tenth of the storage plus 100 GiB (on large disks; GKE docs, plan node sizes, unverified, 2026-11).
    """
    cpu = 1000 * (cpus - _share(cpus, _CPU_STEPS))
    kept = _share(memory, _MEMORY_STEPS) + 100 * MIB
    disk = storage * 9 // 10 - (100 * GIB if storage > 1000 * GIB else 0)
    return {
        "cpu": f"{int(cpu)}m",
        "memory": f"{int((memory - kept) / 1024)}Ki",
        "ephemeral-storage": str(disk),
        "pods": "110",
    }


def _asked(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    # A limit alone is also a request: the API server defaults it for pods, but not for templates.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _share(whole: int, steps: tuple[tuple[int | None, str], ...]) -> Decimal:
    kept, left = Decimal(0), whole
    for size, share in steps:
        part = left if size is None else min(left, size)
        kept += part * Decimal(share)
        left -= part
    return kept
