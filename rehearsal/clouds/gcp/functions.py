"""Provider functions of the simulated Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.offerings import MACHINES, channels, has_machine, versions
from rehearsal.clouds.gcp.references import COMPUTE, location_of, project_number, project_of
from rehearsal.engine.kind import Function, Json
from rehearsal.engine.state import View
from rehearsal.engine.values import number

_BY_NAME = re.compile(r"""^\s*\(?\s*name\s*(?:=|:|eq)\s*["']?(?P<name>[a-z0-9-]+)["']?\s*\)?\s*$""")


def engine_versions(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return the GKE versions of a location, newest first, optionally with a prefix."""
    location = location_of(arguments, config)
    prefix = str(arguments.get("versionPrefix") or "")
    offered = [version for version in versions(state) if version.startswith(prefix)]
    defaults = channels(state)
    return {
        "id": number(location, 10),
        "location": location,
        "validMasterVersions": offered,
        "validNodeVersions": offered,
        "defaultClusterVersion": defaults["REGULAR"],
        "releaseChannelDefaultVersion": defaults,
        "releaseChannelLatestVersion": dict.fromkeys(defaults, versions(state)[0]),
    }


def machine_types(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the names of a zone's machine types. It supports a filter by name; any other returns all."""
    zone, project = str(arguments.get("zone") or config.get("zone") or ""), project_of(arguments, config)
    place, text = f"projects/{project}/zones/{zone}/machineTypes", str(arguments.get("filter") or "")
    asked = _BY_NAME.match(text)
    found = [name for name in ([asked["name"]] if asked else MACHINES) if name in MACHINES and has_machine(zone, name)]
    types = [{"selfLink": f"{COMPUTE}{place}/{name}", "name": name} for name in found]
    return {"id": f"{place}/filters/{text}", "zone": zone, "project": project, "machineTypes": types}


def project(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the project and its number."""
    name = str(arguments.get("projectId") or project_of({}, config))
    return {"id": f"projects/{name}", "projectId": name, "name": name, "number": project_number(name)}


FUNCTIONS: Mapping[str, Function] = {
    "gcp:container/getEngineVersions:getEngineVersions": engine_versions,
    "gcp:compute/getMachineTypes:getMachineTypes": machine_types,
    "gcp:organizations/getProject:getProject": project,
}
