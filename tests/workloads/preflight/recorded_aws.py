"""Recorded answers of the AWS CLI: a program on PATH that gives them, and the situations that they make up."""

from __future__ import annotations

import copy
import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.catalog.pins import AWS_RAY_TRAIN, EKS, EKS_NEXT, EKS_RELEASES, RAY
from tests.unit.stacks import changed
from tests.workloads.conftest import ROOT
from tests.workloads.preflight import recorded_cli

PINS = {"<eks>": EKS, "<eks next>": EKS_NEXT, "<ray>": RAY, "<image>": AWS_RAY_TRAIN}
FOLDER = Path(__file__).parent / "aws"
OPTIONS = ("--region=", "--output=json", "--profile=")


@functools.cache
def data(name: str) -> Any:
    """Return a file of recordings."""
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    for pin, value in PINS.items():
        text = text.replace(pin, value)
    return yaml.safe_load(text)


def put(value: Any, path: str, new: Any) -> None:
    """Set what is at a path such as `Quotas.0.Value`."""
    *parents, last = path.split(".")
    for name in parents:
        value = value[int(name)] if isinstance(value, list) else value[name]
    if isinstance(value, list):
        value[int(last)] = new
    else:
        value[last] = new


def answers_of(situation: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the recordings of a situation by name."""
    answers: dict[str, dict[str, Any]] = copy.deepcopy(data("recordings"))
    version = EKS_RELEASES[EKS]
    names = [
        f"amazon-eks-node-al2023-x86_64-{each}-{EKS}-v{version['node image'][-8:]}" for each in ("nvidia", "standard")
    ]
    answers["node-images"]["stdout"] = {"Images": [{"Name": name, "State": "available"} for name in names]}
    answers["addons"]["stdout"] = {
        "addons": [
            {"addonName": name, "owner": "aws", "addonVersions": [{"addonVersion": pin}]}
            for name, pin in version.items()
            if name not in ("node image", "autoscaler")
        ]
    }
    policies = answers["policies"]
    for name, change in situation.get("answers", {}).items():
        for each in [name] if name != "*" else [key for key in answers if key != "image"]:
            answer = answers.setdefault(each, {})
            # Or a recording that only this situation has.
            answer |= {key: copy.deepcopy(value) for key, value in change.items() if key not in ("edit", "error")}
            for path, value in change.get("edit", {}).items():
                put(answer["stdout"], path, copy.deepcopy(value))
            if "error" in change:
                answer.pop("stdout", None)
                answer |= data("errors")[change["error"]]
    if "stdout" not in policies and "stderr" not in policies:
        rows = [
            {
                "EvalActionName": action,
                "EvalResourceName": "*",
                "EvalDecision": "allowed",
                **policies["allow"],
                **policies.get("decide", {}).get(action, {}),
            }
            for action in policies["actions"].split()
        ]
        policies["stdout"] = {"EvaluationResults": rows}
    return answers


def install(folder: Path, answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the programs `aws` and `docker`, which give these answers, into a folder for PATH."""
    recordings = [
        {
            "argv": f"{each.get('program', 'aws')} {each['argv']}",
            "stdout": f"{json.dumps(each['stdout'])}\n" if "stdout" in each else each.get("stdout-text", ""),
            "stderr": each.get("stderr", ""),
            "code": each.get("exit", 0),
            "delay": each.get("delay", 0),
        }
        for each in answers.values()
    ]
    recorded_cli.install(folder, recordings, ("aws", "docker"), ignored=OPTIONS, unique=True)


def stack_file(folder: Path, situation: Mapping[str, Any]) -> Path:
    """Write the stack file of a situation."""
    original = ROOT / f"Pulumi.{situation.get('stack', 'eks')}.yaml"
    document = yaml.safe_load(original.read_text(encoding="utf-8"))
    document["config"] = changed(document["config"], situation.get("set", {}))
    file = folder / "Pulumi.situation.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which the recorded programs are the first on PATH."""
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "300"}


def expected(situation: Mapping[str, Any], check: str) -> tuple[str, str | None, str]:
    """Return state, cause and a part of the text that a check has in a situation."""
    for name, (state, cause, part) in situation["expect"].items():
        if check.startswith(name) or (name == "*" and check != "region" and check != "image"):
            return state, cause, part
    return "ok", None, ""


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every map in a JSON document."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from mappings(each)
    elif isinstance(value, list):
        for each in value:
            yield from mappings(each)
