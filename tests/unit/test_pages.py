"""The pages that `make docs` writes: committed as written, whole, and with examples that are accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.settings import parse, warnings
from infra.settings.load import RULES, SETTINGS, WARNINGS
from infra.settings.problems import Finding
from tests.unit import pages
from tests.unit.settings.cases import CASES
from tests.unit.stacks import GKE, changed, problems_of


@pytest.mark.parametrize("path", pages.outputs(), ids=lambda path: path.name)
def test_page_is_as_the_code_writes_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages.outputs()[path], f"{path.name} is stale: make docs"


def test_every_setting_has_one_row_of_six_cells() -> None:
    rows = [line for line in pages.settings_page().splitlines() if line.startswith("| `")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(SETTINGS)
    assert [row for row in rows if row.replace("\\|", "").count("|") != 7] == []


@pytest.mark.parametrize("path", [path for path in SETTINGS if path != "ray.token"])
def test_example_is_accepted(path: str) -> None:
    text = pages.example(path)
    value = json.loads(text) if text.startswith("[") else text
    assert any(not isinstance(setting.read(value), Finding) for setting in SETTINGS[path].values())


def test_every_rule_has_a_message() -> None:
    """Those that refuse have a case (settings/test_rules.py); a rule that warns needs an entry of `WARNED`."""
    about = {problem.settings for case in CASES for problem in problems_of(changed(case.stack, case.bad))}
    assert {rule.settings for rules in RULES.values() for rule in rules} <= about
    warned = {problem.settings for change in pages.WARNED for problem in warnings(parse(changed(GKE, change)))}
    assert warned == {rule.settings for rules in WARNINGS.values() for rule in rules}
