"""Sections of the stack file of a cluster on Google Cloud: nodes, cluster, access, budget, network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.catalog.capacity import GKE_CAPACITIES, MAX_RUN_HOURS
from infra.catalog.machines import GKE_CATALOG, supported
from infra.settings.common import CloudAccess, CloudBudget, CloudKubernetes, CloudNetwork, CloudNodes
from infra.settings.fields import Cidr, Derived, Flag, FromText, Number, OneOf, Text

BOOT_GIB, BOOT_GIB_WITHOUT_SSD = 100, 200
"""Boot disk of a node, GiB: with local disks, these hold images and pods' files."""
COMPACT = tuple(name for name, kind in GKE_CAPACITIES.items() if kind.placement)
GkeCapacityName = Literal["flex-start", "flex-start-queued", "spot", "reservation", "on-demand"]


class GkeNodes(CloudNodes):
    """Node pool of GPU machines."""

    machine: Annotated[str, OneOf(tuple(GKE_CATALOG))] = Field(examples=supported("gke"))
    capacity: GkeCapacityName = "flex-start"
    fallback: GkeCapacityName | None = Field(
        None,
        title="capacity",
        description="gke: second choice of capacity, when the first has no machine. Needs computeClass; "
        "flex-start-queued after a reservation needs queue kueue instead.",
    )
    max_run_hours: Annotated[
        Annotated[int, Field(ge=1, le=100_000), FromText] | None,
        Derived(
            lambda v: MAX_RUN_HOURS if "flex-start" in f"{v['nodes.capacity']} {v['nodes.fallback']}" else None,
            f"{MAX_RUN_HOURS} with flex-start, else not set",
        ),
    ] = Field(
        title="hours",
        description=f"gke: hours after which a flex-start node ends, at most {MAX_RUN_HOURS} (seven days).",
    )

    compact: Annotated[
        Flag,
        Derived(
            lambda v: any(v[path] in COMPACT for path in ("nodes.capacity", "nodes.fallback")),
            f"true with {' or '.join(COMPACT)}",
        ),
    ] = Field(
        description="gke: place the nodes close together. Queued nodes have no such policy, and a reservation "
        "fixes where its nodes are."
    )

    gpu_driver: Literal["latest", "default"] = Field(
        "latest",
        description="gke: NVIDIA driver that GKE installs: the latest of the node image, or the default of the GKE "
        "version, which changes less often. The CUDA of ray.image must support it.",
    )

    @property
    def capacities(self) -> tuple[str, ...]:
        """Kinds of capacity in the order in which they are tried."""
        return (self.capacity,) if self.fallback is None else (self.capacity, self.fallback)

    boot_disk_gib: Annotated[
        Number,
        Derived(
            lambda v: BOOT_GIB if GKE_CATALOG[v["nodes.machine"]].local_ssds != 0 else BOOT_GIB_WITHOUT_SSD,
            f"{BOOT_GIB}; {BOOT_GIB_WITHOUT_SSD} for a machine without local disks",
        ),
    ] = Field(ge=50, le=16_384)


class GkeKubernetes(CloudKubernetes):
    """Version of Kubernetes, and the CPU nodes."""

    # Flex-start pools may disable auto-repair on regular (cluster-toolkit: dws-flex-start, 10470803, 2026-06-25).
    channel: Literal["rapid", "regular", "stable"] = Field(
        "regular", description="gke: release channel, which upgrades the control plane."
    )
    min_version: Text | None = Field(
        None,
        title="a GKE version",
        examples=["1.36.5-gke.1032000"],
        description="gke: oldest version with which the cluster is created, in quotes, such as "
        "1.36.5-gke.1032000. If the channel's default is older, GKE gets the channel's latest version. The channel "
        "upgrades the cluster later.",
    )
    system_machine: Text = "e2-standard-8"


class GkeAccess(CloudAccess):
    """Access to the cluster and its control plane."""

    dns_endpoint: Flag = Field(
        True,
        description="gke: whether the control plane answers users by its DNS name, from the whole Internet. IAM "
        "authorizes each request. With false, only addresses of authorizedNetworks answer.",
    )
    egress: Literal["nat"] = "nat"


class GkeBudget(CloudBudget):
    """Limits of the stack's list price per hour, and an email about its monthly cost."""

    billing_account: Annotated[str, Field(pattern=r"^[0-9A-F]{6}(-[0-9A-F]{6}){2}$")] | None = Field(
        None,
        title="a billing account's id",
        examples=["012345-6789AB-CDEF01"],
        description="gke: billing account of the project, such as 012345-6789AB-CDEF01, on which the stack's user "
        "creates the budget.",
    )


class GkeNetwork(CloudNetwork):
    """Addresses of the stack's own networks."""

    base_range: Cidr = "10.64.0.0/14"
    subnetwork: Text | None = Field(
        None,
        title="a subnetwork's path",
        examples=["projects/host/regions/us-central1/subnetworks/training"],
        description="gke: your subnetwork for nodes, pods and Services, also of a Shared VPC: "
        "projects/PROJECT/regions/REGION/subnetworks/NAME. It is read and never changed; it needs NAT. Only the "
        "networks of the other NICs, and the control plane's range, are cut from baseRange then.",
    )
    pods_range: Text = Field(
        "pods", title="a range's name", description="gke, with subnetwork: its secondary range of pods."
    )
    services_range: Text = Field(
        "services", title="a range's name", description="gke, with subnetwork: its secondary range of Services."
    )

    @property
    def subnetwork_parts(self) -> tuple[str, str, str]:
        """Project, region and name of the user's subnetwork, if there is one."""
        _, project, _, region, _, name = str(self.subnetwork).split("/")
        return project, region, name
