"""After an engine died in the middle of a create: find out what exists, so that nothing is made twice or forgotten.

The engine writes down what it is about to create, and then creates it. If it dies in between, the cloud may have the
resource while the state does not have its id. Names here are fixed, so the id follows from the inputs, and a refresh
with that id settles it: what exists is taken into the state, what does not is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GOOGLE_IDS: Mapping[str, str] = {
    "gcp:compute/network:Network": "projects/{project}/global/networks/{name}",
    "gcp:compute/subnetwork:Subnetwork": "projects/{project}/regions/{region}/subnetworks/{name}",
    "gcp:compute/firewall:Firewall": "projects/{project}/global/firewalls/{name}",
    "gcp:compute/router:Router": "projects/{project}/regions/{region}/routers/{name}",
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": "projects/{project}/locations/{location}/clusters/{name}",
    "gcp:container/nodePool:NodePool": "projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{name}",
    "gcp:serviceaccount/account:Account": (
        "projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com"
    ),
    "gcp:projects/iAMMember:IAMMember": "{project}/{role}/{member}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket}/{role}/{member}",
}
"""The ids of the Google provider (pulumi-gcp 10.2.0, the Import section of each resource; read 2026-11)."""


@dataclass(frozen=True)
class PendingCreate:
    """A create that was begun: the resource's URN, type and inputs."""

    urn: str
    type: str
    inputs: Mapping[str, Any]


def pending_creates(deployment: Mapping[str, Any]) -> list[PendingCreate]:
    """The creates that an engine began and never finished, from `pulumi stack export`."""
    return [
        PendingCreate(resource["urn"], resource["type"], resource.get("inputs") or {})
        for operation in deployment.get("pending_operations") or []
        if operation["type"] == "creating" and (resource := operation["resource"]).get("custom")
    ]


def cloud_id(create: PendingCreate, project: str | None) -> str | None:
    """The id under which a cloud would have it; None for what no cloud has (a random value)."""
    if create.type.startswith("kubernetes:"):
        place = create.inputs if create.type == "kubernetes:helm.sh/v3:Release" else create.inputs["metadata"]
        return "/".join(part for part in (place.get("namespace"), place["name"]) if part)
    template = GOOGLE_IDS.get(create.type)
    if template is None:
        return None
    return template.format_map({"project": project, **create.inputs})


def settle(deployment: Mapping[str, Any], project: str | None, pulumi: Callable[..., object]) -> int:
    """Settle every pending create of a stack; returns how many there were.

    `pulumi` runs the engine with the arguments that it is given, and raises if the engine fails.
    """
    creates = pending_creates(deployment)
    known = [(create.urn, id_) for create in creates if (id_ := cloud_id(create, project)) is not None]
    if known:
        pairs = [argument for pair in known for part in pair for argument in ("--import-pending-creates", part)]
        pulumi("refresh", "--yes", "--skip-preview", "--suppress-outputs", *pairs)
    if len(known) < len(creates):
        pulumi("refresh", "--yes", "--skip-preview", "--suppress-outputs", "--clear-pending-creates")
    return len(creates)
