"""Rules of Kueue's own objects: its CRDs and webhooks, and its finalizers.

Objects that Kueue accepts but leaves inactive (a ClusterQueue with a missing flavor or check) are also refused:
otherwise `up` would succeed with a queue that admits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import RELEASE, api
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    GROUP,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.clouds.state import View
from rehearsal.clouds.values import UNKNOWN

READ = "0.19.2, ff69552e, 2026-08-22"
DEFINITIONS = f"kubernetes-sigs/kueue: config/components/crd/bases, {READ}"
WEBHOOKS = f"kubernetes-sigs/kueue: pkg/webhooks/clusterqueue_webhook.go, {READ}"
CONTROLLERS = f"kubernetes-sigs/kueue: pkg/controller/core and pkg/controller/tas, {READ}"

HELD = {"AdmissionCheck", "ClusterQueue", "ResourceFlavor", "Topology"}
"""Kinds that get Kueue's finalizer."""
FINALIZER = f"{GROUP}/resource-in-use"
QUEUE = f"{GROUP}/queue-name"
"""Label of a job with its LocalQueue."""

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST = {"resourceGroups": 16, "coveredResources": 64, "flavors": 64, "resources": 64, "admissionChecks": 64}
_MOST |= {"onFlavors": 64, "levels": 16, "nodeTaints": 8, "tolerations": 8, "managedResources": 100}
_AT_LEAST_ONE = {"coveredResources", "flavors", "resources", "admissionChecks", "levels"}


def list_too_short_or_long(call: Call) -> Refusal | None:
    """Lists of Kueue's objects have a maximum length, and some must not be empty."""
    for path, key, items in _lists(_spec(call), "spec"):
        if key in _AT_LEAST_ONE and not items:
            words = f"{path}: Invalid value: 0: {path} in body should have at least 1 items"
            return invalid(call, words, DEFINITIONS)
        if len(items) > _MOST.get(key, len(items)):
            return invalid(call, f"{path}: Too many: {len(items)}: must have at most {_MOST[key]} items", DEFINITIONS)
    return None


def resources_do_not_match(call: Call) -> Refusal | None:
    """Every flavor of a group has a quota of every resource of the group, in the same order."""
    for path, group in _groups(call):
        covered = group.get("coveredResources") or []
        for index, flavor in enumerate(group.get("flavors") or ()):
            named = [quota.get("name") for quota in flavor.get("resources") or ()]
            if len(named) != len(covered):
                words = f"{path}: Invalid value: flavors must have the same number of resources as the coveredResources"
                return invalid(call, words, DEFINITIONS)
            for number, (own, wanted) in enumerate(zip(named, covered, strict=True)):
                if own != wanted:
                    where = f"{path}.flavors[{index}].resources[{number}].name"
                    words = f'{where}: Invalid value: "{own}": must match the name in coveredResources'
                    return _webhook(call, words)
    return None


def resource_or_flavor_twice(call: Call) -> Refusal | None:
    """A resource is covered by one group, and a flavor belongs to one."""
    resources: set[Any] = set()
    flavors: set[Any] = set()
    for path, group in _groups(call):
        for index, resource in enumerate(group.get("coveredResources") or ()):
            if resource in resources:
                return _webhook(call, f'{path}.coveredResources[{index}]: Duplicate value: "{resource}"')
            resources.add(resource)
        for index, flavor in enumerate(group.get("flavors") or ()):
            if flavor.get("name") in flavors:
                return _webhook(call, f'{path}.flavors[{index}].name: Duplicate value: "{flavor.get("name")}"')
            flavors.add(flavor.get("name"))
    return None


def quota_unfit(call: Call) -> Refusal | None:
    """A quota is not negative, and lends or borrows only within a cohort."""
    alone = not _spec(call).get("cohortName")
    for path, quota in _quotas(call):
        nominal = quota.get("nominalQuota")
        if nominal not in (None, UNKNOWN) and amount(nominal) < 0:
            words = f'{path}.nominalQuota: Invalid value: "{nominal}": must be greater than or equal to 0'
            return _webhook(call, words)
        for key in ("borrowingLimit", "lendingLimit"):
            limit = quota.get(key)
            if limit is not None and alone:
                return _webhook(call, f'{path}.{key}: Invalid value: "{limit}": must be nil when cohort is empty')
    return None


def check_on_other_flavor(call: Call) -> Refusal | None:
    """A check applies to flavors of the ClusterQueue."""
    flavors = _flavors(_spec(call))
    for path, check in _checks(call):
        for index, flavor in enumerate(check.get("onFlavors") or ()):
            if flavor not in flavors:
                offered = ", ".join(f'"{one}"' for one in flavors)
                where = f"{path}.onFlavors[{index}]"
                return _webhook(call, f'{where}: Unsupported value: "{flavor}": supported values: {offered}')
    return None


def queue_inactive(call: Call) -> Refusal | None:
    """A ClusterQueue with a missing flavor or check admits nothing."""
    if call.type != CLUSTER_QUEUE or call.verb == "delete":
        return None
    for flavor in _flavors(_spec(call)):
        if call.state.get(RESOURCE_FLAVOR, flavor) is None:
            return _inactive(call, "FlavorNotFound", f"references missing ResourceFlavor(s): {flavor}")
    for _, check in _checks(call):
        if call.state.get(ADMISSION_CHECK, str(check.get("name"))) is None:
            words = f"references missing AdmissionCheck(s): {check.get('name')}"
            return _inactive(call, "AdmissionCheckNotFound", words)
    return None


def check_without_parameters(call: Call) -> Refusal | None:
    """The provisioning check refers to an existing ProvisioningRequestConfig."""
    controller = _spec(call).get("controllerName")
    if call.type != ADMISSION_CHECK or controller != f"{GROUP}/provisioning-request":
        return None
    asked: Json = _spec(call).get("parameters") or {}
    if (asked.get("apiGroup"), asked.get("kind")) != (GROUP, "ProvisioningRequestConfig"):
        return _inactive(call, "BadParametersRef", "wrong group or kind of the parameters, or none")
    if call.state.get(PROVISIONING, str(asked.get("name"))) is None:
        words = f'ProvisioningRequestConfig.{GROUP} "{asked.get("name")}" not found'
        return _inactive(call, "BadParametersRef", words)
    return None


def parameters_misnamed(call: Call) -> Refusal | None:
    """A check names its parameters by a DNS label: 63 characters, without dots."""
    its = value_at(_spec(call), "parameters.name")
    if call.type != ADMISSION_CHECK or its in (None, UNKNOWN) or (len(str(its)) <= 63 and "." not in str(its)):
        return None
    return invalid(call, f'spec.parameters.name: Invalid value: "{its}": should match a DNS label', DEFINITIONS)


def flavor_taints_unfit(call: Call) -> Refusal | None:
    """A flavor's taints and tolerations are valid."""
    if call.type != RESOURCE_FLAVOR:
        return None
    for index, taint in enumerate(_spec(call).get("nodeTaints") or ()):
        if taint.get("effect") not in EFFECTS:
            return invalid(call, f"spec.nodeTaints[{index}]: Invalid value: {_EFFECTS_WORDS}", DEFINITIONS)
    for index, toleration in enumerate(_spec(call).get("tolerations") or ()):
        words = _toleration_words(toleration)
        if words:
            return invalid(call, f"spec.tolerations[{index}]: Invalid value: {words}", DEFINITIONS)
    return None


def flavor_labels_unfit(call: Call) -> Refusal | None:
    """A flavor has at most eight labels, and at least one if it has a topology, which exists."""
    if call.type != RESOURCE_FLAVOR:
        return None
    labels: Json = _spec(call).get("nodeLabels") or {}
    topology = _spec(call).get("topologyName")
    if len(labels) > 8:
        return invalid(call, f"spec.nodeLabels: Too many: {len(labels)}: must have at most 8 items", DEFINITIONS)
    if topology and not labels:
        return invalid(
            call, "spec: Invalid value: at least one nodeLabel is required when topology is set", DEFINITIONS
        )
    if topology and call.state.get(TOPOLOGY, topology) is None:
        words = f'there is no Topology "{topology}" for TAS flavor "{call.id}"'
        return _inactive(call, "TopologyNotFound", words)
    return None


def levels_unfit(call: Call) -> Refusal | None:
    """The levels of a topology are unique, and the host is the lowest."""
    if call.type != TOPOLOGY:
        return None
    levels = [level.get("nodeLabel") for level in _spec(call).get("levels") or ()]
    if len(set(levels)) < len(levels):
        return invalid(call, "spec.levels: Invalid value: must be unique", DEFINITIONS)
    if "kubernetes.io/hostname" in levels[:-1]:
        words = "the kubernetes.io/hostname label can only be used at the lowest level of topology"
        return invalid(call, f"spec.levels: Invalid value: {words}", DEFINITIONS)
    return None


_FIXED = {"LocalQueue": ("clusterQueue",), "AdmissionCheck": ("controllerName",), "Topology": ("levels",)}
_FIXED_WITH_TOPOLOGY = ("nodeLabels", "nodeTaints", "tolerations", "topologyName")


def fixed_field_changed(call: Call) -> Refusal | None:
    """The ClusterQueue of a LocalQueue, the controller of a check, and a topology are immutable; so is a flavor with
    one."""
    if call.verb != "update" or api(call.type).group != GROUP:
        return None
    before: Json = call.live.get("spec") or {}
    for key in _FIXED.get(api(call.type).kind, ()):
        if before.get(key) != _spec(call).get(key):
            return invalid(call, f"spec.{key}: Invalid value: field is immutable", DEFINITIONS)
    if call.type == RESOURCE_FLAVOR and before.get("topologyName"):
        for key in _FIXED_WITH_TOPOLOGY:
            if before.get(key) != _spec(call).get(key):
                words = f"spec: Invalid value: {key} is immutable when topologyName is set"
                return invalid(call, words, DEFINITIONS)
    return None


def finalizer_held(call: Call) -> Refusal | None:
    """An object in use is not deleted: a flavor or check of a ClusterQueue, a topology of a flavor, a queue."""
    kind = api(call.type)
    if call.verb != "delete" or kind.group != GROUP or kind.kind not in HELD:
        return None
    if not installed(call.state):
        return _stuck(call, "nothing removes it: Kueue is not installed anymore")
    by = next(_users(call), None)
    return None if by is None else _stuck(call, f"it is in use by {by}")


def installed(state: View) -> bool:
    """Return whether Kueue is installed, so that its webhooks and controllers run."""
    return any(str(live.get("chart", "")).rpartition("/")[2] == "kueue" for *_, live in state.all(RELEASE))


def _users(call: Call) -> Iterator[str]:
    if call.type == TOPOLOGY:
        for _, id_, flavor in call.state.all(RESOURCE_FLAVOR):
            if value_at(flavor, "spec.topologyName") == call.id:
                yield f"ResourceFlavor {id_}"
    elif call.type == CLUSTER_QUEUE:
        locals_ = {
            id_ for _, id_, live in call.state.all(LOCAL_QUEUE) if value_at(live, "spec.clusterQueue") == call.id
        }
        for type_, id_, live in call.state.all():
            queue = (value_at(live, "metadata.labels") or {}).get(QUEUE)
            if queue and type_.startswith("kubernetes:") and f"{id_.partition('/')[0]}/{queue}" in locals_:
                yield f"the workload of {api(type_).kind} {id_}"
    else:
        for _, id_, queue in call.state.all(CLUSTER_QUEUE):
            checks = value_at(queue, "spec.admissionChecksStrategy.admissionChecks") or ()
            used = _flavors(queue.get("spec") or {})
            if call.id in (used if call.type == RESOURCE_FLAVOR else [check.get("name") for check in checks]):
                yield f"ClusterQueue {id_}"


def _stuck(call: Call, why: str) -> Refusal:
    words = (
        f"{api(call.type).kind} {call.id}: timed out waiting for its deletion: finalizer {FINALIZER} stays, because "
    )
    return Refusal("timeout", f"{words}{why}", CONTROLLERS)


def _inactive(call: Call, reason: str, why: str) -> Refusal:
    words = f"{api(call.type).kind} {call.id}: Active=False, {reason}: {why}"
    return Refusal("Kueue condition Active=False", words, CONTROLLERS)


def _webhook(call: Call, words: str) -> Refusal:
    own = f"v{api(call.type).kind.lower()}.kb.io"
    return Refusal("403 Forbidden", f'admission webhook "{own}" denied the request: {words}', WEBHOOKS)


def _spec(call: Call) -> Json:
    """Return the spec of a requested object of Kueue; empty for anything else."""
    if call.verb == "delete" or api(call.type).group != GROUP:
        return {}
    spec: Json = call.inputs.get("spec") or {}
    return spec


def _groups(call: Call) -> Iterator[tuple[str, Json]]:
    for index, group in enumerate(_spec(call).get("resourceGroups") or ()):
        yield f"spec.resourceGroups[{index}]", group


def _quotas(call: Call) -> Iterator[tuple[str, Json]]:
    for path, group in _groups(call):
        for index, flavor in enumerate(group.get("flavors") or ()):
            for number, quota in enumerate(flavor.get("resources") or ()):
                yield f"{path}.flavors[{index}].resources[{number}]", quota


def _flavors(spec: Json) -> list[str]:
    groups = spec.get("resourceGroups") or ()
    return [str(flavor.get("name")) for group in groups for flavor in group.get("flavors") or ()]


def _checks(call: Call) -> Iterator[tuple[str, Json]]:
    path = "admissionChecksStrategy.admissionChecks"
    for index, check in enumerate(value_at(_spec(call), path) or ()):
        yield f"spec.{path}[{index}]", check


def _lists(value: Any, path: str) -> Iterator[tuple[str, str, list[Any]]]:
    if isinstance(value, dict):
        for key, below in value.items():
            if isinstance(below, list):
                yield f"{path}.{key}", key, below
                for index, item in enumerate(below):
                    yield from _lists(item, f"{path}.{key}[{index}]")
            else:
                yield from _lists(below, f"{path}.{key}")


_EFFECTS_WORDS = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"


def _toleration_words(toleration: Json) -> str | None:
    if not toleration.get("key") and toleration.get("operator") != "Exists":
        return "operator must be Exists when 'key' is empty, which means 'match all values and all keys'"
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        return "effect must be 'NoExecute' when 'tolerationSeconds' is set"
    if toleration.get("operator") not in (None, "Equal", "Exists"):
        return "supported toleration values: 'Equal'(default), 'Exists'"
    if toleration.get("operator") == "Exists" and "value" in toleration:
        return "a value must be empty when 'operator' is 'Exists'"
    return None if toleration.get("effect") in (None, *EFFECTS) else _EFFECTS_WORDS


RULES = (
    list_too_short_or_long,
    resources_do_not_match,
    resource_or_flavor_twice,
    quota_unfit,
    check_on_other_flavor,
    parameters_misnamed,
    flavor_taints_unfit,
    flavor_labels_unfit,
    levels_unfit,
    fixed_field_changed,
    check_without_parameters,
    queue_inactive,
    finalizer_held,
)
