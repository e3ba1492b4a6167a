"""Check imports, module names and file sizes against docs/design.md; with `--report`, exit with 0."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A folder imports itself and the folders before it.
ORDER = ("infra", "workloads", "tools", "rehearsal", "tests")
# The engine of the rehearsal knows no cloud, and a simulated cloud shares no fact with the program that it judges.
APART = (("rehearsal.engine", "rehearsal.clouds"), ("rehearsal.engine", "infra"), ("rehearsal.clouds", "infra"))
# Packages and modules of workloads import their own floor and those below it (docs/design.md).
GROUND = (
    "evidence exits hardware history loading options rendezvous results sealed secrecy temporary terminal unlinked"
    " untrusted"
)
MIDDLE = "client gang"
TOP = "cli doctor feedback image monitor nccl preflight render run serving shell slurm train"
FLOOR = {name: number for number, names in enumerate((GROUND, MIDDLE, TOP)) for name in names.split()}
# All of infra that a program on the cluster may import: it needs Python's library only.
ON_CLUSTER = ("infra.listener", "infra.kubernetes.indexed_job_pod")
# What workloads read of infra, and the modules that print Kubernetes objects or try to create them.
OFFERED = ("addresses", "catalog", "outputs", "project", "settings", "terminal")
READ = (*(f"infra.{each}" for each in OFFERED), *ON_CLUSTER)
PRINTING = ("client.plan", "nccl.manifest", "nccl.job_manifest", "preflight.kubernetes", "render.commands")
PRINTERS = [f"workloads.{each}" for each in PRINTING]
CLIENTS = ("workloads.cli", "workloads.monitor.app")
# What only some modules of infra, workloads and tools may use (docs/decisions/0036-start-ranks-in-one-place.md).
HOMES = {
    # Ranks. The probes of doctor and top run once per node, without CPUs and GPUs.
    "ray.remote": ("workloads.gang", "workloads.doctor.probe", "workloads.monitor.driver"),
    "ray.util.placement_group": ("workloads.gang",),
    # Process groups: of ranks and commands, of a node of Slurm, of a pod without this package, of servers, of
    # clouds' command lines.
    "os.killpg": (
        "workloads.gang",
        "workloads.preflight.cli",
        "workloads.slurm.node",
        "infra.kubernetes",
        "tools.process",
    ),
}
MAX_LINES = 400
# Lines of Python per folder, and of the reviewed lists. A commit that raises one says what cannot be removed instead.
BUDGET = {"infra": 18_960, "workloads": 37_260, "tools": 6_400, "rehearsal": 16_460, "tests": 56_790}
GOLDEN, GOLDEN_BUDGET = "tests/rehearsal/golden", 11_290
SHORT_LINES, MAX_SHORT_FILES = 40, 28


def read(root: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return module -> file below `root`, and module -> text."""
    paths = sorted(path for folder in ORDER for path in (root / folder).rglob("*.py"))
    place = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path.relative_to(root)
        for path in paths
    }
    return place, {module: (root / path).read_text() for module, path in place.items()}


def _imports(place: Mapping[str, Path], nodes: Mapping[str, Iterable[ast.AST]]) -> dict[str, dict[str, int]]:
    """Return module -> imported module -> line, of these nodes of each module."""
    imports: dict[str, dict[str, int]] = {}
    for module, of_module in nodes.items():
        imported = imports[module] = {}
        package = module if place[module].stem == "__init__" else module.rpartition(".")[0]
        for node in of_module:
            for name in _names(node, package):
                target = name if name in place else name.rpartition(".")[0]
                if target in place and target != module:
                    imported.setdefault(target, getattr(node, "lineno", 0))
    return imports


def problems(root: Path) -> Iterator[str]:
    """Return one line per broken rule: file, problem and fix."""
    place, texts = read(root)
    trees = {module: ast.parse(text) for module, text in texts.items()}
    # At every level of nesting.
    statements = {
        module: [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        for module, tree in trees.items()
    }
    imports = _imports(place, statements)
    for module, targets in imports.items():
        top = module.partition(".")[0]
        for target, line in targets.items():
            if ORDER.index(target.partition(".")[0]) > ORDER.index(top):
                yield f"{place[module]}:{line}: {top} must not import {target}: move it to {top} or an earlier folder"
            for who, whom in APART:
                if _within(module, who) and _within(target, whom):
                    yield f"{place[module]}:{line}: {who} must not import {whom}: pass the value in"
    yield from _floors(place, imports)
    yield from _mutual(place, imports)
    yield from _on_cluster(place, trees)
    yield from _names_of_libraries(place, statements)
    yield from _classes(place, trees)
    yield from _homes(place, trees)
    graph = {module: set(targets) for module, targets in imports.items() if not module.startswith("tests.")}
    while circle := _circle(graph):
        steps = [f"{place[one]}:{imports[one][other]} imports {other}" for one, other in circle]
        yield f"import circle: {'; '.join(steps)}: move their shared code to a separate module"
        graph[circle[0][0]].discard(circle[0][1])
    lengths = {path: len(texts[module].splitlines()) for module, path in place.items()}
    yield from (f"{path}: {n} lines, more than {MAX_LINES}: split it" for path, n in lengths.items() if n > MAX_LINES)
    lists = sum(len(path.read_text().splitlines()) for path in (root / GOLDEN).rglob("*.txt"))
    used = {top: sum(n for path, n in lengths.items() if path.parts[0] == top) for top in BUDGET} | {GOLDEN: lists}
    for folder, n in used.items():
        if n > (most := BUDGET.get(folder, GOLDEN_BUDGET)):
            yield f"{folder}: {n} lines, more than {most}: remove some, or raise the budget in tools/structure.py"
    # An empty __init__.py only makes a package.
    if len(short := [f"{path} ({n})" for path, n in lengths.items() if 0 < n < SHORT_LINES]) > MAX_SHORT_FILES:
        yield f"{len(short)} files under {SHORT_LINES} lines, at most {MAX_SHORT_FILES}: merge some: {', '.join(short)}"


def _floors(place: Mapping[str, Path], imports: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield imports of workloads to a higher floor, and of what infra does not offer to them."""
    for module in (module for module in imports if module.startswith("workloads.")):
        if (own := module.split(".")[1]) not in FLOOR:
            yield f"{place[module]}: workloads.{own} is not on a floor: add it to one in tools/structure.py"
            continue
        for target, line in imports[module].items():
            top, _, other = target.partition(".")
            if top == "workloads" and FLOOR.get(other.partition(".")[0], 0) > FLOOR[own]:
                yield f"{place[module]}:{line}: {own} must not import {target}, a higher floor: move that code down"
            if top == "infra" and module not in PRINTERS and not any(_within(target, each) for each in READ):
                yield f"{place[module]}:{line}: workloads must not import {target}: only {', '.join(READ)}"


def _mutual(place: Mapping[str, Path], imports: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield pairs of packages that import each other."""
    edges: dict[tuple[str, str], str] = {}
    for module, targets in imports.items():
        for target, line in targets.items():
            if not module.startswith("tests.") and (pair := (_package(module), _package(target)))[0] != pair[1]:
                edges.setdefault(pair, f"{place[module]}:{line}")
    modules = {module for module, path in place.items() if path.stem != "__init__"}
    for (one, other), where in sorted(edges.items()):
        if one < other and not {one, other} <= modules and (back := edges.get((other, one))):
            yield f"{where}: {one} imports {other}, which imports {one} ({back}): move their shared code below both"


def _package(module: str) -> str:
    """Return a module's package of two levels. A program of pods is its own package and imports no other."""
    parts = module.split(".")
    return ".".join(parts[: 3 if len(parts) > 2 and parts[2].endswith("_pod") else 2])


def _on_cluster(place: Mapping[str, Path], trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield what a program on the cluster imports of infra when it starts. Its nodes have this package alone.

    A program on the cluster imports Ray or torch at the top of its file, or can be run by `python -m`.
    """
    imports = _imports(place, {module: _at_start(tree) for module, tree in trees.items()})
    for module, tree in trees.items():
        runs_there = module.startswith("workloads.") and module not in CLIENTS and _runs_on_cluster(tree)
        if runs_there and (chain := _chain(module, imports)):
            yield f"{place[module]}: runs on the cluster, and imports {' → '.join(chain)}: pass the value in"


def _runs_on_cluster(tree: ast.Module) -> bool:
    roots = {name.partition(".")[0] for node in _at_start(tree) for name in _names(node, "")}
    mains = (node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
    return bool(roots & {"ray", "torch"}) or any(mains)


def _at_start(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is imported: not those of functions, nor of TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not typing_only and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield node
            yield from _at_start(node)


def _chain(module: str, imports: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the imports from a module to one of infra that the cluster lacks; empty if there is none."""
    chains, seen = [[module]], {module}
    for chain in chains:
        for target in imports.get(chain[-1], ()):
            if target.startswith("infra.") and not any(_within(target, each) for each in ON_CLUSTER):
                return [*chain[1:], target]
            if target not in seen:
                seen.add(target)
                chains.append([*chain, target])
    return []


def _names_of_libraries(place: Mapping[str, Path], nodes: Mapping[str, Iterable[ast.AST]]) -> Iterator[str]:
    """Yield modules that share their name with one of Python's or of a library that this project imports."""
    imported = {
        name.partition(".")[0]
        for of_module in nodes.values()
        for node in of_module
        if not (isinstance(node, ast.ImportFrom) and node.level)
        for name in _names(node, "")
    }
    taken = (imported | sys.stdlib_module_names) - set(ORDER)
    for module, path in place.items():
        if (name := module.rpartition(".")[2]) in taken and path.stem != "__main__":
            yield f"{path}: {name} is the name of a library: rename the module"


def _classes(place: Mapping[str, Path], trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield public classes of one top folder with the same name: a reader meets both."""
    seen: dict[tuple[str, str], Path] = {}
    for module, path in place.items():
        top = module.partition(".")[0]
        for node in trees[module].body if top != "tests" else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if other := seen.get((top, node.name)):
                    yield f"{path}:{node.lineno}: class {node.name} is also in {other}: rename one of them"
                seen[top, node.name] = path


def _homes(place: Mapping[str, Path], trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """Yield uses of what has a home elsewhere."""
    last = {name.rpartition(".")[2] for name in HOMES}
    for module in (module for module in trees if module.partition(".")[0] in ORDER[:3]):
        for node in ast.walk(trees[module]):
            used = isinstance(node, ast.Attribute) and node.attr in last
            for name in [ast.unparse(node)] if used else _names(node, module):
                home = next((home for key, home in HOMES.items() if _within(name, key)), (module,))
                if not any(_within(module, each) for each in home):
                    line = getattr(node, "lineno", 0)
                    yield f"{place[module]}:{line}: {name} belongs to {', '.join(home)}: call what these offer"


def _within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _names(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        base = resolve_name("." * node.level + (node.module or ""), package)
        return [f"{base}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _circle(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return one cycle as (importing, imported) pairs, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        # Each module in the error is imported by the next one.
        return list(pairwise(problem.args[1][::-1]))
    return []


if __name__ == "__main__":
    for line in (found := list(problems(ROOT))):
        print(line)
    sys.exit(1 if found and "--report" not in sys.argv else 0)
