"""How the reports call things: kinds of resources, times, what this run was."""

from __future__ import annotations

from collections.abc import Iterable

from rehearsal.graph import Node

BANNER = "REHEARSAL: simulated clouds, nothing was created"
"""Stands on everything that a rehearsal prints, so that nobody takes its figures for measurements."""

POOLS = frozenset({"gcp:container/nodePool:NodePool"})
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
    return node.type in POOLS and bool((node.inputs.get("nodeConfig") or {}).get("guestAccelerators"))


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


def counted(number: int, what: str) -> str:
    """A number and its noun: 1 wave, 6 waves."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def by_sort(nodes: Iterable[Node]) -> list[str]:
    """One line for each sort of resource, in the order given: "8 Subnetwork: rdma-0 … rdma-7"."""
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(sort(node), []).append(node.name)
    return [
        f"{f'{len(of_sort)} ' if len(of_sort) > 1 else ''}{what}: {spans_of_names(of_sort)}"
        for what, of_sort in names.items()
    ]


def spans_of_names(names: list[str]) -> str:
    """Names in one line, with runs of numbered ones drawn together: "gvnic-1, rdma-0 … rdma-7"."""
    runs: dict[str, list[int]] = {}
    parts: list[str] = []
    for name in sorted(names, key=lambda name: (stem(name)[0], stem(name)[1] or 0)):
        base, number = stem(name)
        if number is None:
            parts.append(name)
            continue
        if base not in runs:
            parts.append(base)
        runs.setdefault(base, []).append(number)
    return ", ".join(_run(part, runs[part]) if part in runs else part for part in parts)


def stem(name: str) -> tuple[str, int | None]:
    """A name without the number behind its last hyphen, and that number: "rdma-7" → ("rdma-", 7)."""
    base, _, number = name.rpartition("-")
    # "rdma-07" is another name than "rdma-7".
    return (f"{base}-", int(number)) if base and number.isdecimal() and number == str(int(number)) else (name, None)


def _run(base: str, numbers: list[int]) -> str:
    numbers = sorted(set(numbers))
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{base}{numbers[0]} … {base}{numbers[-1]}"
    return ", ".join(f"{base}{number}" for number in numbers)
