"""From a job's submission to its first step, as everybody involved recorded it: Kubernetes, Ray and the job itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.kubernetes.api import Json
from workloads.train.timeline import seconds

POD_STEPS = ("pod made", "pod scheduled", "image there", "container started", "Ray node up")
"""What a worker's pod goes through, in this order; it becomes ready beside the steps that follow."""


@dataclass(frozen=True)
class Step:
    """What was reached when (seconds since 1970; Kubernetes tells most of them to the second), and who tells it.

    Of several pods the slowest decides.
    """

    name: str
    at: float
    source: str


def of_pod(pod: Json, events: Iterable[Json], nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The steps of a worker's pod by name, as far as they were recorded.

    Args:
        pod: as the API server has it.
        events: of its namespace, in any order.
        nodes: as Ray's state API lists them, in detail: their `start_time_ms` is when the head took them in.
    """
    name = pod["metadata"]["name"]
    main = pod["spec"]["containers"][0]["name"]
    status = pod["status"]
    told: dict[str, str | None] = {"pod made": pod["metadata"]["creationTimestamp"]}
    for step, kind in (("pod scheduled", "PodScheduled"), ("pod ready", "Ready")):
        true = (each for each in status["conditions"] if each["type"] == kind and each["status"] == "True")
        told[step] = next((each["lastTransitionTime"] for each in true), None)
    path = f"spec.containers{{{main}}}"
    pulled = (
        each.get("eventTime") or each["firstTimestamp"]
        for each in events
        if each["involvedObject"]["name"] == name
        and each["involvedObject"].get("fieldPath") == path
        and each["reason"] == "Pulled"
    )
    told["image there"] = min(pulled, default=None)
    started = (each for each in status["containerStatuses"] if each["name"] == main)
    told["container started"] = next((each["state"].get("running", {}).get("startedAt") for each in started), None)
    found = {step: seconds(when) for step, when in told.items() if when}
    here = (each for each in nodes if each["node_ip"] == status["podIP"] and each["state"] == "ALIVE")
    for node in here:
        found["Ray node up"] = node["start_time_ms"] / 1000
    return found


def marks(log: str) -> dict[str, float]:
    """What a job printed as `MARK what it reached SECONDS`, by what it reached."""
    lines = (line.removeprefix("MARK ").rsplit(" ", 1) for line in log.splitlines() if line.startswith("MARK "))
    return {what: float(at) for what, at in lines}


def to_first_step(submitted: float, log: str, pods: Sequence[Mapping[str, float]]) -> list[Step]:
    """The way of a gang from its submission to its first step; `pods` are the worker pods' steps.

    Raises AssertionError where a step is missing, or is earlier than the one before it. Kubernetes cuts its times to
    the second, so they are compared to the second.
    """
    told = marks(log)
    steps = [Step("job submitted", submitted, "the user's clock")]
    steps += [Step(name, told[name], "the job") for name in ("driver started", "group asked for") if name in told]
    for name in POD_STEPS:
        at = [pod[name] for pod in pods if name in pod]
        assert len(at) == len(pods), f"{name}: told for {len(at)} of {len(pods)} pods"
        steps.append(Step(name, max(at), "Ray's state API" if name == POD_STEPS[-1] else "Kubernetes"))
    late = ("group there", "first step on every node")
    steps += [Step(name, told[name], "the job") for name in late if name in told]
    assert len(steps) == 1 + len(POD_STEPS) + 4, f"the job told {sorted(told)} only"
    for pod in pods:
        order = [pod[name] for name in POD_STEPS]
        assert [int(at) for at in order] == sorted(int(at) for at in order), pod
        # It asks for the resources of nodes that are not there: what makes them there comes after.
        assert int(told["group asked for"]) <= int(order[0]), (told, pod)
        assert int(order[-1]) <= int(told["group there"]), (told, pod)
    whole = [int(step.at) for step in steps]
    assert whole == sorted(whole), steps
    return steps


def table(steps: Sequence[Step]) -> str:
    """The steps as lines: seconds from the first, seconds from the one before, what, who tells it."""
    before = [steps[0].at, *(step.at for step in steps)]
    lines = ["   since the first   since the last  step"]
    for step, last in zip(steps, before, strict=False):
        lines.append(f"{step.at - steps[0].at:14.1f} s {max(step.at - last, 0):14.1f} s  {step.name} ({step.source})")
    return "\n".join(lines)


def write(steps: Sequence[Step], file: Path) -> None:
    """Keep the steps as JSON."""
    file.write_text(json.dumps([asdict(step) for step in steps], indent=2) + "\n")
