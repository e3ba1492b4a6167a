"""Valid Kubernetes objects of every kind that a stack creates, and a cloud state in which they are valid."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from rehearsal.clouds.kind import Call, Json, Refusal, Verb
from rehearsal.clouds.kubernetes import compute_class, device_networks
from rehearsal.clouds.kubernetes.cloud import CLOUD
from rehearsal.clouds.kubernetes.identity import DEFINITION, NAMESPACE, RELEASE, api
from rehearsal.clouds.kubernetes.quantities import rewritten
from rehearsal.clouds.state import View
from tests.rehearsal.kubernetes_queues import RIGHT_QUEUES, standing

HOST = "10.1.2.3"
CLUSTER_ID = "projects/p/locations/us-central1-b/clusters/a3u"
CLUSTER: Json = {
    "name": "a3u",
    "endpoint": HOST,
    "masterVersion": "1.34.1-gke.1829001",
    "enableMultiNetworking": True,
    "network": "projects/p/global/networks/mgmt",
    "removeDefaultNodePool": True,
    "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.us-central1.gke.goog"}},
}
SYSTEM_POOL: Json = {"name": "system", "cluster": "a3u", "nodeConfig": {"machineType": "e2-standard-8"}}
GPU_POOL: Json = {
    "name": "gpu",
    "cluster": CLUSTER_ID,
    "nodeConfig": {
        "guestAccelerators": [{"type": "nvidia-h200-141gb", "count": 8}],
        "labels": {"cloud.google.com/compute-class": "rdma"},
    },
}


def kubeconfig(host: str = HOST) -> str:
    """Return a kubeconfig as the stack writes it."""
    return json.dumps(
        {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"https://{host}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        }
    )


CONFIG = {"kubeconfig": kubeconfig()}

CONTAINER: Json = {
    "name": "main",
    "image": "example/ray:2.60.0",
    "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
    "resources": {
        "requests": {"cpu": "500m", "memory": "16Gi", "nvidia.com/gpu": "8"},
        "limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 8},
        "claims": [{"name": "rdma"}],
    },
    "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "shm", "mountPath": "/shm", "readOnly": True}],
}
POD: Json = {
    "metadata": {
        "labels": {"app": "x"},
        "annotations": {
            "networking.gke.io/default-interface": "eth0",
            "networking.gke.io/interfaces": json.dumps(
                [{"interfaceName": "eth0", "network": "default"}, {"interfaceName": "eth1", "network": "rdma-0"}]
            ),
        },
    },
    "spec": {
        "nodeSelector": {"cloud.google.com/compute-class": "rdma"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [CONTAINER],
        "resourceClaims": [{"name": "rdma", "resourceClaimTemplateName": "all-rdma"}],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "250Gi"}}],
    },
}
SYSTEM_POD: Json = {"spec": {"containers": [{"name": "ray-head", "image": "example/ray:2.60.0"}]}}
RAY_SPEC: Json = {
    "rayVersion": "2.60.0",
    "enableInTreeAutoscaling": True,
    "authOptions": {"mode": "token", "secretName": "token"},
    "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": 900, "env": [{"name": "A", "value": "b"}]},
    "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": SYSTEM_POD},
    "workerGroupSpecs": [
        {
            "groupName": "gpu",
            "minReplicas": 0,
            "maxReplicas": 4,
            "idleTimeoutSeconds": 1800,
            "rayStartParams": {},
            "template": POD,
        }
    ],
}


def named(name: str, namespace: str | None = "ray", **rest: Any) -> Json:
    """Return an object with a name."""
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **rest}


DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ACCOUNT = "kubernetes:core/v1:ServiceAccount"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
BINDING = "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding"
CLAIM_TEMPLATE = "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate"
DEVICE_CLASS = "kubernetes:resource.k8s.io/v1:DeviceClass"
NETWORK = device_networks.NETWORK
PARAM_SET = device_networks.PARAM_SET
COMPUTE_CLASS = compute_class.COMPUTE_CLASS
RAY_CLUSTER = "kubernetes:ray.io/v1:RayCluster"
RAY_JOB = "kubernetes:ray.io/v1:RayJob"

RIGHT: Mapping[str, Json] = {
    NAMESPACE: named("ray-2", None),
    SECRET: named("token", stringData={"auth_token": "x"}, data={"more": "eA=="}),
    CONFIG_MAP: named("config", data={"a": "b"}),
    ACCOUNT: named("ray-head", automountServiceAccountToken=True),
    SERVICE: named("svc", spec={"ports": [{"port": 80}], "selector": {"a": "b"}}),
    CLAIM: named("claim", spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}),
    DAEMON_SET: named(
        "installer",
        "kube-system",
        apiVersion="apps/v1",
        kind="DaemonSet",
        spec={"selector": {"matchLabels": {"app": "x"}}, "template": POD},
    ),
    JOB: named(
        "job",
        spec={
            "completionMode": "Indexed",
            "completions": 2,
            "parallelism": 2,
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [0]},
                    }
                ]
            },
            "podReplacementPolicy": "Failed",
            "template": {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}},
        },
    ),
    POLICY: named(
        "guard",
        spec={
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}
            ],
        },
    ),
    BUDGET: named("head", spec={"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}}),
    BINDING: named(
        "binding",
        None,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        subjects=[{"kind": "ServiceAccount", "name": "x", "namespace": "ray"}],
    ),
    CLAIM_TEMPLATE: named(
        "all-rdma",
        spec={
            "spec": {"devices": {"requests": [{"name": "nics", "exactly": {"deviceClassName": "dranet", "count": 8}}]}}
        },
    ),
    DEVICE_CLASS: named("dranet", None, spec={"selectors": [{"cel": {"expression": 'device.driver == "dra.net"'}}]}),
    PARAM_SET: named("rdma-1", None, spec={"vpc": "rdma", "vpcSubnet": "rdma-1", "deviceMode": "RDMA"}),
    NETWORK: named(
        "rdma-1",
        None,
        spec={
            "type": "Device",
            "parametersRef": {"group": "networking.gke.io", "kind": "GKENetworkParamSet", "name": "rdma-0"},
        },
    ),
    COMPUTE_CLASS: named(
        "rdma",
        None,
        spec={
            "activeMigration": {"optimizeRulePriority": False},
            "autoscalingPolicy": {"consolidationDelayMinutes": 10, "gpuConsolidationThreshold": 0},
            "priorities": [{"nodepools": ["gpu"]}, {"machineType": "a4-highgpu-8g", "spot": True}],
            "whenUnsatisfiable": "DoNotScaleUp",
        },
    ),
    RAY_CLUSTER: {
        # Its autoscaler also writes the list of its worker groups.
        "metadata": {"name": "a3u", "namespace": "ray", "annotations": {"pulumi.com/patchForce": "true"}},
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "spec": RAY_SPEC,
    },
    RAY_JOB: named(
        "job",
        spec={
            "entrypoint": "python x.py",
            "submissionMode": "HTTPMode",
            "preRunningDeadlineSeconds": 60,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 600,
            "runtimeEnvYAML": "working_dir: /work",
            "rayClusterSpec": rewritten(RAY_SPEC),
        },
    ),
    **RIGHT_QUEUES,
    RELEASE: {
        "name": "kuberay-operator",
        "namespace": "kuberay-system",
        "createNamespace": True,
        "chart": "kuberay-operator",
        "version": "1.6.2",
        "repositoryOpts": {"repo": "https://ray-project.github.io/kuberay-helm/"},
        "values": {"nodeSelector": {"cloud.google.com/gke-nodepool": "system"}},
    },
}
"""One valid object of every kind that a stack creates."""


def furnish(view: View) -> None:
    """Create a cluster with multi-networking, KubeRay and Kueue, and the objects that the valid ones refer to."""
    view.put("gcp:container/cluster:Cluster", CLUSTER_ID, CLUSTER)
    view.put("gcp:container/nodePool:NodePool", "system", SYSTEM_POOL)
    view.put("gcp:container/nodePool:NodePool", "gpu", GPU_POOL)
    for name in ("rdma", "mgmt"):
        view.put("gcp:compute/network:Network", name, {"name": name})
    for name in ("rdma-0", "rdma-1"):
        view.put("gcp:compute/subnetwork:Subnetwork", name, {"name": name})
    view.put(NAMESPACE, "ray", named("ray", None))
    spec = {"vpc": "rdma", "vpcSubnet": "rdma-0", "deviceMode": "RDMA"}
    view.put(PARAM_SET, "rdma-0", named("rdma-0", None, spec=spec))
    view.put(NETWORK, "rdma-0", named("rdma-0", None, spec={"parametersRef": {"name": "rdma-0"}}))
    view.put(COMPUTE_CLASS, "rdma", RIGHT[COMPUTE_CLASS])
    for kind, versions in (
        *((f"kubernetes:ray.io/v1:{each}", ["v1"]) for each in ("RayCluster", "RayJob")),
        *((token, ["v1beta1", "v1beta2"]) for token in RIGHT_QUEUES),
    ):
        definition = {"spec": {"group": api(kind).group, "versions": [{"name": each} for each in versions]}}
        view.put(DEFINITION, api(kind).resource, definition)
    for thing in standing():
        view.put(*thing)
    view.put(RELEASE, "kueue-system/kueue", {"chart": "oci://registry.k8s.io/kueue/charts/kueue"})
    view.put(RELEASE, "kuberay/kuberay-operator", {"chart": "kuberay-operator"})


def call(
    state: View,
    type_: str,
    inputs: Json,
    verb: Verb = "create",
    live: Json | None = None,
    config: Mapping[str, Any] = CONFIG,
) -> Call:
    """Return a request as the provider sends it."""
    kind = CLOUD.kind(type_)
    assert kind is not None
    return Call(
        verb=verb,
        type=type_,
        id=kind.identify(inputs, config),
        inputs=inputs,
        live=live or {},
        config=config,
        state=state,
        now={} if verb == "delete" else inputs,
    )


def first_refusal(request: Call) -> Refusal | None:
    """Return the API's first refusal."""
    kind = CLOUD.kind(request.type)
    assert kind is not None
    return next((refusal for rule in kind.rules if (refusal := rule(request)) is not None), None)


def with_(value: Any, path: str, new: Any) -> Any:
    """Return a copy with one value set ("spec/containers/0/image"); None removes it. `~` is a slash in a key."""
    result = copy.deepcopy(value)
    *way, last = (part.replace("~", "/") for part in path.split("/"))
    place = result
    for part in way:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    key: Any = int(last) if isinstance(place, list) else last
    if new is None:
        del place[key]
    else:
        place[key] = new
    return result
