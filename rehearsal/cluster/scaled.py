"""Scaled manifests of depth `pods`, for an API server with real nodes on this machine.

The engine and its state hold the program's inputs. The API server receives the inputs scaled by
`rehearsal.cluster.scaling`, with the benchmark of a RayJob's entry point reduced for CPUs. Comparisons use scaled
values, so a scaled object shows no difference; reads return the program's value where only the scaling differs.
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
from rehearsal.cluster.scaling import Scale, scaled

CHANGES = "scaled"
"""Setting of the cloud state that lists the changes, one line each."""
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
"""Arguments of a benchmark where GPUs are only counts: gloo, one rank on each node, sizes in bytes."""
_BENCHMARK = re.compile(r"(python -m workloads\.nccl\.driver) '(\{.*\})'\s*", re.DOTALL)


def to_setting(scale: Scale) -> Json:
    """Return a scale as a setting of the cloud state, for the provider's process."""
    return asdict(scale) | {"shared": None if scale.shared is None else str(scale.shared)}


def from_setting(setting: Json | None) -> Scale | None:
    """Return the scale of a setting; None if nothing is scaled."""
    if setting is None:
        return None
    shared = setting.get("shared")
    return Scale(**{**setting, "shared": None if shared is None else Path(shared)})


class ScaledManifests:
    """Scales the manifests that the provider sends and compares. Without a `scale` nothing changes."""

    def __init__(self, state: State, scale: Scale | None) -> None:
        self._state = state
        self.scale = scale

    def body(self, manifest: Json) -> Json:
        """Return the object to send, and record each change once."""
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
        """Return the scaled inputs, for comparison with the live object."""
        if self.scale is None or not inputs:
            return inputs
        sent, _ = scaled_manifest(objects.manifest(type_, inputs, None), self.scale)
        return {key: value if key == "metadata" else sent[key] for key, value in inputs.items()}

    def shown(self, type_: str, live: Json, asked: Json) -> Json:
        """Return the live object reduced to the inputs' fields, unscaled where only the scaling differs."""
        sent = self.inputs(type_, asked)
        seen: Json = as_written(objects.shown(type_, live, sent), sent, asked)
        return seen


def scaled_manifest(body: Json, scale: Scale) -> tuple[Json, list[str]]:
    """Return the scaled manifest, and a line for each change."""
    made, changes = scaled(body, scale)
    if made["kind"] == "RayJob":
        changes += _small_benchmark(made)
    return made, changes


def as_written(seen: Any, sent: Any, asked: Any) -> Any:
    """Return `seen`, with values of `asked` wherever the value of `sent` is unchanged."""
    if seen == sent:
        return deepcopy(asked)
    if isinstance(seen, dict) and isinstance(sent, dict) and isinstance(asked, dict):
        return {key: as_written(value, sent.get(key), asked.get(key, value)) for key, value in seen.items()}
    if isinstance(seen, list) and isinstance(sent, list) and isinstance(asked, list) and len(seen) == len(asked):
        return [as_written(*each) for each in zip(seen, sent, asked, strict=False)]
    return seen


def _small_benchmark(job: Json) -> Iterator[str]:
    """Reduce the benchmark in a RayJob's entry point to run without GPUs."""
    found = _BENCHMARK.fullmatch(str(job["spec"].get("entrypoint") or ""))
    if found is None:
        return
    spec = json.loads(found[2])
    for key, now in SMALL.items():
        if spec.get(key) != now:
            yield f"RayJob {job['metadata']['name']}: the benchmark's {key} {spec.get(key)} -> {now}"
            spec[key] = now
    job["spec"]["entrypoint"] = f"{found[1]} '{json.dumps(spec)}'"
