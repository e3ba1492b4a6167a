"""Provider functions of the simulated Google Cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.gcp.offerings import MACHINES, channels, has_machine, versions
from rehearsal.clouds.gcp.references import (
    CLUSTER,
    COMPUTE,
    PROVIDER,
    SUBNETWORK,
    cluster_id,
    location_of,
    network_id,
    pools_of,
    project_number,
    project_of,
    subnetwork_id,
)
from rehearsal.engine.kind import Function, Json, Refusal, RefusedError
from rehearsal.engine.state import View
from rehearsal.engine.values import listed, number

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


def subnetwork(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return a subnetwork. RefusedError if there is none."""
    id_ = subnetwork_id(arguments.get("name"), arguments, config)
    live = state.get(SUBNETWORK, id_)
    if live is None:
        raise RefusedError(Refusal("not-found", f"Subnetwork Not Found : {id_}", PROVIDER))
    network = f"{COMPUTE}{network_id(live['network'], live, config)}"
    own = {name: live.get(name) for name in ("name", "project", "region", "ipCidrRange", "description")}
    access, ranges = bool(live.get("privateIpGoogleAccess")), live.get("secondaryIpRanges") or []
    more = {"network": network, "privateIpGoogleAccess": access, "secondaryIpRanges": ranges}
    return {**own, **more, "id": id_, "selfLink": f"{COMPUTE}{id_}"}


def cluster(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return a cluster with its node pools. RefusedError if there is none."""
    id_ = cluster_id(arguments, config)
    live = state.get(CLUSTER, id_)
    if live is None:
        raise RefusedError(Refusal("not-found", f"Not found: {id_}.", PROVIDER))
    pools = [pool for _, pool in sorted(pools_of(state, id_))]
    return {**listed({**live, "nodePools": pools}, ("resourceLabels", "labels")), "id": id_}


FUNCTIONS: Mapping[str, Function] = {
    "gcp:container/getCluster:getCluster": cluster,
    "gcp:container/getEngineVersions:getEngineVersions": engine_versions,
    "gcp:compute/getMachineTypes:getMachineTypes": machine_types,
    "gcp:compute/getSubnetwork:getSubnetwork": subnetwork,
    "gcp:organizations/getProject:getProject": project,
}
