"""`make mutations STACK=gke`: remove and change every input of a stack, one at a time; print the check that notices.

A simulated cloud refuses the stack, or a relation between resources no longer holds, or only the golden list differs,
which a reviewer reads. An input that is not in the list is free, for a reason in `FREE`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from infra.settings import from_stack_file
from rehearsal.engine.commands import Engine
from rehearsal.engine.kind import Json
from rehearsal.engine.values import Path
from rehearsal.engine.workspace import ROOT, Workspace
from rehearsal.graph import Graph, GraphNode
from rehearsal.invariants.invariant import Stack
from rehearsal.invariants.violations import violations
from rehearsal.replay import Replay
from rehearsal.report.golden import listed

Notice = Literal["refusal", "invariant", "golden", "free", "nothing"]
COLUMNS: Mapping[Notice, str] = {
    "refusal": "a cloud refuses",
    "invariant": "else: an invariant breaks",
    "golden": "else: the golden list alone",
    "free": "free",
    "nothing": "unnoticed",
}
FREE: Mapping[str, str] = {
    "kubernetes:core/v1:Secret#stringData.*": "the state's marks around a secret, which the list hides"
}
"""Inputs that nothing has to notice, as patterns "TYPE#PATH", each with its reason."""


@dataclass(frozen=True)
class Mutation:
    """Input that was removed or changed, the check that notices it, and the message."""

    node: GraphNode
    path: Path
    taken_out: bool
    by: Notice
    words: str = ""

    @property
    def where(self) -> str:
        """The resource and the dotted path."""
        return f"{self.node.type}#{'.'.join(map(str, self.path))}"


def mutate(stack: Stack, types: Collection[str] = ()) -> Iterator[Mutation]:
    """Remove and change every input of one resource of each sort (rdma-0 also represents rdma-1…7).

    Args:
        stack: the stack, with its (simulated) secrets in clear text.
        types: type tokens; all by default.
    """
    replay = Replay(stack.graph)
    seen: set[tuple[str, str]] = set()
    for node in stack.graph.managed:
        sort = (node.type, re.sub(r"\d", "", node.name))
        if sort in seen or (types and node.type not in types):
            continue
        seen.add(sort)
        for path, value in inputs_of(node.inputs):
            yield _noticed(stack, replay, Mutation(node, path, True, "nothing"), without(node.inputs, path))
            if (other := another(value)) is not None:
                inputs = changed(node.inputs, path, other)
                yield _noticed(stack, replay, Mutation(node, path, False, "nothing"), inputs)


def inputs_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every key and every list item at every depth with its value, except the SDK's own ("__…")."""
    if path:
        yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not key.startswith("__"):
                yield from inputs_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from inputs_of(item, (*path, index))


def another(value: Any) -> Any:
    """Return another value of the same type; None for maps and lists, whose items change one by one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if not isinstance(value, str):
        return None
    return str(int(value) + 1) if value.isdecimal() else f"{value}x"


def deploy(stack: str, workspace: Workspace) -> Stack:
    """Return a stack as the engine registers it, with its (simulated) secrets in clear text. Raises `EngineError`."""
    file = ROOT / f"Pulumi.{stack}.yaml"
    exported = Engine.deployed(workspace, stack, file).must("stack", "export", "--show-secrets", stack=True)
    return Stack(Graph.from_deployment(json.loads(exported.text)), from_stack_file(file))


def table(mutations: list[Mutation]) -> Iterator[str]:
    """Return a Markdown table: for each resource type, how many mutations each check notices first."""
    yield f"| resource | mutations | {' | '.join(COLUMNS.values())} |"
    yield "|---|" + "--:|" * (1 + len(COLUMNS))
    types = sorted({mutation.node.type for mutation in mutations})
    for name, of_type in (*((f"`{type_}`", {type_}) for type_ in types), ("all", set(types))):
        counts = Counter(mutation.by for mutation in mutations if mutation.node.type in of_type)
        yield f"| {name} | {counts.total()} | {' | '.join(str(counts[by]) for by in COLUMNS)} |"


def _noticed(stack: Stack, replay: Replay, mutation: Mutation, inputs: Json) -> Mutation:
    node, path, taken_out = mutation.node, mutation.path, mutation.taken_out
    graph = stack.graph.with_inputs(node.urn, inputs)
    refused = replay.refused(graph, node.urn)
    if refused is not None:
        return Mutation(node, path, taken_out, "refusal", refused.refusal.message)
    wrong = violations(Stack(graph, stack.settings))
    if wrong:
        return Mutation(node, path, taken_out, "invariant", wrong[0])
    if listed(graph[node.urn]) != listed(node):
        return Mutation(node, path, taken_out, "golden")
    reason = next((why for pattern, why in FREE.items() if fnmatchcase(mutation.where, pattern)), None)
    return mutation if reason is None else Mutation(node, path, taken_out, "free", reason)


def without(value: Any, path: Path) -> Any:
    """Return a copy of inputs without the key or item at a path."""
    first, *rest = path
    if not rest:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        kept = [(key, item) for key, item in items if key != first]
        return dict(kept) if isinstance(value, Mapping) else [item for _, item in kept]
    return changed(value, (first,), without(value[first], tuple(rest)))


def changed(value: Any, path: Path, new: Any) -> Any:
    """Return a copy of inputs with another value at a path."""
    first, *rest = path
    inner = changed(value[first], tuple(rest), new) if rest else new
    if isinstance(value, Mapping):
        return {**value, first: inner}
    return [inner if index == first else item for index, item in enumerate(value)]


def main() -> int:
    """Print the table, and mutations that only the golden list or nothing notices; return 1 if any goes unnoticed."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.mutations", description=__doc__)
    parser.add_argument("stack", nargs="?", default="gke")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = deploy(options.stack, Workspace(pathlib.Path(folder) / "mutations"))
    mutations = list(mutate(stack))
    print("\n".join(table(mutations)))
    for by, reasons in (("golden", "The golden list alone notices"), ("nothing", "Unnoticed")):
        files = list(dict.fromkeys(mutation.where for mutation in mutations if mutation.by == by))
        print(f"\n{reasons}: {', '.join(files) or 'nothing'}")
    return 1 if any(mutation.by == "nothing" for mutation in mutations) else 0


if __name__ == "__main__":
    sys.exit(main())
