"""How the reports call things: kinds of resources, times, what this run was."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rehearsal.graph import Node

BANNER = "REHEARSAL: simulated clouds, nothing was created"
"""Stands on everything that a rehearsal prints, so that nobody takes its figures for measurements."""

POOLS = frozenset({"gcp:container/nodePool:NodePool", "aws:eks/nodeGroup:NodeGroup"})
# "rdma-07" is another name than "rdma-7", so it has no number.
_NUMBERED = re.compile(r"(.+-)(0|[1-9][0-9]*)((?:-[^-0-9][^-]*)*)")
_CLOUDS = {"gcp": "Google Cloud", "aws": "AWS", "kubernetes": "Kubernetes", "random": "random"}


def cloud(type_: str) -> str:
    """Whose resource a type is: "Google Cloud", "Kubernetes", …"""
    package = type_.partition(":")[0]
    return _CLOUDS.get(package, package)


def kind(type_: str) -> str:
    """The last word of a type: "Subnetwork", "RayCluster"."""
    return type_.rpartition(":")[2]


def has_gpus(node: Node) -> bool:
    """Whether it is a node pool whose machines have GPUs."""
    accelerated = bool((node.inputs.get("nodeConfig") or {}).get("guestAccelerators"))
    return node.type in POOLS and (accelerated or "NVIDIA" in str(node.inputs.get("amiType")))


def sort(node: Node) -> str:
    """The kind of a resource, and more where that alone may mislead: "GPU NodePool", "Kubernetes Network"."""
    if has_gpus(node):
        return f"GPU {kind(node.type)}"
    doubtful = node.type.startswith("kubernetes:") and kind(node.type) == "Network"
    return f"Kubernetes {kind(node.type)}" if doubtful else kind(node.type)


def called(node: Node) -> str:
    """A resource in a sentence: its sort and its name."""
    return f"{sort(node)} {node.name}"


def span(seconds: float) -> str:
    """Seconds for people: 0.1 s, 22 s, 6 min 13 s, 1 h 5 min."""
    if 0 < seconds < 1:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")


def gist(said: str) -> str:
    """What fits on one line of what a phase said: its first error, else its first line."""
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    return f"{next((line for line in lines if line.startswith('error')), lines[0])} …"


def counted(number: int, what: str) -> str:
    """A number and its noun: 1 wave, 6 waves."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def by_sort(nodes: Iterable[Node]) -> list[str]:
    """One line for each sort of resource, in the order given: "8 Subnetwork: rdma-0…7"."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(sort(node), []).append(node.name)
    return [
        f"{f'{len(of_sort)} ' if len(of_sort) > 1 else ''}{what}: {spans_of_names(of_sort)}"
        for what, of_sort in names.items()
    ]


def spans_of_names(names: Iterable[str]) -> str:
    """Names in one line, with runs of numbered ones drawn together: "gvnic-1, rdma-0…7"."""
    runs: dict[str, list[int]] = {}
    for name in sorted(names):
        shape, number = stem(name)
        runs.setdefault(shape, [])
        if number is not None:
            runs[shape].append(number)
    return ", ".join(_run(shape, sorted(numbers)) if numbers else shape for shape, numbers in runs.items())


def stem(name: str) -> tuple[str, int | None]:
    """A name with a gap for its last number, and that number: "rdma-7-parameters" → ("rdma-{}-parameters", 7)."""
    found = _NUMBERED.fullmatch(name)
    if not found or "{" in name:
        return name, None
    return f"{found[1]}{{}}{found[3]}", int(found[2])


def _run(shape: str, numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return shape.replace("{}", f"{numbers[0]}…{numbers[-1]}")
    return ", ".join(shape.replace("{}", str(number)) for number in numbers)
