"""Invalid requests for Kueue's objects, queued jobs and RayJobs."""

from __future__ import annotations

from typing import Any

from rehearsal.clouds.kind import Json, Rule
from rehearsal.clouds.kubernetes import fields, helm, queued, queues, ray_job
from rehearsal.clouds.kubernetes.identity import RELEASE
from rehearsal.clouds.kubernetes.kueue_shapes import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    PROVISIONING,
    RESOURCE_FLAVOR,
    TOPOLOGY,
)
from tests.rehearsal.kubernetes_objects import JOB, RAY_CLUSTER, RAY_JOB, RIGHT, named
from tests.rehearsal.kubernetes_queues import PRIORITY_CLASS, RIGHT_QUEUES, everywhere, quotas
from tests.rehearsal.kubernetes_wrong import Wrong

GROUP = "spec/resourceGroups/0"
CHECKS = "spec/admissionChecksStrategy/admissionChecks"
CLUSTER = "spec/rayClusterSpec"
WORKERS = "spec/rayClusterSpec/workerGroupSpecs"
QUEUED = "metadata/labels/kueue.x-k8s.io~queue-name"
FIXED_SIZE = (QUEUED, "lq"), (f"{CLUSTER}/enableInTreeAutoscaling", False)
NO_KUEUE = ((RELEASE, "kueue-system/kueue"),)


def queued_job(rule: Rule, path: str, new: Any, says: str, **more: Any) -> Wrong:
    """A queued RayJob of fixed size with one invalid value."""
    return Wrong(rule, RAY_JOB, path, new, says, also=FIXED_SIZE, **more)


WORKER: Json = RIGHT[RAY_CLUSTER]["spec"]["workerGroupSpecs"][0]
TOLERATION = {"key": "a", "operator": "Exists"}
WISHES = {f"kueue.x-k8s.io/podset-{wish}-topology": "rack" for wish in ("required", "preferred")}

WRONG_QUEUES = (
    # v1beta1 has the field, v1beta2 does not.
    Wrong(fields.unknown_field, CLUSTER_QUEUE, "spec/admissionChecks", [], "spec.admissionChecks"),
    Wrong(fields.unknown_field, CLUSTER_QUEUE, "spec/cohort", "all", "spec.cohort"),
    Wrong(fields.unknown_field, PROVISIONING, "spec/retryStrategy/limit", 3, "spec.retryStrategy.limit"),
    Wrong(fields.wrong_type, PROVISIONING, "spec/retryStrategy/backoffLimitCount", "3", "cannot unmarshal string"),
    Wrong(fields.wrong_type, CLUSTER_QUEUE, f"{CHECKS}/0/onFlavors", "queued", "cannot unmarshal string"),
    Wrong(fields.wrong_type, PRIORITY_CLASS, "value", "high", "cannot unmarshal string"),
    Wrong(fields.required_field, PRIORITY_CLASS, "value", None, "value: Required value"),
    Wrong(fields.required_field, ADMISSION_CHECK, "spec/parameters/kind", None, "spec.parameters.kind: Required"),
    Wrong(fields.choice_not_offered, PROVISIONING, "spec/podSetMergePolicy", "Identical", "IdenticalPodTemplates"),
    Wrong(fields.choice_not_offered, CLUSTER_QUEUE, "spec/queueingStrategy", "FIFO", "BestEffortFIFO"),
    Wrong(queues.list_too_short_or_long, TOPOLOGY, "spec/levels", [], "at least 1 items"),
    Wrong(queues.list_too_short_or_long, RESOURCE_FLAVOR, "spec/tolerations", [TOLERATION] * 9, "at most 8"),
    Wrong(queues.resources_do_not_match, CLUSTER_QUEUE, f"{GROUP}/coveredResources", ["cpu"], "the same number"),
    Wrong(
        queues.resources_do_not_match,
        CLUSTER_QUEUE,
        f"{GROUP}/coveredResources",
        ["memory", "cpu", "nvidia.com/gpu"],
        "must match the name in coveredResources",
    ),
    Wrong(
        queues.resource_or_flavor_twice,
        CLUSTER_QUEUE,
        f"{GROUP}/flavors/1",
        quotas("system", cpu=1, memory=1, gpu=1),
        'flavors[1].name: Duplicate value: "system"',
    ),
    Wrong(
        queues.resource_or_flavor_twice,
        CLUSTER_QUEUE,
        "spec/resourceGroups",
        [{"coveredResources": ["cpu"], "flavors": [quotas(name, cpu=1)]} for name in ("system", "queued")],
        'resourceGroups[1].coveredResources[0]: Duplicate value: "cpu"',
        also=((CHECKS, [{"name": "dws"}]),),
    ),
    Wrong(
        queues.quota_unfit,
        CLUSTER_QUEUE,
        f"{GROUP}/flavors/1/resources/2/nominalQuota",
        -8,
        "must be greater than or equal to 0",
    ),
    Wrong(
        queues.quota_unfit,
        CLUSTER_QUEUE,
        f"{GROUP}/flavors/1/resources/2/borrowingLimit",
        8,
        "must be nil when cohort is empty",
    ),
    Wrong(
        queues.check_on_other_flavor,
        CLUSTER_QUEUE,
        f"{CHECKS}/0/onFlavors/0",
        "gpu",
        'Unsupported value: "gpu": supported values: "system", "queued"',
    ),
    Wrong(queues.queue_inactive, CLUSTER_QUEUE, says="FlavorNotFound", gone=((RESOURCE_FLAVOR, "queued"),)),
    Wrong(queues.queue_inactive, CLUSTER_QUEUE, says="AdmissionCheckNotFound", gone=((ADMISSION_CHECK, "dws"),)),
    Wrong(queues.check_without_parameters, ADMISSION_CHECK, says="not found", gone=((PROVISIONING, "dws"),)),
    Wrong(queues.check_without_parameters, ADMISSION_CHECK, "spec/parameters", None, "BadParametersRef"),
    Wrong(queues.parameters_misnamed, ADMISSION_CHECK, "spec/parameters/name", "dws.config", "DNS label"),
    Wrong(queues.flavor_taints_unfit, RESOURCE_FLAVOR, "spec/nodeTaints/0/effect", "Never", "taint effect values"),
    Wrong(queues.flavor_taints_unfit, RESOURCE_FLAVOR, "spec/tolerations/0/value", "x", "must be empty"),
    Wrong(queues.flavor_taints_unfit, RESOURCE_FLAVOR, "spec/tolerations/0", {"effect": "NoSchedule"}, "when 'key'"),
    Wrong(queues.flavor_taints_unfit, RESOURCE_FLAVOR, "spec/tolerations/0/operator", "In", "'Equal'(default)"),
    Wrong(queues.flavor_taints_unfit, RESOURCE_FLAVOR, "spec/tolerations/0/tolerationSeconds", 9, "'NoExecute' when"),
    Wrong(queues.flavor_labels_unfit, RESOURCE_FLAVOR, "spec/nodeLabels", {}, "at least one nodeLabel"),
    Wrong(queues.flavor_labels_unfit, RESOURCE_FLAVOR, "spec/nodeLabels", {f"l{n}": "" for n in range(9)}, "at most 8"),
    Wrong(queues.flavor_labels_unfit, RESOURCE_FLAVOR, says="TopologyNotFound", gone=((TOPOLOGY, "racks"),)),
    Wrong(queues.levels_unfit, TOPOLOGY, "spec/levels/1/nodeLabel", "rack", "must be unique"),
    Wrong(queues.levels_unfit, TOPOLOGY, "spec/levels/0/nodeLabel", "kubernetes.io/hostname", "must be unique"),
    Wrong(
        queues.levels_unfit,
        TOPOLOGY,
        "spec/levels",
        [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}],
        "only be used at the lowest level",
    ),
    Wrong(queues.fixed_field_changed, LOCAL_QUEUE, "spec/clusterQueue", "other", "immutable", "update", "right"),
    Wrong(queues.fixed_field_changed, ADMISSION_CHECK, "spec/controllerName", "other", "immutable", "update", "right"),
    Wrong(queues.fixed_field_changed, TOPOLOGY, "spec/levels/0/nodeLabel", "row", "immutable", "update", "right"),
    Wrong(
        queues.fixed_field_changed,
        RESOURCE_FLAVOR,
        "spec/nodeLabels/a",
        "b",
        "immutable when topologyName is set",
        "update",
        "right",
    ),
    Wrong(queues.finalizer_held, CLUSTER_QUEUE, verb="delete", says="not installed anymore", gone=NO_KUEUE),
    Wrong(
        queues.finalizer_held,
        RESOURCE_FLAVOR,
        "metadata/name",
        "queued",
        "in use by ClusterQueue queue",
        "delete",
        put=((CLUSTER_QUEUE, "queue", RIGHT_QUEUES[CLUSTER_QUEUE]),),
    ),
    Wrong(
        queues.finalizer_held,
        TOPOLOGY,
        "metadata/name",
        "racks",
        "in use by ResourceFlavor gpu",
        "delete",
        put=((RESOURCE_FLAVOR, "gpu", RIGHT_QUEUES[RESOURCE_FLAVOR]),),
    ),
    Wrong(
        queues.finalizer_held,
        CLUSTER_QUEUE,
        verb="delete",
        says="in use by the workload of RayJob ray/job",
        put=(
            (LOCAL_QUEUE, "ray/lq", RIGHT_QUEUES[LOCAL_QUEUE]),
            (RAY_JOB, "ray/job", {"metadata": {"labels": {queues.QUEUE: "lq"}}}),
        ),
    ),
    Wrong(queued.queued_and_autoscaled, RAY_CLUSTER, "metadata/labels", {queues.QUEUE: "lq"}, "elastic job"),
    queued_job(queued.queued_and_autoscaled, f"{CLUSTER}/enableInTreeAutoscaling", True, "workload slicing"),
    queued_job(queued.queued_and_kept, "spec/shutdownAfterJobFinishes", False, "delete the cluster after finishing"),
    queued_job(queued.queued_on_other_cluster, "spec/clusterSelector", {"ray.io/cluster": "a"}, "existing cluster"),
    queued_job(
        queued.too_many_pod_sets,
        WORKERS,
        [{**WORKER, "groupName": f"g{number}"} for number in range(18)],
        "Too many: 19: must have at most 18 items",
    ),
    queued_job(queued.group_called_head, f"{WORKERS}/0/groupName", "head", "reserved for the head group"),
    queued_job(queued.queue_misnamed, QUEUED, "l_q", "RFC 1123 subdomain"),
    queued_job(queued.queue_changed, QUEUED, "other", "field is immutable", verb="update", live="right"),
    queued_job(queued.longest_run_unfit, "metadata/labels/kueue.x-k8s.io~max-exec-time-seconds", "0", "greater than 0"),
    queued_job(
        queued.topology_wished_twice, f"{WORKERS}/0/template/metadata/annotations", WISHES, "more than one topology"
    ),
    Wrong(queued.queue_misnamed, JOB, QUEUED, "l_q", "vjob.kb.io", also=((QUEUED, "lq"),)),
    Wrong(ray_job.job_without_cluster, RAY_JOB, CLUSTER, None, "must be set"),
    Wrong(ray_job.job_without_cluster, RAY_JOB, "spec/clusterSelector", {"a": "b"}, "should not be empty"),
    Wrong(ray_job.deadline_not_positive, RAY_JOB, "spec/preRunningDeadlineSeconds", 0, "positive integer"),
    Wrong(ray_job.deadline_not_positive, RAY_JOB, "spec/activeDeadlineSeconds", -1, "positive integer"),
    Wrong(ray_job.retries_unfit, RAY_JOB, "spec/backoffLimit", -1, "backoffLimit must be a positive"),
    Wrong(
        ray_job.retries_unfit,
        RAY_JOB,
        "spec/backoffLimit",
        1,
        "incompatible with InteractiveMode",
        also=(("spec/submissionMode", "InteractiveMode"),),
    ),
    Wrong(
        ray_job.retries_unfit,
        RAY_JOB,
        "spec/backoffLimit",
        1,
        "incompatible with ClusterSelector",
        also=(("spec/clusterSelector", {"ray.io/cluster": "a"}),),
    ),
    Wrong(
        ray_job.suspended_and_kept,
        RAY_JOB,
        "spec/shutdownAfterJobFinishes",
        False,
        "not allowed to be suspended",
        also=(("spec/suspend", True), ("spec/ttlSecondsAfterFinished", 0)),
    ),
    Wrong(
        ray_job.suspended_and_kept,
        RAY_JOB,
        "spec/clusterSelector",
        {"ray.io/cluster": "a"},
        "doesn't support the suspend",
        also=(("spec/suspend", True),),
    ),
    Wrong(ray_job.time_to_live_unfit, RAY_JOB, "spec/ttlSecondsAfterFinished", -1, "non-negative"),
    Wrong(ray_job.time_to_live_unfit, RAY_JOB, "spec/shutdownAfterJobFinishes", False, "cannot have TTL"),
    Wrong(ray_job.deletion_said_twice, RAY_JOB, "spec/deletionStrategy", {}, "cannot be empty"),
    Wrong(
        ray_job.deletion_said_twice,
        RAY_JOB,
        "spec/deletionStrategy",
        {"deletionRules": [{"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED"}}]},
        "mutually exclusive",
    ),
    Wrong(
        ray_job.deletion_said_twice,
        RAY_JOB,
        "spec/deletionStrategy",
        {
            "onSuccess": {"policy": "DeleteCluster"},
            "deletionRules": [{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}}],
        },
        "simultaneously",
    ),
    Wrong(
        ray_job.sidecar_and_more,
        RAY_JOB,
        "spec/submitterConfig",
        {"backoffLimit": 1},
        "SubmitterConfig",
        also=(("spec/submissionMode", "SidecarMode"),),
    ),
    Wrong(
        ray_job.sidecar_and_more,
        RAY_JOB,
        "spec/clusterSelector",
        {"ray.io/cluster": "a"},
        "not supported in SidecarMode",
        also=(("spec/submissionMode", "SidecarMode"),),
    ),
    Wrong(
        ray_job.sidecar_and_more,
        RAY_JOB,
        f"{CLUSTER}/headGroupSpec/template/spec/restartPolicy",
        "Always",
        "when using SidecarMode",
        also=(("spec/submissionMode", "SidecarMode"), (f"{CLUSTER}/enableInTreeAutoscaling", False)),
    ),
    Wrong(ray_job.runtime_environment_malformed, RAY_JOB, "spec/runtimeEnvYAML", "pip: [", "RuntimeEnvYAML"),
    Wrong(ray_job.runtime_environment_malformed, RAY_JOB, "spec/runtimeEnvYAML", "torch", "RuntimeEnvYAML"),
    Wrong(
        ray_job.finalizer_without_operator,
        RAY_JOB,
        verb="delete",
        says="KubeRay is not installed anymore",
        gone=((RELEASE, "kuberay/kuberay-operator"),),
    ),
    Wrong(
        helm.kinds_in_use,
        RELEASE,
        "chart",
        "oci://registry.k8s.io/kueue/charts/kueue",
        "Terminating for ever",
        "delete",
        also=(("repositoryOpts", {}), ("version", "0.19.2"), ("name", "kueue")),
        put=((CLUSTER_QUEUE, "queue", everywhere("queue")), (JOB, "ray/job", named("job"))),
    ),
)
