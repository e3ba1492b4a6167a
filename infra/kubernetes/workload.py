"""Arguments of RayCluster, RayJob and IndexedJob, and the supporting resources that each of them creates.

Supporting resources are the namespace, the pods' ServiceAccounts, Ray's token, the NetworkPolicy, the head's
PodDisruptionBudget, the objects that the pods name, and the LocalQueue. There is no Service for clients and no Ingress:
`kubectl port-forward` reaches the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_random as random
from pulumi import Alias, ResourceOptions
from pulumi_kubernetes import core, meta, networking, policy

from infra.fabric import GpuPod, Variable
from infra.kubernetes.pods import (
    CLUSTER_SCOPED,
    DASHBOARD_PORT,
    HEAD_ACCOUNT,
    JOB_LABEL,
    KUBERAY_LABELS,
    KUBERAY_NAMESPACE,
    METRICS_PORTS,
    NAMESPACE,
    TOKEN_KEY,
    WORKER_ACCOUNT,
    SharedFolder,
)
from infra.kubernetes.queue_objects import LOCAL_QUEUE, admission_marks, local_queue
from infra.kubernetes.queues import Queue
from infra.kubernetes.resources import custom_resource
from infra.settings import CloudSettings

TOKEN_LENGTH = 43
"""Letters and digits: 256 bits, as many as the tokens that KubeRay generates."""


@dataclass(frozen=True, kw_only=True)
class RayArgs:
    """Arguments of `RayCluster`, `RayJob` and `IndexedJob`.

    Args:
        name: Name of the RayCluster, RayJob or Job, and prefix of the names of its supporting resources.
        pod: Requirements of a worker pod that owns the GPUs and NICs of its node.
        folder: The shared folder; None without one.
        head_selector: Labels of the nodes for the head, which have no GPUs.
        head_environment: Variables that the head needs on this cloud.
        metrics_namespace: Namespace whose pods may read metrics.
        queue: Queue that admits the workload; None without one.
        depends_on: Resources created before the pods and deleted after them: operators, node pools, drivers.
    """

    settings: CloudSettings
    name: str
    pod: GpuPod
    folder: SharedFolder | None
    head_selector: Mapping[str, str]
    head_environment: Sequence[Variable] = ()
    metrics_namespace: str
    queue: Queue | None
    depends_on: Sequence[pulumi.Resource]

    @property
    def entrypoint(self) -> str:
        """Command line of a RayJob or an Indexed Job."""
        return str(self.settings.ray.entrypoint)

    @property
    def autoscaled(self) -> bool:
        """Whether Ray's autoscaler changes the number of workers. A job or a queued cluster has a fixed size."""
        return self.settings.ray.mode == "cluster" and self.settings.queue == "none"

    @property
    def labels(self) -> dict[str, str]:
        """Labels that identify the pods of this workload."""
        return {"ray.io/cluster" if self.settings.ray.mode == "cluster" else JOB_LABEL: self.name}

    @property
    def token_secret(self) -> str:
        """Name of the Secret with Ray's token."""
        return f"{self.name}-token"


@dataclass(frozen=True, kw_only=True)
class Supporting:
    """The supporting resources of a workload.

    Args:
        token: Ray's token, secret.
        resources: Resources that must exist before the first pod.
    """

    namespace: pulumi.Output[str]
    token: pulumi.Output[str]
    resources: Sequence[pulumi.Resource]


def supporting_resources(name: str, args: RayArgs, opts: ResourceOptions) -> Supporting:
    """Create the supporting resources; `name` is the prefix of their names in the stack."""
    operated = args.settings.ray.mode != "indexed-job"
    resource = core.v1.Namespace(name, metadata=meta.v1.ObjectMetaArgs(name=NAMESPACE), opts=opts)
    namespace = resource.metadata["name"]
    accounts = [
        core.v1.ServiceAccount(
            account,
            metadata=meta.v1.ObjectMetaArgs(name=account, namespace=namespace),
            # KubeRay grants the autoscaler's permissions to the head's account. No other pod calls the API server.
            automount_service_account_token=account == HEAD_ACCOUNT and args.autoscaled,
            opts=opts,
        )
        for account in ((HEAD_ACCOUNT, WORKER_ACCOUNT) if operated else (WORKER_ACCOUNT,))
    ]
    password = random.RandomPassword(f"{name}-token", length=TOKEN_LENGTH, special=False, opts=opts)
    secret = core.v1.Secret(
        f"{name}-token",
        metadata=meta.v1.ObjectMetaArgs(name=args.token_secret, namespace=namespace),
        string_data={TOKEN_KEY: password.result},
        opts=opts,
    )
    ingress = networking.v1.NetworkPolicy(
        f"{name}-ingress",
        metadata=meta.v1.ObjectMetaArgs(name=f"{args.name}-ingress", namespace=namespace),
        spec=_ingress(args.labels, args.metrics_namespace, operated=operated),
        opts=opts,
    )
    if operated:
        policy.v1.PodDisruptionBudget(
            f"{name}-head",
            metadata=meta.v1.ObjectMetaArgs(name=f"{args.name}-head", namespace=namespace),
            # The loss of the head ends every job, so an upgrade of its node waits (on GKE up to an hour). Workers have
            # no budget: it does not keep clouds from reclaiming GPU nodes, and idle nodes should be removed.
            spec=policy.v1.PodDisruptionBudgetSpecArgs(
                # Not max_unavailable=0: a RayCluster has no scale subresource, so the controller cannot count the
                # expected pods and the budget fails to sync (seen with Kubernetes 1.36.1, 2026-11-21).
                min_available=1,
                selector=meta.v1.LabelSelectorArgs(match_labels={**args.labels, "ray.io/node-type": "head"}),
            ),
            opts=opts,
        )
    manifests = [*args.pod.objects, *(args.folder.objects if args.folder else ())]
    resources = [*accounts, secret, ingress, *(_pod_object(manifest, namespace, opts) for manifest in manifests)]
    if args.queue is not None:
        # Deleted before the ClusterQueue, which Kueue keeps as long as a LocalQueue refers to it.
        after = ResourceOptions.merge(opts, ResourceOptions(depends_on=[args.queue.cluster_queue]))
        resources.append(custom_resource(f"{name}-queue", local_queue(), after, namespace))
    return Supporting(namespace=namespace, token=pulumi.Output.secret(password.result), resources=resources)


def workload_metadata(
    args: RayArgs, namespace: pulumi.Input[str], annotations: Mapping[str, str] | None = None
) -> meta.v1.ObjectMetaArgs:
    """Return the metadata of the RayCluster, RayJob or Job."""
    labels, marks = admission_marks(LOCAL_QUEUE, args.queue.max_run_s) if args.queue else (None, {})
    return meta.v1.ObjectMetaArgs(
        name=args.name,
        namespace=namespace,
        # Not awaited: it is ready when all pods run or the job has succeeded, which may take hours.
        annotations={"pulumi.com/skipAwait": "true", **(annotations or {}), **marks},
        labels=labels,
    )


def workload_spec(args: RayArgs, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the RayCluster, RayJob or Job; suspended if a queue admits it.

    Kueue's webhook also sets `suspend`; set here, it applies even while the webhook does not answer.
    """
    return {**({"suspend": True} if args.queue else {}), **spec}


def workload_options(
    parent: pulumi.Resource,
    args: RayArgs,
    supporting: Sequence[pulumi.Resource],
    *,
    ignore_changes: Sequence[str] = (),
    replace_on_changes: Sequence[str] = (),
) -> ResourceOptions:
    """Return the options of the RayCluster, RayJob or Job.

    Kueue's changes of the pod templates (labels of the flavor's nodes, annotations of the request) do not show in a
    preview: they concern other fields, or set the same values (`gpu_pod` of the cloud).
    """
    return ResourceOptions(
        parent=parent,
        # The pods name all of these, and the NetworkPolicy must exist before the first port opens.
        depends_on=[*supporting, *args.depends_on],
        # Kueue owns spec.suspend.
        ignore_changes=[*ignore_changes, *(["spec.suspend"] if args.queue else [])],
        # Kueue moves no running workload into or out of a queue (pkg/controller/jobframework/validation.go, 0.19.2).
        replace_on_changes=[*replace_on_changes, "metadata.labels"],
        # The name is fixed.
        delete_before_replace=True,
    )


def replacing_other_modes(type_: str, opts: ResourceOptions | None) -> ResourceOptions:
    """Return the caller's options, with the components of the other values of `ray.mode` as aliases.

    The supporting resources keep their identity when the mode changes. Without aliases the engine would create the new
    namespace before it deletes the old one of the same name.
    """
    types = ("rdma-ray:kubernetes:RayCluster", "rdma-ray:kubernetes:RayJob", "rdma-ray:kubernetes:IndexedJob")
    return ResourceOptions.merge(
        opts, ResourceOptions(aliases=[Alias(type_=other) for other in types if other != type_])
    )


def _ingress(
    labels: Mapping[str, str], metrics_namespace: str, *, operated: bool
) -> networking.v1.NetworkPolicySpecArgs:
    """Return the ingress rules of pods with these labels: each other, KubeRay's operator, and the metrics collector.

    Egress stays open: jobs download data and report to services that cannot be listed here. RDMA, the second host NIC
    and `kubectl port-forward`, which uses the kubelet, bypass network policies.
    """
    pods = meta.v1.LabelSelectorArgs(match_labels=dict(labels))
    operator = networking.v1.NetworkPolicyPeerArgs(
        namespace_selector=_namespace(KUBERAY_NAMESPACE),
        pod_selector=meta.v1.LabelSelectorArgs(match_labels=KUBERAY_LABELS),
    )
    metrics = networking.v1.NetworkPolicyPeerArgs(namespace_selector=_namespace(metrics_namespace))
    return networking.v1.NetworkPolicySpecArgs(
        pod_selector=pods,
        policy_types=["Ingress"],
        ingress=[
            _allow(networking.v1.NetworkPolicyPeerArgs(pod_selector=pods)),
            *([_allow(operator, DASHBOARD_PORT)] if operated else []),
            _allow(metrics, *METRICS_PORTS),
        ],
    )


def _allow(peer: networking.v1.NetworkPolicyPeerArgs, *ports: int) -> networking.v1.NetworkPolicyIngressRuleArgs:
    """Return a rule for one peer; without ports, for all ports."""
    listed = [networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=port) for port in ports]
    return networking.v1.NetworkPolicyIngressRuleArgs(from_=[peer], ports=listed or None)


def _namespace(name: str) -> meta.v1.LabelSelectorArgs:
    """Return the selector of a namespace by the label that every namespace has (Kubernetes 1.21 and later)."""
    return meta.v1.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": name})


def _pod_object(manifest: Mapping[str, Any], namespace: pulumi.Input[str], opts: ResourceOptions) -> pulumi.Resource:
    """Create an object that a pod names."""
    name, kind = manifest["metadata"]["name"], manifest["kind"]
    if kind == "PersistentVolumeClaim":
        # With the typed resource, the provider waits until the claim is bound.
        return core.v1.PersistentVolumeClaim(
            name,
            metadata=cast("meta.v1.ObjectMetaArgsDict", {**manifest["metadata"], "namespace": namespace}),
            # The SDK passes Kubernetes' field names on unchanged.
            spec=cast("core.v1.PersistentVolumeClaimSpecArgsDict", manifest["spec"]),
            opts=opts,
        )
    return custom_resource(name, manifest, opts, None if kind in CLUSTER_SCOPED else namespace)
