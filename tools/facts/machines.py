"""Machine types for `facts.json`: EC2's from moto's recordings of its API, Google Cloud's from published tables."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

Json = dict[str, Any]
Zones = Mapping[str, Mapping[str, str]]

# Families that EKS clusters commonly use for pods without accelerators; every accelerated type is taken as well.
EC2_FAMILIES = re.compile(r"([mcr][5-8][agi]?|t3a?|t4g)\.(?!metal)")
RECORDED = files("moto.ec2").joinpath("resources")


def gcp_machines(typed: Json) -> dict[str, Json]:
    """Return Google Cloud's machine types; memory in GiB. `zones` has each region's letters."""
    machines: dict[str, Json] = dict(typed["rows"])
    for shape, (ratio, sizes) in typed["families"].items():
        for vcpus in map(int, sizes.split()):
            memory = round(ratio * vcpus, 1)
            whole = int(memory) if shape.startswith("c4") or memory == int(memory) else memory
            machines[f"{shape}-{vcpus}"] = {"vcpus": vcpus, "memoryGib": whole, "arch": "amd64"}
    return dict(sorted(machines.items()))


def aws_machines(zones: Zones) -> dict[str, Json]:
    """Return EC2's instance types; `cards` has the interfaces of each network card, `zones` each region's letters."""
    machines = {}
    for name, row in sorted(_recording(RECORDED.joinpath("instance_types.json.gz")).items()):
        accelerated = any(key in row for key in ("GpuInfo", "NeuronInfo", "InferenceAcceleratorInfo"))
        if not accelerated and not EC2_FAMILIES.match(name):
            continue
        network = row["NetworkInfo"]
        machines[name] = {
            "vcpus": row["VCpuInfo"]["DefaultVCpus"],
            "memoryMib": row["MemoryInfo"]["SizeInMiB"],
            "arch": row["ProcessorInfo"]["SupportedArchitectures"],
            "cards": [card["MaximumNetworkInterfaces"] for card in network["NetworkCards"]],
            "usage": row["SupportedUsageClasses"],
        }
        if network["EfaSupported"]:
            capable = [card["NetworkCardIndex"] for card in network["NetworkCards"] if "efa" in card["InterfaceTypes"]]
            machines[name] |= {"efa": network["EfaInfo"]["MaximumEfaInterfaces"], "efaCards": capable}
        if accelerated:
            machines[name] |= {"accelerated": True, "zones": zones.get(name, {})}
        if gpus := row.get("GpuInfo", {}).get("Gpus"):
            size = gpus[0]["MemoryInfo"]["SizeInMiB"]
            machines[name] |= {"gpu": gpus[0]["Name"], "gpus": gpus[0]["Count"], "gpuMemoryMib": size}
        if row.get("InstanceStorageSupported"):
            machines[name]["nvmeGb"] = row["InstanceStorageInfo"]["TotalSizeInGB"]
    return machines


def aws_zones() -> Zones:
    """Return the letters of the zones that offer a machine type, by type and region; "" has those that offer any."""
    zones: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in RECORDED.joinpath("instance_type_offerings", "availability-zone").iterdir():
        region = file.name.removesuffix(".json.gz")
        for offer in _recording(file):
            if offer["Location"][:-1] == region:  # not a local zone
                for name in (offer["InstanceType"], ""):
                    zones[name][region].add(offer["Location"][-1])
    return {
        name: {region: "".join(sorted(letters)) for region, letters in sorted(regions.items())}
        for name, regions in zones.items()
    }


def _recording(file: Any) -> Any:
    return json.loads(gzip.decompress(file.read_bytes()))
