"""After an engine died at work: make its state readable, and find out what exists, so that nothing is made twice.

The engine writes down what it is about to create, and then creates it. If it dies in between, the cloud may have the
resource while the state does not have its id. Names here are fixed, so what to import it by follows from the inputs:
the resource is put into the state as one to be read, and a refresh settles it. What exists is filled in, what does not
is dropped. (`pulumi refresh --import-pending-creates` promises the same; the engine 3.259 drops them all, see
`filterMapPendingCreates` and `SnapshotManager.snap`: nobody reads an operation of type "importing".)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOOGLE_IMPORTS: Mapping[str, str] = {
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:compute/firewall:Firewall": "projects/{project}/global/firewalls/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": "projects/{project}/locations/{location}/clusters/{name}",
    "gcp:container/nodePool:NodePool": "{project}/{location}/{cluster}/{name}",
    "gcp:serviceaccount/account:Account": (
        "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com"
    ),
    # Members of a policy: with spaces, which is not how their ids are written.
    "gcp:projects/iAMMember:IAMMember": "{project} {role} {member}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket} {role} {member}",
}
"""What the Google provider imports by (pulumi-gcp 10.2.0, the Import section of each resource; read 2026-11)."""


@dataclass(frozen=True)
class PendingCreate:
    """A create that was begun: the resource's URN, type and inputs."""

    urn: str
    type: str
    inputs: Mapping[str, Any]


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


def import_id(create: PendingCreate, project: str | None) -> str | None:
    """What the resource's provider imports it by; None for what cannot be imported (a random value)."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IMPORTS.get(create.type)
    if template is None:
        return None
    return template.format_map({"project": project, **create.inputs})


def to_be_read(deployment: Mapping[str, Any], project: str | None) -> dict[str, Any]:
    """A deployment in which every pending create that can be imported is a resource without outputs.

    That is how the engine asks a provider to import: an id, and no outputs of last time. No two of them depend on each
    other, since a create begins when all it depends on is there; so their order does not matter. What cannot be
    imported is in no cloud either, and is made anew. Other pending operations stay: the engine deals with them.
    """
    resources = list(deployment.get("resources") or [])
    kept = []
    for operation in _pending(deployment):
        if not _is_create(operation):
            kept.append(operation)
        elif (id_ := import_id(_create(operation["resource"]), project)) is not None:
            resources.append({**operation["resource"], "id": id_, "outputs": {}})
    return {**deployment, "resources": resources, "pending_operations": kept}


def settle(exported: Mapping[str, Any], project: str | None, pulumi: Callable[..., object]) -> int:
    """Settle every pending create of a stack, given what `pulumi stack export` says; returns how many there were.

    It may be interrupted anywhere: what was not read by then is read the next time. `pulumi` runs the engine with the
    arguments that it is given, and raises if the engine fails.
    """
    deployment = to_be_read(exported["deployment"], project)
    creates = pending_creates(exported["deployment"])
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
