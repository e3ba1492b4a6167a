"""The policy of an EKS stack's owner (docs/eks-owner-policy.json) has what the stacks call, and nothing else."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml

from rehearsal.engine.workspace import ROOT

FOLDER = Path(__file__).parent
ACTIONS: dict[str, Any] = yaml.safe_load((FOLDER / "aws_actions.yaml").read_text(encoding="utf-8"))
POLICY: dict[str, Any] = json.loads((ROOT / "docs" / "eks-owner-policy.json").read_text(encoding="utf-8"))
REVIEWED = sorted((FOLDER / "golden").rglob("*.txt"))
"""The reviewed lists of every stack file and of the settings that none has."""
SERVICES = {"tag": "resourcegroupstaggingapi"}
WITHOUT_OPERATION = {
    # Permissions that guard something else than the operation of their name (Service Authorization Reference).
    *("budgets:ModifyBudget", "budgets:ViewBudget", "iam:PassRole", "logs:CreateLogDelivery", "logs:DeleteLogDelivery"),
}
LONGEST = 6144
"""Characters of a managed policy, without white space (IAM docs, quotas)."""


def types() -> set[str]:
    """Return the types of AWS in the reviewed lists, also those of added lines."""
    line = re.compile(r"^(?:[+-] )?(aws:\w+/\w+:\w+) ", re.MULTILINE)
    return {found for file in REVIEWED for found in line.findall(file.read_text(encoding="utf-8"))}


def allowed() -> set[str]:
    return {action for statement in POLICY["Statement"] for action in statement["Action"]}


@cache
def operations(service: str) -> frozenset[str]:
    return frozenset(botocore.session.get_session().get_service_model(SERVICES.get(service, service)).operation_names)


def test_every_resource_of_the_stacks_has_its_actions() -> None:
    assert types() == set(ACTIONS["calls"])
    assert set(ACTIONS["besides"]) <= types()


def test_policy_allows_what_the_stacks_call_and_nothing_else() -> None:
    called = {
        f"{service}:{name}"
        for calls in ACTIONS["calls"].values()
        for service, names in calls.items()
        for name in names.split()
    }
    needed = called.union(ACTIONS["always"], *ACTIONS["besides"].values())
    assert allowed() == needed


@pytest.mark.parametrize("service", sorted({action.partition(":")[0] for action in allowed()}))
def test_actions_are_operations_of_their_api(service: str) -> None:
    names = {action for action in allowed() if action.startswith(f"{service}:")} - WITHOUT_OPERATION
    assert {name.partition(":")[2] for name in names} <= operations(service)


def test_policy_is_short_enough_and_bounds_the_roles() -> None:
    assert len(re.sub(r"\s", "", json.dumps(POLICY))) <= LONGEST
    for statement in POLICY["Statement"]:
        writes = [action for action in statement["Action"] if re.match(r"iam:(?!Get|List)", action)]
        assert not writes or statement["Resource"] != "*", writes
