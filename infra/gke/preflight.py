"""What Google Cloud is asked before anything is made: which versions it offers, and whether the zone has the machine.

Both answers come during `pulumi preview`. Without them the machine's absence would show when the node pool is made, ten
minutes and one cluster later.
"""

from __future__ import annotations

from functools import partial

import pulumi
import pulumi_gcp as gcp
from pulumi_gcp.compute import GetMachineTypesResult
from pulumi_gcp.container import GetEngineVersionsResult

from infra.gke.versions import CHANNEL, NoVersionError, control_plane_version


def cluster_version(location: str, minimum: str) -> pulumi.Output[str | None]:
    """The version to make the cluster with, None for the channel's default; fails the preview if none is new enough."""
    versions = gcp.container.get_engine_versions_output(location=location)
    return versions.apply(partial(_choose, location=location, minimum=minimum))


def machine_in_zone(machine: str, zone: str) -> pulumi.Output[str]:
    """The machine type, once it is known that the zone has it; fails the preview if it does not."""
    types = gcp.compute.get_machine_types_output(zone=zone, filter=f'name = "{machine}"')
    return types.apply(partial(_found, machine=machine, zone=zone))


def _choose(versions: GetEngineVersionsResult, *, location: str, minimum: str) -> str | None:
    try:
        return control_plane_version(
            versions.release_channel_default_version[CHANNEL], versions.valid_master_versions, minimum, location
        )
    except NoVersionError as problem:
        raise pulumi.RunError(str(problem)) from None


def _found(types: GetMachineTypesResult, *, machine: str, zone: str) -> str:
    if not types.machine_types:
        raise pulumi.RunError(
            f"nodes.machine: {machine} is not offered in location: {zone}, so its nodes would never come. Choose "
            f"another zone; `gcloud compute machine-types list --filter='name={machine}'` names those that have it"
        )
    return machine
