"""The spec of a RayJob: a RayCluster of its own, one entry point, and the nodes given back when that has ended.

Pure: plain Kubernetes JSON around `ray_manifest.ray_cluster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.kubernetes.indexed_job_manifest import JOB_LABEL, JobShape
from infra.kubernetes.ray_manifest import RayShape, ray_cluster

KEPT_S = 300
"""Seconds that the cluster, and with it the entry point's log, stays after the end where nobody waits for its nodes.
They are paid for as long; what a run is for belongs into the shared folder (our choice, 2026-11)."""

KEPT_IN_A_QUEUE_S = 0
"""The same in a queue. Kueue gives the quota to the next one as soon as the RayJob is Complete or Failed
(pkg/controller/jobs/rayjob, Finished, 0.19.2), whether or not the pods are gone: machines that a finished cluster still
held would be in the way of those that the next one asks for. It is said by shutdownAfterJobFinishes, since Kueue's
webhook demands that, and KubeRay then takes no rule that would let the workers go before the head
(ray-operator/controllers/ray/utils/validation.go, 1.6.2). What is left of the log is the message of the status: how a
failed entry point ended, and the last of what it wrote (Ray 2.60: dashboard/modules/job/job_supervisor.py)."""


@dataclass(frozen=True, kw_only=True)
class RayJobShape:
    """What a RayJob is shaped by. name: its own; its cluster gets another one for each run. entrypoint: a line for a
    shell, which runs on the head. kept_s: seconds that the cluster stays after the end. ray: of the cluster, which has
    a fixed size and whose pods carry `job_labels(name)`.
    """

    name: str
    entrypoint: str
    kept_s: int
    ray: RayShape


WorkloadShape = RayShape | RayJobShape | JobShape
"""What a stack may run Ray as."""


def job_labels(name: str) -> dict[str, str]:
    """What every pod of the RayJob `name` carries. The operator's own labels name the cluster, whose name is random."""
    return {JOB_LABEL: name}


def ray_job(shape: RayJobShape) -> dict[str, Any]:
    """The spec of the RayJob.

    It has no `activeDeadlineSeconds`: that counts from the beginning, the wait for machines included, and how long
    training may run is the user's to say. Raises `ValueError` for a cluster that Ray's own autoscaler would resize: it
    is ready with its head alone, so that the deadline would end before the wait begins.
    """
    if shape.ray.autoscaled:
        raise ValueError(f"RayJob {shape.name}: its cluster has a fixed size")
    return {
        "entrypoint": shape.entrypoint,
        # The operator hands the entry point in by itself, with the token. The default, a pod that does so, would need a
        # node, a token and a place in the queue of its own.
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": shape.kept_s,
        # Until every worker is there; from the admission, where there is a queue. A pod that waits is waited for as
        # long as the way to get machines promises, and then the RayJob has failed instead of waiting for ever.
        "preRunningDeadlineSeconds": shape.ray.wait_s,
        # Another try would be another cluster, and another wait for machines. Checkpoints make a new RayJob go on.
        "backoffLimit": 0,
        "rayClusterSpec": ray_cluster(shape.ray),
    }
