"""Provider functions of the simulated Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infra.catalog.machines import GKE_CATALOG
from rehearsal.clouds.gcp.offerings import EVERYWHERE, MACHINE_ZONES, channels, has_machine, versions
from rehearsal.clouds.gcp.references import COMPUTE, location_of, project_number, project_of, region_of
from rehearsal.clouds.kind import Function, Json
from rehearsal.clouds.state import View
from rehearsal.clouds.values import number

_BY_NAME = re.compile(r"""^\s*\(?\s*name\s*(?:=|:|eq)\s*["']?(?P<name>[a-z0-9-]+)["']?\s*\)?\s*$""")


def engine_versions(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return the GKE versions of a location, newest first, optionally with a prefix."""
    location = location_of(arguments, config)
    prefix = str(arguments.get("versionPrefix") or "")
    offered = [version for version in versions(state) if version.startswith(prefix)]
    newest = offered[0] if offered else ""
    defaults = channels(state)
    return {
        "id": number(location, 10),
        "location": location,
        "project": project_of(arguments, config),
        "versionPrefix": prefix,
        "validMasterVersions": offered,
        "validNodeVersions": offered,
        "latestMasterVersion": newest,
        "latestNodeVersion": newest,
        "defaultClusterVersion": defaults["REGULAR"],
        "releaseChannelDefaultVersion": defaults,
        "releaseChannelLatestVersion": dict.fromkeys(defaults, versions(state)[0]),
        "releaseChannelUpgradeTargetVersion": defaults,
    }


def machine_types(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the machine types of a zone. It supports a filter by name; any other returns the catalog's types."""
    zone, project = str(arguments.get("zone") or config.get("zone") or ""), project_of(arguments, config)
    asked = _BY_NAME.match(str(arguments.get("filter") or ""))
    names = [asked["name"]] if asked else sorted(MACHINE_ZONES)
    found = [name for name in names if has_machine(zone, name)]
    return {
        "id": f"projects/{project}/zones/{zone}/machineTypes/filters/{arguments.get('filter') or ''}",
        "zone": zone,
        "project": project,
        "filter": arguments.get("filter") or "",
        "machineTypes": [_machine_type(name, project, zone) for name in found],
    }


def project(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the project and its number."""
    name = str(arguments.get("projectId") or project_of({}, config))
    return {
        "id": f"projects/{name}",
        "projectId": name,
        "name": name,
        "number": project_number(name),
        "autoCreateNetwork": True,
        "billingAccount": "",
        "deletionPolicy": "PREVENT",
        "folderId": "",
        "orgId": number(f"organization of {name}", 12),
        "labels": {},
        "effectiveLabels": {},
        "pulumiLabels": {},
        "tags": {},
    }


def client_config(_arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the provider's configuration, with an invalid token."""
    region, zone = region_of({}, config), str(config.get("zone") or "")
    return {
        "id": f"projects/{project_of({}, config)}/regions/{region}/zones/{zone}",
        "project": project_of({}, config),
        "region": region,
        "zone": zone,
        "accessToken": "rehearsal-token-that-opens-nothing",
        "defaultLabels": {},
    }


FUNCTIONS: Mapping[str, Function] = {
    "gcp:container/getEngineVersions:getEngineVersions": engine_versions,
    "gcp:compute/getMachineTypes:getMachineTypes": machine_types,
    "gcp:organizations/getProject:getProject": project,
    "gcp:organizations/getClientConfig:getClientConfig": client_config,
}


def _machine_type(name: str, project_: str, zone: str) -> Json:
    row = GKE_CATALOG.get(name)
    size = EVERYWHERE.fullmatch(name)
    cpus = (row.vcpus or 0) if row else int(((size and size[3]) or "-2")[1:])
    return {
        "name": name,
        "selfLink": f"{COMPUTE}projects/{project_}/zones/{zone}/machineTypes/{name}",
        "description": "",
        "guestCpus": cpus,
        "memoryMb": cpus * 4096,
        "isSharedCpus": False,
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": 263168,
        "accelerators": [{"guestAcceleratorType": row.accelerator, "guestAcceleratorCount": row.gpus}] if row else [],
        "bundledLocalSsds": [{"defaultInterface": "NVME", "partitionCount": row.local_ssds or 0}] if row else [],
        "deprecateds": [],
    }
