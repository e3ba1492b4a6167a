"""After an engine died at work: make its state readable, and find out what exists, so that nothing is made twice.

The engine writes down what it is about to create, and then creates it. If it dies in between, the cloud may have the
resource while the state does not have its id. What to import it by follows from its inputs (`tools.imports`), or AWS
is asked for its tags (`tools.aws_tags`). It is put into the state as a resource to be read, and a refresh settles it:
what exists is filled in, what does not is dropped. (`pulumi refresh --import-pending-creates` promises the same; the
engine 3.259 drops them all, see `filterMapPendingCreates` and `SnapshotManager.snap`: nobody reads an operation of type
"importing".)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.aws_tags import FOUND_BY_TAGS, UnclearError, found, tagged
from tools.imports import PendingCreate, import_id

IN_NO_CLOUD = ("random:", "pulumi:")
"""How the types of what only the state has begin: random values, and the engine's own resources."""


@dataclass(frozen=True)
class Place:
    """Where a stack's resources are: its name, and the Google Cloud project or the AWS region of its file.

    `environment` is that of the AWS CLI, if not that of this process.
    """

    stack: str
    project: str | None = None
    region: str | None = None
    environment: Mapping[str, str] | None = None

    @classmethod
    def of(cls, stack: str, file: Path, environment: Mapping[str, str] | None = None) -> Place:
        """Read the stack's file."""
        config = yaml.safe_load(file.read_text())["config"]
        return cls(stack, config.get("gcp:project"), config.get("aws:region"), environment)


def mend_state_folder(state: Path) -> int:
    """Remove the half-written side files that an engine left in a local backend; returns how many there were.

    A state file is replaced at once, by renaming; the ".attrs" beside it is written in place just before. An engine
    that dies in between leaves it empty, and then no engine can read the state, which is whole; without it they can.
    """
    broken = [file for file in state.rglob("*.attrs") if not _is_json(file)]
    for file in broken:
        # An engine that is at work may be just replacing it; then there is nothing to remove.
        file.unlink(missing_ok=True)
    return len(broken)


def pending_creates(deployment: Mapping[str, Any]) -> list[PendingCreate]:
    """The creates that an engine began and never finished, from `pulumi stack export`."""
    return [_create(operation["resource"]) for operation in _pending(deployment) if _is_create(operation)]


def what_exists(deployment: Mapping[str, Any], place: Place) -> dict[str, str]:
    """What each pending create is to be imported by, by its URN; without what is known not to exist.

    Raises:
        UnclearError: whether one of them exists cannot be told.
    """
    creates = pending_creates(deployment)
    ids = {create.urn: id_ for create in creates if (id_ := import_id(create, place.project)) is not None}
    by_tags = [create for create in creates if create.type in FOUND_BY_TAGS]
    if by_tags:
        resources = tagged(place.stack, place.region or "", place.environment)
        known = {resource["id"] for resource in deployment.get("resources") or [] if resource.get("id")}
        ids |= {create.urn: id_ for create in by_tags if (id_ := found(create, resources, known)) is not None}
    for create in creates:
        if not (create.urn in ids or create.type in FOUND_BY_TAGS or create.type.startswith(IN_NO_CLOUD)):
            raise UnclearError(
                f"An interrupted run was making {create.urn}, and nothing here knows how to find {create.type}. If"
                " it exists, delete it; then take it out of the pending operations: bin/pulumi stack export, edit,"
                " bin/pulumi stack import."
            )
    return ids


def to_be_read(deployment: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """A deployment in which every pending create that may exist, by its URN in `ids`, is a resource without outputs.

    That is how the engine asks a provider to import: an id, and no outputs of last time. No two of them depend on each
    other, since a create begins when all it depends on is there; so their order does not matter. What is in no cloud is
    made anew. Other pending operations stay: the engine deals with them.
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
    """Settle every pending create of a stack, given what `pulumi stack export` says; returns how many there were.

    It may be interrupted anywhere: what was not read by then is read the next time. `pulumi` runs the engine with the
    arguments that it is given, and raises if the engine fails.

    Raises:
        UnclearError: whether something exists cannot be told; nothing has been changed.
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
        # Only these: reading the rest would take minutes on a real cloud, and settle nothing.
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


def _unread(deployment: Mapping[str, Any]) -> list[str]:
    """The URNs of resources with an id and no outputs: whatever a provider has made or read has some."""
    return [
        resource["urn"]
        for resource in deployment.get("resources") or []
        if resource.get("id") and not resource.get("outputs") and not resource["type"].startswith("pulumi:")
    ]


def _is_create(operation: Mapping[str, Any]) -> bool:
    return operation["type"] == "creating" and bool(operation["resource"].get("custom"))


def _create(resource: Mapping[str, Any]) -> PendingCreate:
    return PendingCreate(resource["urn"], resource["type"], resource.get("inputs") or {})
