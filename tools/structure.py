"""Check import cycles, imports between top folders and file sizes; with `--report`, exit with 0."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A folder imports itself and the folders before it.
ORDER = ("infra", "workloads", "tools", "rehearsal", "tests")
# The engine of the rehearsal knows no cloud, and a simulated cloud shares no fact with the program that it judges.
APART = (("rehearsal.engine", "rehearsal.clouds"), ("rehearsal.engine", "infra"), ("rehearsal.clouds", "infra"))
MAX_LINES = 400
SHORT_LINES, MAX_SHORT_FILES = 40, 24


def read(root: Path) -> tuple[dict[str, Path], dict[str, dict[str, int]]]:
    """Return module -> file, and module -> imported module -> line, at every level of nesting."""
    files: dict[str, Path] = {}
    for path in sorted(path for folder in ORDER for path in (root / folder).rglob("*.py")):
        files[".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = path
    imports: dict[str, dict[str, int]] = {}
    for module, path in files.items():
        found = imports[module] = {}
        package = ".".join(path.relative_to(root).parts[:-1])
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _names(node, package):
                target = name if name in files else name.rpartition(".")[0]
                if target in files and target != module:
                    found.setdefault(target, getattr(node, "lineno", 0))
    return files, imports


def problems(root: Path) -> Iterator[str]:
    """Return one line per broken rule: file, what is wrong, and the fix."""
    files, imports = read(root)
    place = {module: path.relative_to(root) for module, path in files.items()}
    for module, targets in imports.items():
        top = module.partition(".")[0]
        for target, line in targets.items():
            if ORDER.index(target.partition(".")[0]) > ORDER.index(top):
                yield f"{place[module]}:{line}: {top} must not import {target}: move it to {top} or an earlier folder"
            for who, whom in APART:
                if _within(module, who) and _within(target, whom):
                    yield f"{place[module]}:{line}: {who} must not import {whom}: pass the value in"
    graph = {module: set(targets) for module, targets in imports.items() if not module.startswith("tests.")}
    while circle := _circle(graph):
        steps = [f"{place[one]}:{imports[one][other]} imports {other}" for one, other in circle]
        yield f"import circle: {'; '.join(steps)}: move what they share to a module of its own"
        graph[circle[0][0]].discard(circle[0][1])
    lengths = {path: len(files[module].read_text().splitlines()) for module, path in place.items()}
    yield from (f"{path}: {n} lines, more than {MAX_LINES}: split it" for path, n in lengths.items() if n > MAX_LINES)
    # An empty __init__.py only makes a package.
    if len(short := [f"{path} ({n})" for path, n in lengths.items() if 0 < n < SHORT_LINES]) > MAX_SHORT_FILES:
        yield f"{len(short)} files under {SHORT_LINES} lines, at most {MAX_SHORT_FILES}: merge some: {', '.join(short)}"


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
