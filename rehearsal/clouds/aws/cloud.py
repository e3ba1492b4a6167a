"""Simulated AWS: provider functions, and every kind with its rules (`kinds_…`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.catalog.machines import EKS_CATALOG
from rehearsal.clouds.aws import kinds_account, kinds_cluster, kinds_network
from rehearsal.clouds.aws.cluster_parts import default_version
from rehearsal.clouds.aws.offerings import DEFAULT_VERSION, IMAGE_DATE, VERSIONS, instance_type, offered, zone_id, zones
from rehearsal.clouds.aws.outputs import ACCOUNT, CALLER, hexadecimal, partition_of, region_of
from rehearsal.clouds.aws.refusals import FAILURES
from rehearsal.clouds.aws.tokens import CLUSTER
from rehearsal.clouds.kind import Call, Cloud, Function, Json
from rehearsal.clouds.state import View
from rehearsal.clouds.values import digest


def caller(_arguments: Json, _config: Mapping[str, Any], _state: View) -> Json:
    """Return the identity of the example account's user."""
    return {"id": ACCOUNT, "accountId": ACCOUNT, "arn": CALLER, "userId": f"AIDA{digest(CALLER, 17).upper()}"}


def availability_zones(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the zones of a region."""
    region = region_of(arguments, config)
    names = zones(region)
    return {
        "id": region,
        "region": region,
        "names": names,
        "zoneIds": [zone_id(name) for name in names],
        "groupNames": [region],
        "state": arguments.get("state"),
    }


def availability_zone(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return one zone, by name or id."""
    region = region_of(arguments, config)
    by_id = {zone_id(zone): zone for zone in zones(region)}
    name = str(arguments.get("name") or by_id.get(str(arguments.get("zoneId"))) or zones(region)[0])
    return {
        "id": name,
        "name": name,
        "zoneId": zone_id(name),
        "nameSuffix": name.removeprefix(region),
        "groupName": region,
        "region": region,
        "networkBorderGroup": region,
        "optInStatus": "opt-in-not-required",
        "parentZoneId": "",
        "parentZoneName": "",
        "state": "available",
        "zoneType": "availability-zone",
        "groupLongName": region,
    }


def partition(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the partition of the provider's region."""
    name = partition_of(region_of(arguments, config))
    suffix = "amazonaws.com.cn" if name == "aws-cn" else "amazonaws.com"
    reverse = "cn.com.amazonaws" if name == "aws-cn" else "com.amazonaws"
    return {"id": name, "partition": name, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def region(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the provider's region."""
    name = region_of(arguments, config)
    return {"id": name, "region": name, "name": name, "description": name, "endpoint": f"ec2.{name}.amazonaws.com"}


def parameter(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return a public parameter of a machine image: its id or its release; any other gets a placeholder."""
    name = str(arguments.get("name"))
    value = digest(name, 16)
    if name.endswith("/image_id") or "/ami-" in name:
        value = hexadecimal("ami", name)
    elif name.endswith("/release_version"):
        version = next((part for part in name.split("/") if part in VERSIONS), DEFAULT_VERSION)
        value = f"{version}.2-{IMAGE_DATE}"
    return {
        "id": name,
        "name": name,
        "arn": f"arn:aws:ssm:{region_of(arguments, config)}::parameter{name}",
        "type": "String",
        "value": value,
        "insecureValue": value,
        "version": 1,
        "region": region_of(arguments, config),
        "withDecryption": arguments.get("withDecryption"),
    }


def instance_type_offerings(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return the instance types of a location. It supports filters by "instance-type" and "location"."""
    asked = {str(one["name"]): [str(value) for value in one["values"]] for one in arguments.get("filters") or []}
    home = region_of(arguments, config)
    by_zone = str(arguments.get("locationType") or "region") != "region"
    places = [place for place in (zones(home) if by_zone else [home]) if place in asked.get("location", [place])]
    names = asked.get("instance-type", sorted(EKS_CATALOG))
    found = [
        (name, place)
        for name in names
        for place in places
        if instance_type(name) is not None and (not by_zone or offered(name, place, state))
    ]
    return {
        "id": home,
        "region": home,
        "instanceTypes": [name for name, _ in found],
        "locations": [place for _, place in found],
        "locationTypes": [arguments.get("locationType") or "region"] * len(found),
        "filters": arguments.get("filters"),
        "locationType": arguments.get("locationType"),
    }


def get_instance_type(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return the properties of an instance type that the catalog knows."""
    name = str(arguments.get("instanceType"))
    known, row = instance_type(name), EKS_CATALOG.get(name)
    return {
        "id": name,
        "instanceType": name,
        "region": region_of(arguments, config),
        "efaSupported": bool(known and known.efa_max),
        "efaMaximumInterfaces": known.efa_max if known else 0,
        "maximumNetworkCards": known.cards if known else 1,
        "defaultNetworkCardIndex": 0,
        "defaultVcpus": known.vcpus if known else 0,
        "memorySize": (row.memory_mib or 0) if row else 0,
        "supportedArchitectures": ["arm64" if known and known.arm else "x86_64"],
        "gpuses": [{"name": row.gpu, "count": row.gpus, "manufacturer": "NVIDIA", "memorySize": row.gpu_memory_mib}]
        if row
        else [],
        "totalGpuMemory": (row.gpu_memory_mib or 0) * row.gpus if row else 0,
    }


def cluster_versions(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return EKS's Kubernetes versions."""
    wanted = arguments.get("clusterVersionOnlies") or list(VERSIONS)
    rows = [
        {
            "clusterType": "eks",
            "clusterVersion": version,
            "defaultVersion": version == DEFAULT_VERSION,
            "defaultPlatformVersion": "eks.12",
            "kubernetesPatchVersion": f"{version}.2",
            "versionStatus": "STANDARD_SUPPORT" if version >= "1.33" else "EXTENDED_SUPPORT",
            "releaseDate": "",
            "endOfStandardSupportDate": "",
            "endOfExtendedSupportDate": "",
        }
        for version in VERSIONS
        if version in wanted and (not arguments.get("defaultOnly") or version == DEFAULT_VERSION)
    ]
    return {"id": "cluster-versions", "region": region_of(arguments, config), "clusterVersions": rows}


def addon_version(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return the version of an add-on for a Kubernetes version."""
    name, version = str(arguments.get("addonName")), str(arguments.get("kubernetesVersion"))
    cluster: Json = {"clusterName": "asked"}
    call = Call(verb="create", type="", id="", inputs=cluster, live={}, config=config, state=state)
    found = default_version(name, call).replace(DEFAULT_VERSION, version)
    return {
        "id": name,
        "addonName": name,
        "kubernetesVersion": version,
        "mostRecent": arguments.get("mostRecent"),
        "version": found,
        "region": region_of(arguments, config),
    }


def policy_document(arguments: Json, _config: Mapping[str, Any], _state: View) -> Json:
    """Return a policy as JSON, from statements."""
    statements = []
    for one in arguments.get("statements") or []:
        statement: Json = {"Effect": one.get("effect") or "Allow"}
        for key, name in (("sid", "Sid"), ("actions", "Action"), ("resources", "Resource")):
            if one.get(key):
                value = one[key]
                statement[name] = value[0] if isinstance(value, list) and len(value) == 1 else value
        principals: Json = {}
        for principal in one.get("principals") or []:
            named = principal["identifiers"]
            principals[str(principal["type"])] = named[0] if len(named) == 1 else named
        if principals:
            statement["Principal"] = principals
        for condition in one.get("conditions") or []:
            tested = statement.setdefault("Condition", {}).setdefault(condition["test"], {})
            tested[condition["variable"]] = condition["values"]
        statements.append(statement)
    text = json.dumps({"Version": arguments.get("version") or "2012-10-17", "Statement": statements})
    return {"id": digest(text, 10), "json": text, "minifiedJson": text, **arguments}


def cluster(arguments: Json, config: Mapping[str, Any], state: View) -> Json:
    """Return an existing cluster."""
    name = str(arguments.get("name"))
    live = state.get(CLUSTER, name) or {}
    shown = {key: value for key, value in live.items() if not key.startswith("__")}
    return {**shown, "id": name, "name": name, "region": region_of(arguments, config)}


def cluster_auth(arguments: Json, config: Mapping[str, Any], _state: View) -> Json:
    """Return an invalid token."""
    name = str(arguments.get("name"))
    home = region_of(arguments, config)
    return {"id": name, "name": name, "token": "rehearsal-token-that-opens-nothing", "region": home}


FUNCTIONS: Mapping[str, Function] = {
    "aws:index/getCallerIdentity:getCallerIdentity": caller,
    "aws:index/getAvailabilityZones:getAvailabilityZones": availability_zones,
    "aws:index/getAvailabilityZone:getAvailabilityZone": availability_zone,
    "aws:index/getPartition:getPartition": partition,
    "aws:index/getRegion:getRegion": region,
    "aws:ssm/getParameter:getParameter": parameter,
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": instance_type_offerings,
    "aws:ec2/getInstanceType:getInstanceType": get_instance_type,
    "aws:eks/getClusterVersions:getClusterVersions": cluster_versions,
    "aws:eks/getAddonVersion:getAddonVersion": addon_version,
    "aws:eks/getCluster:getCluster": cluster,
    "aws:eks/getClusterAuth:getClusterAuth": cluster_auth,
    "aws:iam/getPolicyDocument:getPolicyDocument": policy_document,
}


_KINDS = (*kinds_network.KINDS, *kinds_cluster.KINDS, *kinds_account.KINDS)

CLOUD = Cloud(
    package="aws",
    kinds={kind.type: kind for kind in _KINDS},
    functions=FUNCTIONS,
    # A provider of another region does not find the resources.
    replace_on=frozenset({"region"}),
    failures=FAILURES,
)
