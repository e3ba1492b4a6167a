"""Every rule of the simulated Kubernetes API refuses an invalid object and accepts the valid ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.catalog.machines import CATALOG, GkeMachine
from infra.gke.pod import GVNIC_NETWORK, gpu_pod, rdma_network
from infra.gke.stack import ray_args
from infra.kubernetes.ray_cluster import ray_cluster_spec
from rehearsal.clouds.kind import Verb
from rehearsal.clouds.kubernetes import (
    compute_class,
    device_networks,
    fields,
    helm,
    jobs,
    naming,
    objects,
    ray,
    serving,
    workloads,
)
from rehearsal.clouds.kubernetes.cloud import RULES
from rehearsal.clouds.kubernetes.identity import DEFINITION, NAMESPACE, RELEASE
from rehearsal.clouds.state import State, View
from rehearsal.clouds.values import UNKNOWN
from tests.rehearsal.kubernetes_objects import (
    ACCOUNT,
    BINDING,
    BUDGET,
    CLAIM,
    CLUSTER,
    CLUSTER_ID,
    COMPUTE_CLASS,
    CONTAINER,
    DAEMON_SET,
    DEVICE_CLASS,
    GPU_POOL,
    JOB,
    NETWORK,
    PARAM_SET,
    POLICY,
    RAY_CLUSTER,
    RIGHT,
    SECRET,
    SERVICE,
    call,
    first_refusal,
    furnish,
    named,
    with_,
)
from tests.rehearsal.kubernetes_wrong import Wrong, request_of
from tests.rehearsal.kubernetes_wrong_queues import WRONG_QUEUES
from tests.unit.stacks import gke


@pytest.fixture
def state(tmp_path: Path) -> Iterator[View]:
    """The cloud state of the valid objects."""
    with State(tmp_path / "clouds.sqlite").transaction() as view:
        furnish(view)
        yield view


OLDER = ("gcp:container/cluster:Cluster", CLUSTER_ID, {**CLUSTER, "masterVersion": "1.33.2-gke.1"})
PLAIN = ("gcp:container/cluster:Cluster", CLUSTER_ID, {**CLUSTER, "enableMultiNetworking": False})
TEMPLATE = "spec/template"
FAILED = "spec/podFailurePolicy/rules/0/onExitCodes"
BOX = f"{TEMPLATE}/spec/containers/0"
WORKERS = "spec/workerGroupSpecs/0"
HEAD = "spec/headGroupSpec"
INTERFACES = f"{TEMPLATE}/metadata/annotations"
V2_ENV = [{"name": "RAY_enable_autoscaler_v2", "value": "1"}]

WRONG = (
    Wrong(serving.patch_of_nothing, "kubernetes:core/v1:ConfigMapPatch", says="patches"),
    Wrong(
        serving.custom_kind_unknown,
        RAY_CLUSTER,
        says='no matches for kind "RayCluster" in version "ray.io/v1"',
        gone=((DEFINITION, "rayclusters.ray.io"),),
    ),
    Wrong(serving.device_networks_unknown, NETWORK, says='no matches for kind "Network"', put=(PLAIN,)),
    Wrong(serving.device_claims_too_new, DEVICE_CLASS, says='in version "resource.k8s.io/v1"', put=(OLDER,)),
    Wrong(
        fields.unknown_field,
        DAEMON_SET,
        f"{BOX}/resorces",
        {},
        'strict decoding error: unknown field "spec.template.spec.containers[0].resorces"',
    ),
    Wrong(
        fields.unknown_field,
        RAY_CLUSTER,
        f"{WORKERS}/template/spec/containers/0/resorces",
        {},
        "spec.workerGroupSpecs[0].template.spec.containers[0].resorces",
    ),
    # KubeRay 1.7 has it, 1.6.2 does not.
    Wrong(fields.unknown_field, RAY_CLUSTER, f"{WORKERS}/priority", 1, "spec.workerGroupSpecs[0].priority"),
    Wrong(fields.wrong_type, SERVICE, "spec/ports/0/port", "http", "cannot unmarshal string"),
    Wrong(fields.wrong_type, RAY_CLUSTER, f"{WORKERS}/maxReplicas", "4", "cannot unmarshal string"),
    Wrong(fields.required_field, DAEMON_SET, "spec/selector", None, "spec.selector: Required value"),
    Wrong(fields.required_field, PARAM_SET, "spec/vpc", None, "spec.vpc: Required value"),
    Wrong(fields.choice_not_offered, PARAM_SET, "spec/deviceMode", "rdma", 'Unsupported value: "rdma"'),
    Wrong(fields.choice_not_offered, RAY_CLUSTER, "spec/autoscalerOptions/upscalingMode", "Fast", "Aggressive"),
    Wrong(
        naming.second_cluster, ACCOUNT, says="one Kubernetes cluster", put=((SECRET, "a/b", {"__cluster": "another"}),)
    ),
    Wrong(naming.name_missing, ACCOUNT, "metadata/name", None, "fixed names"),
    Wrong(naming.name_malformed, SECRET, "metadata/name", "My_Token", "RFC 1123 subdomain"),
    Wrong(naming.name_malformed, SERVICE, "metadata/name", "1st", "DNS-1035 label"),
    Wrong(naming.name_malformed, NAMESPACE, "metadata/name", "a.b", "RFC 1123 label"),
    Wrong(naming.label_malformed, ACCOUNT, "metadata/labels", {"a": "x" * 64}, "no more than 63"),
    Wrong(naming.label_malformed, ACCOUNT, "metadata/labels", {"a b": "x"}, '"a b"'),
    Wrong(naming.label_malformed, DAEMON_SET, f"{TEMPLATE}/metadata/labels/b", "-x-", "spec.template.metadata.labels"),
    Wrong(naming.annotation_malformed, ACCOUNT, "metadata/annotations", {"a/b/c d": "x"}, "a/b/c d"),
    Wrong(naming.annotation_malformed, ACCOUNT, "metadata/annotations", {"a": "x" * 262144}, "Too long"),
    Wrong(naming.namespace_missing, SECRET, says='namespaces "ray" not found', gone=((NAMESPACE, "ray"),)),
    Wrong(naming.namespace_kept, NAMESPACE, "metadata/name", "default", "may not be deleted", verb="delete"),
    Wrong(objects.fixed_field_changed, DAEMON_SET, "spec/selector/matchLabels/b", "c", "immutable", "update", "right"),
    Wrong(objects.fixed_field_changed, SECRET, "type", "kubernetes.io/tls", "type: ", "update", "right"),
    Wrong(objects.immutable_content_changed, SECRET, "stringData/a", "b", "Forbidden", "update", "immutable"),
    Wrong(objects.claim_changed, CLAIM, "spec/accessModes", ["ReadOnlyMany"], "spec is immutable", "update", "right"),
    Wrong(objects.secret_not_encoded, SECRET, "data/token", "plain text!", "illegal base64"),
    Wrong(objects.policy_peer_mixed, POLICY, "spec/ingress/0/from/1/podSelector", {}, "another peer"),
    Wrong(objects.policy_peer_mixed, POLICY, "spec/ingress/0/from/0", {}, "must specify a peer"),
    Wrong(objects.policy_range_malformed, POLICY, "spec/ingress/0/from/1/ipBlock/cidr", "10.0.0.0/33", "valid CIDR"),
    Wrong(
        objects.policy_range_malformed, POLICY, "spec/ingress/0/from/1/ipBlock/except/0", "11.0.0.0/8", "strict subset"
    ),
    Wrong(objects.policy_type_unknown, POLICY, "spec/policyTypes/0", "In", "Unsupported"),
    Wrong(objects.budget_says_both, BUDGET, "spec/minAvailable", 1, "cannot be both set"),
    Wrong(objects.service_ports_unnamed, SERVICE, "spec/ports", [{"port": 1}, {"port": 2}], "ports[0].name"),
    Wrong(objects.service_ports_unnamed, SERVICE, "spec/ports/0/port", 70000, "between 1 and 65535"),
    Wrong(objects.binding_without_role, BINDING, "roleRef/kind", "Role", "roleRef.kind"),
    Wrong(objects.binding_without_role, BINDING, "subjects/0/namespace", None, "subjects[0].namespace"),
    Wrong(workloads.quantity_malformed, DAEMON_SET, f"{BOX}/resources/limits/memory", "16GB", "[memory]"),
    Wrong(workloads.quantity_malformed, CLAIM, "spec/resources/requests/storage", "lots", '"lots"'),
    Wrong(workloads.template_not_selected, DAEMON_SET, f"{TEMPLATE}/metadata/labels/app", "y", "does not match"),
    Wrong(workloads.no_containers, DAEMON_SET, f"{BOX}/image", None, "containers[0].image"),
    Wrong(workloads.no_containers, RAY_CLUSTER, f"{HEAD}/template/spec/containers", [], "spec.containers: Required"),
    Wrong(workloads.container_twice, DAEMON_SET, f"{TEMPLATE}/spec/initContainers", [CONTAINER], "Duplicate"),
    Wrong(workloads.mount_of_no_volume, DAEMON_SET, f"{BOX}/volumeMounts/0/name", "sh", 'Not found: "sh"'),
    Wrong(workloads.mount_of_no_volume, DAEMON_SET, f"{BOX}/volumeMounts/0/mountPath", "/shm", "must be unique"),
    Wrong(workloads.claim_of_no_source, DAEMON_SET, f"{BOX}/resources/claims/0/name", "x", "resourceClaims"),
    Wrong(
        workloads.request_above_limit, DAEMON_SET, f"{BOX}/resources/requests/memory", "16.5Gi", "less than or equal"
    ),
    Wrong(workloads.extended_resource_divided, DAEMON_SET, f"{BOX}/resources/requests/nvidia.com~gpu", "4", "equal to"),
    Wrong(
        workloads.extended_resource_divided, DAEMON_SET, f"{BOX}/resources/limits/nvidia.com~gpu", None, "Limit must be"
    ),
    Wrong(workloads.restart_policy_unfit, JOB, f"{TEMPLATE}/spec/restartPolicy", "Always", '"OnFailure", "Never"'),
    Wrong(jobs.indexes_uncounted, JOB, "spec/completions", None, "when completion mode is Indexed"),
    Wrong(jobs.indexes_wanted, JOB, "spec/completionMode", "NonIndexed", "requires indexed completion mode"),
    Wrong(jobs.host_name_unfit, JOB, "metadata/name", "j" * 62, "invalid DNS label"),
    Wrong(jobs.failure_policy_unfit, JOB, f"{TEMPLATE}/spec/restartPolicy", "OnFailure", 'only "Never"'),
    Wrong(jobs.failure_policy_unfit, JOB, "spec/podReplacementPolicy", "TerminatingOrFailed", '"Failed"'),
    Wrong(jobs.failure_rule_unfit, JOB, f"{FAILED}/containerName", "x", "must be one of the container"),
    Wrong(jobs.failure_rule_unfit, JOB, f"{FAILED}/operator", "In", "must not be 0 for the In operator"),
    Wrong(jobs.job_changed, JOB, "spec/backoffLimitPerIndex", 1, "field is immutable", "update", "right"),
    Wrong(workloads.toleration_contradictory, DAEMON_SET, f"{TEMPLATE}/spec/tolerations/0/value", "x", "must be empty"),
    Wrong(device_networks.vpc_missing, PARAM_SET, "spec/vpc", "nowhere", "VPC: nowhere not found"),
    # The controller does not find it by self link either.
    Wrong(device_networks.vpc_missing, PARAM_SET, "spec/vpc", "projects/p/global/networks/rdma", "not found"),
    Wrong(device_networks.subnet_missing, PARAM_SET, "spec/vpcSubnet", "rdma-9", "subnet: rdma-9 not found"),
    Wrong(device_networks.subnet_shared, PARAM_SET, "spec/vpcSubnet", "rdma-0", "already in use by 'rdma-0'"),
    Wrong(device_networks.cluster_network_as_device, PARAM_SET, "spec/vpc", "mgmt", "default VPC"),
    Wrong(device_networks.device_mode_or_ranges, PARAM_SET, "spec/deviceMode", None, "must be specified"),
    Wrong(
        device_networks.device_mode_or_ranges, PARAM_SET, "spec/podIPv4Ranges", {"rangeNames": ["a"]}, "the same time"
    ),
    Wrong(device_networks.device_mode_unfit, PARAM_SET, "spec/deviceMode", "DPDK-VFIO", "not supported"),
    Wrong(device_networks.parameters_missing, NETWORK, "spec/parametersRef/name", "rdma-9", "does not exist"),
    Wrong(device_networks.network_of_gke, NETWORK, "metadata/name", "default", "already exists"),
    Wrong(device_networks.interfaces_malformed, DAEMON_SET, f"{INTERFACES}/networking.gke.io~interfaces", "[", "JSON"),
    Wrong(
        device_networks.network_missing,
        DAEMON_SET,
        says='network "rdma-0" of interface eth1 not found',
        gone=((NETWORK, "rdma-0"),),
    ),
    Wrong(
        device_networks.default_interface_missing,
        DAEMON_SET,
        f"{INTERFACES}/networking.gke.io~default-interface",
        "eth7",
        "eth7",
    ),
    Wrong(device_networks.network_in_use, PARAM_SET, "metadata/name", "rdma-0", "Network rdma-0", verb="delete"),
    Wrong(
        device_networks.network_in_use,
        NETWORK,
        "metadata/name",
        "rdma-0",
        "RayCluster ray/a3u",
        verb="delete",
        put=((RAY_CLUSTER, "ray/a3u", RIGHT[RAY_CLUSTER]),),
    ),
    Wrong(compute_class.name_reserved, COMPUTE_CLASS, "metadata/name", "gke-rdma", "reserved"),
    Wrong(compute_class.no_priorities, COMPUTE_CLASS, "spec/priorities", [], "Required value"),
    Wrong(compute_class.pools_with_other_fields, COMPUTE_CLASS, "spec/priorities/0/spot", True, "combined with spot"),
    Wrong(compute_class.pool_missing, COMPUTE_CLASS, "spec/priorities/0/nodepools/0", "gpus", "does not exist"),
    Wrong(compute_class.pool_missing, COMPUTE_CLASS, "spec/priorities/0/nodepools/0", "system", "lacks the label"),
    Wrong(
        compute_class.queued_pool_in_class,
        COMPUTE_CLASS,
        says="queued provisioning is not supported",
        put=(("gcp:container/nodePool:NodePool", "gpu", {**GPU_POOL, "queuedProvisioning": {"enabled": True}}),),
    ),
    Wrong(
        compute_class.consolidation_out_of_range,
        COMPUTE_CLASS,
        "spec/autoscalingPolicy/consolidationDelayMinutes",
        0,
        "from 1 to 1440",
    ),
    Wrong(compute_class.class_missing, DAEMON_SET, says="class rdma not found", gone=((COMPUTE_CLASS, "rdma"),)),
    Wrong(
        compute_class.class_and_more,
        DAEMON_SET,
        f"{TEMPLATE}/spec/nodeSelector/cloud.google.com~gke-accelerator",
        "nvidia-h200-141gb",
        "cannot be combined",
    ),
    Wrong(ray.name_unfit, RAY_CLUSTER, "metadata/name", "x" * 54, "no more than 53"),
    Wrong(ray.name_unfit, RAY_CLUSTER, "metadata/name", "3u", "DNS1035"),
    Wrong(ray.amounts_said_twice, RAY_CLUSTER, f"{HEAD}/resources", {"CPU": "1"}, "Head group"),
    Wrong(ray.labels_in_parameters, RAY_CLUSTER, f"{WORKERS}/rayStartParams/labels", "a=b", "gpu group"),
    Wrong(ray.replicas_out_of_range, RAY_CLUSTER, f"{WORKERS}/minReplicas", 5, "greater than maxReplicas 4"),
    Wrong(ray.replicas_out_of_range, RAY_CLUSTER, f"{WORKERS}/minReplicas", -1, "negative"),
    Wrong(ray.idle_timeout_without_v2, RAY_CLUSTER, "spec/autoscalerOptions/version", None, "autoscaler v2 is not"),
    Wrong(ray.idle_timeout_negative, RAY_CLUSTER, "spec/autoscalerOptions/idleTimeoutSeconds", -1, "non-negative"),
    Wrong(ray.v2_switched_twice, RAY_CLUSTER, f"{HEAD}/template/spec/containers/0/env", V2_ENV, "only use the former"),
    Wrong(ray.restart_with_v2, RAY_CLUSTER, f"{WORKERS}/template/spec/restartPolicy", "Always", "worker group gpu"),
    Wrong(ray.token_without_version, RAY_CLUSTER, "spec/rayVersion", None, "was not specified"),
    Wrong(ray.token_without_version, RAY_CLUSTER, "spec/rayVersion", "2.51.1", "got 2.51.1"),
    Wrong(ray.cluster_token_misused, RAY_CLUSTER, "spec/authOptions/enableK8sTokenAuth", True, "also set"),
    Wrong(
        ray.groups_written_by_others,
        RAY_CLUSTER,
        "metadata/annotations/pulumi.com~patchForce",
        None,
        'conflict with "python-requests"',
        "update",
        "autoscaled",
    ),
    Wrong(helm.name_unfit, RELEASE, "name", "x" * 54, "53"),
    Wrong(helm.chart_unknown, RELEASE, "chart", "kuberay", 'chart "kuberay" not found in https://ray-project'),
    Wrong(helm.version_unknown, RELEASE, "version", "9.9.9", "not found in https://ray-project"),
    Wrong(helm.version_unknown, RELEASE, "version", None, "no version is given"),
    Wrong(helm.namespace_missing, RELEASE, "createNamespace", False, 'namespaces "kuberay-system" not found'),
    *WRONG_QUEUES,
    Wrong(helm.no_node, RELEASE, says="deadline exceeded", gone=(("gcp:container/nodePool:NodePool", "system"),)),
)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.rule.__name__}-{wrong.path or wrong.verb}")
def test_rule_refuses_invalid_object(state: View, wrong: Wrong) -> None:
    request = request_of(wrong, state)
    refusal = wrong.rule(request)
    assert refusal is not None
    assert wrong.says in refusal.message
    assert re.search(r"20\d\d-\d\d|, 2026", refusal.source), refusal.source
    assert refusal.status
    assert first_refusal(request) is not None


@pytest.mark.parametrize("type_", RIGHT)
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_rules_accept_valid_objects(state: View, type_: str, verb: Verb) -> None:
    request = call(state, type_, RIGHT[type_], verb, {} if verb == "create" else RIGHT[type_])
    assert first_refusal(request) is None


def test_rules_have_invalid_objects_and_docstrings() -> None:
    every = {*RULES, *helm.RULES}
    assert {wrong.rule for wrong in WRONG} == every
    assert all(rule.__doc__ for rule in every)


def test_unknown_values_are_valid_everywhere(state: View) -> None:
    inputs = with_(RIGHT[DAEMON_SET], f"{BOX}/resources/limits/memory", UNKNOWN)
    assert first_refusal(call(state, DAEMON_SET, inputs)) is None
    inputs = with_(RIGHT[RAY_CLUSTER], f"{WORKERS}/maxReplicas", UNKNOWN)
    assert first_refusal(call(state, RAY_CLUSTER, inputs)) is None


@pytest.mark.parametrize("compute_class", [False, True])
@pytest.mark.parametrize("fabric", ["multi-network", "dranet", "managed-dranet"])
def test_manifests_of_every_fabric_are_valid(state: View, fabric: str, compute_class: bool) -> None:
    settings = gke({"fabric": fabric, "computeClass": compute_class})
    machine = CATALOG["a3-ultragpu-8g"]
    assert isinstance(machine, GkeMachine)
    pod = gpu_pod(settings, machine)
    for name in (GVNIC_NETWORK, *map(rdma_network, range(machine.nics))):
        state.put(NETWORK, name, named(name, None))
    spec = json.loads(json.dumps(ray_cluster_spec(ray_args(settings, "a3u-ray"))))
    assert first_refusal(call(state, RAY_CLUSTER, named("a3u", spec=spec))) is None
    for manifest in pod.objects:
        token = f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}"
        own = with_(dict(manifest), "metadata/namespace", "ray")
        assert first_refusal(call(state, token, own)) is None
