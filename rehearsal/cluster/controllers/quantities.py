"""Resource quantities in Kubernetes notation ("250m", "2800Gi"), and the allocatable resources of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import InvalidOperation
from fractions import Fraction
from typing import Any

from rehearsal.clouds.kubernetes import quantities

Amounts = dict[str, Fraction]
"""Resource name to amount: CPUs, bytes, or devices."""

RESERVED = "GKE docs, plan node sizes; AL2023 nodeadm does the same sums for CPUs: unverified, 2026-11"
GIB = 2**30
MIB = 2**20

_CPU_STEPS = ((1, Fraction(6, 100)), (1, Fraction(1, 100)), (2, Fraction(5, 1000)), (None, Fraction(25, 10000)))
_MEMORY_STEPS = (
    (4 * GIB, Fraction(25, 100)),
    (4 * GIB, Fraction(20, 100)),
    (8 * GIB, Fraction(10, 100)),
    (112 * GIB, Fraction(6, 100)),
    (None, Fraction(2, 100)),
)


def amount(text: Any) -> Fraction:
    """Parse a quantity: "250m" is a quarter, "1Gi" 2^30. Raises `ValueError`."""
    try:
        return Fraction(quantities.amount(text))
    except InvalidOperation:
        raise ValueError(f"Invalid literal for an amount: {text!r}") from None


def amounts(written: Mapping[str, Any] | None) -> Amounts:
    """Parse a map of quantities."""
    return {name: amount(value) for name, value in (written or {}).items()}


def added(*parts: Mapping[str, Fraction]) -> Amounts:
    """Return the sum by resource."""
    total: Amounts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def largest(*parts: Mapping[str, Fraction]) -> Amounts:
    """Return the maximum by resource."""
    most: Amounts = {}
    for part in parts:
        for name, value in part.items():
            most[name] = max(most.get(name, value), value)
    return most


def requests(pod: Mapping[str, Any]) -> Amounts:
    """Return the resource requests of a pod spec; the pod itself counts as one of the resource "pods".

    As the scheduler counts: containers and restartable init containers add up, other init containers run one at a time
    before them (k8s.io/component-helpers 0.36.1: resource.PodRequests).
    """
    restartable: Amounts = {}
    first: Amounts = {}
    for container in pod.get("initContainers") or ():
        its = _asked(container)
        if container.get("restartPolicy") == "Always":
            restartable = added(restartable, its)
            first = largest(first, restartable)
        else:
            first = largest(first, added(restartable, its))
    running = added(restartable, *(_asked(container) for container in pod.get("containers") or ()))
    return added(largest(running, first), amounts(pod.get("overhead")), {"pods": Fraction(1)})


def left_for_pods(cpus: int, memory: int, storage: int) -> dict[str, str]:
    """Return the allocatable resources of a machine: CPUs, bytes of memory and of ephemeral storage.

    The node reserves a share of CPUs and memory that is smaller for larger machines, 100 MiB of memory for eviction,
    and of the storage a tenth and 100 GiB (on large disks). Source: `RESERVED`.
    """
    cpu = 1000 * (cpus - _share(cpus, _CPU_STEPS))
    kept = _share(memory, _MEMORY_STEPS) + 100 * MIB
    disk = storage * Fraction(9, 10) - (100 * GIB if storage > 1000 * GIB else 0)
    return {
        "cpu": f"{int(cpu)}m",
        "memory": f"{int((memory - kept) / 1024)}Ki",
        "ephemeral-storage": str(int(disk)),
        "pods": "110",
    }


def _asked(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    # A limit alone is also a request: the API server defaults it for pods, but not for templates.
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _share(whole: int, steps: tuple[tuple[int | None, Fraction], ...]) -> Fraction:
    kept, left = Fraction(0), Fraction(whole)
    for size, share in steps:
        part = left if size is None else min(left, Fraction(size))
        kept += part * share
        left -= part
    return kept
