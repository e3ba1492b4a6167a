"""Rules of KubeRay's operator for RayJobs. For the cluster in one, see `ray`."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from rehearsal.clouds.kind import Call, Json, Refusal, value_at
from rehearsal.clouds.kubernetes.identity import RELEASE, api
from rehearsal.clouds.kubernetes.ray import event

RAY_JOB = "kubernetes:ray.io/v1:RayJob"
OPERATOR = "ray-project/kuberay: ray-operator/controllers/ray/rayjob_controller.go, v1.6.2, 2026-06-17"
FINALIZER = "ray.io/rayjob-finalizer"
"""Finalizer of a RayJob: the operator stops the job before the object is deleted."""


def job_without_cluster(call: Call) -> Refusal | None:
    """A RayJob defines its cluster or selects one by name."""
    for spec in _specs(call):
        if not spec.get("rayClusterSpec") and not spec.get("clusterSelector"):
            return _invalid(call, "one of RayClusterSpec or ClusterSelector must be set")
        if spec.get("clusterSelector") and not spec["clusterSelector"].get("ray.io/cluster"):
            return event(call, "cluster name in ClusterSelector should not be empty")
    return None


def deadline_not_positive(call: Call) -> Refusal | None:
    """Deadlines are positive."""
    for spec in _specs(call):
        for key in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
            if isinstance(spec.get(key), int) and spec[key] <= 0:
                return _invalid(call, f"{key} must be a positive integer")
    return None


def retries_unfit(call: Call) -> Refusal | None:
    """A job with its own cluster may be retried; an interactive one, or one on a selected cluster, may not."""
    for spec in _specs(call):
        retries = spec.get("backoffLimit")
        if not isinstance(retries, int):
            continue
        if retries < 0:
            return _invalid(call, "backoffLimit must be a positive integer")
        if retries > 0 and spec.get("clusterSelector"):
            return _invalid(call, "BackoffLimit is incompatible with ClusterSelector mode")
        if retries > 0 and spec.get("submissionMode") == "InteractiveMode":
            return _invalid(call, "BackoffLimit is incompatible with InteractiveMode")
    return None


def suspended_and_kept(call: Call) -> Refusal | None:
    """A suspended job has its own cluster, which is deleted when the job ends."""
    for spec in _specs(call):
        if not spec.get("suspend"):
            continue
        if not spec.get("shutdownAfterJobFinishes"):
            words = "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
            return _invalid(call, words)
        if spec.get("clusterSelector"):
            return _invalid(call, "the ClusterSelector mode doesn't support the suspend operation")
    return None


def time_to_live_unfit(call: Call) -> Refusal | None:
    """The cluster of an ended job has a time to live only if it is deleted at all."""
    for spec in _specs(call):
        lives = spec.get("ttlSecondsAfterFinished")
        if not isinstance(lives, int):
            continue
        if lives < 0:
            return _invalid(call, "TTLSecondsAfterFinished must be a non-negative integer")
        if lives > 0 and not spec.get("shutdownAfterJobFinishes"):
            words = "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished"
            return _invalid(call, words)
    return None


def deletion_said_twice(call: Call) -> Refusal | None:
    """The deletion after a job is configured in one way: shutdownAfterJobFinishes, two policies, or rules."""
    for spec in _specs(call):
        strategy = spec.get("deletionStrategy")
        if strategy is None:
            continue
        policies, rules = strategy.keys() & {"onSuccess", "onFailure"}, strategy.get("deletionRules")
        if rules and policies:
            return _invalid(call, "Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously")
        if rules and spec.get("shutdownAfterJobFinishes"):
            words = "spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive"
            return _invalid(call, words)
        if not rules and len(policies) < 2:
            words = "DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot "
            return _invalid(call, f"{words}be empty)")
    return None


def sidecar_and_more(call: Call) -> Refusal | None:
    """A job submitted from the head's own pod has no submitter, and has its own cluster."""
    for spec in _specs(call):
        if spec.get("submissionMode") != "SidecarMode":
            continue
        if spec.get("clusterSelector"):
            return event(call, "ClusterSelector is not supported in SidecarMode")
        for key, words in (("submitterPodTemplate", "SubmitterPodTemplate"), ("submitterConfig", "SubmitterConfig")):
            if spec.get(key) is not None:
                return event(call, f"Currently, SidecarMode doesn't support {words}")
        if value_at(spec, "rayClusterSpec.headGroupSpec.template.spec.restartPolicy") not in (None, "", "Never"):
            return event(call, "restartPolicy for head Pod should be Never or unset when using SidecarMode")
    return None


def runtime_environment_malformed(call: Call) -> Refusal | None:
    """The runtime environment is YAML, with a map at its root."""
    for spec in _specs(call):
        text = spec.get("runtimeEnvYAML")
        if not text:
            continue
        try:
            read = yaml.safe_load(str(text))
        except yaml.YAMLError:
            read = None
        if not isinstance(read, dict):
            return event(call, "failed to unmarshal RuntimeEnvYAML")
    return None


def finalizer_without_operator(call: Call) -> Refusal | None:
    """A RayJob can be deleted only while the operator is installed."""
    if call.verb != "delete" or call.type != RAY_JOB:
        return None
    if any(str(live.get("chart", "")).rpartition("/")[2] == "kuberay-operator" for *_, live in call.state.all(RELEASE)):
        return None
    words = f"RayJob {call.id}: timed out waiting for its deletion: finalizer {FINALIZER} stays, because KubeRay is "
    return Refusal("timeout", f"{words}not installed anymore", OPERATOR)


def _invalid(call: Call, words: str) -> Refusal:
    return event(call, f"The RayJob spec is invalid: {words}")


def _specs(call: Call) -> Iterator[Json]:
    if call.verb != "delete" and api(call.type).group == "ray.io" and api(call.type).kind == "RayJob":
        yield call.inputs.get("spec") or {}


RULES = (
    job_without_cluster,
    deadline_not_positive,
    retries_unfit,
    suspended_and_kept,
    time_to_live_unfit,
    deletion_said_twice,
    sidecar_and_more,
    runtime_environment_malformed,
    finalizer_without_operator,
)
