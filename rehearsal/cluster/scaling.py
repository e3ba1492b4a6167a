"""Scale a stack's manifests to this machine, with a line for every change.

A stack requests whole nodes of 220 CPUs and 2,800 GiB. CPUs, memory and scratch space are reduced to this machine's
limits. GPUs and NICs stay, since the nodes report them as resources without a device. A folder that only the cloud's
storage driver can mount becomes a folder of this machine. Device claims are removed, since no node has their driver.
Named durations may be shortened. Names, images, commands, environment, ports, probes, selectors, tolerations, accounts
and security contexts stay.
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
    """Limits of a container on this machine.

    Attributes:
        cpus_asked: CPU request.
        cpus: CPU limit, a whole number, which Ray counts.
        memory_gib: Memory in GiB.
        scratch_gib: Ephemeral storage in GiB.
        shared: Folder of this machine that replaces the folder of a cloud's storage driver.
        seconds: Shortened durations in seconds, by their name in the manifest.
    """

    cpus_asked: float = 0.5
    cpus: int = 2
    memory_gib: int = 4
    scratch_gib: int = 1
    shared: Path | None = None
    seconds: Mapping[str, int] = field(default_factory=dict)


def scaled(body: Mapping[str, Any], scale: Scale) -> tuple[Json, list[str]]:
    """Return the scaled manifest, and a line per change: path, old value, new value."""
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
    """Return the mode that GCS FUSE gives a bucket's folder, for root: `dir-mode` of its options, or 755.

    None if the manifest mounts no bucket. Source: `--dir-mode` of gcsfuse (Cloud Storage FUSE docs, read 2026-11).
    """
    for _, spec in _pods(dict(body), ""):
        for volume in spec.get("volumes", []):
            driver = volume.get("csi") or {}
            if driver.get("driver") == "gcsfuse.csi.storage.gke.io":
                text = driver.get("volumeAttributes", {}).get("mountOptions", "")
                options = dict(option.partition("=")[::2] for option in text.split(","))
                return int(options.get("dir-mode", "755"), 8)
    return None


def _pods(value: Any, where: str) -> Iterator[tuple[str, Json]]:
    """Yield every pod spec with a description of its path."""
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
    # The kubelet would request a claimed device from its driver.
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
        yield f"{place}: {driver} -> the folder {scale.shared} of this machine"
        name = volume["name"]
        volume.clear()
        volume |= {"name": name, "hostPath": {"path": str(scale.shared), "type": "Directory"}}


def amount(text: str | float) -> float:
    """Return a Kubernetes quantity as a number: "500m" is 0.5, "2Gi" is 2**31. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|[KMGT]i|[kMGT]|)", str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity that is understood here, such as 500m, 2 or 16Gi")
    number, unit = float(match.group(1)), match.group(2)
    return number / 1000 if unit == "m" else number * _UNITS[unit]
