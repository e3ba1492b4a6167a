"""A RayCluster, RayJob or Indexed Job and its supporting objects, as plain Kubernetes JSON. Imports no Pulumi.

`Workload` creates these objects in a stack. `rdma-ray render` prints those of another job in the stack's namespace.
"""

from __future__ import annotations

from typing import Any

from infra.catalog.names import (
    DASHBOARD_PORT,
    KUBERAY_LABELS,
    KUBERAY_NAMES,
    KUBERAY_NAMESPACE,
    METRICS_PORTS,
    NIC_METRICS_PORT,
    NODE_TYPE,
    RAY_CLUSTER,
    SERVE_PORT,
    outputs_secret,
)
from infra.catalog.pins import POD_MONITORING_API, RAY_API
from infra.kubernetes.api_access import check_rights
from infra.kubernetes.client_access import client_role
from infra.kubernetes.indexed_job import head_service, head_service_spec, job_spec
from infra.kubernetes.monitoring_objects import INTERVAL, rules, scraping
from infra.kubernetes.pods import COMPONENTS, INDEXED_JOB_POD, SERVICE_POD, RayArgs, script_files
from infra.kubernetes.queue_objects import ELASTIC_ANNOTATION, admission_marks
from infra.kubernetes.ray_cluster import ray_cluster_spec, ray_job_spec
from infra.kubernetes.ray_service import ray_service_spec
from infra.kubernetes.start_once import start_once
from infra.kubernetes.time_limit_objects import time_limit


def workload(args: RayArgs) -> dict[str, Any]:
    """Return the RayCluster, RayJob, RayService or Job, without its namespace."""
    mode = args.settings.ray.mode
    if mode == "indexed-job":
        api, kind, spec = "batch/v1", "Job", job_spec(args)
    else:
        api, kind = RAY_API, COMPONENTS[mode]
        spec = ray_job_spec(args) if mode == "job" else ray_cluster_spec(args)
        spec = ray_service_spec(args, spec) if mode == "service" else spec
    labels, marks = admission_marks(args.settings.local_queue, args.queue.max_run_s if args.queue else None)
    marks = {**marks, **({ELASTIC_ANNOTATION: "true"} if args.elastic else {})}
    marked = {**({"annotations": marks} if marks else {}), **({"labels": labels} if labels else {})}
    # Kueue's webhook also sets `suspend`; set here, it applies even while the webhook does not answer.
    suspended = {"suspend": True} if args.queued else {}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": args.name, **marked}, "spec": {**suspended, **spec}}


def with_supporting(args: RayArgs) -> list[dict[str, Any]]:
    """Return a workload with its own objects, in the order in which to create them; none is secret.

    Those that a rendered job shares with its stack exist in the namespace: the pods' accounts, the token's Secret,
    claims, the LocalQueue.
    """
    operated = args.settings.ray.mode != "indexed-job"
    objects = [ingress_policy(args)]
    if operated:
        objects.append(head_budget(args))
    else:
        objects.append(_object("v1", "ConfigMap", args.scripts, data=script_files(INDEXED_JOB_POD)))
        objects.append(first_pod_service(args))
    if args.pod_monitoring:
        objects.append(pod_monitoring(args))
    objects += scraping(args)
    if args.settings.ray.mode == "job":
        objects += start_once(args)
    if operated and args.settings.nodes.max_hours:
        objects += time_limit(args)
    objects.append(workload(args))
    return [{**each, "metadata": {**each["metadata"], "namespace": args.settings.namespace}} for each in objects]


def every_object(args: RayArgs) -> list[dict[str, Any]]:
    """Return all objects of a workload in the namespace, with empty Secrets: accounts, those above, and a pod's own."""
    objects = [_object("v1", "ServiceAccount", account) for account in args.own_accounts]
    secrets = [args.token_secret, *([args.serve_secret] if args.settings.ray.mode == "service" else [])]
    if args.settings.access.outputs_secret:
        secrets.append(outputs_secret(args.name))
        objects.append(client_role(args))
    objects += [_object("v1", "Secret", secret) for secret in secrets]
    objects += check_rights(args)
    objects += [dict(each) for each in (*args.pod.objects, *(args.folder.objects if args.folder else ()))]
    if args.settings.ray.mode == "service":
        objects.append(_object("v1", "ConfigMap", args.scripts, data=script_files(SERVICE_POD)))
    return [*objects, *rules(args), *with_supporting(args)]


def ingress_policy(args: RayArgs) -> dict[str, Any]:
    """Return the NetworkPolicy of the pods: from each other, KubeRay's operator and the metrics collector.

    Egress stays open: jobs download data and report to services that cannot be listed here. RDMA, the second host NIC
    and `kubectl port-forward`, which uses the kubelet, bypass network policies.
    """
    pods = {"podSelector": {"matchLabels": args.labels}}
    operator: dict[str, Any]
    if not args.settings.own_cluster:
        chosen = [{"key": label, "operator": "In", "values": list(KUBERAY_NAMES)} for label in KUBERAY_LABELS]
        operator = {"namespaceSelector": {}, "podSelector": {"matchExpressions": chosen}}
    else:
        operator = {"namespaceSelector": _namespace(KUBERAY_NAMESPACE), "podSelector": {"matchLabels": KUBERAY_LABELS}}
    operated = args.settings.ray.mode != "indexed-job"
    # The operator asks the head's proxy of Ray Serve whether it takes requests.
    asked = (DASHBOARD_PORT, SERVE_PORT) if args.settings.ray.mode == "service" else (DASHBOARD_PORT,)
    spec = {
        **pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            _allow(pods),
            *([_allow(operator, *asked)] if operated else []),
            _allow({"namespaceSelector": _namespace(args.metrics_namespace)}, *_metrics_ports(args)),
        ],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", f"{args.name}-ingress", spec=spec)


def head_budget(args: RayArgs) -> dict[str, Any]:
    """Return the head's PodDisruptionBudget.

    The loss of the head ends every job, so an upgrade of its node waits (on GKE up to an hour). Workers have no budget:
    it does not keep clouds from reclaiming GPU nodes, and idle nodes should be removed.
    """
    spec = {
        # Not maxUnavailable 0: a RayCluster has no scale subresource, so the controller cannot count the expected pods
        # and the budget fails to sync (seen with Kubernetes 1.36.1, 2026-11-21).
        "minAvailable": 1,
        "selector": {"matchLabels": {**args.labels, NODE_TYPE: "head"}},
    }
    return _object("policy/v1", "PodDisruptionBudget", f"{args.name}-head", spec=spec)


def first_pod_service(args: RayArgs) -> dict[str, Any]:
    """Return the Service of the first pod of an Indexed Job."""
    return _object("v1", "Service", head_service(args), spec=head_service_spec(args))


def pod_monitoring(args: RayArgs) -> dict[str, Any]:
    """Return the object by which GKE's collectors find the metrics: they read those of the ports that a pod has."""
    cluster = {"from": RAY_CLUSTER, "to": "ray_io_cluster"}
    return {
        "apiVersion": POD_MONITORING_API,
        "kind": "PodMonitoring",
        "metadata": {"name": args.name},
        "spec": {
            "selector": {"matchLabels": args.labels},
            "endpoints": [{"port": port, "interval": INTERVAL} for port in _metrics_ports(args)],
            **({} if args.settings.monitoring == "none" else {"targetLabels": {"fromPod": [cluster]}}),
        },
    }


def _metrics_ports(args: RayArgs) -> tuple[int, ...]:
    return METRICS_PORTS if args.settings.monitoring == "none" else (*METRICS_PORTS, NIC_METRICS_PORT)


def _object(api: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def _allow(peer: dict[str, Any], *ports: int) -> dict[str, Any]:
    """Return a rule for one peer; without ports, for all ports."""
    limited = {"ports": [{"protocol": "TCP", "port": port} for port in ports]} if ports else {}
    return {"from": [peer], **limited}


def _namespace(name: str) -> dict[str, Any]:
    """Return the selector of a namespace by the label that every namespace has (Kubernetes 1.21 and later)."""
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}
