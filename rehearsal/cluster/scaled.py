"""Depth `pods`: what is sent to an API server with real nodes is the program's manifest, scaled to this machine.

The engine and its state have the inputs that the program wrote; the API server has what `tools.kubernetes.scaling` made
of them, and a benchmark as the entry point of a RayJob is made small enough for CPUs. What is compared is compared as
scaled, so that a scaled object is no difference; what is read is told as the program wrote it where only the scaling
differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rehearsal.clouds.kind import Json
from rehearsal.clouds.state import State
from rehearsal.cluster import objects
from tools.kubernetes.scaling import Scale, scaled

CHANGES = "scaled"
"""The setting of the world that lists what was changed, a line each."""
STAYED = (
    "names, images, commands, environment, ports, probes, selectors, tolerations, accounts, and GPUs and NICs by count"
)
SMALL: Mapping[str, Any] = {
    "use_gpu": False,
    "per_node": 1,
    "sizes": [2**16, 2**20],
    "iterations": 5,
    "warmup": 1,
}
"""What a benchmark is told instead, where GPUs are only numbers: gloo, one rank on each node, sizes in bytes."""
_BENCHMARK = re.compile(r"(python -m workloads\.nccl\.driver) '(\{.*\})'\s*", re.DOTALL)


def to_setting(scale: Scale) -> Json:
    """A scale for the world to keep, where the provider's process finds it."""
    return asdict(scale) | {"shared": None if scale.shared is None else str(scale.shared)}


def from_setting(setting: Json | None) -> Scale | None:
    """The scale of a world; None where nothing is scaled."""
    if setting is None:
        return None
    shared = setting.get("shared")
    return Scale(**{**setting, "shared": None if shared is None else Path(shared)})


class ScaledManifests:
    """What the provider sends and compares; without a `scale` all of it is as the program wrote it."""

    def __init__(self, state: State, scale: Scale | None) -> None:
        self._state = state
        self.scale = scale

    def body(self, manifest: Json) -> Json:
        """The object to send; what was changed of it is noted in the world, once."""
        if self.scale is None:
            return manifest
        made, changes = scaled_manifest(manifest, self.scale)
        if changes:
            with self._state.transaction() as view:
                known = view.setting(CHANGES, [])
                if new := [change for change in changes if change not in known]:
                    view.set(CHANGES, [*known, *new])
        return made

    def inputs(self, type_: str, inputs: Json) -> Json:
        """Inputs as they are sent, to compare with what is there."""
        if self.scale is None or not inputs:
            return inputs
        sent, _ = scaled_manifest(objects.manifest(type_, inputs, None), self.scale)
        return {key: value if key == "metadata" else sent[key] for key, value in inputs.items()}

    def shown(self, type_: str, live: Json, asked: Json) -> Json:
        """The live object in the shape of what was asked for, as the program would have written it."""
        sent = self.inputs(type_, asked)
        seen: Json = as_written(objects.shown(type_, live, sent), sent, asked)
        return seen


def scaled_manifest(body: Json, scale: Scale) -> tuple[Json, list[str]]:
    """The manifest as it is sent, and a line for each change."""
    made, changes = scaled(body, scale)
    if made["kind"] == "RayJob":
        changes += _small_benchmark(made)
    return made, changes


def as_written(seen: Any, sent: Any, asked: Any) -> Any:
    """What is `seen` of an object, with what was `asked` for wherever what was `sent` of it is what is there."""
    if seen == sent:
        return deepcopy(asked)
    if isinstance(seen, dict) and isinstance(sent, dict) and isinstance(asked, dict):
        return {key: as_written(value, sent.get(key), asked.get(key, value)) for key, value in seen.items()}
    if isinstance(seen, list) and isinstance(sent, list) and isinstance(asked, list) and len(seen) == len(asked):
        return [as_written(*each) for each in zip(seen, sent, asked, strict=False)]
    return seen


def _small_benchmark(job: Json) -> Iterator[str]:
    """Let a RayJob whose entry point is the benchmark run it without GPUs."""
    found = _BENCHMARK.fullmatch(str(job["spec"].get("entrypoint") or ""))
    if found is None:
        return
    spec = json.loads(found[2])
    for key, now in SMALL.items():
        if spec.get(key) != now:
            yield f"RayJob {job['metadata']['name']}: the benchmark's {key} {spec.get(key)} -> {now}"
            spec[key] = now
    job["spec"]["entrypoint"] = f"{found[1]} '{json.dumps(spec)}'"
