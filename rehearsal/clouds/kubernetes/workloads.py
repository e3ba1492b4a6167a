"""Rules of pods, in any object. For a custom kind, they apply when its operator creates the pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Refusal, value_at
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import api
from rehearsal.clouds.kubernetes.pods import Template, templates
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.clouds.values import UNKNOWN

PODS = "Kubernetes: pkg/apis/core/validation; wording unverified, 2026-11"
QUANTITIES = "Kubernetes: apimachinery/pkg/api/resource; wording unverified, 2026-11"
APPS = "Kubernetes: pkg/apis/apps/validation; wording unverified, 2026-11"
BATCH = "Kubernetes: pkg/apis/batch/validation; wording unverified, 2026-11"

_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?")


def quantity_malformed(call: Call) -> Refusal | None:
    """Quantities have Kubernetes' format: 8, 500m, 16Gi; not 16GB."""
    if call.verb == "delete":
        return None
    for path, value in _quantities(call.inputs.get("spec"), "spec"):
        if value != UNKNOWN and not _QUANTITY.fullmatch(str(value)):
            words = (
                f'{path}: Invalid value: "{value}": quantities must match the regular expression '
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' and have a known suffix"
            )
            return invalid(call, words, QUANTITIES)
    return None


def template_not_selected(call: Call) -> Refusal | None:
    """The selector of a DaemonSet, Deployment or StatefulSet matches its pods."""
    kind = api(call.type)
    if call.verb == "delete" or kind.group != "apps" or kind.kind not in ("DaemonSet", "Deployment", "StatefulSet"):
        return None
    labels = value_at(call.inputs, "spec.template.metadata.labels") or {}
    wanted = value_at(call.inputs, "spec.selector.matchLabels") or {}
    if wanted and all(labels.get(key) == value for key, value in wanted.items()):
        return None
    words = "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`"
    return invalid(call, words, APPS)


def no_containers(call: Call) -> Refusal | None:
    """A pod has at least one container, and every container an image."""
    for template in _asked(call):
        if not template.spec.get("containers"):
            return invalid(call, f"{template.at('containers')}: Required value", PODS)
        for path, container in template.containers():
            if not container.get("image"):
                return invalid(call, f"{path}.image: Required value", PODS)
    return None


def container_twice(call: Call) -> Refusal | None:
    """Containers, and volumes, of a pod have unique names."""
    for template in _asked(call):
        seen: set[Any] = set()
        for path, container in template.containers():
            if container.get("name") in seen:
                return invalid(call, f'{path}.name: Duplicate value: "{container.get("name")}"', PODS)
            seen.add(container.get("name"))
        volumes: set[Any] = set()
        for index, volume in enumerate(template.spec.get("volumes") or ()):
            if volume.get("name") in volumes:
                words = f'{template.at(f"volumes[{index}].name")}: Duplicate value: "{volume.get("name")}"'
                return invalid(call, words, PODS)
            volumes.add(volume.get("name"))
    return None


def mount_of_no_volume(call: Call) -> Refusal | None:
    """A container mounts volumes of its pod, each at its own path."""
    for template in _asked(call):
        volumes = {volume.get("name") for volume in template.spec.get("volumes") or ()}
        for path, container in template.containers():
            places: set[Any] = set()
            for index, mount in enumerate(container.get("volumeMounts") or ()):
                where = f"{path}.volumeMounts[{index}]"
                if mount.get("name") not in volumes:
                    return invalid(call, f'{where}.name: Not found: "{mount.get("name")}"', PODS)
                if mount.get("mountPath") in places:
                    words = f'{where}.mountPath: Invalid value: "{mount.get("mountPath")}": must be unique'
                    return invalid(call, words, PODS)
                places.add(mount.get("mountPath"))
    return None


def claim_of_no_source(call: Call) -> Refusal | None:
    """A container's claim is one of its pod's resourceClaims."""
    for template in _asked(call):
        names = {claim.get("name") for claim in template.spec.get("resourceClaims") or ()}
        for path, container in template.containers():
            for index, claim in enumerate(value_at(container, "resources.claims") or ()):
                if claim.get("name") not in names:
                    where = f"{path}.resources.claims[{index}].name"
                    words = f'{where}: Not found: "{claim.get("name")}": must be one of the names in pod.spec.'
                    return invalid(call, f"{words}resourceClaims", PODS)
    return None


def request_above_limit(call: Call) -> Refusal | None:
    """A request does not exceed its limit."""
    for path, resource, requested, limit in _both_amounts(call):
        if amount(requested) > amount(limit):
            words = f'{path}: Invalid value: "{requested}": must be less than or equal to {resource} limit of {limit}'
            return invalid(call, words, PODS)
    return None


def extended_resource_divided(call: Call) -> Refusal | None:
    """GPUs and other devices cannot be overcommitted: requests, if there are any, equal the limits."""
    for template in _asked(call):
        for path, container in template.containers():
            resources = container.get("resources") or {}
            limits = resources.get("limits") or {}
            for resource, requested in (resources.get("requests") or {}).items():
                if not _extended(resource):
                    continue
                if resource not in limits:
                    words = (
                        f"{path}.resources.limits: Required value: Limit must be set for non overcommitable resources"
                    )
                    return invalid(call, words, PODS)
                if UNKNOWN not in (requested, limits[resource]) and amount(requested) != amount(limits[resource]):
                    words = (
                        f'{path}.resources.requests: Invalid value: "{requested}": must be equal to {resource} limit'
                    )
                    return invalid(call, f"{words} of {limits[resource]}", PODS)
    return None


def restart_policy_unfit(call: Call) -> Refusal | None:
    """Pods of a DaemonSet or Deployment always restart; those of a Job never restart forever."""
    kind = api(call.type)
    fitting = {"DaemonSet": ("Always",), "Deployment": ("Always",), "Job": ("OnFailure", "Never")}.get(kind.kind)
    if fitting is None or kind.group not in ("apps", "batch"):
        return None
    for template in _asked(call):
        chosen = template.spec.get("restartPolicy") or "Always"
        if chosen not in fitting:
            offered = ", ".join(f'"{each}"' for each in fitting)
            where = template.at("restartPolicy")
            words = f'{where}: Unsupported value: "{chosen}": supported values: {offered}'
            return invalid(call, words, BATCH if kind.group == "batch" else APPS)
    return None


def toleration_contradictory(call: Call) -> Refusal | None:
    """A toleration of any value has no value."""
    for template in _asked(call):
        for index, toleration in enumerate(template.spec.get("tolerations") or ()):
            where = template.at(f"tolerations[{index}]")
            if toleration.get("operator") == "Exists" and toleration.get("value"):
                words = (
                    f'{where}.operator: Invalid value: "{toleration["value"]}": value must be empty when `operator` '
                )
                return invalid(call, f"{words}is 'Exists'", PODS)
            if not toleration.get("key") and toleration.get("operator") != "Exists":
                words = f"{where}.operator: Invalid value: operator must be Exists when `key` is empty"
                return invalid(call, words, PODS)
    return None


def _asked(call: Call) -> list[Template]:
    return [] if call.verb == "delete" else templates(call.type, call.inputs)


def _both_amounts(call: Call) -> Iterator[tuple[str, str, Any, Any]]:
    for template in _asked(call):
        for path, container in template.containers():
            resources = container.get("resources") or {}
            limits = resources.get("limits") or {}
            for resource, requested in (resources.get("requests") or {}).items():
                if resource in limits and UNKNOWN not in (requested, limits[resource]):
                    yield f"{path}.resources.requests", resource, requested, limits[resource]


def _extended(resource: str) -> bool:
    return "/" in resource and not resource.startswith(("kubernetes.io/", "requests."))


def _quantities(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            where = f"{path}.{key}"
            in_resources = path.endswith("esources") or key == "capacity"
            if key in ("sizeLimit", "nominalQuota") and not isinstance(below, dict):
                yield where, below
            elif key in ("limits", "requests", "capacity") and in_resources and isinstance(below, dict):
                yield from ((f"{where}[{resource}]", each) for resource, each in below.items())
            else:
                yield from _quantities(below, where)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _quantities(below, f"{path}[{index}]")


RULES = (
    quantity_malformed,
    template_not_selected,
    no_containers,
    container_twice,
    mount_of_no_volume,
    claim_of_no_source,
    request_above_limit,
    extended_resource_divided,
    restart_policy_unfit,
    toleration_contradictory,
)
