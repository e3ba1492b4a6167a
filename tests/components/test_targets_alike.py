"""What the targets have in common: the outputs contract, and no call to AWS before the first resource."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.outputs import Outputs
from tests.components.cloud_mocks import ANSWERS, Deployed, deployed
from tests.unit.stacks import EKS, GKE, LOCAL, changed

ROOT = Path(__file__).resolve().parents[2]
SDKS = {"boto3", "botocore", "google", "googleapiclient", "kubernetes", "pulumi"}
"""First parts of the names of the clouds' packages and of those that create clusters."""

STACKS: dict[str, dict[str, Any]] = {
    "local": LOCAL,
    "gke": changed(GKE, {"storage.bucket": "ours"}),
    "eks": changed(EKS, {"storage.bucket": "ours"}),
    "eks, a Job": changed(EKS, {"ray.mode": "indexed-job", "ray.entrypoint": "python /app/train.py"}),
    "gke, a RayJob": changed(GKE, {"ray.mode": "job", "ray.entrypoint": "python /app/train.py"}),
    "eks, a queue": changed(EKS, {"queue": "kueue"}),
}


@cache
def up(target: str) -> Deployed:
    return deployed(STACKS[target], config={"aws:region": "us-east-1", "gcp:project": "mine"})


def keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of the contract's objects, without the contents of lists."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{path}{key}"
            yield from keys(inner, f"{path}{key}.")


@pytest.mark.parametrize("target", STACKS)
def test_outputs_match_contract(target: str) -> None:
    outputs = up(target).outputs
    contract = Outputs.model_validate(outputs)
    assert contract.target == STACKS[target]["target"]
    assert contract.ray.mode == STACKS[target].get("ray", {}).get("mode", "cluster")
    # An output that does not apply to the target is null, not missing.
    assert set(keys(outputs)) == set(keys(contract.model_dump(by_alias=True)))
    assert set(outputs) == {str(field.alias) for field in Outputs.model_fields.values()}


@pytest.mark.parametrize("target", STACKS)
def test_token_is_a_secret_output(target: str) -> None:
    assert up(target).secret_token


@pytest.mark.parametrize("target", [target for target in STACKS if target.startswith("eks")])
def test_aws_stack_makes_no_calls(target: str) -> None:
    """A first preview therefore needs no data from the account."""
    assert up(target).asked == ()
    assert not any(token.startswith("aws:") for token in ANSWERS)


@pytest.mark.parametrize("target", [target for target in STACKS if target != "local"])
def test_secrets_and_config_maps_are_replaced(target: str) -> None:
    made = up(target).made
    (provider,) = [one for (kind, _), one in made.items() if kind == "pulumi:providers:kubernetes"]
    assert "kubeconfig" in provider.inputs
    assert {"enableSecretMutable", "enableConfigMapMutable"}.isdisjoint(provider.inputs)


def imported(file: Path) -> Iterator[str]:
    """Yield the first parts of the names that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_workloads_import_no_cloud_sdk() -> None:
    files = sorted((ROOT / "workloads").rglob("*.py"))
    assert len(files) > 20
    found = {(str(file.relative_to(ROOT)), name) for file in files for name in imported(file)}
    assert {name for _, name in found} & {"ray", "torch"}, "the search found nothing"
    assert [each for each in found if each[1] in SDKS or each[1].startswith("pulumi")] == []
