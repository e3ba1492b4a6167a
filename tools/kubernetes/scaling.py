"""Fits a stack's manifests to this machine: the one place where they are changed, and every change is told.

A stack asks for whole nodes of 220 CPUs and 2,800 GiB. Here CPUs, memory and scratch space are cut to what a pod of
this machine may have; GPUs and NICs stay, since the nodes report them as resources without a device. A folder
that only the cloud's storage driver can mount becomes a folder of this machine; claims of devices go, since no node has
their driver. Times may be cut, by name. Names, images, commands, environment, ports, probes, selectors, tolerations,
accounts and security contexts stay.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The most that a container may have here.

    cpus_asked: CPUs that it asks for; cpus: that it may use, and that Ray counts, a whole number. memory_gib,
    scratch_gib: GiB. shared: the folder of this machine that stands in for one that a cloud's driver would mount.
    seconds: settings in seconds by name, as spelt in the manifest, with their value here.
    """

    cpus_asked: float = 0.5
    cpus: int = 2
    memory_gib: int = 4
    scratch_gib: int = 1
    shared: Path | None = None
    seconds: Mapping[str, int] = field(default_factory=dict)


def scaled(body: Mapping[str, Any], scale: Scale) -> tuple[Json, list[str]]:
    """The manifest as this machine can run it, and one line for each change: where, what it was, what it is now."""
    made: Json = copy.deepcopy(dict(body))
    name = f"{made['kind']} {made['metadata']['name']}"
    changes: list[str] = []
    for where, spec in _pods(made, ""):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            place = f"{name}: {where}container {container['name']}"
            changes += _resources(container.get("resources", {}), scale, place)
            changes += _variables(container.get("env", []), scale, place)
        changes += _claims(spec, f"{name}: {where.removesuffix(', ') or 'pod'}")
        for volume in spec.get("volumes", []):
            changes += _volume(volume, scale, f"{name}: {where}volume {volume['name']}")
    spec = made.get("spec", {})
    changes += _seconds(spec, scale, name)
    for cluster in (spec, spec.get("rayClusterSpec", {})):
        autoscaler = cluster.get("autoscalerOptions")
        if autoscaler:
            place = f"{name}: the autoscaler"
            changes += _resources(autoscaler.get("resources", {}), scale, place)
            changes += _variables(autoscaler.get("env", []), scale, place)
            changes += _seconds(autoscaler, scale, place)
        for group in cluster.get("workerGroupSpecs", []):
            changes += _seconds(group, scale, f"{name}: group {group['groupName']}")
    return made, changes


def bucket_mode(body: Mapping[str, Any]) -> int | None:
    """The mode of a bucket's folder as GCS FUSE would mount it, for root: `dir-mode` of its options, or else 755.

    None where the manifest mounts no bucket. Source: `--dir-mode` of gcsfuse (Cloud Storage FUSE docs, read 2026-11).
    """
    for _, spec in _pods(dict(body), ""):
        for volume in spec.get("volumes", []):
            driver = volume.get("csi") or {}
            if driver.get("driver") == "gcsfuse.csi.storage.gke.io":
                options = driver.get("volumeAttributes", {}).get("mountOptions", "")
                told = dict(option.partition("=")[::2] for option in options.split(","))
                return int(told.get("dir-mode", "755"), 8)
    return None


def _pods(value: Any, where: str) -> Iterator[tuple[str, Json]]:
    """Every pod's spec, with words for where it stands."""
    if isinstance(value, list):
        for each in value:
            yield from _pods(each, where)
    elif isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield where, value
            return
        here = f"{value['groupName']}, " if "groupName" in value else where
        for key, each in value.items():
            yield from _pods(each, "head, " if key == "headGroupSpec" else here)


def _claims(spec: Json, place: str) -> Iterator[str]:
    """A kubelet asks the driver of a claimed device for it, and no node here has one."""
    for claim in spec.pop("resourceClaims", None) or ():
        yield f"{place}: resource claim {claim['name']} left out, since no driver is here"
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        container.get("resources", {}).pop("claims", None)


def _resources(resources: Json, scale: Scale, place: str) -> Iterator[str]:
    for kind in ("requests", "limits"):
        amounts = resources.get(kind, {})
        most = {
            "cpu": (scale.cpus_asked if kind == "requests" else scale.cpus, ""),
            "memory": (scale.memory_gib * 2**30, f"{scale.memory_gib}Gi"),
            "ephemeral-storage": (scale.scratch_gib * 2**30, f"{scale.scratch_gib}Gi"),
        }
        for name, (bound, text) in most.items():
            if name in amounts and amount(amounts[name]) > bound:
                now = text or (f"{bound:g}" if bound == int(bound) else f"{bound * 1000:.0f}m")
                yield f"{place}: {kind} {name} {amounts[name]} -> {now}"
                amounts[name] = now


def _variables(variables: list[Json], scale: Scale, place: str) -> Iterator[str]:
    for variable in variables:
        now = scale.seconds.get(variable["name"])
        if now is not None and variable.get("value") not in (None, str(now)):
            yield f"{place}: {variable['name']} {variable['value']} -> {now}"
            variable["value"] = str(now)


def _seconds(owner: Json, scale: Scale, place: str) -> Iterator[str]:
    for name, now in scale.seconds.items():
        if isinstance(owner.get(name), int) and owner[name] != now:
            yield f"{place}: {name} {owner[name]} -> {now}"
            owner[name] = now


def _volume(volume: Json, scale: Scale, place: str) -> Iterator[str]:
    driver = (volume.get("csi") or {}).get("driver") or volume.get("persistentVolumeClaim", {}).get("claimName")
    if driver is not None and scale.shared is not None:
        yield f"{place}: {driver} -> the folder {scale.shared} of this machine, a stand-in"
        name = volume["name"]
        volume.clear()
        volume |= {"name": name, "hostPath": {"path": str(scale.shared), "type": "Directory"}}


def amount(text: str | float) -> float:
    """A Kubernetes quantity as a number: "500m" is 0.5, "2Gi" is 2**31. Raises ValueError for what is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|[KMGT]i|[kMGT]|)", str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity that is understood here, such as 500m, 2 or 16Gi")
    number, unit = float(match.group(1)), match.group(2)
    return number / 1000 if unit == "m" else number * _UNITS[unit]
