"""Labels in the reports: kinds of resources, durations and the rehearsal banner."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rehearsal.graph import GraphNode

BANNER = "REHEARSAL: simulated clouds, nothing was created"
"""Part of every output of a rehearsal, so that its figures are not mistaken for measurements."""

POOLS = frozenset({"gcp:container/nodePool:NodePool", "aws:eks/nodeGroup:NodeGroup"})
# "rdma-07" and "rdma-7" are different names, so a leading zero is no number.
_NUMBERED = re.compile(r"(.+-)(0|[1-9][0-9]*)((?:-[^-0-9][^-]*)*)")
_CLOUDS = {"gcp": "Google Cloud", "aws": "AWS", "kubernetes": "Kubernetes", "random": "random"}


def cloud(type_: str) -> str:
    """Return the cloud of a type: "Google Cloud", "Kubernetes", …"""
    package = type_.partition(":")[0]
    return _CLOUDS.get(package, package)


def kind(type_: str) -> str:
    """Return the last part of a type: "Subnetwork", "RayCluster"."""
    return type_.rpartition(":")[2]


def has_gpus(node: GraphNode) -> bool:
    """Return whether it is a node pool of GPU machines."""
    accelerated = bool((node.inputs.get("nodeConfig") or {}).get("guestAccelerators"))
    return node.type in POOLS and (accelerated or "NVIDIA" in str(node.inputs.get("amiType")))


def sort(node: GraphNode) -> str:
    """Return the kind of a resource, qualified where it is ambiguous: "GPU NodePool", "Kubernetes Network"."""
    if has_gpus(node):
        return f"GPU {kind(node.type)}"
    doubtful = node.type.startswith("kubernetes:") and kind(node.type) == "Network"
    return f"Kubernetes {kind(node.type)}" if doubtful else kind(node.type)


def display_name(node: GraphNode) -> str:
    """Return the label and name of a resource."""
    return f"{sort(node)} {node.name}"


def span(seconds: float) -> str:
    """Format seconds: 0.1 s, 22 s, 6 min 13 s, 1 h 5 min."""
    if 0 < seconds < 1:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")


def gist(said: str) -> str:
    """Return a phase's message in one line: its first error, otherwise its first line."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    return f"{next((line for line in lines if line.startswith('error')), lines[0])} …"


def by_sort(nodes: Iterable[GraphNode]) -> list[str]:
    """Yield one line for each kind of resource, in the given order: "8 Subnetwork: rdma-0…7"."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(sort(node), []).append(node.name)
    return [
        f"{f'{len(of_sort)} ' if len(of_sort) > 1 else ''}{what}: {spans_of_names(of_sort)}"
        for what, of_sort in names.items()
    ]


def spans_of_names(names: Iterable[str]) -> str:
    """Join names in one line and shorten numbered runs: "gvnic-1, rdma-0…7"."""
    runs: dict[str, list[int]] = {}
    for name in sorted(names):
        shape, number = stem(name)
        runs.setdefault(shape, [])
        if number is not None:
            runs[shape].append(number)
    return ", ".join(_run(shape, sorted(numbers)) if numbers else shape for shape, numbers in runs.items())


def stem(name: str) -> tuple[str, int | None]:
    """Split a name at its last number: "rdma-7-parameters" → ("rdma-{}-parameters", 7)."""
    match = _NUMBERED.fullmatch(name)
    if not match or "{" in name:
        return name, None
    return f"{match[1]}{{}}{match[3]}", int(match[2])


def _run(shape: str, numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return shape.replace("{}", f"{numbers[0]}…{numbers[-1]}")
    return ", ".join(shape.replace("{}", str(number)) for number in numbers)
