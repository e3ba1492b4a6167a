"""Checks of the stack's workload in Kubernetes: the RayCluster, RayJob or Job, its queue, operators and policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.catalog.names import ENDED, KUBERAY_LABELS, NODE_TYPE
from workloads.doctor.check import Problem, check
from workloads.doctor.objects import condition, containers, labels, name_of, owner_of
from workloads.doctor.pods import PENDING_S
from workloads.doctor.state import State

Json = dict[str, Any]
SECTIONS = {"cluster": "rayclusters", "job": "rayjobs", "indexed-job": "jobs", "service": "rayservices"}
"""Section with the stack's workload, by ray.mode."""
STEP_0 = "it starts at step 0 unless its entry point resumes from a checkpoint"
REPLACED_S = 600
"""Seconds between the start of a RayJob and that of its first head, at most: KubeRay creates the pod at once."""
STARTING_S = 300
"""Seconds that a Deployment of an operator has to become available."""


def workload_of(state: State) -> Json | None:
    """Return the stack's RayCluster, RayJob, RayService or Job; None if it does not exist."""
    ray = state.outputs.ray
    return next((each for each in state.objects(SECTIONS[ray.mode]) if name_of(each) == ray.cluster), None)


def queued(state: State) -> Json | None:
    """Return the Kueue Workload of the stack's workload."""
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
            yield Problem(where, "the controller is not running", f"0 of {wanted} replicas available")


@check("workload", "rayclusters", "rayjobs", "jobs", "rayservices", cure="make up")
def workload(state: State) -> Iterator[Problem]:
    """The stack's RayCluster, RayJob, RayService or Job is missing, suspended, failed, or no operator acts on it."""
    ray, body = state.outputs.ray, workload_of(state)
    if body is None:
        others = ", ".join(name_of(each) for each in state.objects(SECTIONS[ray.mode])) or "none"
        text = f"{SECTIONS[ray.mode]} in the namespace: {others}"
        cure = "make up; with --outputs FILE, check that the file belongs to this cluster"
        yield Problem(
            f"{ray.mode} {ray.cluster}",
            "it does not exist: it was deleted, or the outputs are from another cluster",
            text,
            cure,
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
        yield Problem(where, "the job failed", text, f"{cure}; {STEP_0}")
    elif condition(body, "Failed").get("status") == "True":
        failed = condition(body, "Failed")
        cure = f"kubectl -n ray logs job/{ray.cluster}; again: kubectl -n ray delete job {ray.cluster}; make up"
        text = f"{failed.get('reason')}: {failed.get('message')}"
        yield Problem(where, "the job failed", text, f"{cure}; {STEP_0}")
    elif broken := list(_applications(status)):
        cure = f"rdma-ray inspect keeps the logs; kubectl -n ray describe rayservice {ray.cluster} (docs/serving.md)"
        yield Problem(where, "its application does not run", "; ".join(broken), cure)
    elif not status and state.age(body["metadata"].get("creationTimestamp")) > PENDING_S:
        shows = "-n kuberay-system get pods"
        if state.outputs.context is not None:
            shows = f"get deployments -A -l {','.join(map('='.join, KUBERAY_LABELS.items()))}"
        cure = f"is the operator running, and does it watch this namespace? kubectl {shows}"
        yield Problem(where, "no operator acts on it", "it has no status", cure)
    elif status.get("state") == "failed":
        yield Problem(
            where,
            "KubeRay reports it as failed",
            str(status.get("reason")),
            f"kubectl -n ray describe {where.replace(' ', '/')}",
        )


@check(
    "second-start",
    "rayjobs",
    "pods",
    "ray jobs",
    cure="compare the job's log with the last checkpoint: does it resume, or has it begun at step 0? To end it:"
    " rdma-ray stop ID; docs/ways-to-run.md says what a lost head does",
)
def second_start(state: State) -> Iterator[Problem]:
    """A RayJob's entry point was started again, on a head that replaced a lost one."""
    body = workload_of(state)
    if body is None or body["kind"] != "RayJob":
        return
    status = body.get("status") or {}
    # A retry of the RayJob itself sets startTime again (kuberay 1.6.2: rayjob_controller.go, initRayJobStatusIfNeed).
    began = state.age(status.get("startTime") or body["metadata"].get("creationTimestamp"))
    heads = [pod for pod in state.objects("pods") if labels(pod).get(NODE_TYPE) == "head"]
    newest = min((state.age(pod["metadata"].get("creationTimestamp")) for pod in heads), default=began)
    for job in state.ray["jobs"]:
        started = state.time - (job.get("start_time") or 0) / 1000
        ours = status.get("jobId") in (None, job.get("submission_id"))
        if ours and job.get("start_time") and began - newest > REPLACED_S and started <= newest:
            text = f"the RayJob began {began / 3600:.1f} h ago, its head {newest / 60:.0f} min ago, and the entry point"
            text += f" {started / 60:.0f} min ago: KubeRay submits it again when the head has lost it (kuberay#4824)"
            where = f"RayJob {name_of(body)}, job {job.get('submission_id')}"
            yield Problem(where, "its entry point was started again after its head was lost", text)


def _applications(status: Json) -> Iterator[str]:
    """Yield what Ray Serve reports of failed applications, of the next cluster and of this one."""
    for part in ("pendingServiceStatus", "activeServiceStatus"):
        for name, application in ((status.get(part) or {}).get("applicationStatuses") or {}).items():
            if application.get("status") in ("DEPLOY_FAILED", "UNHEALTHY"):
                yield f"{name} {application['status']}: {' '.join(str(application.get('message')).split())}"


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
    """Pods of Ray, including sidecars, run different images, or different contents of one tag."""
    by_image: dict[str, dict[str, list[str]]] = {}
    ours: set[str] = set()
    for pod in state.objects("pods"):
        if NODE_TYPE not in labels(pod):
            continue
        for each in containers(pod):
            digest = str(each.get("imageID") or "").rpartition("@")[2]
            if digest:
                by_image.setdefault(str(each["image"]), {}).setdefault(digest, []).append(name_of(pod))
                ours |= {str(each["image"])} if each["name"] in ("ray-head", "ray-worker", "ray-worker-cpu") else set()
    if len(ours) > 1:
        yield Problem("pods of Ray", "they run different images", "; ".join(sorted(ours)))
    for image, digests in by_image.items():
        if len(digests) > 1:
            text = "; ".join(f"{digest[:19]} on {', '.join(names[:3])}" for digest, names in sorted(digests.items()))
            cure = None if image in ours else "delete the older pods: a sidecar's image comes from who injects it"
            yield Problem(f"image {image}", "the tag moved while the cluster grew", text, cure)
