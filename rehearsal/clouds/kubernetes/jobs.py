"""Rules of Jobs: completion by index, pod failure and success policies, and immutable fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import api, name

BATCH = "kubernetes/kubernetes: pkg/apis/batch/validation/validation.go and its tests, read 2026-11"
FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "successPolicy")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def indexes_uncounted(call: Call) -> Refusal | None:
    """An Indexed Job sets its number of completions."""
    spec = _spec(call)
    if spec.get("completionMode") != "Indexed" or spec.get("completions") is not None:
        return None
    return invalid(call, "spec.completions: Required value: when completion mode is Indexed", BATCH)


def indexes_wanted(call: Call) -> Refusal | None:
    """Fields about indexes need an Indexed Job."""
    spec = _spec(call)
    if not spec or spec.get("completionMode") == "Indexed":
        return None
    for key in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.get(key) is not None:
            words = f'spec.{key}: Invalid value: "{spec[key]}": requires indexed completion mode'
            return invalid(call, words, BATCH)
    return None


def host_name_unfit(call: Call) -> Refusal | None:
    """The pods' host names are the Job's name and the index: a DNS label, so 63 characters at most."""
    spec = _spec(call)
    if spec.get("completionMode") != "Indexed" or not isinstance(spec.get("completions"), int):
        return None
    last = f"{name(call.inputs)}-{max(spec['completions'] - 1, 0)}"
    if _LABEL.fullmatch(last):
        return None
    words = f'metadata.name: Invalid value: "{name(call.inputs)}": will not able to create pod with invalid DNS label'
    return invalid(call, f"{words}: {last}", BATCH)


def failure_policy_unfit(call: Call) -> Refusal | None:
    """A pod failure policy needs pods that do not restart in place, and replaces them only after they have ended."""
    spec = _spec(call)
    if spec.get("podFailurePolicy") is None:
        return None
    restarts = value_at(spec, "template.spec.restartPolicy")
    if restarts == "OnFailure":
        words = (
            'spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when '
            "podFailurePolicy is specified"
        )
        return invalid(call, words, BATCH)
    if spec.get("podReplacementPolicy") not in (None, "Failed"):
        words = f'spec.podReplacementPolicy: Unsupported value: "{spec["podReplacementPolicy"]}": supported values:'
        return invalid(call, f'{words} "Failed"', BATCH)
    return None


def failure_rule_unfit(call: Call) -> Refusal | None:
    """A rule names an existing container, and 0 is no failure."""
    spec = _spec(call)
    containers = {container.get("name") for container in value_at(spec, "template.spec.containers") or ()}
    for path, codes in _exit_codes(spec):
        of = codes.get("containerName")
        if of is not None and of not in containers:
            words = f'{path}.containerName: Invalid value: "{of}": must be one of the container or initContainer names'
            return invalid(call, f"{words} in the pod template", BATCH)
        if codes.get("operator") == "In" and 0 in (codes.get("values") or ()):
            where = f"{path}.values[{codes['values'].index(0)}]"
            return invalid(call, f"{where}: Invalid value: 0: must not be 0 for the In operator", BATCH)
    return None


def job_changed(call: Call) -> Refusal | None:
    """Fields that decide how a Job ends are immutable; the provider replaces the Job for its template and size
    alone."""
    if call.verb != "update" or not _spec(call):
        return None
    for key in FIXED:
        before = value_at(call.live, f"spec.{key}")
        if _spec(call).get(key) != before:
            value: Any = _spec(call).get(key)
            return invalid(call, f'spec.{key}: Invalid value: "{value}": field is immutable', BATCH)
    return None


def _spec(call: Call) -> Json:
    """Return the spec of a requested Job; empty for anything else."""
    kind = api(call.type)
    if call.verb == "delete" or (kind.group, kind.kind) != ("batch", "Job"):
        return {}
    spec: Json = call.inputs.get("spec") or {}
    return spec


def _exit_codes(spec: Json) -> Iterator[tuple[str, Json]]:
    for index, rule in enumerate(value_at(spec, "podFailurePolicy.rules") or ()):
        if rule.get("onExitCodes") is not None:
            yield f"spec.podFailurePolicy.rules[{index}].onExitCodes", rule["onExitCodes"]


RULES = (
    indexes_uncounted,
    indexes_wanted,
    host_name_unfit,
    failure_policy_unfit,
    failure_rule_unfit,
    job_changed,
)
