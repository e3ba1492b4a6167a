"""A RayJob's entry point starts once. Imports no Pulumi.

Without fault tolerance of Ray's GCS, a head that restarts has forgotten its jobs, and KubeRay submits the entry point
to it again, whatever `backoffLimit` says (github.com/ray-project/kuberay/issues/4824, open; also main at feeaf72f,
2026-08-19). So the entry point begins with a command that refuses a second start, which fails the RayJob: KubeRay then
deletes its cluster, or retries if the user has set `backoffLimit`. A folder in the head's pod remembers the first start
while the head's container restarts; in a new pod, an init container creates it if the RayJob has been Running.

KubeRay's other modes do not hold in every case (ray-operator/controllers/ray, v1.6.2). SidecarMode submits as soon as
the head runs, before the workers do, and until all pods have been ready once, a lost head is replaced with its
submitter; it also fails the RayJob whose driver runs when its log stream breaks (kuberay/issues/4285). K8sJobMode needs
one more pod, whose loss is the job's or, with retries, a second start. The annotation
ray.io/disable-provisioned-head-restart alone leaves the RayJob without a head, Running on paid nodes.
"""

from __future__ import annotations

from typing import Any

from infra.catalog.pins import RAY_API
from infra.kubernetes.api_access import reads_object
from infra.kubernetes.pods import LOGS_FOLDER, RayArgs, role

MARK = f"{LOGS_FOLDER}/entry-point-started"
"""Folder in the head's pod that exists once the entry point may have started."""
LOST = 73
"""Exit code of a refused start, as `indexed_job_pod.exits.PEER_LOST`."""
REFUSAL = (
    "rdma-ray: the head was lost after it had the entry point, which does not start twice: continue from its "
    "checkpoints with a new RayJob"
)


def entry_point(args: RayArgs) -> str:
    """Return the entry point behind a command that ends it with LOST if it has started before."""
    return f"mkdir {MARK} || {{ echo '{REFUSAL}' >&2; exit {LOST}; }}; {args.entrypoint}"


def check_of_head(args: RayArgs) -> dict[str, Any]:
    """Return the init container of the head that marks a pod in which the entry point may not start."""
    path = f"/apis/{RAY_API}/namespaces/{args.settings.namespace}/rayjobs/{args.name}"
    return reads_object("start-once", args.settings.ray.image, path, f"--mark={MARK}")


def rules(args: RayArgs) -> list[Any]:
    """Return the right of the head's account that the check needs: to read this RayJob."""
    job = {"apiGroups": [RAY_API.partition("/")[0]], "resources": ["rayjobs"], "resourceNames": [args.name]}
    return [{**job, "verbs": ["get"]}]


def start_once(args: RayArgs) -> list[dict[str, Any]]:
    """Return the Role and its binding."""
    return role(f"{args.name}-start-once", rules(args), args.head_account, args.settings.namespace)
