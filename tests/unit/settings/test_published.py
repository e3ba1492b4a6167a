"""Stack files in the documentation, some of them after others' published configurations, are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.plan import plan
from infra.settings import LocalSettings, from_stack_file
from infra.settings.load import NAMESPACE

DOCS = Path(__file__).resolve().parents[3] / "docs"
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {
    f"{page.stem}-{number}": block
    for page in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
    if f"{NAMESPACE}:target" in block
}


@pytest.mark.parametrize("name", FILES)
def test_stack_file_is_valid(name: str, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.ours.yaml"
    file.write_text(FILES[name])
    settings = from_stack_file(file)
    assert isinstance(settings, LocalSettings) or plan(settings).pod is not None


def test_a_users_cluster_has_five() -> None:
    assert len([name for name in FILES if name.startswith("kubernetes-")]) == 5


def test_each_published_blueprint_has_one() -> None:
    assert len([name for name in FILES if name.startswith("blueprints-")]) == 5
