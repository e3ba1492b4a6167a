"""Timeline from a job's submission to its first step, from records of Kubernetes, Ray and the job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.kubernetes.api import Json
from workloads.train.timeline import seconds

POD_STEPS = ("pod made", "pod scheduled", "image there", "container started", "Ray node up")
"""Steps of a worker's pod, in this order; it becomes ready in parallel to the later ones."""


@dataclass(frozen=True)
class Step:
    """Step, its time in seconds since the epoch (Kubernetes rounds most to seconds), and its source.

    With several pods, the slowest one counts.
    """

    name: str
    at: float
    source: str


def of_pod(pod: Json, events: Iterable[Json], nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the recorded steps of a worker's pod by name.

    Args:
        pod: the API object.
        events: of its namespace, in any order.
        nodes: Ray's state API, in detail: `start_time_ms` is the time at which the head registered the node.
    """
    name = pod["metadata"]["name"]
    main = pod["spec"]["containers"][0]["name"]
    status = pod["status"]
    recorded: dict[str, str | None] = {"pod made": pod["metadata"]["creationTimestamp"]}
    for step, kind in (("pod scheduled", "PodScheduled"), ("pod ready", "Ready")):
        true = (each for each in status["conditions"] if each["type"] == kind and each["status"] == "True")
        recorded[step] = next((each["lastTransitionTime"] for each in true), None)
    path = f"spec.containers{{{main}}}"
    pulled = (
        each.get("eventTime") or each["firstTimestamp"]
        for each in events
        if each["involvedObject"]["name"] == name
        and each["involvedObject"].get("fieldPath") == path
        and each["reason"] == "Pulled"
    )
    recorded["image there"] = min(pulled, default=None)
    started = (each for each in status["containerStatuses"] if each["name"] == main)
    recorded["container started"] = next((each["state"].get("running", {}).get("startedAt") for each in started), None)
    found = {step: seconds(when) for step, when in recorded.items() if when}
    here = (each for each in nodes if each["node_ip"] == status["podIP"] and each["state"] == "ALIVE")
    for node in here:
        found["Ray node up"] = node["start_time_ms"] / 1000
    return found


def marks(log: str) -> dict[str, float]:
    """Return the times that a job printed as `MARK STEP SECONDS`, by step."""
    lines = (line.removeprefix("MARK ").rsplit(" ", 1) for line in log.splitlines() if line.startswith("MARK "))
    return {what: float(at) for what, at in lines}


def to_first_step(submitted: float, log: str, pods: Sequence[Mapping[str, float]]) -> list[Step]:
    """Return the steps of a gang from its submission to its first step; `pods` are the worker pods' steps.

    Raises AssertionError if a step is missing or precedes its predecessor. Kubernetes rounds its times to seconds, so
    they are compared in seconds.
    """
    recorded = marks(log)
    steps = [Step("job submitted", submitted, "the user's clock")]
    steps += [
        Step(name, recorded[name], "the job") for name in ("driver started", "group asked for") if name in recorded
    ]
    for name in POD_STEPS:
        at = [pod[name] for pod in pods if name in pod]
        assert len(at) == len(pods), f"{name}: recorded for {len(at)} of {len(pods)} pods"
        steps.append(Step(name, max(at), "Ray's state API" if name == POD_STEPS[-1] else "Kubernetes"))
    late = ("group there", "first step on every node")
    steps += [Step(name, recorded[name], "the job") for name in late if name in recorded]
    assert len(steps) == 1 + len(POD_STEPS) + 4, f"the job recorded only {sorted(recorded)}"
    for pod in pods:
        order = [pod[name] for name in POD_STEPS]
        assert [int(at) for at in order] == sorted(int(at) for at in order), pod
        # It requests resources of missing nodes: their creation follows.
        assert int(recorded["group asked for"]) <= int(order[0]), (recorded, pod)
        assert int(order[-1]) <= int(recorded["group there"]), (recorded, pod)
    whole = [int(step.at) for step in steps]
    assert whole == sorted(whole), steps
    return steps


def table(steps: Sequence[Step]) -> str:
    """Return the steps as lines: seconds from the first, seconds from the last, step, source."""
    before = [steps[0].at, *(step.at for step in steps)]
    lines = ["   since the first   since the last  step"]
    for step, last in zip(steps, before, strict=False):
        lines.append(f"{step.at - steps[0].at:14.1f} s {max(step.at - last, 0):14.1f} s  {step.name} ({step.source})")
    return "\n".join(lines)


def write(steps: Sequence[Step], file: Path) -> None:
    """Write the steps as JSON."""
    file.write_text(json.dumps([asdict(step) for step in steps], indent=2) + "\n")
