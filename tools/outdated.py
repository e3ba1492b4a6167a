"""Print, for every pin of the project, the newest release that a package registry has.

    make outdated

The registries are those that pip, Go and npm are configured with, asked by their own commands. No registry answers for
container images, charts, clouds and GitHub actions: those are "unknown" (docs/pins.md). Nothing is changed.

Each pin is found by a rule for the form that it has (Renovate's managers do the same); a pin in another form fails
`tests/unit/tools/test_outdated.py`. Of locks and go.sum, only what the project names itself is asked for: `make lock`
and `go get` choose the rest.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

from infra.catalog import pins

ROOT = Path(__file__).resolve().parents[1]
CATALOG = "infra/catalog/pins.py"
TIMEOUT_S = 60.0
PARALLEL = 4

Registry = Literal["PyPI", "Go", "npm", ""]
State = Literal["newer", "current", "shorter list", "unknown"]
Ask = Callable[[Sequence[str]], str]
"""Runs a command and returns its output; OSError or subprocess.SubprocessError if it fails."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "PyPI": (sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions"),
    "Go": ("go", "list", "-m", "-versions"),
    "npm": ("npm", "view", "--json"),
}
_FINAL = re.compile(r"v?\d+(\.\d+)*(\.post\d+)?(\+incompatible)?")
_IMAGE = re.compile(r"[\w.-]+(/[\w.-]+)+:[\w.-]+(@sha256:[0-9a-f]{64})?")
_NPM = re.compile(r"(@[\w-]+/)?[a-z][\w.-]*@\d+(\.\d+)+")


class Pin(NamedTuple):
    """A pinned name; `registry` is "" where no registry answers."""

    name: str
    version: str
    registry: Registry
    file: str


class Row(NamedTuple):
    """A pin, and the newest final release that its registry lists, or None with the reason."""

    pin: Pin
    newest: str | None
    reason: str = ""

    @property
    def state(self) -> State:
        """Whether there is a newer release. A registry may list less than it serves, as proxies of Go modules do."""
        if self.newest is None:
            return "unknown"
        pinned, newest = _key(self.pin.version), _key(self.newest)
        return "newer" if newest > pinned else "current" if newest == pinned else "shorter list"


def find(root: Path) -> list[Pin]:
    """Return every pin of the project once, in the order of the rules."""
    pins: dict[tuple[str, tuple[int, ...]], Pin] = {}
    for pin in (pin for rule in RULES for pin in rule(root)):
        pins.setdefault((pin.name, _key(pin.version)), pin)
    return list(pins.values())


def newest(pin: Pin, ask: Ask) -> Row:
    """Return the row of a pin. If the registry does not answer, the newest release is unknown."""
    if not pin.registry:
        return Row(pin, None)
    names = (pin.name, "versions") if pin.registry == "npm" else (pin.name,)
    try:
        text = ask((*COMMANDS[pin.registry], *names))
        releases = [release for release in _listed(pin.registry, text) if _FINAL.fullmatch(release)]
    except subprocess.CalledProcessError as error:
        return Row(pin, None, next(iter(str(error.stderr or "").strip().splitlines()[-1:]), "it failed"))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Row(pin, None, str(error))
    return Row(pin, max(releases, key=_key), "") if releases else Row(pin, None, "it lists no release")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, those with a newer release first."""
    order: Sequence[State] = ("newer", "shorter list", "current", "unknown")
    said = [("pin", "pinned", "newest", "state", "file")]
    for row in sorted(rows, key=lambda row: order.index(row.state)):
        # A digest is as long as a line.
        version, _, digest = row.pin.version.partition("@")
        state = f"{row.state}: {row.reason}" if row.reason else row.state
        said.append((row.pin.name, version + (digest and "@…"), row.newest or "–", state, row.pin.file))
    widths = [max(map(len, column)) for column in zip(*said, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in said]
    counts = Counter(row.state for row in rows)
    total = ", ".join(f"{counts[state]} {state}" for state in order)
    return "\n".join([*lines, f"{len(rows)} pins: {total}"])


def _requirements(root: Path) -> Iterator[Pin]:
    """Requirements of pyproject.toml; the version of one without is the lock's."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)", (root / "requirements-dev.txt").read_text().lower(), re.MULTILINE))
    for line in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        if match := re.fullmatch(r"([\w.-]+)(?:\[[^]]*\])?(?:==(\S+))?", line):
            yield Pin(match[1], match[2] or lock[match[1].lower()], "PyPI", "pyproject.toml")


def _modules(root: Path) -> Iterator[Pin]:
    """Modules of go.mod files that the project names: of its tools, and those that are not indirect."""
    for path in sorted(root.glob("tools/**/go.mod")):
        text, file = path.read_text(), str(path.relative_to(root))
        tools = re.findall(r"^(?:tool)?\s+(\S+)$", text, re.MULTILINE)
        for name, version, rest in re.findall(r"^(?:require)?\s+(\S+) (v\S+)(.*)$", text, re.MULTILINE):
            if "indirect" not in rest or any(f"{tool}/".startswith(f"{name}/") for tool in tools):
                yield Pin(name, version, "Go", file)
        yield Pin("go", re.findall(r"^go (\S+)$", text, re.MULTILINE)[0], "Go", file)


def _packages(root: Path) -> Iterator[Pin]:
    """Constants NAME@VERSION of the tools and tests: npm's."""
    for path in (*sorted(root.glob("tools/*.py")), *sorted(root.glob("tests/*.py"))):
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and _NPM.fullmatch(value.value):
                name, _, version = value.value.rpartition("@")
                yield Pin(name, version, "npm", str(path.relative_to(root)))


def _catalog(_: Path) -> Iterator[Pin]:
    """Constants of the catalog, but those that a manifest repeats, and API versions, which no release outdates."""
    manifests = [copy.text for copy in pins.TOGETHER if copy.file.endswith((".toml", ".mod"))]
    for constant, value in vars(pins).items():
        if not constant[:1].isupper() or not constant.isupper() or constant.endswith("_API"):
            continue
        if isinstance(value, pins.Chart):
            yield Pin(f"chart {value.name}", value.version, "", CATALOG)
            if value.tag:
                yield Pin(value.image, value.tag, "", CATALOG)
        elif isinstance(value, Mapping):
            for name, version in value.items():
                rows = version.items() if isinstance(version, Mapping) else [("", version)]
                yield from (Pin(f"{constant}: {name} {row}".rstrip(), one, "", CATALOG) for row, one in rows)
        elif isinstance(value, str) and not any(
            re.search(rf"(==|\sv){re.escape(value)}\b", text) for text in manifests
        ):
            yield _image(value, CATALOG) if _IMAGE.fullmatch(value) else Pin(constant, value, "", CATALOG)


def _dockerfile(root: Path) -> Iterator[Pin]:
    """Base images with their arguments, and the versions that no base image contains."""
    file = "images/Dockerfile"
    text = (root / file).read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    bases = re.findall(r"^FROM (\S+:\S+)", text, re.MULTILINE)
    for base in bases:
        yield _image(re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], base), file)
    for name, value in arguments.items():
        if name.endswith("_VERSION") and not any(f"${{{name}}}" in base for base in bases):
            yield Pin(name, value, "", file)


def _stack_files(root: Path) -> Iterator[Pin]:
    for path in sorted(root.glob("Pulumi.*.yaml")):
        for image in re.findall(r"^ +image: (\S+)", path.read_text(), re.MULTILINE):
            yield _image(image, path.name)


def _workflows(root: Path) -> Iterator[Pin]:
    for path in sorted(root.glob(".github/workflows/*.yml")):
        for name, version in re.findall(r"uses: (\S+)@[0-9a-f]{40} # (\S+)", path.read_text()):
            yield Pin(name, version, "", str(path.relative_to(root)))


def _image(reference: str, file: str) -> Pin:
    name, _, digest = reference.partition("@")
    repository, _, tag = name.rpartition(":")
    return Pin(repository.removeprefix("docker.io/"), f"{tag}@{digest}" if digest else tag, "", file)


def _listed(registry: str, text: str) -> list[str]:
    """Return the versions in the answer of a registry's command."""
    if registry == "npm":
        found = json.loads(text)
        return [found] if isinstance(found, str) else list(found)
    if registry == "PyPI":
        return re.findall(r"[^\s,]+", "".join(re.findall(r"^Available versions:(.*)$", text, re.MULTILINE)))
    return text.split()[1:]


def _key(version: str) -> tuple[int, ...]:
    """Return a sort key. 1.26 and 1.26.0 are one version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


RULES: tuple[Callable[[Path], Iterator[Pin]], ...] = (
    *(_requirements, _modules, _packages, _catalog, _dockerfile, _stack_files, _workflows),
)
"""How pins are found, by form."""


def _run(command: Sequence[str]) -> str:
    # Go would take the versions of a module that contains this folder.
    folder = tempfile.gettempdir()
    done = subprocess.run(
        command, cwd=folder, timeout=TIMEOUT_S, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


def main() -> None:
    """Ask for every pin, and print the table."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        print(table(list(pool.map(lambda pin: newest(pin, _run), find(ROOT)))))


if __name__ == "__main__":
    main()
