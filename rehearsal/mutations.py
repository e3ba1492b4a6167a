"""Every input of a stack taken out, one at a time: who notices?

Either the simulated cloud refuses the stack, or a promise no longer holds, or the input is free: it may be left out,
and the reason stands here. An input that nobody notices is an untested one.
`make mutations STACK=gke` prints the table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from infra.settings import from_stack_file
from rehearsal.engine import Engine, EngineError
from rehearsal.graph import Graph, Node
from rehearsal.invariants.by_target import INVARIANTS
from rehearsal.invariants.invariant import Stack, description
from rehearsal.invariants.invariant import violations as invariant_violations
from rehearsal.replay import replay, without
from rehearsal.workspace import ROOT, Workspace

InputPath = tuple[str | int, ...]
Catcher = Literal["promise", "refusal", "free", "nobody"]

FREE: Mapping[str, str] = {
    "*#apiVersion": "the SDK writes it, from the resource's type",
    "aws:*#*tags.Name": "for people",
    "aws:*#description": "for people",
    "aws:ec2/eip:Eip#domain": "the default, written down",
    "aws:kms/key:Key#deletionWindowInDays": "the default, written down",
    "aws:iam/rolePolicy:RolePolicy#name": "the provider makes one up",
    "*#kind": "the SDK writes it, from the resource's type",
    "gcp:*#displayName": "for people",
    "gcp:compute/network:Network#routingMode": "the default, written down",
    "gcp:container/cluster:Cluster#nodeConfig.machineType": "of the first pool, which is removed at once",
    "gcp:projects/iAMMember:IAMMember#project": "the provider's project, written down",
    "gcp:container/nodePool:NodePool#nodeConfig.diskSizeGb": "100 GB is the default, written down",
    "gcp:container/nodePool:NodePool#nodeConfig.labels": "empty unless a ComputeClass or DRANET needs one",
    "kubernetes:apps/v1:DaemonSet#metadata.labels*": "for people; the selector has labels of its own",
    "kubernetes:apps/v1:DaemonSet#spec.template.metadata.labels.name": "for people",
    "kubernetes:helm.sh/v3:Release#compat": "the SDK writes it",
    "kubernetes:helm.sh/v3:Release#timeout": "how long the engine waits, not what is made",
    "kubernetes:helm.sh/v3:Release#values.resources.*": "how much the operator gets; that it is bounded is promised",
    "kubernetes:helm.sh/v3:Release#values.image*": "the chart's own image, written down; without NAT it is a mirror",
    "kubernetes:ray.io/v1:RayCluster#spec.workerGroupSpecs.0.rayStartParams": "empty: the operator fills it in",
    "kubernetes:ray.io/v1:RayJob#spec.rayClusterSpec.workerGroupSpecs.0.rayStartParams": "as in a RayCluster",
    "kubernetes:core/v1:Secret#stringData.*": "the state's own marks around a secret",
}
"""Inputs that may be left out, as patterns "TYPE#PATH", each with its reason."""


@dataclass(frozen=True)
class Mutation:
    """An input taken out of a resource, who noticed, and in which words."""

    node: Node
    path: InputPath
    by: Catcher
    words: str

    @property
    def where(self) -> str:
        """The resource and the dotted path."""
        return f"{self.node.type}#{'.'.join(map(str, self.path))}"


def mutate(graph: Graph, stack: Stack, target: str, types: Collection[str] = ()) -> Iterator[Mutation]:
    """Take out every input of one resource of each sort (rdma-0 stands for rdma-1…7, too), or of some types'."""
    seen: set[tuple[str, str]] = set()
    for node in graph.made:
        sort = (node.type, re.sub(r"\d", "", node.name))
        if sort in seen or (types and node.type not in types):
            continue
        seen.add(sort)
        for path in input_paths(node.inputs):
            yield _judged(graph, stack, target, node, path)


def input_paths(value: Any, path: InputPath = ()) -> Iterator[InputPath]:
    """Every key and every item of a list, at every depth; not the SDK's own ("__…")."""
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not key.startswith("__"):
                yield from input_paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from input_paths(item, (*path, index))


def _judged(graph: Graph, stack: Stack, target: str, node: Node, path: InputPath) -> Mutation:
    mutant = without(graph, node.urn, path)
    wrong = invariant_violations(INVARIANTS[target], Stack(mutant, stack.settings))
    if wrong:
        return Mutation(node, path, "promise", wrong[0])
    refused = replay(mutant)
    if refused is not None:
        return Mutation(node, path, "refusal", refused.refusal.message)
    mutation = Mutation(node, path, "nobody", "")
    reason = next((why for pattern, why in FREE.items() if fnmatchcase(mutation.where, pattern)), None)
    return mutation if reason is None else Mutation(node, path, "free", reason)


def made(stack: str, workspace: Workspace) -> Stack:
    """A stack as the engine registers it, its (simulated) secrets in clear text. Raises `EngineError`."""
    file = ROOT / f"Pulumi.{stack}.yaml"
    workspace.begin(stack, file)
    engine = Engine(workspace, stack)
    engine.init()
    said = engine.up()
    if not said.ok:
        raise EngineError("up", said)
    exported = engine.must("stack", "export", "--show-secrets", stack=True)
    return Stack(Graph.from_deployment(json.loads(exported.text)), from_stack_file(file))


def table(mutations: list[Mutation]) -> Iterator[str]:
    """A Markdown table: for each type of resource, how many inputs were taken out and who noticed."""
    yield "| resource | inputs | a promise is broken | the cloud refuses | free, with a reason | nobody |"
    yield "|---|--:|--:|--:|--:|--:|"
    for type_ in sorted({mutation.node.type for mutation in mutations}):
        of_type = [mutation for mutation in mutations if mutation.node.type == type_]
        counts = [sum(one.by == by for one in of_type) for by in ("promise", "refusal", "free", "nobody")]
        yield f"| `{type_}` | {len(of_type)} | " + " | ".join(map(str, counts)) + " |"


def main() -> int:
    """Print the table, the free inputs with their reasons, and what nobody notices; 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.mutations", description=__doc__)
    parser.add_argument("stack", nargs="?", default="gke")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = made(options.stack, Workspace(Path(folder) / "mutations"))
    mutations = list(mutate(stack.graph, stack, stack.settings.target))
    print("\n".join(table(mutations)))
    print(f"\n{len(mutations)} inputs, {len(INVARIANTS[stack.settings.target])} promises:")
    for invariant in INVARIANTS[stack.settings.target]:
        print(f"- {description(invariant)}")
    unnoticed = [mutation.where for mutation in mutations if mutation.by == "nobody"]
    print("\nNobody notices: " + (", ".join(unnoticed) or "nothing"))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
