"""Scale a stack's manifests to this machine, with a line for every change: depth `pods`.

A stack requests whole nodes of 220 CPUs and 2,800 GiB. CPUs, memory and scratch space are reduced to this machine's
limits. GPUs and NICs stay, since the nodes report them as resources without a device. A folder that only the cloud's
storage driver can mount becomes a folder of this machine. Device claims are removed, since no node has their driver.
Named durations may be shortened, and a job's entry point is informed that its nodes have no GPUs. Names, images,
commands, environment, ports, probes, selectors, tolerations, accounts and security contexts stay.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.kubernetes.namespace import ENFORCE
from infra.outputs import JOB_STACK
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.cluster import objects
from rehearsal.engine.kind import Json
from rehearsal.engine.state import State

CHANGES = "scaled"
"""Setting of the cloud state that lists the changes, one line each."""
STAYED = (
    "names, images, commands, environment, ports, probes, selectors, tolerations, accounts, and GPUs and NICs by count"
)
REAL: Mapping[str, Any] = {"machine": None, "nodes": {"gpusPerNode": 0, "cpusPerNode": 1}}
"""Values of JOB_STACK where GPUs are only counts: a benchmark uses gloo, with one rank on each node."""
CPUS = 2
"""Limit of a container, a whole number, which Ray counts; half a CPU is requested."""
_LIMITS = {"cpu": str(CPUS), "memory": "4Gi", "ephemeral-storage": "1Gi"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Replacements for values of the program, besides the `_LIMITS` of a container.

    Attributes:
        shared: Folder of this machine that replaces the folder of a cloud's storage driver.
        seconds: Shortened durations in seconds, by their name in the manifest.
    """

    shared: Path | None = None
    seconds: Mapping[str, int] = field(default_factory=dict)

    @property
    def setting(self) -> Json:
        """The scale as a setting of the cloud state, for the provider's process."""
        return {"shared": self.shared and str(self.shared), "seconds": self.seconds}

    @classmethod
    def of(cls, setting: Json) -> Scale:
        """Return the scale of a setting."""
        return cls(shared=setting["shared"] and Path(setting["shared"]), seconds=setting["seconds"])


def scaled(body: Mapping[str, Any], scale: Scale) -> tuple[Json, list[str]]:
    """Return the scaled manifest, and a line per change: path, old value, new value."""
    made: Json = copy.deepcopy(dict(body))
    name = f"{made['kind']} {made['metadata']['name']}"
    changes: list[str] = []
    for where, spec in pods(made, ""):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            place = f"{name}: {where}container {container['name']}"
            changes += _resources(container.get("resources", {}), place)
            changes += _variables(container.get("env", []), scale, place)
        changes += _claims(spec, f"{name}: {where.removesuffix(', ') or 'pod'}")
        for volume in spec.get("volumes", []):
            changes += _volume(volume, scale, f"{name}: {where}volume {volume['name']}")
    spec = made.get("spec", {})
    if made["kind"] == "PersistentVolume":
        changes += _volume(spec, scale, name)
    changes += _admission(spec, scale, name)
    changes += _level(made["metadata"], scale, name)
    changes += _seconds(spec, scale, name)
    for cluster in (spec, spec.get("rayClusterSpec", {}), spec.get("rayClusterConfig", {})):
        autoscaler = cluster.get("autoscalerOptions")
        if autoscaler:
            place = f"{name}: the autoscaler"
            changes += _resources(autoscaler.get("resources", {}), place)
            changes += _variables(autoscaler.get("env", []), scale, place)
            changes += _seconds(autoscaler, scale, place)
        for group in cluster.get("workerGroupSpecs", []):
            changes += _seconds(group, scale, f"{name}: group {group['groupName']}")
    return made, changes


class ScaledManifests:
    """Scales the manifests that the provider sends and compares. Without a `scale` nothing changes."""

    def __init__(self, state: State, scale: Scale | None) -> None:
        self._state = state
        self.scale = scale

    def body(self, manifest: Json) -> Json:
        """Return the object to send, and record each change once."""
        if self.scale is None:
            return manifest
        made, changes = scaled(manifest, self.scale)
        if changes:
            with self._state.transaction() as view:
                known = view.setting(CHANGES, [])
                if new := [change for change in changes if change not in known]:
                    view.set(CHANGES, [*known, *new])
        return made

    def inputs(self, type_: str, inputs: Json) -> Json:
        """Return the scaled inputs, for comparison with the live object."""
        if self.scale is None or not inputs:
            return inputs
        sent, _ = scaled(objects.manifest(type_, inputs, None), self.scale)
        # Without what a manifest's metadata has besides.
        metadata = copy.deepcopy(inputs.get("metadata") or {})
        list(_level(metadata, self.scale, type_))
        return {key: metadata if key == "metadata" else sent[key] for key in inputs}

    def shown(self, type_: str, live: Json, asked: Json) -> Json:
        """Return the live object reduced to the inputs' fields, unscaled where only the scaling differs."""
        sent = self.inputs(type_, asked)
        seen: Json = as_written(objects.shown(type_, live, sent), sent, asked)
        return seen


def as_written(seen: Any, sent: Any, asked: Any) -> Any:
    """Return `seen`, with values of `asked` wherever the value of `sent` is unchanged."""
    if seen == sent:
        return copy.deepcopy(asked)
    if isinstance(seen, dict) and isinstance(sent, dict) and isinstance(asked, dict):
        return {key: as_written(value, sent.get(key), asked.get(key, value)) for key, value in seen.items()}
    if isinstance(seen, list) and isinstance(sent, list) and isinstance(asked, list) and len(seen) == len(asked):
        return [as_written(*each) for each in zip(seen, sent, asked, strict=False)]
    return seen


def pods(value: Any, where: str) -> Iterator[tuple[str, Json]]:
    """Yield every pod spec with a description of its path."""
    if isinstance(value, list):
        for each in value:
            yield from pods(each, where)
    elif isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield where, value
            return
        here = f"{value['groupName']}, " if "groupName" in value else where
        for key, each in value.items():
            yield from pods(each, "head, " if key == "headGroupSpec" else here)


def _claims(spec: Json, place: str) -> Iterator[str]:
    # The kubelet would request a claimed device from its driver.
    for claim in spec.pop("resourceClaims", None) or ():
        yield f"{place}: resource claim {claim['name']} left out, since there is no driver here"
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        container.get("resources", {}).pop("claims", None)


def _resources(resources: Json, place: str) -> Iterator[str]:
    for kind in ("requests", "limits"):
        amounts = resources.get(kind, {})
        for name, most in _LIMITS.items():
            now = "500m" if (kind, name) == ("requests", "cpu") else most
            if name in amounts and amount(amounts[name]) > amount(now):
                yield f"{place}: {kind} {name} {amounts[name]} -> {now}"
                amounts[name] = now


def _variables(variables: list[Json], scale: Scale, place: str) -> Iterator[str]:
    for variable in variables:
        now = scale.seconds.get(variable["name"])
        if now is not None and variable.get("value") not in (None, str(now)):
            yield f"{place}: {variable['name']} {variable['value']} -> {now}"
            variable["value"] = str(now)
        if variable["name"] == JOB_STACK:
            described = json.loads(variable["value"])
            real = described | REAL | {"nodes": described["nodes"] | REAL["nodes"]}
            if real != described:
                yield f"{place}: {JOB_STACK} has no machine type, no GPU and 1 CPU per node"
                variable["value"] = json.dumps(real, separators=(",", ":"))


def _seconds(owner: Json, scale: Scale, place: str) -> Iterator[str]:
    for name, now in scale.seconds.items():
        if isinstance(owner.get(name), int) and owner[name] != now:
            yield f"{place}: {name} {owner[name]} -> {now}"
            owner[name] = now


def _volume(volume: Json, scale: Scale, place: str) -> Iterator[str]:
    """Replace the driver in a pod's volume or in the spec of a PersistentVolume."""
    driver = volume.pop("csi", None) if scale.shared is not None else None
    if driver is not None:
        yield f"{place}: {driver['driver']} -> the folder {scale.shared} of this machine"
        # Options of the driver's mount.
        volume.pop("mountOptions", None)
        volume["hostPath"] = {"path": str(scale.shared), "type": "Directory"}


def _admission(spec: Json, scale: Scale, place: str) -> Iterator[str]:
    """Admit that folder: a policy for pods admits none that they write to."""
    if scale.shared is not None and "validationActions" in spec:
        yield f"{place}: {spec['validationActions']} -> ['Audit'], for the folder {scale.shared} of this machine"
        spec["validationActions"] = ["Audit"]


def _level(metadata: Json, scale: Scale, place: str) -> Iterator[str]:
    """Admit that folder in a namespace: the level `baseline` admits none."""
    labels = metadata.get("labels") or {}
    if scale.shared is not None and labels.get(ENFORCE) == "baseline":
        yield f"{place}: {ENFORCE} baseline -> privileged, for the folder {scale.shared} of this machine"
        labels[ENFORCE] = "privileged"
