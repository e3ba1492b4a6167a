"""Recover a stack after its engine was killed: repair the state files, and resolve pending creates.

The engine records a create before it calls the provider. If it is killed in between, the resource may exist although
the state lacks its ID. `tools.import_ids` finds the ID; the resource is added to the state without outputs, and a
refresh reads it, or drops it if it does not exist. (`pulumi refresh --import-pending-creates` should do the same, but
engine 3.259 drops all pending creates: nothing reads an operation of type "importing"; see `filterMapPendingCreates`
and `SnapshotManager.snap`.)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.import_ids import FOUND_BY_TAGS, PendingCreate, UnclearError, found, import_id, tagged

_ONLY_IN_STATE = ("random:", "pulumi:")
"""Type prefixes of resources outside the clouds: random values and the engine's own."""


@dataclass(frozen=True)
class Place:
    """Location of a stack's resources: its name, and the Google Cloud project or the AWS region of its file.

    `environment` is that of the AWS CLI, by default this process's.
    """

    stack: str
    project: str | None = None
    region: str | None = None
    environment: Mapping[str, str] | None = None

    @classmethod
    def of(cls, stack: str, file: Path, environment: Mapping[str, str] | None = None) -> Place:
        """Read the stack file."""
        config = yaml.safe_load(file.read_text())["config"]
        return cls(stack, config.get("gcp:project"), config.get("aws:region"), environment)


def mend_state_folder(state: Path) -> int:
    """Delete incomplete .attrs files of a local backend; return their number.

    The engine replaces a state file by renaming, but writes the ".attrs" file next to it in place. If it is killed
    during the write, no engine can read the state, although the state file is complete.
    """
    broken = [file for file in state.rglob("*.attrs") if not _is_json(file)]
    for file in broken:
        # A running engine may be writing it.
        file.unlink(missing_ok=True)
    return len(broken)


def pending_creates(deployment: Mapping[str, Any]) -> list[PendingCreate]:
    """Return the unfinished creates of an engine, from `pulumi stack export`."""
    resources = (operation["resource"] for operation in _pending(deployment) if _is_create(operation))
    return [PendingCreate(each["urn"], each["type"], each.get("inputs") or {}) for each in resources]


def what_exists(deployment: Mapping[str, Any], place: Place) -> dict[str, str]:
    """Return URN -> import ID of each pending create that may exist.

    Raises:
        UnclearError: Whether one of them exists cannot be determined.
    """
    creates = pending_creates(deployment)
    ids = {create.urn: id_ for create in creates if (id_ := import_id(create, place.project)) is not None}
    by_tags = [create for create in creates if create.type in FOUND_BY_TAGS]
    if by_tags:
        resources = tagged(place.stack, place.region or "", place.environment)
        known = {resource["id"] for resource in deployment.get("resources") or [] if resource.get("id")}
        ids |= {create.urn: id_ for create in by_tags if (id_ := found(create, resources, known)) is not None}
    for create in creates:
        if not (create.urn in ids or create.type in FOUND_BY_TAGS or create.type.startswith(_ONLY_IN_STATE)):
            raise UnclearError(
                f"An interrupted run was creating {create.urn}, and this program does not know how to find"
                f" {create.type}. If it exists, delete it; then remove it from the pending operations: bin/pulumi"
                " stack export, edit, bin/pulumi stack import."
            )
    return ids


def to_be_read(deployment: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the deployment with every pending create in `ids` (URN -> import ID) as a resource without outputs.

    An ID without outputs makes the engine import the resource from its provider. The order does not matter: a create
    begins after everything that it depends on. Creates that exist in no cloud are dropped and will be created again;
    the engine handles other pending operations.
    """
    resources = list(deployment.get("resources") or [])
    kept = []
    for operation in _pending(deployment):
        if not _is_create(operation):
            kept.append(operation)
        elif (id_ := ids.get(operation["resource"]["urn"])) is not None:
            resources.append({**operation["resource"], "id": id_, "outputs": {}})
    return {**deployment, "resources": resources, "pending_operations": kept}


def settle(exported: Mapping[str, Any], place: Place, pulumi: Callable[..., object]) -> int:
    """Resolve every pending create of a stack; return their number.

    An interruption at any point is safe: the next call continues.

    Args:
        exported: Output of `pulumi stack export`.
        pulumi: Runs the engine with its arguments and raises if the engine fails.

    Raises:
        UnclearError: Whether a resource exists cannot be determined. Nothing has been changed.
    """
    creates = pending_creates(exported["deployment"])
    deployment = to_be_read(exported["deployment"], what_exists(exported["deployment"], place))
    if creates:
        with tempfile.TemporaryDirectory(prefix="rdma-ray-") as folder:
            file = Path(folder) / "state.json"
            file.write_text(json.dumps({**exported, "deployment": deployment}))
            pulumi("stack", "import", "--file", str(file))
    targets = [word for urn in _unread(deployment) for word in ("--target", urn)]
    if targets:
        # Only these: a full refresh takes minutes on a real cloud.
        pulumi("refresh", "--yes", "--skip-preview", "--suppress-outputs", *targets)
    return len(creates) + len(_unread(exported["deployment"]))


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _pending(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return deployment.get("pending_operations") or []


def _is_create(operation: Mapping[str, Any]) -> bool:
    return operation["type"] == "creating" and bool(operation["resource"].get("custom"))


def _unread(deployment: Mapping[str, Any]) -> list[str]:
    """Return the URNs of resources with an ID but no outputs, which a provider has not read yet."""
    return [
        resource["urn"]
        for resource in deployment.get("resources") or []
        if resource.get("id") and not resource.get("outputs") and not resource["type"].startswith("pulumi:")
    ]
