"""Checks of the stack's workload in Kubernetes: the RayCluster, RayJob or Job, its queue, operators and policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infra.kubernetes.time_limit_pod import ENDED
from workloads.doctor.check import Problem, check
from workloads.doctor.machines import name_of, owner_of
from workloads.doctor.pods import PENDING_S, WAITING_S, explained
from workloads.doctor.state import State, condition, is_true, labels

Json = dict[str, Any]
SECTIONS = {"cluster": "rayclusters", "job": "rayjobs", "indexed-job": "jobs", "service": "rayservices"}
"""Section with the stack's workload, by ray.mode."""
STARTING_S = 300
"""Seconds that a Deployment of an operator has to become available."""


def workload_of(state: State) -> Json | None:
    """Return the stack's RayCluster, RayJob, RayService or Job; None if it does not exist."""
    ray = state.outputs.ray
    return next((each for each in state.objects(SECTIONS[ray.mode]) if name_of(each) == ray.cluster), None)


def queued(state: State) -> Json | None:
    """Return Kueue's Workload of the stack's workload."""
    cluster = state.outputs.ray.cluster
    return next((each for each in state.objects("workloads") if owner_of(each) == cluster), None)


@check("operators", "operators", cure="kubectl -n NAMESPACE describe deployment NAME, then its pods")
def operators(state: State) -> Iterator[Problem]:
    """KubeRay, Kueue, the autoscaler or DNS does not run."""
    for each in state.objects("operators"):
        wanted, there = each["spec"].get("replicas", 1), (each.get("status") or {}).get("availableReplicas", 0)
        since = condition(each, "Available").get("lastTransitionTime") or each["metadata"].get("creationTimestamp")
        # Of the cloud's own Deployments some replicas may wait for a node that never comes.
        if wanted and not there and state.age(since) > STARTING_S:
            where = f"Deployment {each['metadata']['namespace']}/{name_of(each)}"
            yield Problem(where, "the controller does not run", f"0 of {wanted} replicas available")


@check("workload", "rayclusters", "rayjobs", "jobs", "rayservices", cure="make up")
def workload(state: State) -> Iterator[Problem]:
    """The stack's RayCluster, RayJob, RayService or Job is missing, suspended, failed, or no operator acts on it."""
    ray, body = state.outputs.ray, workload_of(state)
    if body is None:
        others = ", ".join(name_of(each) for each in state.objects(SECTIONS[ray.mode])) or "none"
        text = f"{SECTIONS[ray.mode]} in the namespace: {others}"
        cure = "make up; with --outputs FILE, check that the file is of this cluster"
        yield Problem(
            f"{ray.mode} {ray.cluster}", "it does not exist: deleted, or the outputs are of another cluster", text, cure
        )
        return
    where, status = f"{body['kind']} {ray.cluster}", body.get("status") or {}
    spec, annotations = body["spec"], body["metadata"].get("annotations") or {}
    if spec.get("suspend") or status.get("state") == "suspended":
        if queued(state) is None:  # else the queue is reported
            why = annotations.get(ENDED) or "spec.suspend: true"
            yield Problem(
                where, "it is suspended and has no pods", why, "make up starts it again (docs/bills.md)", "warning"
            )
    elif status.get("jobDeploymentStatus") in ("Failed", "ValidationFailed"):
        text = f"{status.get('reason')}: {status.get('message')}"
        cure = f"rdma-ray inspect keeps its logs; a new RayJob: kubectl -n ray delete rayjob {ray.cluster}; make up"
        yield Problem(where, "the job failed", text, cure)
    elif condition(body, "Failed").get("status") == "True":
        failed = condition(body, "Failed")
        cure = f"kubectl -n ray logs job/{ray.cluster}; again: kubectl -n ray delete job {ray.cluster}; make up"
        yield Problem(where, "the job failed", f"{failed.get('reason')}: {failed.get('message')}", cure)
    elif broken := list(_applications(status)):
        cure = f"rdma-ray inspect keeps the logs; kubectl -n ray describe rayservice {ray.cluster} (docs/serving.md)"
        yield Problem(where, "its application does not run", "; ".join(broken), cure)
    elif not status and state.age(body["metadata"].get("creationTimestamp")) > PENDING_S:
        cure = "does the operator run, and does it watch this namespace? kubectl -n kuberay-system get pods"
        yield Problem(where, "no operator acts on it", "it has no status", cure)
    elif status.get("state") == "failed":
        yield Problem(
            where,
            "KubeRay reports it as failed",
            str(status.get("reason")),
            f"kubectl -n ray describe {where.replace(' ', '/')}",
        )


def _applications(status: Json) -> Iterator[str]:
    """Yield what Ray Serve reports of failed applications, of the next cluster and of this one."""
    for part in ("pendingServiceStatus", "activeServiceStatus"):
        for name, found in ((status.get(part) or {}).get("applicationStatuses") or {}).items():
            if found.get("status") in ("DEPLOY_FAILED", "UNHEALTHY"):
                yield f"{name} {found['status']}: {' '.join(str(found.get('message')).split())}"


@check(
    "queue",
    "workloads",
    "cluster queues",
    "local queues",
    cure="kubectl get clusterqueue,workload -A -o wide (docs/queues.md)",
)
def queue(state: State) -> Iterator[Problem]:
    """The queue does not admit the workload: inactive, too small, or used by others; or the cloud refuses its nodes."""
    inactive = [
        (f"{body['kind']} {name_of(body)}", active)
        for body in (*state.objects("cluster queues"), *state.objects("local queues"))
        if (active := condition(body, "Active")).get("status") == "False"
    ]
    for where, active in inactive:
        yield Problem(where, "the queue is inactive", f"{active.get('reason')}: {active.get('message')}")
    for request in state.objects("provisioning requests"):
        if (failed := condition(request, "Failed")).get("status") == "True":
            text = f"{failed.get('reason')}: {failed.get('message')}"
            cause = explained([text])
            why = cause.text if cause else "the cloud refuses the queued nodes"
            yield Problem(f"ProvisioningRequest {name_of(request)}", why, text, cause.cure if cause else None)
    body = queued(state)
    if body is None or inactive or is_true(body, "Admitted") or is_true(body, "Finished"):
        return
    where = f"Workload {name_of(body)} of {state.outputs.ray.cluster}"
    reserved, age = condition(body, "QuotaReserved"), state.age(body["metadata"].get("creationTimestamp"))
    text = f"{reserved.get('reason')}: {reserved.get('message')}"
    if body["spec"].get("active") is False:
        cure = f'kubectl -n ray patch workload {name_of(body)} --type merge -p \'{{"spec":{{"active":true}}}}\''
        yield Problem(where, "it is deactivated", text, cure)
    elif reserved.get("status") != "True" and re.search(
        r"ExceedsMaxQuota|maximum capacity|NoMatchingFlavor|Misconfigured", text
    ):
        cure = "raise nodes.max, or ask for fewer nodes: the quota is that of nodes.max"
        yield Problem(where, "the queue can never admit it", text, cure)
    elif reserved.get("status") != "True" and age > PENDING_S:
        cure = "wait for the workloads before it: kubectl -n ray get workloads"
        yield Problem(where, f"has waited {age / 60:.0f} min in the queue", text, cure, "warning")
    elif age > WAITING_S and not any(is_true(each, "Failed") for each in state.objects("provisioning requests")):
        checks = (body.get("status") or {}).get("admissionChecks") or []
        text = "; ".join(f"{each.get('name')} {each.get('state')}: {each.get('message')}" for each in checks)
        cure = "wait: the cloud provisions the nodes of queued requests when it has all of them"
        yield Problem(where, f"has waited {age / 60:.0f} min for its nodes", text, cure, "warning")


@check("isolation", "network policies", "pods", cure="make up: it creates the policy again")
def isolation(state: State) -> Iterator[Problem]:
    """No NetworkPolicy selects a pod of Ray, so every pod of the cluster reaches its ports."""
    selectors = [each["spec"].get("podSelector") or {} for each in state.objects("network policies")]
    for pod in state.objects("pods"):
        its = labels(pod)
        if any("ray" in key for key in its) and not any(_selects(selector, its) for selector in selectors):
            yield Problem(
                f"pod {name_of(pod)}", "no NetworkPolicy protects it", f"{len(selectors)} policies in the namespace"
            )


def _selects(selector: Json, its: dict[str, str]) -> bool:
    """Return whether a selector of the stack's form selects these labels; one with expressions is taken to do so."""
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    return all(its.get(key) == value for key, value in wanted.items())


@check("images", "pods", cure="pin ray.image by its digest in the stack file, then make up")
def images(state: State) -> Iterator[Problem]:
    """Pods of Ray run different images, or different contents of one tag."""
    found: dict[str, dict[str, list[str]]] = {}
    for pod in state.objects("pods"):
        if "ray.io/node-type" not in labels(pod):
            continue
        for each in (pod.get("status") or {}).get("containerStatuses") or []:
            digest = str(each.get("imageID") or "").rpartition("@")[2]
            if each["name"] in ("ray-head", "ray-worker") and digest:
                found.setdefault(str(each["image"]), {}).setdefault(digest, []).append(name_of(pod))
    if len(found) > 1:
        yield Problem("pods of Ray", "they run different images", "; ".join(sorted(found)))
    for image, digests in found.items():
        if len(digests) > 1:
            text = "; ".join(f"{digest[:19]} on {', '.join(names[:3])}" for digest, names in sorted(digests.items()))
            yield Problem(f"image {image}", "the tag moved while the cluster grew", text)
