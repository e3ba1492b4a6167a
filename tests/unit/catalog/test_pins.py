"""Every pinned version, image and API version is written in one place, and its copies in other manifests agree."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from infra.catalog import pins

ROOT = Path(__file__).resolve().parents[3]
PINS = "infra/catalog/pins.py"

# The simulated clouds list what is available from sources of their own, and have to be able to disagree with a pin.
INDEPENDENT = ("rehearsal/clouds/", "tests/rehearsal/")
# The same digits with another meaning.
COINCIDENCES = {
    ("tools/kubernetes/image_archive.py", "1.0.0"),
    ("tests/unit/tools/kubernetes/test_images.py", "1.0.0"),
    ("tests/unit/catalog/test_pins.py", "1.0.0"),
}


def literals() -> Iterator[str]:
    """Every pinned string: versions, charts, repositories, images and API versions."""
    for name, value in vars(pins).items():
        if name.isupper() and name != "TOGETHER":
            # A chart's name is also the name of its release and of its pods; its version and image are the pins.
            yield from _strings(value[1:] if isinstance(value, pins.Chart) else value)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _strings(item)


def code_strings(path: Path) -> Iterator[tuple[int, str]]:
    """The string constants of a module that are one word: no prose, no citation of a source."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
            yield node.lineno, node.value


@pytest.fixture(scope="module")
def sources() -> list[tuple[str, int, str]]:
    """Every one-word string constant of the project's Python, with its file and line."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in listed.split() if name != PINS and not name.startswith(INDEPENDENT)]
    return [(name, line, text) for name in files for line, text in code_strings(ROOT / name)]


@pytest.mark.parametrize("literal", sorted(set(literals())))
def test_pin_is_written_in_one_file(literal: str, sources: list[tuple[str, int, str]]) -> None:
    # 1.35 matches v1.35 and example/ray:1.35-py311, but not 11.35, 1.350 or 1.35.6, which is another version. A type
    # token such as kubernetes:ray.io/v1:RayCluster names the type of a resource.
    token = re.compile(rf"(?<![\d.a-uw-z]){re.escape(literal)}(?![\w.])")
    again = [
        f"{name}:{line}: {text}"
        for name, line, text in sources
        if token.search(text) and not text.startswith("kubernetes:") and (name, text) not in COINCIDENCES
    ]
    assert not again, f"import the pin from {PINS} instead"


def test_images_of_one_release_have_one_version() -> None:
    """gIB's diagnostic image measures the gIB that the installer puts on the nodes."""
    images = [text for text in _strings(tuple(vars(pins).values())) if "nccl-plugin-gib" in text]
    versions = {image.rpartition(":")[2] for image in images}
    assert versions == {pins.GIB}


@pytest.mark.parametrize("copy", pins.TOGETHER, ids=lambda copy: f"{copy.file}: {copy.text}")
def test_manifest_carries_the_pinned_version(copy: pins.Copy) -> None:
    assert re.search(rf"{re.escape(copy.text)}(?![\d.])", (ROOT / copy.file).read_text(encoding="utf-8"))
