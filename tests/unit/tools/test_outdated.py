"""tools/outdated.py: every pin of the project is in its list, and answers of registries are read as they are.

The answers are those of pip 23.2.1, Go 1.26 and npm 11.19.1 on 2026-11-26, shortened.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.unit.catalog.test_pins import literals
from tools import outdated
from tools.outdated import ROOT, Pin, Row, find, newest, table

VERSION = re.compile(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.]*\d)")
IMAGE = re.compile(r"[\w.-]+(/[\w.-]+)+:[\w.-]+")
MANIFESTS = ("pyproject.toml", "images/*", "Pulumi.*.yaml", ".github/workflows/*", "tools/**/go.mod")
# Images that this project builds itself.
BUILT = {"rdma-ray.local/pause:1"}

ANSWERS = {
    "pyyaml": "pyyaml (6.0.4)\nAvailable versions: 6.0.4, 6.0.3, 6.0, 3.13\n  INSTALLED: 6.0.3\n  LATEST: 6.0.4\n",
    "sigs.k8s.io/kueue": "sigs.k8s.io/kueue v0.16.0-rc.1 v0.16.9 v0.17.0 v0.18.0-devel\n",
    "github.com/coredns/coredns": "github.com/coredns/coredns v1.9.4 v1.14.7 v1.15.0\n",
    "go": "go 1.9rc2 1.26 1.26.8 1.27rc1\n",
    "@sparticuz/chromium": '[\n  "149.0.0",\n  "153.0.0"\n]\n',
    "only-one": '"1.3.0"\n',
}


def answer(command: Sequence[str]) -> str:
    return ANSWERS[next(word for word in command[::-1] if word in ANSWERS)]


@pytest.mark.parametrize(
    ("pin", "release", "state"),
    [
        (Pin("pyyaml", "6.0.3", "PyPI", ""), "6.0.4", "newer"),
        (Pin("pyyaml", "6.0.4", "PyPI", ""), "6.0.4", "current"),
        (Pin("github.com/coredns/coredns", "v1.12.4", "Go", ""), "v1.15.0", "newer"),
        (Pin("sigs.k8s.io/kueue", "v0.21.2", "Go", ""), "v0.17.0", "shorter list"),
        (Pin("go", "1.26.0", "Go", ""), "1.26.8", "newer"),
        (Pin("@sparticuz/chromium", "153.0.0", "npm", ""), "153.0.0", "current"),
        (Pin("only-one", "1.3", "npm", ""), "1.3.0", "current"),
        (Pin("chart kueue", "0.21.2", "", ""), None, "unknown"),
    ],
)
def test_recorded_answer(pin: Pin, release: str | None, state: str) -> None:
    row = newest(pin, answer)
    assert (row.newest, row.state, row.reason) == (release, state, "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file or directory", "go"), "No such file"),
        (subprocess.TimeoutExpired(["go"], 60), "timed out after 60 seconds"),
        (
            subprocess.CalledProcessError(1, ["pip"], stderr="WARNING: pip index is experimental.\nERROR: No match\n"),
            "ERROR: No match",
        ),
        (subprocess.CalledProcessError(1, ["go"]), "it failed"),
    ],
)
def test_registry_without_an_answer_is_unknown(error: Exception, reason: str) -> None:
    def ask(_: Sequence[str]) -> str:
        raise error

    row = newest(Pin("ray", "2.1.0", "PyPI", ""), ask)
    assert row.state == "unknown"
    assert reason in row.reason


@pytest.mark.parametrize(("registry", "text"), [("PyPI", ""), ("Go", "example.com/new\n"), ("npm", "<html>")])
def test_answer_without_a_release_is_unknown(registry: outdated.Registry, text: str) -> None:
    assert newest(Pin("x", "1.0", registry, ""), lambda _: text).state == "unknown"


def test_table_begins_with_newer_releases_and_counts_all() -> None:
    old, same = Pin("b", "1.0", "PyPI", "pyproject.toml"), Pin("a", "v1@sha256:00", "", "x.py")
    lines = table([Row(same, None), Row(old, "1.1")]).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["b", "1.0", "1.1", "newer", "pyproject.toml"],
        ["a", "v1@…", "–", "unknown", "x.py"],
    ]
    assert lines[3] == "2 pins: 1 newer, 0 shorter list, 0 current, 1 unknown"


def test_every_pin_is_in_the_list() -> None:
    assert set(missing(find(ROOT))) == set()


@pytest.mark.parametrize("rule", outdated.RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_pins_of_a_lost_rule_are_missed(rule: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outdated, "RULES", tuple(other for other in outdated.RULES if other is not rule))
    assert list(missing(find(ROOT)))


def missing(found: Sequence[Pin]) -> Iterator[str]:
    """Yield each text that looks like a pin, by place, that no pin of the list contains."""
    texts = [f"{pin.name}:{pin.version} {pin.name}@{pin.version}" for pin in found]
    for place, text in (*manifests(), *constants(), *catalog()):
        if not any(re.search(rf"(?<![\d.]){re.escape(text)}(?!\.?\d)", pinned) for pinned in texts):
            yield f"{place}: {text}"


def manifests() -> Iterator[tuple[str, str]]:
    """Versions of three parts, images and actions in what package managers and clouds read."""
    for path in (path for pattern in MANIFESTS for path in sorted(ROOT.glob(pattern))):
        file = str(path.relative_to(ROOT))
        text = path.read_text()
        for line in text.splitlines():
            # This project's version, the lines of go.mod that Go maintains, and "go 1.26.0", which is "go 1.26".
            if re.match(r"\s*#|version = |go ", line) or "indirect" in line or "=>" in line:
                continue
            yield from ((file, version) for version in VERSION.findall(line))
            yield from ((file, action) for action in re.findall(r"uses: ([^@\s]+)@", line))
            yield from ((file, image) for image in re.findall(r"^ +image: ([^@\s]+)", line))
        # A module whose programs are built is an indirect one to Go.
        modules = re.findall(r"^\s+(\S+) (v\S+) // indirect$", text, re.MULTILINE)
        for tool in re.findall(r"^(?:tool)?\s+(\S+/\S+)$", text, re.MULTILINE) if path.name == "go.mod" else ():
            yield file, ":".join(max(module for module in modules if f"{tool}/".startswith(f"{module[0]}/")))


def constants() -> Iterator[tuple[str, str]]:
    """Constants of the code that are a version, an image or NAME@VERSION."""
    for path in (*ROOT.glob("infra/**/*.py"), *ROOT.glob("tools/**/*.py"), *ROOT.glob("tests/*.py")):
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign) else None
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            if text in BUILT or re.search(r"\s", text) or ast.unparse(node).partition(" ")[0].endswith("_S"):
                continue
            if re.fullmatch(r"v?\d+\.\d+(\.\d+)?([-+@].+)?|.+@\d+\.\d+.*", text) or IMAGE.fullmatch(text):
                yield str(path.relative_to(ROOT)), text


def catalog() -> Iterator[tuple[str, str]]:
    """Versions and images of the catalog, with what its f-strings contain."""
    for text in literals():
        if VERSION.search(text) or IMAGE.fullmatch(text.partition("@")[0]):
            yield outdated.CATALOG, text
