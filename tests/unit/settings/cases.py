"""Stack files at the edge of a rule, from `cases.yaml`: one that the rule reports, and a similar valid one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.pins import AWS_RAY_TRAIN, RAY
from infra.settings.load import RULES
from infra.settings.problems import Rule
from tests.unit.stacks import EKS, GKE, KUBERNETES, LOCAL, changed


@dataclass(frozen=True)
class Case:
    """A rule, a valid stack file, the change that the rule reports, and a similar change that is valid.

    Without a rule, the type of the first setting in `bad` reports the change. golden/problems.txt has every message.
    """

    rule: Rule | None
    stack: dict[str, Any]
    bad: dict[str, Any]
    good: dict[str, Any]

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Case:
        """Read an entry of `cases.yaml`."""
        target = entry["stack"]
        rules = {rule.find.__name__: rule for rule in RULES[target]}
        stack = changed(
            {"gke": GKE, "eks": EKS, "kubernetes": KUBERNETES, "local": LOCAL}[target], entry.get("with", {})
        )
        return cls(rules[entry["rule"]] if "rule" in entry else None, stack, entry["bad"], entry["good"])

    @property
    def about(self) -> str:
        """The setting that the problem names first."""
        return self.rule.settings[0] if self.rule else next(iter(self.bad))


_TEXT = Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8")
_PINNED = _TEXT.replace("<AWS_RAY_TRAIN>", AWS_RAY_TRAIN).replace("<RAY>", RAY)
CASES = [Case.read(entry) for entry in yaml.safe_load(_PINNED)]
