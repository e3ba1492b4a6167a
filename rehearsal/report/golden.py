"""Golden list of a graph: the inputs of every resource as reproducible text.

Outputs are omitted, because they have generated values, and so are secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from rehearsal.graph import PROVIDERS, Graph, GraphNode

SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key by which the engine marks values of special kinds in its state (pulumi: sdk/go/common/resource/sig)."""
MASK = "[secret]"
MOST_LINES = 40
"""Lines of a text that the list has; a longer one is a file of this project."""
_HARMLESS = {
    "5cf8f73096256a8f31e491e813e4eb8e": "[resource]",
    "c44067f5952c0a294b673a41bacd8c17": "[asset]",
    "0def7320c3a5731c473e5ecbe6d01bc7": "[archive]",
}
# Secret even if the program does not mark it.
_ALWAYS_SECRET = {
    "kubernetes:core/v1:Secret": frozenset({"data", "stringData"}),
    "pulumi:providers:kubernetes": frozenset({"kubeconfig"}),
}


def golden(graph: Graph) -> str:
    """Return every resource, parents before children, with its inputs as YAML."""
    children: dict[str | None, list[GraphNode]] = {}
    for node in graph.nodes.values():
        children.setdefault(node.parent, []).append(node)
    lines: list[str] = []

    def add(parent: str | None) -> None:
        for node in sorted(children.get(parent, ()), key=lambda node: node.key):
            lines.extend(_resource(graph, node))
            add(node.urn)

    add(None)
    return "\n".join(lines).rstrip("\n") + "\n"


def masked(value: Any) -> Any:
    """Mask secrets and long scripts, and drop the annotations of the engine and its bridges."""
    if isinstance(value, Mapping):
        if SIGNATURE in value:
            # An unknown mark may be that of a secret.
            return _HARMLESS.get(value[SIGNATURE], MASK)
        return {key: masked(item) for key, item in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str) and value.count("\n") > MOST_LINES:
        return f"({len(value.splitlines())} lines)"
    return value


def listed(node: GraphNode) -> dict[str, Any]:
    """Return the inputs of a resource as the list has them."""
    hidden = _ALWAYS_SECRET.get(node.type, frozenset())
    return {key: MASK if key in hidden else value for key, value in masked(node.inputs).items()}


def _resource(graph: Graph, node: GraphNode) -> Iterator[str]:
    yield f"{node.type} {node.name}"
    if node.parent:
        yield f"  parent: {_display_name(graph[node.parent])}"
    if node.provider:
        yield f"  provider: {_display_name(graph[node.provider])}"
    if node.deleted_with:
        yield f"  deleted with: {_display_name(graph[node.deleted_with])}"
    if node.protect:
        yield "  protected"
    for until in sorted((graph[urn] for urn in node.ordering), key=lambda until: until.key):
        yield f"  waits for (ordering): {_display_name(until)}"
    inputs = listed(node)
    if inputs:
        text = yaml.safe_dump(inputs, sort_keys=True, allow_unicode=True, width=110)
        yield "  inputs:"
        yield from (f"    {line}" if line else "" for line in text.splitlines())
    yield ""


def _display_name(node: GraphNode) -> str:
    return f"{node.type.removeprefix(PROVIDERS)} {node.name}"
