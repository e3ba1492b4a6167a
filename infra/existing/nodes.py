"""Check of the nodes of a cluster that the user has: whether one has room for a worker, and enough are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from infra.catalog.names import GPU
from infra.existing.kubectl import Json
from infra.existing.questions import Found, part, parts
from infra.fabric import GpuPod
from infra.settings import Problem

_PATHS = {"cpu": "cpus", "memory": "memoryGib", GPU: "gpus"}
_TRANSIENT = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints by which Kubernetes marks a node for a while, such as while it is not ready."""


def node_problems(found: Found) -> Iterator[Problem]:
    """Find that no node that the workers may use has room for one, or that fewer have than must stay up."""
    yield from _problems(found, "nodes", found.args.pod, found.settings.nodes.min)
    if found.args.other_pod is not None:
        yield from _problems(found, "otherNodes", found.args.other_pod, 0)


def _problems(found: Found, section: str, pod: GpuPod, fewest: int) -> Iterator[Problem]:
    selector = ",".join(f"{key}={value}" for key, value in pod.node_selector.items())
    answer = found.maybe("/api/v1/nodes" + (f"?{urlencode({'labelSelector': selector})}" if selector else ""))
    if answer is None:
        return
    wanted = {name: str(quantity) for name, quantity in pod.resources["requests"].items()}
    nodes = [
        (node, {name: str(part(node, "status", "allocatable", name) or "0")[:24] for name in wanted})
        for node in parts(answer, "items")
    ]
    if not selector and GPU in wanted:
        # Others are for other work: an autoscaler may start the first node with GPUs.
        nodes = [(node, offer) for node, offer in nodes if amount(offer[GPU])]
    taints = [[*_intolerable(node, pod.tolerations)] for node, _ in nodes]
    lasting = [[taint for taint in each if not taint.startswith(_TRANSIENT)] for each in taints]
    offers = [offer for (_, offer), blocking in zip(nodes, taints, strict=True) if not blocking]
    fitting = [offer for offer in offers if all(amount(offer[name]) >= amount(wanted[name]) for name in wanted)]
    if offers and not fitting:
        most = {name: max((offer[name] for offer in offers), key=amount) for name in wanted}
        short = [name for name in wanted if amount(most[name]) < amount(wanted[name])] or [*wanted]
        lacking = ", ".join(f"{name} {wanted[name]} (at most {most[name]})" for name in short)
        yield found.problem(
            f"None of the nodes with the labels and taints of the stack has room for a worker: {lacking}.",
            f"lower these, correct {section}.selector, or wait until the device plugin offers them",
            *dict.fromkeys(f"{section}.{_PATHS[name]}" if name in _PATHS else "fabric" for name in short),
        )
    elif nodes and all(lasting):
        some = ", ".join(sorted({*chain(*lasting)})[:3])
        yield found.problem(
            f"Each of the nodes with the labels of the stack has a taint that the workers do not tolerate: {some}.",
            f"add the taint to {section}.tolerations, if it is there for such work",
            f"{section}.tolerations",
        )
    elif len(fitting) < fewest:
        yield found.problem(
            f"nodes.min is {fewest}, but {len(fitting)} nodes have the labels, taints and size that a worker needs.",
            "correct nodes.selector and nodes.tolerations, or lower nodes.min; with 0, an autoscaler may add nodes",
            "nodes.min",
        )


def _intolerable(node: Json, tolerations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the taints of a node that pods do not tolerate, as KEY=VALUE."""
    for taint in parts(node, "spec", "taints"):
        tolerated = any(
            each["key"] == taint.get("key") and (each["operator"] == "Exists" or each["value"] == taint.get("value"))
            for each in tolerations
        )
        if taint.get("effect") != "PreferNoSchedule" and not tolerated:
            yield f"{taint.get('key')}={taint.get('value') or ''}".rstrip("=")[:126]


def amount(quantity: str) -> float:
    """Return a quantity of Kubernetes as a number: 1500m is 1.5, and 2Ki is 2048; 0 for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE]\d+)?)(m|[kMGTPE]|[KMGTPE]i)?", quantity.strip())
    if match is None:
        return 0.0
    unit = match[2] or ""
    if unit == "m":
        return float(match[1]) / 1000
    step = 1024 if unit.endswith("i") else 1000
    return float(match[1]) * float(step ** " kMGTPE".index(unit[:1].replace("K", "k") or " "))
