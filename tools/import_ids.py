"""Find the import ID of a resource that an interrupted run was creating.

Most IDs can be computed from the inputs, since names are fixed. AWS generates the others; those resources are found by
two tags: the stack's name, and a name that is unique among resources of its kind (`infra.eks.names`). The AWS CLI,
which every kubeconfig of an EKS stack requires, lists them in one call. An ambiguous result is an error, because a
wrong guess would create or delete a resource twice.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

STACK_TAG, NAME_TAG = "rdma-ray-stack", "Name"

_TABLES: Mapping[str, Mapping[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
GOOGLE_IMPORTS, AWS_IMPORTS = _TABLES["google"], _TABLES["aws"]
FOUND_BY_TAGS = _TABLES["found_by_tags"]
"""Type of a resource with a generated ID -> service and resource type in its ARN."""

_LIST_S = 120.0


class UnclearError(RuntimeError):
    """The result of an interrupted run is ambiguous. The message has the fix; nothing has been changed."""


@dataclass(frozen=True)
class PendingCreate:
    """An unfinished create of an engine: the resource's URN, type and inputs."""

    urn: str
    type: str
    inputs: Mapping[str, Any]


def import_id(create: PendingCreate, project: str | None) -> str | None:
    """Return the import ID if the inputs determine it, else None."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IMPORTS.get(create.type) or AWS_IMPORTS.get(create.type)
    return template.format_map({"project": project, **create.inputs}) if template else None


@dataclass(frozen=True)
class Tagged:
    """One resource in AWS: its ARN and its name tag."""

    arn: str
    name: str

    @property
    def type(self) -> str:
        """Service and resource type, such as "ec2:vpc"."""
        # An ARN has five colons before the resource; EC2, KMS, FSx and EKS write TYPE/ID after them.
        service, resource = self.arn.split(":", 5)[2::3]
        return f"{service}:{resource.partition('/')[0]}"

    @property
    def id(self) -> str:
        """Last part of the ARN: the generated ID."""
        return self.arn.rpartition("/")[2]


def list_command(stack: str, region: str) -> list[str]:
    """Return the command that lists all resources with the stack's tag. The CLI requests further pages itself."""
    return [
        *("aws", "resourcegroupstaggingapi", "get-resources", "--region", region),
        *("--tag-filters", f"Key={STACK_TAG},Values={stack}", "--output", "json"),
    ]


def tagged(stack: str, region: str, environment: Mapping[str, str] | None = None) -> list[Tagged]:
    """Return all resources in AWS with the stack's tag. `environment` is the command's; by default this process's.

    Raises:
        UnclearError: The AWS CLI is missing or failed.
    """
    command = list_command(stack, region)
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIST_S
        )
        if done.returncode == 0:
            return [
                Tagged(each["ResourceARN"], {tag["Key"]: tag["Value"] for tag in each["Tags"]}.get(NAME_TAG, ""))
                for each in json.loads(done.stdout)["ResourceTagMappingList"]
            ]
        problem = (
            f"It failed:\n{done.stderr.strip()}\nSign in as the user who brings the stack up, with the permission"
            " tag:GetResources, and run this again."
        )
    except FileNotFoundError:
        install = "Install its version 2, sign in (aws sts get-caller-identity), and run this again."
        problem = f"There is no AWS CLI here. {install}"
    except subprocess.TimeoutExpired:
        problem = f"It did not end within {_LIST_S:.0f} s."
    except (ValueError, KeyError, TypeError):
        problem = "Its output is not the expected list."
    raise UnclearError(
        "An interrupted run was creating resources in AWS. This lists those that exist:\n"
        f"  {' '.join(command)}\n{problem} Nothing was changed."
    )


def found(create: PendingCreate, resources: Sequence[Tagged], known: Collection[str]) -> str | None:
    """Return the import ID of a create from the tagged resources, or None if it was never created.

    Args:
        known: IDs in the state. During a replacement two resources have one name, and the state has the old one.

    Raises:
        UnclearError: Several resources match, or the create has no tags.
    """
    tags: Mapping[str, Any] = create.inputs.get("tags") or {}
    if not (name := tags.get(NAME_TAG)) or STACK_TAG not in tags:
        raise UnclearError(
            f"An interrupted run was creating {create.urn}, which has no tags to find it by. If AWS has it, delete"
            " it; then remove it from the pending operations: bin/pulumi stack export, edit, bin/pulumi stack import."
        )
    kind = FOUND_BY_TAGS[create.type]
    matches = [each for each in resources if each.type == kind and each.name == name and each.id not in known]
    if len(matches) > 1:
        arns = "\n".join(f"  {each.arn}" for each in matches)
        raise UnclearError(
            f"An interrupted run was creating {create.urn}.\nSeveral resources have its tags:\n{arns}\n"
            "AWS lists deleted ones, too, for a while. Delete those that the stack does not need, or remove the tag"
            f" {STACK_TAG} from them, and run this again. Nothing was changed."
        )
    if not matches:
        return None
    return _TABLES["imported_as"].get(create.type, "{id}").format_map({**create.inputs, "id": matches[0].id})
