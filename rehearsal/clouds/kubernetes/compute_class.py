"""Rules of GKE's ComputeClass, and of pods that select one."""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.connection import pools as pools_of
from rehearsal.clouds.kubernetes.fields import invalid
from rehearsal.clouds.kubernetes.identity import name
from rehearsal.clouds.kubernetes.pods import templates

COMPUTE_CLASS = "kubernetes:cloud.google.com/v1:ComputeClass"
SELECTOR = "cloud.google.com/compute-class"
DOCS = "GKE docs ComputeClass CRD reference and concepts, 2026-04-13; wording unverified, 2026-11"
QUEUED = "field report on queued provisioning with ComputeClass, read 2026-08; wording unverified, 2026-11"
EXCLUSIVE = (
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-spot",
    "cloud.google.com/machine-family",
    "cloud.google.com/reservation-name",
    "cloud.google.com/gke-nodepool",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)
BUILT_IN = ("autopilot", "autopilot-spot", "Balanced", "Scale-Out", "Performance", "Accelerator", "general-purpose")
"""Classes that GKE knows without an object: GKE docs, unverified, 2026-11."""


def name_reserved(call: Call) -> Refusal | None:
    """Names that begin with gke or autopilot are reserved for GKE."""
    its = name(call.inputs)
    if call.verb == "delete" or call.type != COMPUTE_CLASS or not its.startswith(("gke", "autopilot")):
        return None
    words = f'metadata.name: Invalid value: "{its}": names that begin with gke or autopilot are reserved'
    return invalid(call, words, DOCS)


def no_priorities(call: Call) -> Refusal | None:
    """A class has at least one rule, and no rule is empty."""
    if call.verb == "delete" or call.type != COMPUTE_CLASS:
        return None
    rules = list(_rules(call))
    if not rules:
        return invalid(call, "spec.priorities: Required value", DOCS)
    for path, rule in rules:
        if not rule:
            return invalid(call, f"{path}: Invalid value: a rule needs at least one field", DOCS)
    return None


def pools_with_other_fields(call: Call) -> Refusal | None:
    """A rule that names node pools has no other field: every dash under priorities begins another rule."""
    for path, rule in _rules(call):
        others = sorted(rule.keys() - {"nodepools"})
        if "nodepools" in rule and others:
            return invalid(call, f"{path}: Invalid value: nodepools cannot be combined with {', '.join(others)}", DOCS)
    return None


def pool_missing(call: Call) -> Refusal | None:
    """The node pools of a rule exist, and have the label and taint of the class."""
    pools = {pool.name: pool.live for pool in pools_of(call)}
    for path, rule in _rules(call):
        for wanted in rule.get("nodepools") or ():
            if wanted not in pools:
                return invalid(call, f'{path}.nodepools: Invalid value: "{wanted}": the node pool does not exist', DOCS)
            labels = (pools[wanted].get("nodeConfig") or {}).get("labels") or {}
            if labels.get(SELECTOR) != name(call.inputs):
                words = f'{path}.nodepools: Invalid value: "{wanted}": the node pool lacks the label {SELECTOR}='
                return invalid(call, f"{words}{name(call.inputs)}", DOCS)
    return None


def queued_pool_in_class(call: Call) -> Refusal | None:
    """A class names no queued node pool; its pods would never get a ProvisioningRequest."""
    pools = {pool.name: pool.live for pool in pools_of(call)}
    for path, rule in _rules(call):
        for wanted in rule.get("nodepools") or ():
            if value_at(pools.get(wanted), "queuedProvisioning.enabled"):
                words = f'{path}.nodepools: Invalid value: "{wanted}": queued provisioning is not supported with '
                return invalid(call, f"{words}ComputeClass", QUEUED)
    return None


def consolidation_out_of_range(call: Call) -> Refusal | None:
    """Consolidation waits from one minute to one day."""
    if call.verb == "delete" or call.type != COMPUTE_CLASS:
        return None
    policy = (call.inputs.get("spec") or {}).get("autoscalingPolicy") or {}
    minutes, gpus = policy.get("consolidationDelayMinutes"), policy.get("gpuConsolidationThreshold")
    if isinstance(minutes, int) and not 1 <= minutes <= 1440:
        words = f"spec.autoscalingPolicy.consolidationDelayMinutes: Invalid value: {minutes}: should be from 1 to 1440"
        return invalid(call, words, DOCS)
    if gpus not in (None, 0, 100):
        words = f"spec.autoscalingPolicy.gpuConsolidationThreshold: Invalid value: {gpus}: should be 0 or 100"
        return invalid(call, words, DOCS)
    return None


def class_missing(call: Call) -> Refusal | None:
    """Pods that select a missing class wait forever."""
    for path, selector in _selectors(call):
        chosen = selector.get(SELECTOR)
        if chosen and chosen not in BUILT_IN and call.state.get(COMPUTE_CLASS, chosen) is None:
            return _warden(f"{path}: compute class {chosen} not found")
    return None


def class_and_more(call: Call) -> Refusal | None:
    """Pods that select a class select no accelerator, machine or pool."""
    for path, selector in _selectors(call):
        others = [key for key in EXCLUSIVE if key in selector]
        if selector.get(SELECTOR) and others:
            return _warden(f"{path}: {SELECTOR} cannot be combined with {', '.join(others)}")
    return None


def _warden(words: str) -> Refusal:
    return Refusal(
        "403 Forbidden",
        f'admission webhook "warden-validating.common-webhooks.networking.gke.io" denied: {words}',
        DOCS,
    )


def _rules(call: Call) -> Iterator[tuple[str, Json]]:
    if call.verb != "delete" and call.type == COMPUTE_CLASS:
        for index, rule in enumerate((call.inputs.get("spec") or {}).get("priorities") or ()):
            yield f"spec.priorities[{index}]", rule


def _selectors(call: Call) -> Iterator[tuple[str, Json]]:
    for template in [] if call.verb == "delete" else templates(call.type, call.inputs):
        yield template.at("nodeSelector"), template.spec.get("nodeSelector") or {}


RULES = (
    name_reserved,
    no_priorities,
    pools_with_other_fields,
    pool_missing,
    queued_pool_in_class,
    consolidation_out_of_range,
    class_missing,
    class_and_more,
)
