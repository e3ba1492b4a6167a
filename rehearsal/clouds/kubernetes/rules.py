"""Rules that no schema states: semantic rules of the API server, KubeRay and Kueue, and references between objects.

Rules that do not depend on a setting of a stack are left to the real API server and operators (depth `cluster` and
`tests/kubernetes`). KubeRay and Kueue accept some of these objects and never act on them, with an event or a condition;
the rehearsal refuses them, because otherwise `up` would succeed without a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from rehearsal.clouds.constraints import rule, rules_of
from rehearsal.clouds.kubernetes import identity, pods, schemas
from rehearsal.clouds.kubernetes.connection import CLUSTER, here, version
from rehearsal.clouds.kubernetes.identity import PRESENT, ObjectApi, api, name, namespace
from rehearsal.clouds.kubernetes.pods import to
from rehearsal.clouds.kubernetes.quantities import amount
from rehearsal.engine.kind import Call, Json, Reference, value_at
from rehearsal.engine.state import View

CHARTS: list[Json] = yaml.safe_load(Path(__file__).with_name("charts.yaml").read_text())
"""Helm charts; the file describes its fields."""
KNOWN = [chart["name"] for chart in CHARTS]
_QUEUED = (identity.JOB, identity.RAY_CLUSTER, identity.RAY_JOB)
_SAMPLES = "ray-project/kuberay: ray-operator/config/samples, v1.6.2, 2026-06-17"
_KUEUE_SAMPLES = "kubernetes-sigs/kueue: site/static/examples, 0.19.2, ff69552e, 2026-08-22"

_ON_EVERY_GKE = frozenset(
    {
        ("cloud.google.com", "ComputeClass"),
        ("monitoring.googleapis.com", "PodMonitoring"),
        ("monitoring.googleapis.com", "ClusterRules"),
    }
)
"""Custom kinds of every GKE cluster: GKE docs, 2026-04-13; GoogleCloudPlatform/prometheus-engine, read 2026-11-28."""
_IMMUTABLE = {
    "AdmissionCheck": ("spec.controllerName",),
    "Job": ("spec.completionMode", "spec.podFailurePolicy", "spec.backoffLimitPerIndex", "spec.successPolicy"),
    "LocalQueue": ("spec.clusterQueue",),
    "PriorityClass": ("value",),
    "ResourceClaimTemplate": ("spec",),
    "Topology": ("spec.levels",),
}
"""Immutable fields for whose change the provider does not replace the object (`cloud.REPLACE_ON`)."""


@rule(
    refused="pulumi/pulumi-kubernetes #1144, 2020-05-25: no matches for kind, the chart's CRDs came later",
    accepted=f"{_SAMPLES}, applied after the chart kuberay-operator (KubeRay docs, getting started)",
    status="404 NotFound",
)
def kind_is_served(call: Call) -> str | None:
    """A custom kind needs its chart, or a feature of the cluster; a built-in kind needs a version that has it."""
    kind = api(call.type)
    if _served(call, kind):
        return None
    return (
        f"{call.verb} of {kind.kind} {call.id} failed because the Kubernetes API server reported that the apiVersion "
        "for this resource does not exist. Verify that any required CRDs have been created: "
        f'no matches for kind "{kind.kind}" in version "{kind.written}"'
    )


@rule(
    "update",
    refused="kubernetes/kubernetes #89657, 2020-03-30: field is immutable; the fields are those of pkg/apis, 1.36.1",
    accepted="kubernetes-sigs/kueue: webhook tests of updates (pkg/webhooks, 0.19.2): other fields change",
    status="422 Invalid",
)
def immutable_field_is_kept(call: Call) -> str | None:
    """Some fields cannot change, and their object has to be replaced."""
    for path in _IMMUTABLE.get(api(call.type).kind, ()):
        if value_at(call.now, path) != value_at(call.live, path):
            return f"{path}: Invalid value: field is immutable"
    return None


@rule(
    "update",
    refused="banzaicloud/koperator #469, 2020-10-02: only dynamically provisioned pvc can be resized",
    accepted="nebius/soperator #1786, 2025-11-18: a class with allowVolumeExpansion, also without a provisioner",
    status="403 Forbidden",
)
def claim_grows_by_its_class(call: Call) -> str | None:
    """A claim requests more only if its class expands volumes; one of a volume that was there before has no class.

    Kubernetes: plugin/pkg/admission/storage/persistentvolume/resize/admission.go, read 2026-11-26.
    """
    if _claimed(call.now) <= _claimed(call.live) or call.type != identity.CLAIM:
        return None
    class_ = call.state.get(identity.STORAGE_CLASS, str(value_at(call.live, "spec.storageClassName")))
    if (class_ or {}).get("allowVolumeExpansion"):
        return None
    return (
        f'persistentvolumeclaims "{name(call.inputs)}" is forbidden: only dynamically provisioned pvc can be resized '
        "and the storageclass that provisions the pvc must support resize"
    )


@rule(
    "update",
    refused="apecloud/kubeblocks #683, 2022-11-23: field can not be less than previous value",
    accepted="nebius/soperator #1786, 2025-11-18: a larger one",
    status="422 Invalid",
)
def claim_does_not_shrink(call: Call) -> str | None:
    """A claim does not request less than it has."""
    if call.type != identity.CLAIM or _claimed(call.now) >= _claimed(call.live):
        return None
    return "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"


def _claimed(claim: Json) -> Decimal:
    return amount(value_at(claim, "spec.resources.requests.storage") or 0)


@rule(
    refused="WASdev/sample.voice.gateway #208, 2020-10-08: `selector` does not match template `labels`",
    accepted="kubernetes/website 0a1ade96: content/en/examples/controllers/daemonset.yaml",
    status="422 Invalid",
)
def selector_matches_template(call: Call) -> str | None:
    """The selector of a DaemonSet, Deployment or StatefulSet matches the labels of its pods."""
    wanted = value_at(call.inputs, "spec.selector.matchLabels") if api(call.type).group == "apps" else None
    labels = value_at(call.inputs, "spec.template.metadata.labels") or {}
    if all(labels.get(key) == value for key, value in (wanted or {}).items()):
        return None
    return "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`"


@rule(
    "update",
    refused="pulumi/pulumi-kubernetes #2491, 2024-12-27: apply conflicts with another field manager",
    accepted="pulumi/pulumi-kubernetes #2257, 2022-12-07: pulumi.com/patchForce overrides the conflict",
    status="409 Conflict",
)
def worker_groups_have_one_writer(call: Call) -> str | None:
    """A RayCluster's worker groups are one list without a merge key, so that its last writer owns all of it; likewise a
    RayService's (seen with KubeRay 1.6.2, 2026-11-23)."""
    own = {
        identity.RAY_CLUSTER: "spec.workerGroupSpecs",
        identity.RAY_SERVICE: "spec.rayClusterConfig.workerGroupSpecs",
    }
    groups = value_at(call.live, own.get(call.type, "-")) or ()
    forced = (value_at(call.inputs, "metadata.annotations") or {}).get("pulumi.com/patchForce")
    if call.type not in own or forced == "true":
        return None
    # Ray's autoscaler sets no field manager, so the API server uses the name of its HTTP client.
    other = "python-requests" if call.type == identity.RAY_CLUSTER else "kuberay-operator"
    writers = {other: any("scaleStrategy" in group for group in groups)}
    labels = [value_at(group, "template.metadata.labels") or {} for group in groups]
    writers["kueue"] = any(f"{identity.KUEUE}/podset" in each for each in labels)
    for writer in (writer for writer, wrote in writers.items() if wrote):
        return f'Apply failed with 1 conflict: conflict with "{writer}" using ray.io/v1: .{own[call.type]}'
    return None


@rule(
    refused="ray-project/kuberay #4100, 2025-09-25: objects of a cluster with a long name are invalid; limits: #3083",
    accepted=_SAMPLES,
    status="KubeRay event InvalidRayClusterMetadata",
)
def ray_name_fits(call: Call) -> str | None:
    """Names of services and pods contain the name of a Ray object, so it is short and begins with a letter."""
    longest = {identity.RAY_CLUSTER: 53, identity.RAY_JOB: 47, identity.RAY_SERVICE: 47}.get(call.type)
    its = name(call.inputs)
    if longest is None or (len(its) <= longest and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", its)):
        return None
    return f"{api(call.type).kind} name {its} should be a DNS1035 label of no more than {longest} characters"


@rule(
    refused="ray-project/kuberay: controllers/ray/utils/validation.go, v1.6.2, 2026-06-17 (version: #4201, 2025-11-18)",
    accepted=f"{_SAMPLES}: ray-cluster.auth.yaml",
    status="KubeRay event InvalidRayClusterSpec",
)
def token_needs_ray_version(call: Call) -> str | None:
    """Token authentication needs Ray 2.52, as set in `rayVersion`."""
    for spec in _ray_clusters(call):
        parsed = re.match(r"v?(\d+)\.(\d+)", str(spec.get("rayVersion")))
        if value_at(spec, "authOptions.mode") == "token" and not (
            parsed and (int(parsed[1]), int(parsed[2])) >= (2, 52)
        ):
            return f"authOptions.mode is 'token' but minimum Ray version is 2.52.0, got {spec.get('rayVersion')}"
    return None


@rule(
    refused="project-codeflare/codeflare-sdk #1076, 2026-05-07: both leave the cluster suspended",
    accepted=f"{_KUEUE_SAMPLES}: jobs/ray-cluster-sample.yaml",
    status="403 Forbidden",
)
def queued_cluster_is_not_autoscaled(call: Call) -> str | None:
    """Kueue admits a cluster as a whole, and refuses one that Ray's autoscaler would resize, unless it is elastic."""
    elastic = (value_at(call.inputs, "metadata.annotations") or {}).get(f"{identity.KUEUE}/elastic-job") == "true"
    if elastic or not is_queued(call) or not any(spec.get("enableInTreeAutoscaling") for spec in _ray_clusters(call)):
        return None
    return (
        "enableInTreeAutoscaling: Invalid value: true: a kueue managed job can use autoscaling only as an elastic job"
    )


@rule(
    refused="kubernetes-sigs/kueue #3994, 2026-08-20: Kueue requires shutdownAfterJobFinishes of every queued RayJob",
    accepted=f"{_SAMPLES}: ray-job.kueue-toy-sample.yaml",
    status="403 Forbidden",
)
def queued_job_deletes_its_cluster(call: Call) -> str | None:
    """A queued RayJob releases its nodes when it ends."""
    spec: Json = call.inputs.get("spec") or {}
    if call.type != identity.RAY_JOB or not is_queued(call) or spec.get("shutdownAfterJobFinishes"):
        return None
    return (
        "shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing"
    )


@rule(
    "delete",
    refused="kubernetes-sigs/kueue #1253, 2023-10-25: a ClusterQueue with workloads stays in Terminating",
    accepted="kubernetes-sigs/kueue #2921, 2024-08-28: without workloads, the finalizer is removed",
    status="timeout",
)
def cluster_queue_is_drained(call: Call) -> str | None:
    """A ClusterQueue with workloads is not deleted."""
    for type_, id_, live in call.state.all() if call.type == identity.CLUSTER_QUEUE else ():
        queue = (value_at(live, "metadata.labels") or {}).get(identity.QUEUE)
        local = call.state.get(identity.LOCAL_QUEUE, f"{id_.partition('/')[0]}/{queue}") if queue else None
        if value_at(local, "spec.clusterQueue") == call.id:
            workload = f"{type_.rpartition(':')[2]} {id_}"
            return f"finalizer {identity.KUEUE}/resource-in-use stays: {workload} uses the queue"
    return None


RULES = rules_of(globals())


def references(type_: str) -> Iterator[Reference]:
    """Yield the objects that an object of this type refers to.

    Kueue protects objects in use with finalizers, and so does GKE (kubernetes-sigs/kueue: pkg/controller/core, 0.19.2;
    kubernetes/cloud-provider-gcp: pkg/controller/gkenetworkparamset, 04532690, read 2026-11).
    """
    if api(type_).namespaced:
        yield to("metadata.namespace", identity.NAMESPACE, _created_namespace)
    if type_ in _QUEUED:
        yield to("metadata.labels", identity.LOCAL_QUEUE, _local_queue)
    yield from pods.references(type_)
    yield from _REFERENCES.get(type_, ())


def _local_queue(labels: Any, inputs: Json, config: Mapping[str, Any]) -> str | None:
    queue = labels.get(identity.QUEUE) if isinstance(labels, dict) else None
    return f"{namespace(inputs, config)}/{queue}" if queue else None


def _created_namespace(value: Any, _inputs: Json, _config: Mapping[str, Any]) -> str | None:
    return None if value in PRESENT else str(value)


_REFERENCES: Mapping[str, tuple[Reference, ...]] = {
    identity.CLAIM: (to("spec.volumeName", identity.VOLUME),),
    identity.LOCAL_QUEUE: (to("spec.clusterQueue", identity.CLUSTER_QUEUE),),
    identity.CLUSTER_QUEUE: (
        to("spec.resourceGroups.flavors.name", identity.RESOURCE_FLAVOR, holds=True),
        to("spec.admissionChecksStrategy.admissionChecks.name", identity.ADMISSION_CHECK, holds=True),
    ),
    identity.ADMISSION_CHECK: (to("spec.parameters.name", identity.PROVISIONING),),
    identity.RESOURCE_FLAVOR: (to("spec.topologyName", identity.TOPOLOGY, holds=True),),
    identity.NETWORK: (to("spec.parametersRef.name", identity.PARAM_SET, holds=True),),
    identity.PARAM_SET: (
        to("spec.vpc", "gcp:compute/network:Network", by="name"),
        to("spec.vpcSubnet", "gcp:compute/subnetwork:Subnetwork", by="name"),
    ),
    identity.COMPUTE_CLASS: (to("spec.priorities.nodepools", "gcp:container/nodePool:NodePool", by="name"),),
}


def _served(call: Call, kind: ObjectApi) -> bool:
    id_, cluster = here(call)
    if schemas.unknown(kind):
        return False
    if not kind.custom:
        running = version(cluster)
        # Kubernetes 1.34 release notes: resource.k8s.io/v1 is served from 1.34.
        old = (kind.group, kind.version) == ("resource.k8s.io", "v1") and running is not None and running < (1, 34)
        return not old
    if kind.group == "networking.gke.io":
        # GKE docs, multi-network support for Pods, 2026-08.
        return value_at(cluster, "enableMultiNetworking") in (True, "true")
    if (kind.group, kind.kind) in _ON_EVERY_GKE:
        return call.state.get(CLUSTER, id_) is not None
    return installed(kind.group, call.state)


def chart_of(release: Json) -> Json | None:
    """Return the chart of a release. Helm requires the full URL of an OCI chart, without a separate repository."""
    named, repository = release.get("chart"), str((release.get("repositoryOpts") or {}).get("repo") or "").rstrip("/")
    for chart in CHARTS:
        if (named, repository) in ((chart["repository"], ""), (chart["name"], chart["repository"])):
            return chart
    return None


def installed(group: str, state: View) -> bool:
    """Return whether a chart with the CRDs of a group is installed, or the user's cluster has them."""
    releases = (chart_of(live) for _, _, live in state.all(identity.RELEASE))
    users = (value_at(live, "spec.group") for _, _, live in state.all(identity.DEFINITION))
    return group in users or any(group in chart.get("groups", ()) for chart in releases if chart)


def is_queued(call: Call) -> bool:
    """Return whether Kueue manages the job of a call."""
    queue = (value_at(call.inputs, "metadata.labels") or {}).get(identity.QUEUE)
    return bool(queue) and call.type in _QUEUED and installed(identity.KUEUE, call.state)


def _ray_clusters(call: Call) -> Iterator[Json]:
    paths = {identity.RAY_CLUSTER: "spec", identity.RAY_JOB: "spec.rayClusterSpec"}
    path = (paths | {identity.RAY_SERVICE: "spec.rayClusterConfig"}).get(call.type)
    spec = value_at(call.inputs, path) if path else None
    if isinstance(spec, dict):
        yield spec
