"""`make mutations STACK=gke`: remove every input of a stack, one at a time, and print what detects it.

Either the simulated cloud refuses the stack, or an invariant no longer holds, or the input is free: it may be absent,
for a reason in `FREE`. An input whose removal goes unnoticed is untested.
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
Catcher = Literal["invariant", "refusal", "free", "unnoticed"]

FREE: Mapping[str, str] = {
    "*#apiVersion": "the SDK writes it, from the resource's type",
    "aws:*#*tags.Name": "informational",
    "aws:*#description": "informational",
    "aws:ec2/eip:Eip#domain": "the default, explicit",
    "aws:kms/key:Key#deletionWindowInDays": "the default, explicit",
    "aws:iam/rolePolicy:RolePolicy#name": "the provider generates one",
    "*#kind": "the SDK writes it, from the resource's type",
    "gcp:*#displayName": "informational",
    "gcp:compute/network:Network#routingMode": "the default, explicit",
    "gcp:container/cluster:Cluster#nodeConfig.machineType": "of the default pool, which is removed at once",
    "gcp:projects/iAMMember:IAMMember#project": "the provider's project, explicit",
    "gcp:container/nodePool:NodePool#nodeConfig.diskSizeGb": "100 GB is the default, explicit",
    "gcp:container/nodePool:NodePool#nodeConfig.labels": "empty unless a ComputeClass or DRANET needs one",
    "kubernetes:apps/v1:DaemonSet#metadata.labels*": "informational; the selector has its own labels",
    "kubernetes:apps/v1:DaemonSet#spec.template.metadata.labels.name": "informational",
    "kubernetes:helm.sh/v3:Release#compat": "the SDK writes it",
    "kubernetes:helm.sh/v3:Release#timeout": "how long the engine waits, not what it creates",
    "kubernetes:helm.sh/v3:Release#values.resources.*": "the operator's resources; an invariant bounds them",
    "kubernetes:helm.sh/v3:Release#values.image*": "the chart's own image, explicit; without NAT it is a mirror",
    "kubernetes:ray.io/v1:RayCluster#spec.workerGroupSpecs.0.rayStartParams": "empty: the operator fills it in",
    "kubernetes:ray.io/v1:RayJob#spec.rayClusterSpec.workerGroupSpecs.0.rayStartParams": "as in a RayCluster",
    "kubernetes:core/v1:Secret#stringData.*": "the state's marks around a secret",
}
"""Inputs that may be absent, as patterns "TYPE#PATH", each with its reason."""


@dataclass(frozen=True)
class Mutation:
    """An input that was removed from a resource, what detected it, and the message."""

    node: Node
    path: InputPath
    by: Catcher
    words: str

    @property
    def where(self) -> str:
        """The resource and the dotted path."""
        return f"{self.node.type}#{'.'.join(map(str, self.path))}"


def mutate(graph: Graph, stack: Stack, target: str, types: Collection[str] = ()) -> Iterator[Mutation]:
    """Remove every input of one resource of each sort (rdma-0 also represents rdma-1…7), or of the given types."""
    seen: set[tuple[str, str]] = set()
    for node in graph.managed:
        sort = (node.type, re.sub(r"\d", "", node.name))
        if sort in seen or (types and node.type not in types):
            continue
        seen.add(sort)
        for path in input_paths(node.inputs):
            yield _judged(graph, stack, target, node, path)


def input_paths(value: Any, path: InputPath = ()) -> Iterator[InputPath]:
    """Yield every key and every list item at every depth, except the SDK's own ("__…")."""
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
        return Mutation(node, path, "invariant", wrong[0])
    refused = replay(mutant)
    if refused is not None:
        return Mutation(node, path, "refusal", refused.refusal.message)
    mutation = Mutation(node, path, "unnoticed", "")
    reason = next((why for pattern, why in FREE.items() if fnmatchcase(mutation.where, pattern)), None)
    return mutation if reason is None else Mutation(node, path, "free", reason)


def deploy(stack: str, workspace: Workspace) -> Stack:
    """Return a stack as the engine registers it, with its (simulated) secrets in clear text. Raises `EngineError`."""
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
    """Return a Markdown table: for each resource type, how many inputs were removed and what detected it."""
    yield "| resource | inputs | an invariant fails | the cloud rejects | free, with a reason | unnoticed |"
    yield "|---|--:|--:|--:|--:|--:|"
    for type_ in sorted({mutation.node.type for mutation in mutations}):
        of_type = [mutation for mutation in mutations if mutation.node.type == type_]
        counts = [sum(one.by == by for one in of_type) for by in ("invariant", "refusal", "free", "unnoticed")]
        yield f"| `{type_}` | {len(of_type)} | " + " | ".join(map(str, counts)) + " |"


def main() -> int:
    """Print the table, the free inputs with their reasons, and the unnoticed ones; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m rehearsal.mutations", description=__doc__)
    parser.add_argument("stack", nargs="?", default="gke")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = deploy(options.stack, Workspace(Path(folder) / "mutations"))
    mutations = list(mutate(stack.graph, stack, stack.settings.target))
    print("\n".join(table(mutations)))
    print(f"\n{len(mutations)} inputs, {len(INVARIANTS[stack.settings.target])} invariants:")
    for invariant in INVARIANTS[stack.settings.target]:
        print(f"- {description(invariant)}")
    unnoticed = [mutation.where for mutation in mutations if mutation.by == "unnoticed"]
    print("\nUnnoticed: " + (", ".join(unnoticed) or "nothing"))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
